"""Operators that give a tensor another shape in place, where sizes vary from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import equal

import magpy

OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "squeeze_": lambda v: v.squeeze_(),
    "squeeze_ of one": lambda v: v.squeeze_(0),
    "squeeze_ of some": lambda v: v.squeeze_((0,)),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "t_": lambda v: v.t_(),
    "transpose_": lambda v: v.transpose_(0, -1),
    "swapdims_": lambda v: v.swapdims_(0, -1),
    "swapaxes_": lambda v: v.swapaxes_(0, -1),
    "as_strided_": lambda v: v.as_strided_((2,), (1,)),
    "resize_": lambda v: v.resize_(2),
    "the operator": lambda v: torch.ops.aten.squeeze_(v, 0),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_sizes_that_vary(name: str, dynamic: bool | None) -> None:
    operator = OPERATORS[name]

    def function(b: torch.Tensor) -> Any:
        v = b[-1]
        operator(v)
        return v * 2, v.shape

    compiled = magpy.compile(function, backend="aot_eager", dynamic=dynamic)
    for size in (4, 4, 6, 5, 6, 3):
        b = torch.randn(3, size)
        got, expected = compiled(b.clone()), function(b.clone())
        assert equal(got[0], expected[0])
        assert got[1] == expected[1]
    assert magpy.info(compiled).reasons == ()


def test_a_number_that_is_a_size() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.new_ones(n, 2).squeeze_(0).unsqueeze_(0) + x

    compiled = magpy.compile(function, backend="aot_eager")
    for n in (4, 5, 6, 1):
        assert equal(compiled(torch.ones(2), n), function(torch.ones(2), n))


def test_the_rank_is_checked_before_sizes() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.shape[0] if x.dim() else None

    compiled = magpy.compile(function, backend="eager", record_limit=64)
    for shape in ((2,), (3,), (1,), (4,), (1,), (), (2, 3), (5, 3), (), (6,), (0,), ()):
        for _ in range(2):
            x = torch.zeros(shape)
            assert compiled(x)[1] == function(x)[1]
    assert magpy.info(compiled).reasons == ()
