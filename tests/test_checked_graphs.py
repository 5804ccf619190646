"""Graphs that update memory or share it: compiled code serves them only if it does what their operators do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, reasons

import magpy
import magpy_runtime

pytestmark = [
    pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning"),
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
]

Program = Callable[..., Any]
BACKENDS = ["eager", "aot_eager", "inductor"]


def square() -> torch.Tensor:
    return torch.arange(1.0, 17.0).view(4, 4)


def unfolded(x: torch.Tensor) -> Any:
    x.unfold(-1, 3, 3).fill_(30.0)
    return x.sum()


def unfolded_inside(x: torch.Tensor) -> Any:
    y = x + 0
    y.unfold(0, 3, 3).mul_(2)
    return y


def lists_of_one_base(x: torch.Tensor) -> Any:
    y = x * 1
    torch._foreach_add_([y[0], y[1]], [y[1], y[0]])
    return y


def lists_that_overlap(x: torch.Tensor) -> Any:
    torch._foreach_add_([x[:3], x[1:]], 1)
    return x + 0


def out_of_other_strides(x: torch.Tensor) -> Any:
    y = torch.empty(4, 4)
    torch.add(x.t(), 1, out=y)
    y.reshape(-1).mul_(2)
    return y


def in_place_of_other_strides(x: torch.Tensor) -> Any:
    y = x.t()
    y.tril_()
    z = y + 0
    z.t().reshape(-1).add_(100)
    return z


def turned_behind_a_view(x: torch.Tensor) -> Any:
    y = x.t() * 1
    v = y[0]
    y.t_()
    v.zero_()
    return y, v


def outside_of_its_view(x: torch.Tensor) -> Any:
    y = x[:, ::2]
    y.as_strided((2, 2), (1, 4), 5).add_(100)
    return y.sum()


def reduced_into_itself(x: torch.Tensor) -> Any:
    torch.sum(x, 0, out=x[0])
    return x + 0


def resized_by_out(x: torch.Tensor) -> Any:
    torch.cumsum(x[:2], 0, out=x)
    return x + 0


def viewed_without_gradients(x: torch.Tensor) -> Any:
    y = x * 3
    with torch.no_grad():
        v = y.t()
    return v, y.sum()


def viewed_only_without_gradients(x: torch.Tensor) -> Any:
    with torch.no_grad():
        v = x[1:]
    return v * 2


WRONG = [
    unfolded,
    unfolded_inside,
    lists_of_one_base,
    lists_that_overlap,
    out_of_other_strides,
    in_place_of_other_strides,
    turned_behind_a_view,
    outside_of_its_view,
    reduced_into_itself,
    resized_by_out,
    viewed_without_gradients,
    viewed_only_without_gradients,
]
REFUSED = (out_of_other_strides, outside_of_its_view)
"""torch says itself that it cannot take these."""

WITH_GRADIENTS = (viewed_without_gradients, viewed_only_without_gradients)


def seen(run: Program, program: Program, x: torch.Tensor, with_history: bool = True) -> Any:
    """All that can be told of a call: values, strides, who shares memory with whom, gradients."""
    leaf = x.clone().requires_grad_(program in WITH_GRADIENTS)
    given = leaf * 1 if with_history and leaf.requires_grad else leaf
    found = run(given)
    outputs = found if isinstance(found, tuple) else (found,)
    tensors = [given, *outputs]
    places = [
        [one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr() for one in tensors] for two in tensors
    ]
    looks = [(each.tolist(), each.stride(), each.requires_grad, each.grad_fn is None) for each in tensors]
    ends = [each for each in outputs if each.requires_grad]
    gradient = torch.autograd.grad([each.sum() for each in ends], leaf, allow_unused=True)[0] if ends else None
    return looks, places, None if gradient is None else gradient.tolist(), leaf.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", WRONG)
def test_what_compilers_get_wrong(program: Program, backend: str) -> None:
    compiled = magpy.compile(program, backend=backend)
    served = Served(compiled)
    refused = backend != "eager" and program in REFUSED
    ways = [compiled] * 4 if refused else [served.monitored, served.hit, served.hit, served.hit]
    for number, how in enumerate(ways):
        assert seen(how, program, square() + number) == seen(program, program, square() + number)
    told = reasons(compiled)
    if backend == "eager" or (backend == "aot_eager" and program is turned_behind_a_view):
        assert told == []
    else:
        assert told[0] == ("backend-operator" if refused else "backend-differs")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [unfolded_inside, lists_of_one_base])
def test_the_reason_is_told(program: Program, backend: str) -> None:
    compiled = magpy.compile(program, backend=backend)
    seen(compiled, program, square())
    told = magpy.info(compiled).reasons
    assert [each.slug for each in told] == ["backend-differs"]
    assert "run one by one" in told[0].message and "entry eager" in magpy.explain(compiled)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_leaf_that_is_turned(backend: str) -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.transpose_(0, 1)
        return x.sum()

    compiled = magpy.compile(turned, backend=backend)
    for _ in range(4):
        worlds = []
        for run in (turned, compiled):
            base = torch.arange(16.0)
            x = base[:12].view(3, 4).requires_grad_()
            total = run(x)
            worlds.append((total.item(), base.tolist(), x.shape, x.stride(), x.is_leaf, total.requires_grad))
        assert worlds[0] == worlds[1]
    assert reasons(compiled) == ["backend-failed"]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [unfolded, unfolded_inside])
def test_sizes_for_which_it_is_right(program: Program, backend: str) -> None:
    """What covers a tensor of one size leaves elements out of another."""
    compiled = magpy.compile(program, backend=backend, dynamic=True)
    for size in (3, 3, 4, 5, 6, 4):
        x = torch.arange(1.0, 1 + size * size).view(size, size)
        assert seen(compiled, program, x) == seen(program, program, x)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_dimensions_that_go_with_sizes_that_vary(backend: str) -> None:
    """torch does not survive this one on symbols."""

    def squeezed(x: torch.Tensor) -> torch.Tensor:
        v = x[-1]
        v.squeeze_(0)
        return v * 2

    compiled = magpy.compile(squeezed, backend=backend, dynamic=True)
    for size in (2, 3, 4, 5):
        x = torch.arange(float(size * 3)).view(size, 1, 3)
        assert torch.equal(compiled(x), squeezed(x))


def test_a_buffer_of_zeros_hides_nothing() -> None:
    def added(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer.unfold(0, 2, 2).add_(x)
        return buffer.sum()

    served = Served(magpy.compile(added, backend="aot_eager"))
    for number, how in enumerate((served.monitored, served.hit)):
        one, other = torch.full((5,), float(number)), torch.full((5,), float(number))
        x = torch.ones(2, 2)
        assert torch.equal(how(x, one), added(x, other)) and torch.equal(one, other)


def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compared with their operators."""
    found: list[Any] = []
    import magpy_runtime._backends as backends
    import magpy_runtime._symbolic as symbolic

    original = backends.checked

    def noted(code: Any, graph: Any, *rest: Any) -> Any:
        found.append(graph)
        return original(code, graph, *rest)

    for module in (backends, symbolic):
        monkeypatch.setattr(module, "checked", noted)
    return found


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
        self.second, self.relu = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm(self.first(x)))
        z = self.second(y)
        z += y
        return self.relu(z).mean((2, 3))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("training", [False, True])
