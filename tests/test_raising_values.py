"""Operators that raise for some values raise in compiled code as in eager, also where nothing needs their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from serving import Served, reasons

import magpy

pytestmark = pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")

BACKENDS = ["eager", "aot_eager", "inductor"]
Operator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def rising(*sizes: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).view(sizes) / 10


def indices(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def written(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, n] = 1.0
    return y


OPERATORS: dict[str, tuple[Operator, torch.Tensor, torch.Tensor, torch.Tensor]] = {
    "subscript": (lambda x, n: x[..., n], rising(3, 6), indices(0, -6), indices(0, -7)),
    "subscript behind a new dimension": (lambda x, n: x[None, 1:, n], rising(3, 6), indices(0, 5), indices(0, 6)),
    "written subscript": (written, rising(3, 6), indices(0, 5), indices(0, 9)),
    "index_select": (lambda x, n: x.index_select(0, n), rising(6), indices(0, 5), indices(0, -1)),
    "gather": (lambda x, n: x.gather(0, n), rising(6), indices(0, 5), indices(0, 6)),
    "index_add": (lambda x, n: x.index_add(0, n, rising(2)), rising(6), indices(0, 5), indices(0, -1)),
    "scatter": (lambda x, n: x.scatter(0, n, 1.0), rising(6), indices(0, 5), indices(0, -1)),
    "take": (lambda x, n: x.take(n), rising(2, 3), indices(0, -6), indices(0, 6)),
    "embedding": (lambda x, n: F.embedding(n, x), rising(6, 2), indices(0, 5), indices(0, -1)),
    "cross_entropy": (
        lambda x, n: F.cross_entropy(x, n, ignore_index=7), rising(2, 3), indices(7, 2), indices(7, -1),
    ),
    "one_hot": (lambda x, n: F.one_hot(n, 4) + x, rising(1), indices(0, 3), indices(0, 4)),
    "binary_cross_entropy": (
        lambda x, n: F.binary_cross_entropy(n, x), rising(2), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.1]),
    ),
    "bernoulli": (
        lambda x, n: torch.bernoulli(n), rising(2), torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0]),
    ),
    "multinomial": (
        lambda x, n: torch.multinomial(n, 1), rising(2), torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0]),
    ),
    "quantile": (lambda x, n: torch.quantile(x, n), rising(6), torch.tensor(1.0), torch.tensor(1.5)),
    "repeat_interleave": (
        lambda x, n: torch.repeat_interleave(x, n, output_size=4), rising(2), indices(1, 3), indices(5, -1),
    ),
    "bincount": (lambda x, n: torch.bincount(n, minlength=4), rising(2), indices(1, 3), indices(1, -1)),
    "division": (lambda x, n: torch.div(x.long(), n, rounding_mode="trunc"), rising(2), indices(1, 3), indices(1, 0)),
    "remainder": (lambda x, n: 7 % n, rising(2), indices(1, 3), indices(1, 0)),
    "eigh": (lambda x, n: torch.linalg.eigh(x * n)[1], torch.eye(3), torch.ones(()), torch.tensor(float("nan"))),
    "inverse": (lambda x, n: torch.inverse(x * n), torch.eye(3), torch.ones(()), torch.zeros(())),
}  # fmt: skip


def used(operator: Operator) -> Callable[..., Any]:
    def program(x: torch.Tensor, n: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        return operator(x, n) * 2

    return program


def unused(operator: Operator) -> Callable[..., Any]:
    def program(x: torch.Tensor, n: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        operator(x, n) + 1
        counter.mul_(2)
        return x * 2

    return program


def outcome(run: Callable[..., Any], *args: torch.Tensor) -> Any:
    """What a call gives, or its exception, and the state of what it may have updated and drawn."""
    torch.manual_seed(0)
    try:
        result: Any = run(*args).tolist()
    except Exception as error:
        result = type(error), str(error).partition("\n")[0]
    return result, [each.nan_to_num().tolist() for each in args], torch.get_rng_state().tolist()


def check(
    program: Callable[..., Any], backend: str, good: tuple[torch.Tensor, ...], bad: tuple[torch.Tensor, ...]
) -> None:
    """Calls with good values are hits; one with bad values raises what eager raises, and the record stays."""
    served = Served(magpy.compile(program, backend=backend))
    for how, args in ((served.monitored, good), (served.hit, good), (served.native, bad), (served.hit, good)):
        found = outcome(how, *args, torch.zeros(2))
        expected = outcome(program, *args, torch.zeros(2))
        assert isinstance(expected[0], tuple) is (args is bad)
        assert found[1:] == expected[1:]
        if args is bad:
            assert found == expected
        else:
            assert torch.allclose(torch.tensor(found[0]), torch.tensor(expected[0]))
    assert reasons(served.compiled) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_values_that_raise(name: str, backend: str) -> None:
    operator, x, good, bad = OPERATORS[name]
    check(used(operator), backend, (x, good), (x, bad))


@pytest.mark.parametrize(
    ("name", "backend"),
    [*[(name, "aot_eager") for name in OPERATORS], *[(name, "inductor") for name in ("gather", "eigh", "multinomial")]],
)
def test_values_that_raise_where_nothing_needs_the_result(name: str, backend: str) -> None:
    operator, x, good, bad = OPERATORS[name]
    check(unused(operator), backend, (x, good), (x, bad))


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_that_nothing_needs_are_drawn(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        F.dropout(x)
        torch.empty(3).normal_()
        return x + torch.rand(3)

    served = Served(magpy.compile(program, backend=backend))
    x = torch.ones(3)
    for how in (served.monitored, served.hit, served.hit):
        assert outcome(how, x) == outcome(program, x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_nothing_needs_has_no_part_in_gradients(backend: str) -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        F.nll_loss(x.log(), n)  # infinite, and so would be its gradient
        return (x * 2).sum()

    served = Served(magpy.compile(program, backend=backend))
    for how in (served.monitored, served.hit, served.hit):
        x = torch.zeros(2, 3, requires_grad=True)
        how(x, indices(0, 2)).backward()
        assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        served.native(torch.zeros(2, 3, requires_grad=True), indices(0, 3))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_varying_sizes(backend: str) -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        x.gather(0, n)
        return x.index_select(0, n) + 1

    served = Served(magpy.compile(program, backend=backend, dynamic=True))
    served.monitored(rising(9), indices(0, 8))
    for size in (8, 7, 5):
        assert torch.equal(served.hit(rising(size), indices(0, 4)), program(rising(size), indices(0, 4)))
    for bad in (indices(0, 5), indices(0, -1)):
        assert outcome(served.native, rising(5), bad) == outcome(program, rising(5), bad)


def test_only_operators_that_may_raise_become_outputs() -> None:
    outputs: list[int] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        [output] = module.graph.find_nodes(op="output")
        outputs.append(len(output.all_input_nodes))
        return module.forward

    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        x[1:].div(3).where(x[1:] > 0, 0.0).sum()
        y = x[n]
        y.transpose(0, 1).zero_()
        return y.t()

    magpy.compile(program, backend=backend)(rising(4, 2), indices(0, 1))
    assert outputs == [1]


def test_loops_of_several_threads_raise() -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[n] * 2 + 1

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        served = Served(magpy.compile(program, backend="inductor", options={"magpy.entry": "inner"}))
        x, n = torch.randn(50_000), torch.randint(0, 50_000, (100_000,))
        served.monitored(x, n)
        assert torch.equal(served.hit(x, n), program(x, n))
        n[70_000] = 50_000
        with pytest.raises(IndexError, match="index 50000 is out of bounds for dimension 0 with size 50000"):
            served.native(x, n)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_that_comes_out_wrong_where_it_is_taken_apart(backend: str) -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x * 2, n) + 1

    compiled = magpy.compile(program, backend=backend)
    x, n = rising(3), indices(0, 2, -1)
    for _ in range(3):
        assert torch.allclose(compiled(x, n), program(x, n))
    assert reasons(compiled) == ([] if backend == "eager" else ["backend-operator"])
    assert magpy.info(compiled).hits >= 1
