"""Outputs that are views of each other: compilers drop a view that changes nothing and give one object twice, eager gives two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Run = Callable[..., Any]


def on_one_memory(outputs: Any) -> tuple[tuple[int, int], ...]:
    """For each output that lies where an earlier one does, and is another object, the numbers of both.

    Args:
        outputs: what the operators gave.
    """
    found: list[tuple[int, int]] = []
    first: dict[int, int] = {}
    for number, each in enumerate(outputs):
        if not isinstance(each, torch.Tensor) or each.layout is not torch.strided:
            continue
        earlier = first.setdefault(int(each.untyped_storage()._cdata), number)
        found += [(other, number) for other in range(earlier, number) if _shared(outputs[other], each)]
    return tuple(found)


def _shared(one: Any, other: torch.Tensor) -> bool:
    if not isinstance(one, torch.Tensor) or one.layout is not torch.strided or one is other:
        return False
    return int(one.untyped_storage()._cdata) == int(other.untyped_storage()._cdata)


def with_views_apart(run: Run, pairs: tuple[tuple[int, int], ...]) -> Run:
    """A compiled graph that gives a view where the operators do.

    Args:
        run: the graph.
        pairs: numbers of outputs that are not the same object.
    """
    if not pairs:
        return run

    def apart(*inputs: Any) -> Any:
        outputs = [*run(*inputs)]
        for one, other in pairs:
            if outputs[one] is outputs[other]:
                outputs[other] = outputs[other].view_as(outputs[other])
        return outputs

    return apart


__all__ = ["on_one_memory", "with_views_apart"]