def test_networks_are_not_tried(training: bool, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations in place, running statistics and their counters are what compilers get right."""
    found = tried(monkeypatch)
    model = Small().train(training)
    other = copy.deepcopy(model)
    served = Served(magpy.compile(model, backend="aot_eager", dynamic=dynamic))
    for how in (served.monitored, served.hit, served.hit):
        x = torch.randn(2, 3, 8, 8)
        with torch.set_grad_enabled(training):
            assert torch.allclose(how(x), other(x), atol=1e-5)
    for one, two in zip(model.buffers(), other.buffers(), strict=True):
        assert torch.allclose(one, two)
    assert not found


def test_what_is_right_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tried(monkeypatch)

    def stored(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache[1:3].copy_(x)
        return cache.softmax(-1)

    served = Served(magpy.compile(stored))
    for how in (served.monitored, served.hit):
        one, other, x = torch.zeros(4, 4), torch.zeros(4, 4), torch.randn(2, 4)
        assert torch.allclose(how(x, one), stored(x, other)) and torch.equal(one, other)
    assert len(found) == 1 and not reasons(served.compiled)


def test_nothing_is_left_behind() -> None:
    """Neither gradients, random numbers, version counters nor modes show that a graph was tried."""

    def updated(x: torch.Tensor, w: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer[:2] += torch.nn.functional.dropout(x, 0.5)
        return (w * buffer.sum()).sum()

    worlds = []
    for run in (updated, magpy.compile(updated, backend="aot_eager")):
        torch.manual_seed(0)
        x, w, buffer = torch.ones(2, 3), torch.ones(3, requires_grad=True), torch.zeros(3, 3)
        calls: list[int] = []
        w.register_hook(lambda gradient, calls=calls: calls.append(1))
        total = run(x, w, buffer)
        state = (buffer.tolist(), buffer._version, w.grad, torch.rand(3).tolist(), torch.is_grad_enabled(), [*calls])
        total.backward()
        worlds.append((state, w.grad, calls, total.item()))
    (one, *rest), (other, *others) = worlds
    assert one == other and torch.equal(rest[0], others[0]) and rest[1:] == others[1:]


@pytest.mark.parametrize("late", [False, True])
def test_a_backend_of_ones_own(late: bool) -> None:
    """It forgets the update, or counts on being called once."""

    def forgetting(module: torch.fx.GraphModule, inputs: list[Any]) -> Program:
        if late:
            return module.forward
        for node in [*module.graph.nodes]:
            if node.target == "index_put_" or getattr(node.target, "__name__", "") == "setitem":
                module.graph.erase_node(node)
        module.recompile()
        return lambda *given: module.forward(*given)

    def stored(x: torch.Tensor) -> torch.Tensor:
        x[0] = 7
        return x * 2

    served = Served(magpy.compile(stored, backend=forgetting))
    for how in (served.monitored, served.hit):
        one, other = square(), square()
        assert torch.equal(how(one), stored(other)) and torch.equal(one, other)
    assert reasons(served.compiled) == ([] if late else ["backend-differs"])


def test_a_graph_that_cannot_be_run_on_fakes_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*args: Any) -> Any:
        raise RuntimeError("on purpose")

    def doubled(module: torch.fx.GraphModule, inputs: list[Any]) -> Program:
        return lambda *given: tuple([each * 2 for each in module.forward(*given)])

    monkeypatch.setattr("magpy_runtime._backends.runs_examples", boom)
    served = Served(magpy.compile(lambda x: x * 3, backend=doubled))
    for how in (served.monitored, served.hit):
        assert torch.equal(how(torch.ones(2)), torch.full((2,), 3.0))
    assert reasons(served.compiled) == ["backend-differs"]


def test_behind_the_program() -> None:
    compiled = magpy.compile(unfolded_inside, backend="aot_eager", compile_async=True)
    for _ in range(3):
        assert seen(compiled, unfolded_inside, square()) == seen(unfolded_inside, unfolded_inside, square())
        magpy.wait(compiled)
    assert magpy.info(compiled).hits >= 1 and "backend-differs" in reasons(compiled)


def test_records_of_another_process(tmp_path: Any) -> None:
    compiled = magpy.compile(unfolded_inside)
    compiled(square())
    magpy.save(compiled, tmp_path / "records")
    served = magpy_runtime.load(tmp_path / "records", unfolded_inside, on_miss="error")
    assert torch.equal(served(square() + 1), unfolded_inside(square() + 1))


def test_gradients_of_gradients() -> None:
    def stored(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        buffer[0] = 2
        return (x**3 * buffer.sum()).sum()

    found = []
    for run in (stored, magpy.compile(stored, backend="aot_eager")):
        for _ in range(2):
            x, buffer = torch.tensor([1.0, 2.0], requires_grad=True), torch.ones(2)
            (first,) = torch.autograd.grad(run(x, buffer), x, create_graph=True)
            found.append(torch.autograd.grad(first.sum(), x)[0])
    assert all(torch.equal(each, found[0]) for each in found)


def test_as_strided_runs_as_it_is_where_memory_is_updated() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.as_strided((3,), (1,), 1).clamp_(-4, 4)
        return x + 1

    compiled = magpy.compile(function, backend="aot_eager")
    for offset in (0, 0, 4, 4):
        one, other = torch.arange(20.0) * -1, torch.arange(20.0) * -1
        found, expected = (f(base[offset : offset + 16]) for f, base in ((compiled, one), (function, other)))
        assert torch.equal(found, expected) and torch.equal(one, other)
    assert magpy.info(compiled).hits == 2
    assert {reason.slug for reason in magpy.info(compiled).reasons} == {"backend-differs"}


def test_where_a_diagonal_lies_in_memory() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.positive().fill_diagonal_(5)
        return x * 1

    compiled = magpy.compile(function, backend="aot_eager")
    for offset in (0, 0, 3, 3, 0):
        one, other = torch.arange(20.0), torch.arange(20.0)
        found, expected = (f(base[offset : offset + 16].view(4, 4)) for f, base in ((compiled, one), (function, other)))
        assert torch.equal(found, expected) and torch.equal(one, other)


def test_leaves_are_not_updated() -> None:
    counter = torch.zeros(2)

    def function(x: torch.Tensor) -> torch.Tensor:
        x[0].cumsum_(0)
        counter.add_(1)
        return x * 1

    compiled = magpy.compile(function, backend="aot_eager")
    for _ in range(2):
        compiled(torch.ones(2, 2).requires_grad_() * 1)
    assert magpy.info(compiled).hits == 1 and counter.tolist() == [2, 2]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
            compiled(torch.ones(2, 2).requires_grad_())
    assert counter.tolist() == [2, 2]


def test_a_segment_whose_input_is_updated_behind_it() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, places: torch.Tensor) -> Any:
        first, turned = a[0], b.t()
        b.t().put_(places, first)
        return turned

    compiled = magpy.compile(function, backend="aot_eager")
    for _ in range(4):
        a, b = torch.arange(16.0).view(4, 4).requires_grad_(), torch.zeros(4, 4)
        compiled(a, b, torch.arange(4)).sum().backward()
        assert a.grad is not None and a.grad.sum() == 4
    assert magpy.info(compiled).hits == 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_that_change_nothing_are_objects_of_their_own(
    backend: str, gradients: bool, dynamic: bool | None
) -> None:
    """Compilers take such views away; ALIGN gives its last hidden state twice so."""

    def viewed(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y.view(y.shape), y, y.sum()

    served = Served(magpy.compile(viewed, backend=backend, dynamic=dynamic))
    for how in (served.monitored, served.hit, served.hit):
        x = torch.ones(3, 4, requires_grad=gradients)
        one, other, again, total = how(x)
        assert one is again and one is not other
        assert torch.equal(other, x * 2) and other.data_ptr() == one.data_ptr() and total.item() == 24
        if gradients:
            (other.sum() + total).backward()
            assert torch.equal(x.grad, torch.full((3, 4), 4.0))
        with torch.no_grad():
            one[0, 0] = 7
            assert other[0, 0] == 7
    assert reasons(served.compiled) == []
