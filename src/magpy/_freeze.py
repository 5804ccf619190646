"""Freezing: which inputs of a graph become constants, and the check that they still have the values that they had."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import torch

from magpy_refgraph import EdgeKind, Node
from magpy_runtime import FrozenCheck, may_freeze

from ._env import STRICT
from ._strict import StrictError

_REGISTERS: Final = ("_parameters", "_buffers")


def frozen_inputs(
    inputs: list[Node],
    updated: Collection[int],
    pinned: Callable[[Node], bool],
    path: Callable[[Node], Any],
    thawed: Collection[Any],
    grad: bool,
) -> tuple[tuple[int, ...], FrozenCheck | None]:
    """Choose the inputs that become constants: parameters and buffers that the record holds and the graph leaves alone.

    Args:
        inputs: the inputs of the graph.
        updated: numbers of those that it updates.
        pinned: whether a record holds the object of a node by identity.
        path: how an object was found.
        thawed: paths of those that are updated too often to be constants.
        grad: whether the graph runs with gradients enabled.

    Returns:
        Their numbers, and the check.
    """
    if grad and any(node.obj().requires_grad for node in inputs):
        return (), None
    numbers = tuple(
        number
        for number, node in enumerate(inputs)
        if number not in updated
        and pinned(node)
        and _is_registered(node)
        and may_freeze(node.obj())
        and (not thawed or path(node) not in thawed)
    )
    if not numbers:
        return (), None
    check = FrozenCheck([inputs[number].obj() for number in numbers], [path(inputs[number]) for number in numbers])
    return numbers, StrictFrozenCheck(check) if STRICT else check


def _is_registered(node: Node) -> bool:
    """Whether a tensor is a parameter, or stands among the buffers of a module."""
    if issubclass(node.type, torch.nn.Parameter):
        return True
    parent = node.parent
    return parent is not None and parent.key is not None and parent.key == (EdgeKind.ITEM, _REGISTERS[1])


class StrictFrozenCheck(FrozenCheck):
    """The check that looks at the values, too."""

    __slots__ = ()

    def __init__(self, check: FrozenCheck) -> None:
        super().__init__(check.tensors, check.paths)
        self.checksum()

    def __call__(self) -> bool:
        """Compare now.

        Raises:
            StrictError: values changed that no counter shows: through `.data`, a numpy array, another process.
        """
        if not super().__call__():
            return False
        number = self.checksum()
        if number is not None:
            raise StrictError(f"a frozen tensor was changed where no version counter shows it: {self.paths[number]}")
        return True


__all__ = ["StrictFrozenCheck", "frozen_inputs"]
