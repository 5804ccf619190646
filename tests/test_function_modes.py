"""`autograd.Function.apply` where no gradient is at stake: its forward is in the graph, which runs it as torch does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import magpy

W = torch.randn(3, requires_grad=True)


class Passing(torch.autograd.Function):
    """Hands gradients on as they are."""

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class Switching(Passing):
    """Switches gradients off by itself, and back to what it found."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x * 2


class Closing(Passing):
    """Takes a parameter that is no argument."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * W


class Raising(Passing):
    """Raises from within its forward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 3:
            raise ValueError(x.shape[0])
        return x * W


def applied(function: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        found = function.apply(x)
    except ValueError:
        found = W * 3
    return found, W * 2


@pytest.mark.parametrize("function", [Switching, Closing, Raising])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_are_off_in_its_forward_and_on_behind_it(function: Any, backend: str) -> None:
    fast = magpy.compile(applied, backend=backend, dynamic=False)
    for size in (3, 3, 3, 6, 6) if function is Raising else (3, 3, 3):
        x = torch.rand(size)
        found = fast(function, x)
        assert torch.is_grad_enabled()
        expected = applied(function, x)
        assert [each.requires_grad for each in found] == [each.requires_grad for each in expected]
        assert all(map(torch.allclose, found, expected))
    info = magpy.info(fast)
    assert info.native == 0
    assert info.hits >= 2
