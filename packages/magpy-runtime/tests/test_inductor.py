"""Inductor's entries: each gives what eager gives, and each graph takes the cheapest that is right for it."""

from __future__ import annotations

import contextlib
import operator
import threading
import time

import pytest
import torch
import torch.fx
from torch import nn

from magpy_runtime import Hints, _inductor, _measuring, _torch, resolve
from magpy_runtime._below_autograd import is_torch_alone
from magpy_runtime._graph_facts import graph_facts, updates, version_of
from magpy_runtime._inductor import ENTRY_OPTION, Inductor
from magpy_runtime._measuring import is_slower
from magpy_runtime._packages import PackageCache

ENTRIES = ("auto", "compile_fx", "inner", "cpp", "aoti")


def traced(function):
    """The operators of a function as a graph that returns a tuple."""
    return torch.fx.symbolic_trace(function)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Packages of other runs are not found."""
    monkeypatch.setattr(PackageCache, "__init__", _cache_in(tmp_path_factory.mktemp("packages")))


def _cache_in(folder):
    def init(self):
        self.folder = folder
        self.enabled = True

    return init


def compiled(function, inputs, entry="auto", hints=Hints(), **options):
    return resolve("inductor", {ENTRY_OPTION: entry, **options})(traced(function), inputs, hints)


GRAPHS = {
    "pointwise": (lambda x, y: (torch.tanh(torch.relu(x + y)),), lambda: [torch.randn(4, 5), torch.randn(4, 5)]),
    "several outputs": (
        lambda x, y: (x @ y.t(), (x * y).sum(), x > y, x.mean(dim=0, keepdim=True)),
        lambda: [torch.randn(4, 5), torch.randn(4, 5)],
    ),
    "not contiguous": (lambda x, y: (x + y, x.t() * 2), lambda: [torch.randn(5, 4).t(), torch.randn(8, 10)[::2, ::2]]),
    "expanded": (lambda x: (x * 2 + 1,), lambda: [torch.randn(1, 4).expand(3, 4)]),
    "offset": (lambda x: (x.exp(),), lambda: [torch.randn(33)[1:]]),
    "0-dim": (lambda x, y: (x + y, x * 2), lambda: [torch.tensor(1.5), torch.tensor(2.5)]),
    "empty": (lambda x: (x + 1, x.sum()), lambda: [torch.randn(0, 4)]),
    "complex": (lambda x: (x * 2j, x.abs()), lambda: [torch.randn(3, dtype=torch.complex64)]),
    "bool": (lambda x, y: (x & y, ~x, x.any()), lambda: [torch.tensor([True, False]), torch.tensor([True, True])]),
    "integers": (lambda x: (x // 2, x.float() / 3), lambda: [torch.arange(7)]),
    "half": (lambda x: (x * 1.1,), lambda: [torch.randn(16).to(torch.bfloat16)]),
    "inside updated": (lambda x: ((x * 2).relu_().add_(1),), lambda: [torch.randn(4)]),
    "channels last": (
        lambda x: (torch.relu(x) + 1,),
        lambda: [torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)],
    ),
    "linear": (
        lambda x, w, b: (torch.relu(torch.nn.functional.linear(x, w, b)),),
        lambda: [torch.randn(3, 8), torch.randn(4, 8), torch.randn(4)],
    ),
}


def same(found, expected):
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert (one.dtype, one.shape, one.stride(), one.requires_grad) == (
            two.dtype, two.shape, two.stride(), two.requires_grad,
        )  # fmt: skip
        assert one.is_inference() == two.is_inference()
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("entry", ["auto", "compile_fx", "cpp"])
@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_each_entry_gives_what_eager_gives(name, entry):
    function, inputs = GRAPHS[name]
    torch.manual_seed(0)
    with torch.no_grad():
        run = compiled(function, inputs(), entry)
        for _ in range(2):
            args = inputs()
            copies = [each.clone() for each in args]
            same(run(*args), function(*args))
            assert all(map(torch.equal, args, copies)), "an input was changed"
    if name not in ("complex", "empty"):
        assert run.entry == {"auto": "inner"}.get(entry, entry)


@pytest.mark.parametrize("name", ["several outputs", "linear", "0-dim"])
def test_ahead_of_time(name):
    function, inputs = GRAPHS[name]
    with torch.no_grad():
        run = compiled(function, inputs(), "aoti")
        assert run.entry == "aoti"
        for _ in range(2):
            args = inputs()
            same(run(*args), function(*args))
        again = compiled(function, inputs(), "aoti")
        same(again(*args), function(*args))
        with torch.inference_mode():
            inference = inputs()
            same(run(*inference), function(*inference))


def test_a_package_is_the_same_when_it_was_just_built():
    linear = nn.Linear(8, 4)
    x, parameters = torch.randn(3, 8), [linear.weight, linear.bias]
    function = GRAPHS["linear"][0]
    with torch.no_grad():
        for _ in range(2):  # built, and found
            run = compiled(function, [x, *parameters], "aoti")
            assert (run.entry, run.functional, callable(run.boxed)) == ("aoti", True, True)
            same(run(x, *parameters), function(x, *parameters))


def test_a_package_is_found_without_compiling(monkeypatch):
    function, inputs = GRAPHS["linear"]
    with torch.no_grad():
        compiled(function, inputs(), "aoti")
        monkeypatch.setattr("magpy_runtime._inductor._compile", None)
        run = compiled(function, inputs(), "aoti")
        args = inputs()
        same(run(*args), function(*args))
        with pytest.raises(TypeError):
            compiled(function, [each.double() for each in args], "aoti")


def test_what_decides_over_a_package():
    cache = PackageCache()
    x, y = torch.randn(3), torch.randn(3)

    def key(function, *inputs, **settings):
        return cache.key(traced(function), list(inputs), settings)

    def base(a, b):
        return (a + b,)

    keys = [
        key(base, x, y),
        key(lambda a, b: (a - b,), x, y),
        key(lambda a, b: (b + a,), x, y),
        key(lambda a, b: (torch.add(a, b, alpha=2),), x, y),
        key(base, x.double(), y),
        key(base, torch.randn(6)[::2], y),
        key(base, torch.randn(3, 1), y),
        key(base, x, y, max_autotune=True),
    ]
    with torch.no_grad():
        keys.append(key(base, x, y))
    with torch.inference_mode():
        keys.append(key(base, x, y))
    assert None not in keys and len(set(keys)) == len(keys)
    assert key(base, torch.randn(3), torch.randn(3)) == keys[0]
    with torch.autocast("cpu"):
        assert key(base, x, y) is None
    assert key(base, x.to_sparse(), y) is None


ALIASING = {
    "view": lambda x, y: (x.view(-1), y + 1),
    "the input": lambda x, y: (x, y + 1),
    "slice": lambda x, y: (x[1:], x + y),
    "two outputs": lambda x, y: _pair(x * y),
    "detached": lambda x, y: (x.detach(), x + y),
}


def _pair(product):
    return product, product.view(-1)


def sharing(results, inputs):
    places = [each.untyped_storage()._cdata for each in (*results, *inputs)]
    return [places.index(each) for each in places]


@pytest.mark.parametrize("name", ALIASING)
def test_outputs_that_share_memory(name):
    function = ALIASING[name]
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        run = compiled(function, [x, y])
        assert run.entry == "compile_fx"
        found, expected = run(x, y), function(x, y)
        same(found, expected)
        assert sharing(found, [x, y]) == sharing(expected, [x, y])


UPDATING = {
    "add_": lambda x, y: (x.add_(y) * 2,),
    "through a view": lambda x, y: (x.view(-1).mul_(2).sum() + y,),
    "running statistics": lambda x, y: (torch.nn.functional.batch_norm(y, x[0], x[1], None, None, True),),
}


@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("name", UPDATING)
def test_updated_inputs(name, hinted):
    function = UPDATING[name]
    x, y = torch.randn(2, 4), torch.randn(3 if name == "running statistics" else 2, 4)
    with torch.no_grad():
        run = compiled(function, [x, y], hints=Hints(updated=(0,)) if hinted else None)
        assert run.entry == "compile_fx"
        for _ in range(2):
            copy = x.clone()
            found, expected = run(x, y), function(copy, y)
            same(found, expected)
            torch.testing.assert_close(x, copy)


def test_updates_of_inputs_that_nobody_announced():
    x, y = torch.randn(3), torch.randn(3)
    with torch.no_grad():
        run = compiled(UPDATING["add_"], [x, y], hints=Hints())
    assert run.entry == "compile_fx"


def test_gradients():
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)

    def function(a, b):
        return (torch.tanh(a * b),)

    run = compiled(function, [x, y])
    assert run.entry == "compile_fx"
    [found] = run(x, y)
    found.sum().backward()
    [expected] = function(x.detach().requires_grad_(), y)
    torch.testing.assert_close(found, expected)
    assert x.grad is not None
    with torch.no_grad():
        run = compiled(function, [x, y])
        assert run.entry == "inner"
        same(run(x, y), function(x, y))
    with torch.inference_mode():
        run = compiled(function, [x, y])
        assert run.entry == "inner"
        same(run(x, y), function(x, y))
    run = compiled(function, [x.detach(), y])
    assert run.entry == "inner"
    same(run(x.detach(), y), function(x.detach(), y))


def test_autocast_is_not_seen_by_the_code():
    def function(a, b):
        return (torch.mm(a, b) + 1,)

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        run = compiled(function, [x, y])
        assert run.entry == "compile_fx"
        found, expected = run(x, y), function(x, y)
        assert found[0].dtype == expected[0].dtype == torch.bfloat16


def test_a_graph_that_leaves_another_grad_mode():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_function(torch.relu, (x,)),))
    module = torch.fx.GraphModule({}, graph)
    try:
        run = resolve("inductor")(module, [torch.randn(3)], Hints())
        assert torch.is_grad_enabled()
        assert run.entry == "compile_fx"
    finally:
        torch.set_grad_enabled(True)


def test_no_tensor_inputs():
    with torch.no_grad():
        run = compiled(lambda: (torch.ones(3) * 2,), [])
        assert run.entry == "compile_fx"
        assert run()[0].tolist() == [2.0] * 3


def test_random_numbers_are_those_of_eager_and_compiling_draws_none():
    def function(x):
        return (torch.nn.functional.dropout(x, 0.5, True),)

    x = torch.ones(64)
    with torch.no_grad():
        state = torch.default_generator.get_state()
        for entry in ("auto", "inner", "cpp"):
            run = compiled(function, [x], entry, hints=Hints(random=True))
            assert torch.equal(torch.default_generator.get_state(), state)
            torch.manual_seed(3)
            found = run(x)
            torch.manual_seed(3)
            assert torch.equal(found[0], function(x)[0])
            torch.default_generator.set_state(state)


def test_small_graphs_have_no_assertions_and_others_keep_what_was_asked_for():
    function, inputs = GRAPHS["pointwise"]
    with torch.no_grad():
        run = compiled(function, inputs())
        run(*inputs())
        asserted = compiled(function, inputs(), size_asserts=True)
        with pytest.raises(AssertionError):
            asserted(torch.randn(5, 4), torch.randn(5, 4))


def test_options():
    with pytest.raises(ValueError, match="magpy.entry must be one of auto, .*, not 'fastest'"):
        resolve("inductor", {ENTRY_OPTION: "fastest"})
    backend = resolve("inductor", {ENTRY_OPTION: "inner", "max_autotune": True})
    assert isinstance(backend, Inductor) and backend.settings == {"fallback_random": True, "max_autotune": True}
    with pytest.raises(ValueError, match="freeze=True needs the backend 'inductor', not 'eager'"):
        resolve("eager", freeze=True)
    with pytest.raises(ValueError, match="freeze=True needs the backend 'inductor'"):
        resolve(lambda module, inputs: module, freeze=True)


def deep(count):
    """Many small operators."""

    def function(x, w):
        for _ in range(count):
            x = torch.relu(torch.mm(x, w))
        return (x,)

    return function


def test_many_small_operators_are_built_ahead_of_time_where_that_pays():
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    function = deep(60)
    with torch.no_grad():
        run = compiled(function, [x, w])
        same(run(x, w), function(x, w))
        cache = PackageCache()
        [file] = cache.folder.iterdir()
        assert (run.entry, file.suffix) in (("aoti", ".pt2"), ("inner", ".no"))
        again = compiled(function, [x, w])
        assert again.entry == run.entry
        same(again(x, w), function(x, w))


def test_a_package_that_cannot_be_built_is_done_without(monkeypatch):
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    monkeypatch.setattr("magpy_runtime._torch.build_package", None)
    with torch.no_grad():
        run = compiled(deep(60), [x, w])
        assert run.entry == "inner"
        same(run(x, w), deep(60)(x, w))
        with pytest.raises(TypeError):
            compiled(deep(3), [x, w], "aoti")


def test_facts():
    def facts(function, inputs, hints=Hints(), grad=False):
        return graph_facts(
            traced(function), inputs, [version_of(each) for each in inputs], function(*inputs), hints, grad
        )

    x, y = torch.randn(3), torch.randn(3, requires_grad=True)
    with torch.no_grad():
        assert facts(lambda a, b: (a + b,), [x, y]).functional
        assert facts(lambda a, b: (a + b,), [x, y], Hints(updated=(0,))).updates
        assert facts(lambda a: (a[1:],), [x]).aliases
        assert not facts(lambda a: (a,), [x.to_sparse()]).plain
        assert not facts(lambda: (), []).plain
    assert facts(lambda a, b: (a + b,), [x, y], grad=True).gradients
    assert facts(lambda a, b: (a + 1,), [x, y], grad=True).gradients, (
        "an input that wants gradients goes through AOTAutograd"
    )
    assert facts(lambda a: (a + 1,), [x], None, True).functional
    assert updates(traced(lambda a: (a.add_(1),))) and not updates(traced(lambda a: (a.__invert__(),)))


def test_threads_compile_side_by_side():
    results, errors = {}, []
    function, inputs = GRAPHS["several outputs"]
    args = inputs()

    def work(number):
        try:
            with torch.no_grad():
                results[number] = compiled(lambda x, y: (x * number + y,), args).entry
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and results == dict.fromkeys(range(4), "inner")


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def functional_form(model):
    """A graph with the model's parameters and buffers as inputs, and these."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    module = torch.fx.symbolic_trace(model, concrete_args=None)
    del module
    conv, norm = model.conv, model.norm

    def function(x, w, b, m, v, g, h):
        x = torch.conv2d(x, w, b)
        return (torch.relu(torch.batch_norm(x, g, h, m, v, False, 0.1, 1e-5, False)),)

    held = [conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias]
    assert all(any(each is known for known in named.values()) for each in held)
    return function, held


