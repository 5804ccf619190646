"""Outputs that are views of each other: compilers drop a view that changes nothing and give one object twice, eager gives two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._graph_facts import storage_of

Run = Callable[..., Any]


def on_one_memory(outputs: Any) -> tuple[tuple[int, int], ...]:
    """For each output that lies where an earlier one does, and is another object, the numbers of both.

    Args:
        outputs: what the operators gave.
    """
    found: list[tuple[int, int]] = []
    on: dict[int, list[int]] = {}
    for number, each in enumerate(outputs):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            earlier = on.setdefault(storage_of(each), [])
            found += [(other, number) for other in earlier if outputs[other] is not each]
            earlier.append(number)
    return tuple(found)


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
