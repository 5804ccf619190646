"""Operators that a backend cannot take run between graphs that it can."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from serving import equal

import magpy


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.NotCompiledWarning)
        yield


def cumulated(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x) * 2
    y = torch.cumsum(y, 0)
    return torch.tanh(y) + 1


class Executing(torch.fx.Interpreter):
    """Cannot run one operator, and says while executing which."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if getattr(n.target, "__name__", n.target) == "cumsum":
            raise NotImplementedError("no such operator")
        return super().run_node(n)


def interpreting(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """A backend that tries a graph by running it."""
    Executing(module).run(*inputs)
    return module.forward


def lowering(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """A backend that names what it has no lowering for."""
    for node in module.graph.nodes:
        if getattr(node.target, "__name__", node.target) == "cumsum":
            raise RuntimeError("no lowering for target: aten.cumsum.default")
    return module.forward


def never(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """A backend that takes nothing and does not say why."""
    raise RuntimeError("no")


@pytest.mark.parametrize("backend", [interpreting, lowering])
def test_the_operator_runs_between_graphs(backend: Any) -> None:
    compiled = magpy.compile(cumulated, backend=backend)
    for number in range(6):
        x = torch.randn(4, 3) + number
        assert equal(compiled(x), cumulated(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native, info.graphs) == (2, 4, 0, 2)
    assert [reason.slug for reason in info.reasons] == ["backend-operator"]
    assert [boundary.reason for boundary in info.boundaries] == ["backend-operator"]
    assert "the backend cannot take an operator" in magpy.explain(compiled)


def asks_for_gradients(x: torch.Tensor) -> Any:
    y = (x * 2).detach()
    y.requires_grad_()
    return (y * x).sum(), y


def detaches(x: torch.Tensor) -> Any:
    y = x * 2
    z = y * y
    y.detach_()
    return z.sum(), y


def exchanges(x: torch.Tensor) -> Any:
    y = x**2
    x.data = torch.full_like(x, 3.0)
    return y.sum(), x


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(
    ("program", "hits", "reason"),
    [(asks_for_gradients, 3, "backend-operator"), (detaches, 0, "backend-failed"), (exchanges, 0, "backend-failed")],
)
@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_a_tensors_own_attributes(backend: str, program: Callable[..., Any], hits: int, reason: str) -> None:
    """What eager operators saved for their backward sees `detach_` and a change of `data`; what a graph saved does not."""

    def outcome(function: Callable[..., Any], number: int) -> Any:
        x = torch.full((3,), float(number), requires_grad=True)
        total, y = function(x)
        try:
            total.backward()
        except RuntimeError as error:
            return str(error)
        return total.item(), y.tolist(), y.requires_grad, y.is_leaf, x.tolist(), x.grad, y.grad

    compiled = magpy.compile(program, backend=backend)
    for number in range(1, 6):
        got, expected = outcome(compiled, number), outcome(program, number)
        assert repr(got) == repr(expected)
    info = magpy.info(compiled)
    assert info.hits == hits and [each.slug for each in info.reasons] == [reason]


def test_a_backend_that_does_not_say_why() -> None:
    compiled = magpy.compile(cumulated, backend=never)
    for _ in range(6):
        x = torch.randn(4, 3)
        assert equal(compiled(x), cumulated(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (3, 0, 3)
    assert [reason.slug for reason in info.reasons] == ["backend-failed"]


def test_a_backend_that_blames_one_operator_after_the_other() -> None:
    """Attempts are bounded."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        x = x.cos()
        x = x.tan()
        x = x.exp()
        x = x.tanh()
        x = x.relu()
        x = x.neg()
        x = x.abs()
        x = x.sinh()
        x = x.asinh()
        x = x.erf()
        return x.sigmoid()

    def blaming(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        found = next(node for node in module.graph.nodes if node.op == "call_method")
        raise RuntimeError(f"no lowering for target: aten.{found.target}.default")

    compiled = magpy.compile(program, backend=blaming)
    for _ in range(20):
        x = torch.rand(3)
        assert equal(compiled(x), program(x))
    assert magpy.info(compiled).monitored <= 12


def test_fullgraph_says_what_the_backend_said() -> None:
    compiled = magpy.compile(cumulated, backend=lowering, fullgraph=True)
    with pytest.raises(magpy.FullGraphError, match="no lowering"):
        compiled(torch.randn(4, 3))


def test_compiling_behind_the_program() -> None:
    compiled = magpy.compile(cumulated, backend=lowering, compile_async=True)
    for _ in range(4):
        x = torch.randn(4, 3)
        assert equal(compiled(x), cumulated(x))
        magpy.wait(compiled)
    info = magpy.info(compiled)
    assert (info.graphs, [boundary.reason for boundary in info.boundaries]) == (2, ["backend-operator"])
    assert info.hits >= 1


def gradients(function: Any, x: torch.Tensor, w: torch.Tensor) -> tuple[Any, Any]:
    w = w.clone().requires_grad_()
    out = function(x, w)
    (out * 1.5).sum().backward()
    return out.detach(), w.grad


def chosen_rows(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows = (x[:, 0] > 0).nonzero().squeeze(1)
    return (x @ w)[rows].relu()


def chosen_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp((x @ w)[x.sum(1) > 0], 0)


def test_inductor_takes_a_shape_that_depends_on_values() -> None:
    """One graph, with gradients."""
    compiled = magpy.compile(chosen_rows)
    w = torch.randn(8, 8)
    for _ in range(4):
        x = torch.randn(12, 8)
        for got, expected in zip(gradients(compiled, x, w), gradients(chosen_rows, x, w), strict=True):
            torch.testing.assert_close(got, expected)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native, info.graphs) == (1, 3, 0, 1)


def test_inductor_refuses_what_comes_of_such_a_shape() -> None:
    """It asks whether there are any rows: the mask is applied eagerly, and the sum is compiled for any number of rows."""
    compiled = magpy.compile(chosen_sum)
    w = torch.randn(8, 8)
    for _ in range(8):
        x = torch.randn(12, 8)
        for got, expected in zip(gradients(compiled, x, w), gradients(chosen_sum, x, w), strict=True):
            torch.testing.assert_close(got, expected)
    info = magpy.info(compiled)
    assert [boundary.reason for boundary in info.boundaries] == ["backend-operator"]
    assert (info.native, info.monitored) == (0, 3)
    assert info.hits == 5