@pytest.mark.parametrize("entry", ["auto", "compile_fx", "cpp"])
def test_constants(entry):
    model = Small().eval()
    function, held = functional_form(model)
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        backend = resolve("inductor", {ENTRY_OPTION: entry}, freeze=True)
        run = backend(traced(function), [x, *held], Hints(held=tuple(range(1, 7))))
        assert run.entry == ("compile_fx" if entry == "compile_fx" else "inner")
        before = model(x)
        torch.testing.assert_close(run(x, *held)[0], before, rtol=1e-4, atol=1e-5)
        model.conv.weight.mul_(2)
        torch.testing.assert_close(run(x, *held)[0], before, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(before, model(x))
    run = resolve("inductor", freeze=True)(traced(function), [x, *held], Hints(held=tuple(range(1, 7))))
    assert run(x, *held)[0].requires_grad, "gradients are wanted, so nothing is a constant"


def test_a_graph_whose_code_is_slower_runs_operator_by_operator(monkeypatch):
    inputs = [torch.randn(4, 5), torch.randn(4, 5)]
    function = GRAPHS["pointwise"][0]
    monkeypatch.setattr(_inductor, "is_slower", lambda code, eager, inputs: True)
    run = compiled(function, inputs)
    assert run.entry == "eager"
    assert torch.equal(run(*inputs)[0], function(*inputs)[0])
    assert compiled(function, inputs, "inner").entry == "inner"
    assert compiled(function, inputs, hints=Hints(random=True)).entry != "eager"
    assert compiled(function, inputs, hints=Hints(updated=(0,))).entry != "eager"
    inputs[0].requires_grad_()
    assert compiled(function, inputs).entry == "compile_fx"


@pytest.mark.parametrize("depth", [2, 12])
def test_operators_one_by_one_are_called_as_code_is(depth, monkeypatch):
    entered = []
    guard = _torch.below_autograd
    monkeypatch.setattr(_inductor, "is_slower", lambda code, eager, inputs: True)
    monkeypatch.setattr(_torch, "below_autograd", lambda: (entered.append(True), guard())[1])
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with torch.no_grad():
        run = compiled(deep(depth), [x, w])
        assert (run.entry, run.functional, run.repeatable) == ("eager", True, True)
        del entered[:]
        same(run.boxed([x, w]), deep(depth)(x, w))
        same(run(x, w), deep(depth)(x, w))
        assert entered == ([True, True] if depth > 8 else [])
        assert x.view(-1)._base is x
        run = compiled(lambda x: (x.t(), x.exp().log_()), [x])
        assert (run.entry, hasattr(run, "functional"), run.repeatable) == ("eager", False, True)
        transposed, _ = run(x)
        assert transposed._base is x, "who gets a view can tell"


def test_which_code_is_slower(monkeypatch):
    monkeypatch.setattr(_measuring, "shortest_s", 1e-3)

    def takes(seconds):
        return lambda *inputs: time.sleep(seconds)

    assert is_slower(takes(0.02), takes(0.002), [])
    assert not is_slower(takes(0.002), takes(0.02), [])
    assert not is_slower(takes(1e-5), takes(0), [])  # too short to look at

    def fails(*inputs):
        raise RuntimeError

    assert not is_slower(takes(0.02), fails, [])


def test_code_of_many_operators_runs_below_autograd(monkeypatch):
    entered = []
    guard = _torch.below_autograd

    @contextlib.contextmanager
    def counting():
        entered.append(True)
        with guard():
            yield

    monkeypatch.setattr(_torch, "below_autograd", counting)
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with torch.no_grad():
        for entry in ("inner", "aoti"):
            del entered[:]
            run = compiled(deep(12), [x, w], "auto" if entry == "inner" else entry)
            assert run.entry == entry
            del entered[:]
            same(run(x, w), deep(12)(x, w))
            assert entered == [True]
            with pytest.raises(Exception):  # noqa: B017, PT011
                run.boxed([x])
        assert (x.view(-1))._base is x, "views are told from other tensors again"
        del entered[:]
        few = compiled(deep(2), [x, w])
        same(few(x, w), deep(2)(x, w))
        assert few.entry == "inner"
        assert not entered, "entering costs as much as it saves"


def test_operators_of_others_run_where_autograd_sees_them():
    with torch.library._scoped_library("magpy_test_below", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        for name in ("twice", "default"):
            target = torch.ops.magpy_test_below.twice
            graph.call_function(target if name == "twice" else target.default, (x,))
        for function in (
            torch.add,
            torch.nn.functional.relu,
            torch.ops.aten.neg,
            torch.ops.aten.neg.default,
            operator.add,
        ):
            graph.call_function(function, (x, x) if function in (torch.add, operator.add) else (x,))
        graph.call_method("relu", (x,))
        graph.call_function(torch.Tensor.mul, (x, x))
        graph.output(x)
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        assert not is_torch_alone(module)
        outer = torch.fx.Graph()
        outer.output(outer.get_attr("branch"))
        assert not is_torch_alone(torch.fx.GraphModule({"branch": module}, outer))
        for node in list(graph.nodes):
            if "magpy_test_below" in str(node.target):
                graph.erase_node(node)
        assert is_torch_alone(module)
