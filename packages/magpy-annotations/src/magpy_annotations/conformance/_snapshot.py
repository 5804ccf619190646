"""Objects as comparable values: what an object holds, with the inputs that it holds recognised by identity."""

from __future__ import annotations

import datetime
import itertools
import types
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from typing import Any

from magpy_annotations import hidden

SCALARS = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), type, range),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)
SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
SETS = (set, frozenset)
_VIEWS: tuple[Any, ...] = (hidden.dict_keys, hidden.dict_values, hidden.dict_items)
_PARTS = (
    "func",
    "args",
    "keywords",
    "start",
    "stop",
    "step",
    "__func__",
    "__self__",
    "__dict__",
    "cell_contents",
    "maxlen",
)
DRAIN = 20  # items taken of an iterator, some of which have no end

Labels = Mapping[int, Any]


def is_scalar(value: Any) -> bool:
    """Whether the value stands for itself: equal means same."""
    return isinstance(value, SCALARS)


def is_empty(value: Any) -> bool:
    """Whether the value is an empty constant, of which there may be one for all."""
    return type(value) in (tuple, frozenset) and not value


def snapshot(value: Any, labels: Labels | None = None) -> Any:
    """The value as nested tuples that compare by what it holds.

    Args:
        value: Any object; iterators are drained.
        labels: What to show in the place of certain objects, by their id.
    """
    return _snapshot(value, labels or {}, ())


def _snapshot(value: Any, labels: Labels, path: tuple[int, ...]) -> Any:
    tp = type(value)
    if is_scalar(value):
        return tp.__name__, repr(value)
    if id(value) in labels:
        return "input", labels[id(value)]
    if id(value) in path:
        return "cycle", path.index(id(value))
    path = (*path, id(value))
    if isinstance(value, Mapping):
        order = isinstance(value, OrderedDict)
        held: Any = [(_snapshot(k, labels, path), _snapshot(v, labels, path)) for k, v in list(value.items())]
        return tp.__name__, order, tuple(held)
    if isinstance(value, (*SEQUENCES, *_VIEWS)):
        items = list[Any](value)  # type: ignore[call-overload]
        return tp.__name__, tuple(_snapshot(each, labels, path) for each in items), _attributes(value, labels, path)
    if isinstance(value, SETS):
        return tp.__name__, tuple(sorted(repr(_snapshot(each, labels, path)) for each in value))
    if isinstance(value, Iterator) and not isinstance(value, types.GeneratorType | types.CoroutineType):
        return tp.__name__, _drained(value, labels, path)
    if isinstance(value, bytearray | memoryview):
        return tp.__name__, bytes(value)
    return tp.__name__, _attributes(value, labels, path)


def _drained(iterator: Iterator[Any], labels: Labels, path: tuple[int, ...]) -> Any:
    items: list[Any] = []
    try:
        items += (_snapshot(each, labels, path) for each in itertools.islice(iterator, DRAIN))
    except Exception as error:
        items.append(type(error).__name__)
    return tuple(items)


def _attributes(value: Any, labels: Labels, path: tuple[int, ...]) -> Any:
    found = []
    for name in _PARTS:
        try:
            part = object.__getattribute__(value, name)
        except (AttributeError, ValueError, TypeError):
            continue
        if not callable(part) or name in {"func", "__func__"}:
            found.append((name, _snapshot(part, labels, path)))
    return tuple(found)


def reachable(value: Any, limit: int = 200) -> dict[int, Any]:
    """The objects that `value` holds, itself included, by id, each with its path; scalars and empty constants aside."""
    found: dict[int, Any] = {}
    pending: list[tuple[Any, Any]] = [(value, ())]
    while pending and len(found) < limit:
        each, path = pending.pop()
        if is_scalar(each) or is_empty(each) or id(each) in found:
            continue
        found[id(each)] = path
        if isinstance(each, Mapping):
            pending += [(part, (*path, "key", repr(key))) for key in each for part in (key,)]
            pending += [(part, (*path, repr(key))) for key, part in each.items()]
        elif isinstance(each, SEQUENCES):
            pending += [(part, (*path, at)) for at, part in enumerate(each)]
        elif isinstance(each, SETS):
            pending += [(part, (*path, "member")) for part in each]
        elif isinstance(vars(type(each)).get("__dict__"), types.GetSetDescriptorType):
            pending += [(part, (*path, name)) for name, part in vars(each).items()]
    return found
