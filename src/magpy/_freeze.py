"""Freezing: which inputs of a graph become constants, and the check that they still have the values that they had."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import torch

from magpy_refgraph import EdgeKind, Node
from magpy_runtime import FrozenCheck, may_freeze

from ._env import STRICT
from ._strict import StrictError


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
    numbers = []
    counters = []
    for number, node in enumerate(inputs):
        if number in updated or not pinned(node) or not _is_registered(node) or not may_freeze(node.obj()):
            continue
        seen, counter = _counter(node)
        if seen and (not thawed or path(node) not in thawed):
            numbers.append(number)
            counters.append(counter)
    if not numbers:
        return (), None
    tensors = [inputs[number].obj() for number in numbers]
    kind = StrictFrozenCheck if STRICT else FrozenCheck
    return tuple(numbers), kind(tensors, [path(inputs[number]) for number in numbers], counters)


_STATISTICS: Final = ("batch_norm", "instance_norm", "fake_quant", "moving_avg")
_BATCHES: Final = "num_batches_tracked"


def _counter(node: Node) -> tuple[bool, tuple[dict[str, Any], str] | None]:
    """Whether a version counter shows updates of a tensor, and which one if it is not the tensor's own.

    Operators with running statistics update them without counting that; modules of torch count their batches beside
    them.
    """
    if issubclass(node.type, torch.nn.Parameter):
        return True, None
    users = [
        user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "") for user in node.tag.users
    ]
    if not any(each in name for name in users for each in _STATISTICS):
        return True, None
    registry = None if node.parent is None else node.parent.obj()
    if not isinstance(registry, dict) or not all("batch_norm" in name for name in users):
        return False, None
    return (True, (registry, _BATCHES)) if may_freeze(dict.get(registry, _BATCHES)) else (False, None)


def _is_registered(node: Node) -> bool:
    """Whether a tensor is a parameter, or stands among the buffers of a module."""
    if issubclass(node.type, torch.nn.Parameter):
        return True
    parent = node.parent
    return parent is not None and parent.key is not None and parent.key == (EdgeKind.ITEM, "_buffers")


class StrictFrozenCheck(FrozenCheck):
    """The check that looks at the values, too."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
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
