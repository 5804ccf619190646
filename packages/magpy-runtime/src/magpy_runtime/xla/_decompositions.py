"""Decompositions on top of core ATen's: what would cut a graph into parts for no need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from magpy_runtime import _torch

aten = torch.ops.aten


def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Dropout as the CPU's kernel has it, so that the same numbers are drawn; only these need torch.

    They depend on nothing that XLA computes, so all of a graph's are drawn in one part, before all else. Kernels of other
    devices draw in their own way, so there torch runs the operator.
    """
    if x.device.type != "cpu":
        return NotImplemented
    if train is False or not x.numel():
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    keep = 1.0 - p
    scale = 1.0 / keep if keep else 0.0
    mask = aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool, device=x.device), keep)
    return x * mask * scale, mask


def native_dropout_backward(grad: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """The derivative."""
    return grad * mask * scale


def table() -> dict[Any, Callable[..., Any]]:
    """All decompositions."""
    found = _torch.core_decompositions()
    found[aten.native_dropout.default] = native_dropout
    found[aten.native_dropout_backward.default] = native_dropout_backward
    return found
