"""The program's own numbers and strings in the place of the objects that carried them through a monitored run.

A lifted value is an object of its own, and nobody may find that out: where the identity of values counts, and once the run is
over, what the program was given stands there again, wherever the run has put it.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from magpy_refgraph import EdgeKind, Effect
from magpy_runtime.capture import instance_dict, put_in_tuple, type_lookup

_MOST: Final = 20_000
"""So many objects are looked through."""

_ARGS: Final[Any] = BaseException.__dict__["args"]
_SHUT: Final = (
    type, types.ModuleType, types.CodeType, types.FrameType, types.BuiltinFunctionType, torch.Tensor, torch.nn.Module,
    int, float, str, bytes, complex, type(None), range,
)  # fmt: skip
"""Types of objects that are not looked into: the run has made none of them, or they hold no numbers."""

_EMPTY: Final[dict[Any, Any]] = {}
_DICT_ITERATORS: Final = tuple(
    type(each) for view in (_EMPTY.keys(), _EMPTY.values(), _EMPTY.items()) for each in (iter(view), reversed(view))
)

Copies = dict[int, tuple[Any, Any]]
"""By identity each object that carries a value, and the program's own object."""


def original(copies: Copies, obj: Any) -> Any:
    """The program's own object for one that may carry a value."""
    found = copies.get(id(obj))
    return obj if found is None else found[1]


def put_back(copies: Copies, objects: Iterable[Any], is_old: Callable[[Any], bool]) -> None:
    """Put the program's own objects into some, and into all that these lead to.

    Args:
        copies: the objects that carry values.
        objects: where to start.
        is_old: whether an object existed before the run, so that it is not looked into.
    """
    stack = [*objects]
    seen: dict[int, Any] = {}
    while stack and len(seen) < _MOST:
        obj = stack.pop()
        if id(obj) in seen or issubclass(type(obj), _SHUT) or is_old(obj):
            continue
        seen[id(obj)] = obj
        put_into(copies, obj)
        if type(obj) is types.FunctionType:  # not its globals
            stack += [obj.__closure__ or (), obj.__defaults__ or (), obj.__kwdefaults__ or {}, obj.__dict__]
        else:
            stack += gc.get_referents(obj)


def put_into(copies: Copies, obj: Any) -> None:
    """Put the program's own objects into one."""
    kind = type(obj)
    if issubclass(kind, dict):
        _into_dict(copies, obj)
    elif issubclass(kind, tuple):
        for index, value in enumerate(tuple.__iter__(obj)):
            if id(value) in copies:
                put_in_tuple(obj, index, copies[id(value)][1])
    elif issubclass(kind, (list, collections.deque)):
        base: Any = list if issubclass(kind, list) else collections.deque
        for index, value in enumerate([*base.__iter__(obj)]):
            if id(value) in copies:
                base.__setitem__(obj, index, copies[id(value)][1])
    elif kind is types.CellType:
        try:
            value = obj.cell_contents
        except ValueError:
            return
        if id(value) in copies:
            obj.cell_contents = copies[id(value)][1]
    elif issubclass(kind, BaseException):
        put_into(copies, _ARGS.__get__(obj))
    elif kind is functools.partial:
        put_into(copies, obj.args)
    if not issubclass(kind, (type, types.ModuleType)):
        _into_instance(copies, obj)


def _into_dict(copies: Copies, obj: dict[Any, Any]) -> None:
    items = [*dict.items(obj)]
    if type(obj) is dict and any(id(key) in copies for key, _ in items) and not _is_iterated(obj):
        dict.clear(obj)
        dict.update(obj, [(original(copies, key), original(copies, value)) for key, value in items])
        return
    for key, value in items:
        if id(value) in copies:
            dict.__setitem__(obj, key, copies[id(value)][1])


def _is_iterated(obj: dict[Any, Any]) -> bool:
    """Whether somebody may be in the middle of a dictionary, so that its keys have to stay where they are."""
    return any(issubclass(type(each), _DICT_ITERATORS) for each in gc.get_referrers(obj))


def _into_instance(copies: Copies, obj: Any) -> None:
    """Put the program's own objects into attributes: those in the dictionary, and slots."""
    attributes = instance_dict(obj)
    if attributes is not None:
        _into_dict(copies, attributes)
    for cls in type(obj).__mro__[:-1]:
        if not cls.__flags__ & (1 << 9):
            continue
        for found in [*vars(cls).values()]:
            if type(found) is types.MemberDescriptorType:
                try:
                    value = found.__get__(obj)
                except AttributeError:
                    continue
                if id(value) in copies:
                    found.__set__(obj, copies[id(value)][1])


def put_back_effects(copies: Copies, effects: Iterable[Effect], is_old: Callable[[Any], bool]) -> None:
    """Put the program's own objects where a run has stored others: in objects that existed before, and in what these got.

    Args:
        copies: the objects that carry values.
        effects: what the run has done.
        is_old: as for `put_back`.
    """
    seen: set[int] = set()
    for effect in effects:
        obj = effect.node.obj()
        if effect.key is not None and effect.key.kind is EdgeKind.CLASS and issubclass(type(obj), type):
            value = type_lookup(obj, effect.key.arg)
            if id(value) in copies and effect.key.arg in vars(obj):
                type.__setattr__(obj, effect.key.arg, copies[id(value)][1])
        elif id(obj) not in seen:
            seen.add(id(obj))
            put_into(copies, obj)
        put_back(copies, (*effect.args, *effect.keywords.values()), is_old)


__all__ = ["Copies", "original", "put_back", "put_back_effects"]
