"""Updates from the memory that is updated: Inductor must read all of it before it writes, also without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served

import magpy


def shifted(x: Any) -> None:
    x[1:].copy_(x[:-1].clone())


def assigned(x: Any) -> None:
    x[1:] = x[:-1].clone()


def converted(x: Any) -> None:
    x[1:].copy_(x[:-1].to(x.dtype, copy=True))


def transposed(x: Any) -> None:
    x[:100].view(10, 10).copy_(x[:100].view(10, 10).t() * 1.5)


def transposed_copy(x: Any) -> None:
    x[:100].view(10, 10).copy_(x[:100].view(10, 10).t().contiguous())


def turned(x: Any) -> None:
    x[1:].copy_(x.flip(0)[:-1])


def permuted(x: Any) -> None:
    x[:64].view(4, 4, 4).copy_(x[:64].view(4, 4, 4).permute(2, 0, 1).contiguous())


def put(x: Any) -> None:
    x.index_put_((torch.arange(1, 100),), x[:99].clone())


def put_copy(x: Any) -> None:
    x.index_copy_(0, torch.arange(1, 100), x[:99].clone())


def mixed(x: Any) -> None:
    x[:100].view(10, 10).copy_(torch.where(x[:100].view(10, 10) > 5, x[:100].view(10, 10).t(), x[:100].view(10, 10)))


def twice(x: Any) -> None:
    later = (x[:100].view(10, 10).t() + 1).reshape(100)
    x[0] = 100
    x[1:] = later


def put_where(x: Any) -> None:
    x[(x * 7).long() % 101] = 5.0


def put_where_turned(x: Any) -> None:
    x[x.flip(0).long() % 101] = torch.arange(101.0)


def put_rows(x: Any) -> None:
    x[:100].view(10, 10)[x[:10].flip(0).long() % 10] = torch.ones(10, 10)


def twice_in_place(x: Any) -> None:
    y = x * 2
    x.index_put_((torch.arange(15, 23),), y.flip(0)[4:12])
    square = x[:100].view(10, 10)
    square.t().mul_(2)
    square.copy_(square.clone().t())


def into_a_copy(x: Any) -> None:
    copy = x.clone()
    copy.index_put_((torch.arange(1, 100),), x[:99])
    x.copy_(copy)


def into_a_copy_turned(x: Any) -> None:
    copy = x.clone()
    copy[:30].view(5, 6).copy_(x[:30].view(6, 5).t() * 3)
    x.copy_(copy)


def into_a_copy_of_a_copy(x: Any) -> None:
    copy = x.clone().clone()
    copy.view(1, 101)[:, torch.arange(1, 100)] = x[:99]
    x.mul_(0).add_(copy)


FUNCTIONS: list[Callable[[Any], None]] = [
    shifted, assigned, converted, transposed, transposed_copy, turned, permuted, put, put_copy, mixed, twice,
    put_where, put_where_turned, put_rows, twice_in_place,
    into_a_copy, into_a_copy_turned, into_a_copy_of_a_copy,
]  # fmt: skip


@pytest.mark.parametrize("own", [False, True], ids=["input", "own"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_updated_from_itself(function: Callable[[Any], None], dynamic: bool | None, own: bool) -> None:
    def f(x: Any) -> Any:
        y = x * 2 if own else x
        function(y)
        return y + 1

    compiled = magpy.compile(f, backend="inductor", dynamic=dynamic)
    for call in range(4):
        one = torch.arange(101.0)
        other = one.clone()
        with torch.no_grad():
            torch.testing.assert_close(compiled(other), f(one))
        torch.testing.assert_close(other, one)
    assert call and magpy.info(compiled).hits >= 2


def test_what_depends_on_itself_alone_stays_in_place() -> None:
    """Caches are neither copied nor calculated apart: the code writes to the input and to nothing else."""
    from magpy_runtime._copies import calculate_first

    def f(cache: Any, new: Any) -> Any:
        cache[:, 3:4] = new
        cache[:, 5:7] += new
        cache.mul_(2)
        return cache.sum()

    graphs: list[torch.fx.GraphModule] = []

    def look(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module

    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=look)
    compiled = Served(magpy.compile(f, backend=backend))
    for served in ("monitored", "hits"):
        with torch.no_grad():
            compiled(served, torch.ones(2, 8, 4), torch.ones(2, 1, 4))
    [module] = graphs
    before = len(module.graph.nodes)
    calculate_first(module.graph, torch.ops.aten.clone.default)
    assert len(module.graph.nodes) == before > 5
