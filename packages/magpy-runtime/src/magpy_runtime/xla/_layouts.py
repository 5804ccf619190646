"""Tensors in memory: which ones JAX can take as they are, and how results get the strides that they have in eager."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Order = tuple[int, ...] | None
"""Dimensions from the slowest to the fastest in memory; None for a contiguous tensor."""


def order_of(size: Sequence[int], stride: Sequence[int]) -> tuple[bool, Order]:
    """Whether a tensor fills its memory without gaps or repetition, and in which order of its dimensions."""
    expected, dense = 1, True
    order = sorted(range(len(size)), key=lambda n: (-stride[n], n))
    for n in reversed(order):
        if size[n] != 1:
            dense &= stride[n] == expected
            expected *= size[n]
    if 0 in size:
        return True, None
    order = [n for n in order if size[n] != 1]
    if not dense or order == sorted(order):
        return dense, None
    return True, tuple(sorted(set(range(len(size))) - set(order))) + tuple(order)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    found = [0] * len(order)
    for place, n in enumerate(order):
        found[n] = place
    return tuple(found)


class Output:
    """How a result of XLA, always contiguous, becomes a tensor with given strides, without a copy where that can be.

    Attributes:
        size: of the tensor.
        stride: of the tensor.
        order: XLA gives it with its dimensions in this order.
        repeated: dimensions of stride 0; XLA gives them with length 1.
    """

    __slots__ = ("copied", "order", "plain", "repeated", "size", "stride")

    def __init__(self, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.size, self.stride = size, stride
        self.repeated = tuple(
            n for n, (length, step) in enumerate(zip(size, stride, strict=True)) if length > 1 and not step
        )
        small = tuple(1 if n in self.repeated else length for n, length in enumerate(size))
        dense, self.order = order_of(small, stride)
        self.copied = not dense
        self.plain = dense and self.order is None and not self.repeated and contiguous(size) == stride

    def tensor(self, found: torch.Tensor) -> torch.Tensor:
        """The tensor for what XLA gave."""
        if self.plain:
            return found
        if self.copied:
            result = torch.empty_strided(self.size, self.stride, dtype=found.dtype, device=found.device)
            if self.repeated:
                narrow = result
                for n in self.repeated:
                    narrow = narrow.narrow(n, 0, 1)
                narrow.copy_(found)
                return result
            return result.copy_(found)
        return found.as_strided(self.size, self.stride)


def contiguous(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this size."""
    steps, step = [], 1
    for length in reversed(size):
        steps.append(step)
        step *= max(length, 1)
    return tuple(reversed(steps))


__all__ = ["Order", "Output", "contiguous", "inverse", "order_of"]
