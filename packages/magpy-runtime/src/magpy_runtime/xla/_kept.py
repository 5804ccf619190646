"""Arrays that stay from call to call: those of parameters, and of other tensors that come again.

A kept array shares the tensor's memory, so an update in place is seen whichever way it is made, also one that no version
counter tells of (`p.data.add_()`). It is used as long as the same tensor object comes with the same metadata and memory.
A tensor that JAX had to copy is not kept.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import is_, methodcaller
from typing import Any

import torch

from magpy_runtime import _torch

_pointer = methodcaller("data_ptr")


class Kept:
    """What is kept of one set of inputs.

    Args:
        tensors: by number of the input; all different objects.
        arrays: theirs.
        forget: called when one of the tensors dies: its memory would be held by the array.
    """

    __slots__ = ("_arrays", "_check", "_pointers", "_references", "numbers", "others")

    def __init__(
        self, count: int, tensors: dict[int, torch.Tensor], arrays: dict[int, Any], forget: Callable[[Any], None]
    ) -> None:
        self.numbers = tuple(tensors)
        self.others = tuple(n for n in range(count) if n not in tensors)
        self._references = [weakref.ref(each, forget) for each in tensors.values()]
        self._check = _torch.tensor_guards(list(tensors.values())) if tensors else None
        self._pointers = [*map(_pointer, tensors.values())]
        self._arrays = [arrays[n] for n in tensors]

    def arrays(self, inputs: Sequence[Any]) -> list[Any] | None:
        """The inputs with arrays in place of what is kept, None in place of the rest; None if something has changed."""
        found: list[Any] = [None] * len(inputs)
        if self._check is None:
            return found
        here = [inputs[n] for n in self.numbers]
        if not all(map(is_, here, [reference() for reference in self._references])):
            return None
        if [*map(_pointer, here)] != self._pointers or not self._check(*here):
            return None
        for n, array in zip(self.numbers, self._arrays, strict=True):
            found[n] = array
        return found


class Keeper:
    """Decides what to keep: parameters at once, other tensors when the same one comes a second time.

    Args:
        convert: makes an array of a tensor, and says whether the two share memory.
    """

    def __init__(self, convert: Callable[[torch.Tensor], tuple[Any, bool]]) -> None:
        self._convert = convert
        self._kept: Kept | None = None
        self._last: list[Any] = []
        self._learning = 2
        self.conversions = 0

    def arrays(self, inputs: Sequence[Any]) -> list[Any]:
        """Arrays for tensors; other inputs as they are."""
        kept = self._kept
        found = kept.arrays(inputs) if kept is not None else None
        if kept is None or found is None:
            kept = None
            found, others = [None] * len(inputs), tuple(range(len(inputs)))
            self._learning = 2
        else:
            others = kept.others
        shared: dict[int, Any] = {}
        convert = self._convert
        for n in others:
            value = inputs[n]
            if isinstance(value, torch.Tensor):
                found[n], same_memory = convert(value)
                if same_memory:
                    shared[n] = found[n]
            else:
                found[n] = value
        self.conversions += len(others)
        if self._learning:
            self._learn(inputs, found, shared, kept.numbers if kept is not None else ())
        return found

    def _learn(self, inputs: Sequence[Any], found: list[Any], shared: dict[int, Any], before: tuple[int, ...]) -> None:
        """Keep what was kept before, and what this call had to convert although it may come again."""
        self._learning -= 1
        last = self._last
        tensors: dict[int, torch.Tensor] = {}
        arrays: dict[int, Any] = {}
        seen: set[int] = set()
        for n, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor) or not value.numel() or id(value) in seen:
                continue
            again = n < len(last) and last[n] is not None and last[n]() is value
            if n in before or (n in shared and (again or isinstance(value, torch.nn.Parameter))):
                seen.add(id(value))
                tensors[n], arrays[n] = value, found[n]
        self._kept = Kept(len(inputs), tensors, arrays, self._forget)
        self._last = [weakref.ref(v) if isinstance(v, torch.Tensor) else None for v in inputs] if self._learning else []

    def _forget(self, reference: Any) -> None:
        self._kept = None


__all__ = ["Keeper", "Kept"]
