"""What a backward pass reads: an input that is updated between the two passes counts as it was where eager had kept no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from serving import Served

import magpy
from magpy_runtime._kept import not_kept


def copied(w: Any, x: Any) -> Any:
    return (w * x.clone()).sin()


def doubled(w: Any, x: Any) -> Any:
    return (w * (x * 2)).exp()


def unchanged(w: Any, x: Any) -> Any:
    return (w * (x + 0)).sin() + w * (x * 1.0)


def viewed(w: Any, x: Any) -> Any:
    return (w * (x.view(2, 2).t() + 1).reshape(4)).sin()


def normalized(w: Any, x: Any) -> Any:
    return (w * ((x - 0.3) / 0.7)).exp().relu()


def compared(w: Any, x: Any) -> Any:
    return torch.where(x > 0.5, w, w * 2) + w[(x > 0.8).long()]


def biased(w: Any, x: Any) -> Any:
    return F.silu(w * 2 + x)


def multiplied(w: Any, x: Any) -> Any:
    return (w * (x.outer(x) @ x)).tanh()


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    copied, doubled, unchanged, viewed, normalized, compared, biased, multiplied,
]  # fmt: skip


def update(x: torch.Tensor, how: str) -> None:
    if how == "in place":
        with torch.no_grad():
            x.add_(1)
    elif how == "data":
        x.data.add_(1)
    else:
        x.detach().numpy()[:] = 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("how", ["in place", "data", "numpy"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_updated_between_the_passes(function: Callable[[Any, Any], Any], how: str, backend: str) -> None:
    if how == "numpy":
        pytest.importorskip("numpy")
    compiled = Served(magpy.compile(function, backend=backend))
    for served in ("monitored", "hits", "hits"):
        found = []
        for call in (function, getattr(compiled, served.removesuffix("s"))):
            x = torch.tensor([0.1, 0.4, 0.7, 1.0])
            w = torch.full((4,), 0.3, requires_grad=True)
            y = call(w, x)
            update(x, how)
            y.sum().backward()
            found.append(w.grad)
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_parameters_and_sizes(backend: str, dynamic: bool | None) -> None:
    """A step of an optimizer between the passes, on parameters that eager keeps no more than their results of."""

    def f(x: Any, scale: Any, shift: Any) -> Any:
        return ((x * 2) * (scale + 1) + shift).sigmoid()

    compiled = magpy.compile(f, backend=backend, dynamic=dynamic)
    for size in (3, 3, 4, 4, 5):
        found = []
        for call in (f, compiled):
            x = torch.linspace(0, 1, size).expand(2, size).contiguous().requires_grad_()
            scale, shift = torch.nn.Parameter(torch.ones(size)), torch.nn.Parameter(torch.ones(size) / 3)
            y = call(x, scale, shift)
            torch.optim.SGD([scale, shift], lr=0.1).zero_grad()
            with torch.no_grad():
                scale.add_(1)
                shift.data.mul_(3)
            y.sum().backward()
            found.append((x.grad, scale.grad, shift.grad))
        torch.testing.assert_close(found[1], found[0])
    assert magpy.info(compiled).hits >= 2


def test_updated_at_a_boundary() -> None:
    """An operation without annotation may update what a graph before it has read."""

    @torch.library.custom_op("magpy_tests::bump", mutates_args=("x",))
    def bump(x: torch.Tensor) -> None:
        x += 1

    def f(w: Any, x: Any) -> Any:
        y = (w * (x * 2)).sin()
        bump(x)
        return y, x + 1

    for backend in ("aot_eager", "inductor"):
        compiled = magpy.compile(f, backend=backend)
        for _ in range(4):
            found = []
            for call in (f, compiled):
                x, w = torch.ones(4), torch.full((4,), 0.3, requires_grad=True)
                y, z = call(w, x)
                y.sum().backward()
                found.append((y, z, x, w.grad))
            torch.testing.assert_close(found[1], found[0])
        assert magpy.info(compiled).hits >= 2


def test_what_eager_keeps_is_no_copy() -> None:
    """The inputs of products are kept as they are: weights are not copied."""
    graph = torch.fx.Graph()

    def node(target: Any, *args: Any, backward: bool = False) -> torch.fx.Node:
        made = graph.call_function(target, args)
        made.meta["partitioner_tag"] = "is_backward" if backward else "is_forward"
        return made

    inputs = []
    for name in ("x", "w", "b"):
        inputs.append(graph.placeholder(name))
        inputs[-1].meta.update(val=torch.ones(2, 2), partitioner_tag="is_forward")
    tangent = graph.placeholder("tangent")
    tangent.meta.update(val=torch.ones(2, 2), partitioner_tag="is_backward")
    turned = node(torch.ops.aten.t.default, inputs[1])
    product = node(torch.ops.aten.mm.default, inputs[0], turned)
    node(torch.ops.aten.add.Tensor, product, inputs[2])
    back = node(
        torch.ops.aten.mm.default, tangent, node(torch.ops.aten.t.default, turned, backward=True), backward=True
    )
    graph.output((product, back))
    assert not_kept(graph) == (0, 2)
