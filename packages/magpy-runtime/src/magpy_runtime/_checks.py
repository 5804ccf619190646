"""What generated guards and mocks call: lookups and comparisons that never run user code."""

from __future__ import annotations

import abc
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from . import _torch, iterators
from ._native import FactTable, NativeGuard, drawn
from .capture import NULL, instance_dict, super_lookup, type_lookup

ABSENT: Final = NULL
"""Stands for what is not there."""

dict_get: Final = dict.get


def same_value(one: Any, other: Any) -> bool:
    """Whether two plain values are the same: by type and value, floats by their bits."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is float or kind is complex or kind is range:
        return repr(one) == repr(other)
    if kind is tuple or kind is torch.Size:
        return len(one) == len(other) and all(map(same_value, one, other))
    if kind.__module__ == "numpy":  # zeros have a sign, time spans a unit
        return (bool(one == other) or bool(one != one and other != other)) and repr(one) == repr(other)
    return kind in _COMPARABLE and bool(one == other)


_COMPARABLE: Final = frozenset({int, str, bytes, torch.device, torch.finfo, torch.iinfo})
_PLAIN_KEYS: Final = frozenset({int, str, bytes, float, complex, bool, type(None), torch.dtype, torch.device})


def same_key(one: Any, other: Any) -> bool:
    """Whether two dictionary keys are the same, without calling `__eq__` of a user's class."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _PLAIN_KEYS:
        return same_value(one, other)
    return kind is tuple and len(one) == len(other) and all(map(same_key, one, other))


def keys_match(container: Any, keys: tuple[Any, ...]) -> bool:
    """Whether a dictionary's keys, or a set's members, are `keys` in this order."""
    base: Any = next(base for base in (dict, set, frozenset) if issubclass(type(container), base))
    if base.__len__(container) != len(keys):
        return False
    if base is dict:
        iterator = iter(dict.keys(container)) if type(container) is dict else _ordered(container)
    else:
        iterator = base.__iter__(container)
    return all(map(same_key, iterator, keys))


def members_match(container: Any, keys: tuple[Any, ...]) -> bool:
    """As `keys_match`, but the members of a set come in any order: in another process it is another one."""
    base: Any = next(base for base in (dict, set, frozenset) if issubclass(type(container), base))
    if base is dict:
        return keys_match(container, keys)
    left = [*keys]
    for member in base.__iter__(container):
        place = next((place for place, key in enumerate(left) if same_key(member, key)), None)
        if place is None:
            return False
        del left[place]
    return not left


def _ordered(container: dict[Any, Any]) -> Any:
    import collections

    if issubclass(type(container), collections.OrderedDict):
        return collections.OrderedDict.__iter__(container)
    return dict.__iter__(container)


def cell_get(cell: types.CellType) -> Any:
    """What a closure's cell holds, ABSENT when it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


_PLAIN_OF: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__pos__,
    float: float.__pos__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    complex: complex.__pos__,
}


def plain_value(value: Any) -> Any:
    """The number or string that an instance of a subclass of one is."""
    for base, plain in _PLAIN_OF.items():
        if issubclass(type(value), base):
            return plain(value)
    return ABSENT


def referent_get(reference: weakref.ref[Any]) -> Any:
    """What a weak reference refers to, ABSENT when it is dead."""
    found = weakref.ref.__call__(reference)
    return ABSENT if found is None else found


def member_get(obj: Any, name: str) -> Any:
    """A C member (a slot, a getter of a C base) of an object, ABSENT when it is not set."""
    descriptor = type_lookup(type(obj), name)
    if type(descriptor) is types.MethodDescriptorType:  # a fact that has no attribute of its own: storage_offset()
        return descriptor(obj)
    if type(descriptor) not in (types.MemberDescriptorType, types.GetSetDescriptorType):
        return ABSENT
    try:
        return descriptor.__get__(obj, type(obj))
    except AttributeError:
        return ABSENT


_parts: Final[dict[tuple[str, bool, bool], tuple[tuple[Callable[[], Any], Any], ...]]] = {}
_STATES: Final = 64


class ModeCheck:
    """Whether torch's modes are as they were when the record was made."""

    def __init__(self, state: tuple[str, bool, bool] | None = None) -> None:
        """Compare with the modes of now, or with those of which `state` was told."""
        self._state = _torch.global_state_check(state and state[0])
        self._inference = torch.is_inference_mode_enabled() if state is None else state[1]
        self._hooks = _torch.hooks_saved() if state is None else state[2]

    def state(self) -> tuple[str, bool, bool]:
        """What is compared with, for another process."""
        return _torch.global_state(self._state), self._inference, self._hooks

    def parts(self) -> tuple[tuple[Callable[[], Any], Any], ...]:
        """The same as functions and what each must give, by identity; for modes that are the same, the same object."""
        state = self.state()
        found = _parts.get(state)
        if found is None:
            if len(_parts) >= _STATES:
                _parts.clear()
            found = _parts[state] = self._parts()
        return found

    def _parts(self) -> tuple[tuple[Callable[[], Any], Any], ...]:
        return (
            (_torch.function_mode_depth, 0),
            (self._state, True),
            (torch.is_inference_mode_enabled, self._inference),
            (_torch.dispatch_mode_depth, 0),
            (_torch.hooks_saved, True) if self._hooks else (_torch.saved_hooks, None),
        )

    def __call__(self) -> bool:
        """Compare now."""
        return (
            _torch.function_mode_depth() == 0
            and bool(self._state())
            and torch.is_inference_mode_enabled() is self._inference
            and _torch.dispatch_mode_depth() == 0
            and _torch.hooks_saved() is self._hooks
        )


def metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a guard checks of a tensor: never its values."""
    strided = tensor.layout is torch.strided
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        tuple(tensor.shape),
        tensor.stride() if strided else None,
        tensor.storage_offset() if strided and tensor.storage_offset() % 16 else 0,
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.is_inference(),
        None if strided or tensor.is_mkldnn else (tensor.sparse_dim(), tensor.dense_dim()),
    )


_NONE: Final[frozenset[int]] = frozenset()


def alike(one: tuple[Any, ...], other: tuple[Any, ...], free: frozenset[int]) -> bool:
    """Whether metadata are the same but for sizes of some dimensions, and strides. See `metadata`."""
    if one[:_SHAPE] != other[:_SHAPE] or one[_SHAPE + 2 :] != other[_SHAPE + 2 :]:
        return False
    sizes, others = one[_SHAPE], other[_SHAPE]
    return len(sizes) == len(others) and all(
        size == was or dim in free for dim, (size, was) in enumerate(zip(sizes, others, strict=True))
    )


_SHAPE: Final = 4


class TensorCheck:
    """Metadata of a record's tensors, all at once.

    The fast path is torch's own TensorGuards; it is built on tensors as they were on entry, so where the run changed a
    tensor's metadata the comparison is done here.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        entry: list[tuple[Any, ...]],
        free: list[frozenset[int]] | None = None,
    ) -> None:
        """Keep what to compare with.

        Args:
            tensors: like those that have to come.
            entry: their metadata on entry.
            free: for each the dimensions whose size may be any; of a tensor that has one, strides may be any, too.
        """
        self._entry = entry
        self._free = free
        self._guards: Callable[..., bool] | None = None
        if all(
            tensor.layout is torch.strided
            and metadata(tensor) == was  # of others torch asks too little, or for strides
            for tensor, was in zip(tensors, entry, strict=True)
        ):
            self._guards = _torch.tensor_guards(tensors, free)

    def native(self) -> Callable[..., bool]:
        """What the native guard calls: torch's check itself where that is enough."""
        return self._guards or self

    def __call__(self, *tensors: Any) -> bool:
        """Whether these tensors are like the recorded ones, and distinct."""
        if self._guards is not None:
            return bool(self._guards(*tensors))
        if len({id(tensor) for tensor in tensors}) != len(tensors):
            return False
        free = self._free or [_NONE] * len(tensors)
        return all(
            type(tensor) is was[0] and (metadata(tensor) == was or (bool(dims) and alike(metadata(tensor), was, dims)))
            for tensor, was, dims in zip(tensors, self._entry, free, strict=True)
        )


def memory_places(tensors: list[torch.Tensor]) -> tuple[tuple[int, int], ...]:
    """Where tensors lie in memory: for each the number of its storage, and its offset from the first one there."""
    first: dict[int, tuple[int, int]] = {}
    places = []
    for tensor in tensors:
        strided = tensor.layout is torch.strided
        storage = tensor.untyped_storage()._cdata if strided else id(tensor)
        offset = int(tensor.storage_offset()) if strided else 0
        number, start = first.setdefault(storage, (len(first), offset))
        places.append((number, offset - start))
    return tuple(places)


def storages_match(places: tuple[tuple[int, int], ...], *tensors: torch.Tensor) -> bool:
    """Whether tensors share memory just as they did, and lie in it as they did. See `memory_places`."""
    return memory_places(list(tensors)) == places


def fact_table(entries: list[tuple[int, Any, Any, Any, bool]]) -> FactTable:
    """The native check of facts about held objects: called, it gives None or the number of the first that fails."""
    return FactTable(entries, same_value)


def native_guard(
    steps: list[tuple[Any, ...]],
    modes: ModeCheck,
    held: Callable[[], int | None],
    tensors: TensorCheck,
    strict: Callable[..., Any] | None,
    direct: tuple[Any, ...] | None,
    handed: int = -1,
) -> NativeGuard | None:
    """The native form of a guard.

    Args:
        steps: its lines.
        modes: checks the modes.
        held: checks facts about held objects.
        tensors: checks tensors' metadata.
        strict: `strict(native, args, kwargs, found)` holds what is found against the generated guard.
        direct: inputs of the graph, number of its outputs and the result, where the mock does nothing else.
        handed: how many of the registers are handed on, from the first; -1: all.

    Returns:
        None where the guard has a form that native code does not know.
    """
    try:
        natively = [_natively_drawn(step) for step in steps]
        return NativeGuard(natively, modes.parts(), held, tensors.native(), same_value, strict, direct, handed)
    except ValueError:
        return None


def _natively_drawn(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step; where it asks an iterator for what it gives next or draws from, native code answers what it knows."""
    *front, key, expected = step
    ask = getattr(key, "ask", None) if type(key).__module__.startswith("magpy_") else None
    if ask is not iterators.ahead and ask is not iterators.part:
        return step
    return (*front, functools.partial(drawn, key, ask is iterators.ahead, key.arg), expected)


def guard_helpers() -> dict[str, Any]:
    """The names that every generated guard and mock can use."""
    return {
        "ABSENT": ABSENT,
        "cell_get": cell_get,
        "dict_get": dict_get,
        "instance_dict": instance_dict,
        "iterator_ahead": iterators.ahead,
        "iterator_part": iterators.part,
        "keys_match": keys_match,
        "member_get": member_get,
        "mode_abc_cache_token": abc.get_cache_token,
        "plain_value": plain_value,
        "referent_get": referent_get,
        "same_value": same_value,
        "storages_match": storages_match,
        "super_lookup": super_lookup,
        "type_lookup": type_lookup,
    }
