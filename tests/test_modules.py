"""Compiled modules: of the original's class, sharing everything with it, wherever a module can stand."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
from serving import Served, agree
from torch import nn

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")


class Net(nn.Module):
    """A net."""

    scale: float

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = 2.0
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor, *, extra: float = 0.0) -> torch.Tensor:
        """Forward."""
        return self.norm(self.first(x)).relu() * self.scale + self.shift + extra

    def generate(self, x: torch.Tensor, steps: int) -> list[torch.Tensor]:
        return [self(x, extra=0.0).sum() if step % 2 else self.forward(x).sum() for step in range(steps)]


def make() -> tuple[Net, Any, torch.Tensor]:
    torch.manual_seed(0)
    model = Net().eval()
    return model, compile_(model), torch.randn(5, 3)


def test_of_the_same_class() -> None:
    model, compiled, x = make()
    assert isinstance(compiled, Net) and compiled.__class__ is Net
    assert type(compiled).__name__ == "Net" and type(compiled).__doc__ == "A net."
    assert repr(compiled) == repr(model)
    assert inspect.signature(compiled.forward) == inspect.signature(model.forward)
    assert compiled.forward.__doc__ == "Forward."
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in model.named_modules()]
    assert all(one is other for one, other in zip(compiled.parameters(), model.parameters(), strict=True))
    assert list(vars(compiled)) == list(vars(model)) and vars(compiled) is vars(model)
    served = Served(compiled)
    assert torch.equal(served.monitored(x), model(x))
    assert torch.equal(served.hit(x), model(x))


def test_attributes_are_shared() -> None:
    model, compiled, x = make()
    served = Served(compiled)
    served.monitored(x)
    model.scale = 3.0
    assert compiled.scale == 3.0 and torch.equal(served.monitored(x), model(x))
    compiled.scale = 4.0
    assert model.scale == 4.0 and torch.equal(served.hit(x), model(x))  # it varies, and is an input by now
    compiled.extra_layer = nn.Linear(1, 1)
    assert model.extra_layer is compiled.extra_layer and "extra_layer.weight" in model.state_dict()
    del model.extra_layer
    assert not hasattr(compiled, "extra_layer")
    compiled.train()
    assert model.training and model.norm.training and compiled.training
    model.eval()
    assert not compiled.training
    assert compiled.requires_grad_(False) is compiled and not model.first.weight.requires_grad


def test_to_and_load_state_dict() -> None:
    model, compiled, x = make()
    served = Served(compiled)
    served.monitored(x)
    state = {name: value * 2 for name, value in model.state_dict().items()}
    compiled.load_state_dict(state)
    assert torch.equal(compiled(x), model(x)) and torch.equal(model.first.weight, state["first.weight"])
    assert compiled.to(torch.float64) is compiled
    assert model.first.weight.dtype == torch.float64
    assert torch.equal(compiled(x.double()), model(x.double()))
    model.float()  # makes new buffers
    assert torch.equal(served.monitored(x), model(x))
    assert torch.equal(served.hit(x), model(x))


@pytest.mark.parametrize("on", ["original", "compiled"])
def test_hooks_of_either(on: str) -> None:
    model, compiled, x = make()
    expected = model(x)
    seen: list[Any] = []

    def hook(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        seen.append(type(module).__name__)
        return out + 1

    served = Served(compiled)
    served.monitored(x)
    handle = (model if on == "original" else compiled).register_forward_hook(hook)
    assert torch.equal(served.monitored(x), expected + 1)
    assert torch.equal(served.hit(x), expected + 1)
    assert seen == ["Net"] * 2
    handle.remove()
    assert torch.equal(compiled(x), expected)
    pre = compiled.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    assert torch.equal(compiled(x), model(x)) and not torch.equal(compiled(x), expected)
    pre.remove()
    assert torch.equal(compiled(x), expected)


def test_forward_called_directly() -> None:
    model, compiled, x = make()
    for _ in range(3):
        assert torch.equal(compiled.forward(x, extra=1.0), model.forward(x, extra=1.0))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (1, 2, 0)
    model.forward = lambda x: x  # type: ignore[method-assign, assignment]
    assert compiled.forward(x) is x and compiled(x) is x
    del model.forward
    assert torch.equal(compiled.forward(x), model.forward(x))


def test_methods_that_call_self_run_compiled() -> None:
    model, compiled, x = make()
    expected = model.generate(x, 6)
    for one, other in zip(compiled.generate(x, 6), expected, strict=True):
        assert torch.equal(one, other)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (2, 4, 0)


def test_a_compiled_bound_method() -> None:
    model, compiled, x = make()
    for target in (model.generate, compiled.generate):
        served = Served(compile_(target))
        expected = model.generate(x, 3)
        for call in (served.monitored, served.hit):
            assert all(map(torch.equal, call(x, 3), expected))


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), "save"])
def test_copies_are_compiled_and_apart(copier: Any) -> None:
    model, compiled, x = make()
    compiled(x)
    if copier == "save":
        file = io.BytesIO()
        torch.save(compiled, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
    else:
        again = copier(compiled)
    assert isinstance(again, Net) and again.first.weight is not model.first.weight
    served = Served(again)
    assert torch.equal(served.monitored(x), model(x))
    assert torch.equal(served.hit(x), model(x))
    with torch.no_grad():
        again.first.weight.zero_()
    assert model.first.weight.abs().sum() > 0
    assert torch.equal(compiled(x), model(x))


def test_copies_keep_sharing() -> None:
    model, compiled, x = make()
    one, two = copy.deepcopy((model, compiled))
    assert two.first is one.first and vars(two) is vars(one)
    shallow = copy.copy(compiled)
    assert shallow.first is model.first and vars(shallow) is not vars(model)
    shallow.scale = 9.0
    assert model.scale == 2.0 and not torch.equal(shallow(x), compiled(x))


def test_state_dict_saved_and_loaded_into_the_plain_class() -> None:
    _, compiled, x = make()
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    plain = Net().eval()
    plain.load_state_dict(torch.load(file))
    assert torch.equal(plain(x), compiled(x))


def test_in_containers() -> None:
    _, compiled, x = make()
    layers = nn.ModuleList([compiled, nn.ReLU()])
    assert len(list(layers.parameters())) == 4 and "0.first.weight" in layers.state_dict()
    whole = nn.Sequential(*layers)
    expected = whole(x)  # the compiled one serves its calls itself
    assert torch.equal(whole(x), expected) and magpy.info(compiled).hits == 1
    outer = compile_(whole)
    served = Served(outer)
    assert torch.equal(served.monitored(x), expected)
    assert torch.equal(served.hit(x), expected)
    assert magpy.info(compiled).hits == 1  # inlined


def test_a_compiled_submodule_is_replaced() -> None:
    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2 + self.inner.forward(x)

    one, two = compile_(nn.Linear(2, 2)), compile_(nn.Linear(2, 2))
    outer = Outer(one)
    compiled = compile_(outer)
    x = torch.ones(1, 2)
    served = Served(compiled)
    assert torch.equal(served.monitored(x), one(x) * 2 + one(x))
    assert torch.equal(served.hit(x), one(x) * 2 + one(x))
    outer.inner = two
    assert torch.equal(served.monitored(x), two(x) * 2 + two(x))
    outer.inner = one
    assert torch.equal(compiled(x), one(x) * 2 + one(x))


def test_which_module_was_passed_is_a_fact() -> None:
    compiled = compile_(lambda module, x: module(x) + 1)
    x = torch.ones(1, 2)
    modules = [compile_(nn.Linear(2, 2)), compile_(nn.Linear(2, 2)), nn.Linear(2, 2)]
    for _ in range(2):
        for module in modules:
            assert torch.equal(compiled(module, x), module(x) + 1)


def test_compile_of_a_compiled_module() -> None:
    model, compiled, x = make()
    again = magpy.compile(compiled, backend="eager", record_limit=2)
    assert type(again) is type(compiled) and vars(again) is vars(model)
    served = Served(again)
    assert torch.equal(served.monitored(x), model(x))
    assert torch.equal(served.hit(x), model(x))
    assert magpy.info(compiled).monitored == 0


def test_training_shares_gradients() -> None:
    model, compiled, x = make()
    compiled.train()
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        for module, step in ((compiled, optimizer), (twin, other)):
            step.zero_grad()
            module(x).pow(2).sum().backward()
            step.step()
    for name, value in twin.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    assert magpy.info(compiled).hits == 2


def test_class_changes_of_the_original_are_followed() -> None:
    x = torch.ones(1, 3)
    lazy = nn.LazyLinear(2)
    compiled = compile_(lazy)
    Served(compiled)("monitored", x)
    assert type(lazy) is nn.Linear and compiled.__class__ is nn.Linear and type(compiled).__name__ == "Linear"
    assert torch.equal(compiled(x), lazy(x))

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    nn.utils.parametrize.register_parametrization(compiled, "weight", Half())
    assert type(lazy).__name__ == "ParametrizedLinear" and torch.equal(compiled.weight, lazy.weight)
    assert torch.equal(compiled(x), lazy(x))
    nn.utils.parametrize.remove_parametrizations(lazy, "weight")
    assert torch.equal(compiled(x), lazy(x)) and torch.equal(compiled.weight, lazy.weight)


def test_unusual_classes() -> None:
    finalized: list[int] = []
    subclasses: list[str] = []

    class Base(nn.Module):
        def __init_subclass__(cls, **keywords: Any) -> None:
            subclasses.append(cls.__name__)

        def __del__(self) -> None:
            finalized.append(1)

    class Slotted(Base):
        __slots__ = ("factor",)

        def __init__(self) -> None:
            super().__init__()
            self.factor = 3.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    model = Slotted()
    compiled: Any = compile_(model)
    assert subclasses == ["Slotted"]
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 3)
    compiled.factor = 4.0
    assert model.factor == 4.0 and torch.equal(compiled(x), x * 4)
    finalized.clear()
    del compiled
    gc.collect()
    assert finalized == []
    del model
    gc.collect()
    assert finalized == [1]


def test_the_compiled_class_lives_as_long_as_its_instances() -> None:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    one, two = compile_(Local()), compile_(Local())
    assert type(one) is type(two)
    reference = weakref.ref(Local)
    del one, two, Local
    gc.collect()
    assert reference() is None


def test_script_modules_run_natively() -> None:
    model = torch.jit.script(nn.Linear(2, 2))
    compiled = compile_(model)
    x = torch.ones(1, 2)
    assert torch.equal(Served(compiled).monitored(x), model(x))
    [boundary] = magpy.info(compiled).boundaries
    assert boundary.reason == "unannotated-call"


def test_traced_graph_modules() -> None:
    agree(lambda: _seeded(lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))), torch.ones(1, 2))
    compiled = compile_(torch.fx.symbolic_trace(nn.Linear(2, 2)))
    assert torch.equal(copy.deepcopy(compiled)(torch.ones(1, 2)), compiled(torch.ones(1, 2)))


def _seeded(make_: Any) -> Any:
    torch.manual_seed(3)
    return make_()


def test_generate_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.tensor([[1, 2, 3]])
    options: Any = dict(max_new_tokens=6, do_sample=False, use_cache=False, pad_token_id=0)
    expected = model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)
    compiled: Any = compile_(model)
    assert isinstance(compiled, transformers.GPT2LMHeadModel)
    for _ in range(2):
        assert torch.equal(compiled.generate(tokens, attention_mask=torch.ones_like(tokens), **options), expected)
    info = magpy.info(compiled)
    assert info.native == 0 and info.reasons == () and info.hits >= 6, info
