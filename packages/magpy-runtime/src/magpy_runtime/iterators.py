"""Iterators of C code, looked at without advancing them and without running any code of the program.

A *plain* iterator walks over one builtin container. A *combined* one (`enumerate`, `zip`, `map`, `filter`) draws from others.
"""

from __future__ import annotations

import gc
import operator
from typing import Any, Final

from .capture import NULL as ABSENT

_REVERSED_LIST: Final[type] = type(reversed([]))
_RANGES: Final[tuple[type, ...]] = (type(iter(range(0))), type(iter(range(1 << 80))))
_VIEWS: Final[tuple[Any, ...]] = ({}, {}.values(), {}.items())
_HASHED: Final[tuple[type, ...]] = (
    *(type(iter(view)) for view in _VIEWS), *(type(reversed(view)) for view in _VIEWS), type(iter(set())),
)  # fmt: skip
_MADE: Final[tuple[Any, ...]] = ([], (), "", "\u00e9", b"")
_INDEXED: Final[dict[type, type]] = {type(iter(made)): type(made) for made in _MADE}

ITEM_ITERATORS: Final[frozenset[type]] = frozenset({type(iter(_VIEWS[2])), type(reversed(_VIEWS[2]))})
"""Types of iterators that make what they give."""

INDEXED_ITERATORS: Final = frozenset({*_INDEXED, *_RANGES, _REVERSED_LIST})
"""Types of iterators that stand at an index."""

PLAIN_ITERATORS: Final = INDEXED_ITERATORS | frozenset(_HASHED)
"""Types of iterators over one builtin container."""

COMBINED_ITERATORS: Final = frozenset({enumerate, zip, map})
"""Types of iterators that take one element from each of theirs."""

CHANGED: Final = object()
"""What comes next cannot be told: a dictionary or a set changed its size since the iterator was made."""


def source(iterator: Any) -> Any:
    """The container that a plain iterator walks over, ABSENT when it has let it go since it is exhausted."""
    kind = type(iterator)
    if kind in _RANGES:
        return ABSENT
    found = gc.get_referents(iterator)
    if kind in _HASHED:
        found = [each for each in found if issubclass(type(each), (dict, set, frozenset))]
    return found[0] if found else ABSENT


def remaining(iterator: Any) -> tuple[Any, ...]:
    """What a plain iterator has left.

    Raises:
        RuntimeError: a dictionary or a set has changed its size.
    """
    kind = type(iterator)
    base: Any = list if kind is _REVERSED_LIST else _INDEXED.get(kind)
    if base is None:
        return tuple(_copy(iterator))
    parts = iterator.__reduce__()
    if len(parts) < 3:
        return ()
    container, index = parts[1][0], parts[2]  # a copy would be made by the `__iter__` of a subclass
    if kind is not _REVERSED_LIST:
        return tuple(base.__getitem__(container, slice(index, None)))
    if not 0 <= index < list.__len__(container):
        return ()
    return tuple(list.__getitem__(container, slice(index, None, -1)))


def _copy(iterator: Any) -> Any:
    function, args, *state = iterator.__reduce__()
    made = function(*args)
    if state and state[0] is not None:
        made.__setstate__(state[0])
    return made


def ahead(iterator: Any, count: int) -> Any:
    """What a plain iterator gives after `count` more elements: ABSENT if nothing, CHANGED if it would raise."""
    kind = type(iterator)
    if kind in _INDEXED:
        parts = iterator.__reduce__()
        if len(parts) < 3:
            return ABSENT
        container, index = parts[1][0], parts[2] + count
        base: Any = _INDEXED[kind]
        return base.__getitem__(container, index) if index < base.__len__(container) else ABSENT
    try:
        left = remaining(iterator)
    except RuntimeError:
        return CHANGED
    return left[count] if count < len(left) else ABSENT


def position(iterator: Any) -> tuple[int, bool]:
    """How many elements a plain iterator has left, and whether it still holds its container."""
    return operator.length_hint(iterator), source(iterator) is not ABSENT


def part(iterator: Any, name: Any) -> Any:
    """A part of an iterator: its `source`; of a combined one a `function`, `count` or `strict`, or the n-th iterator.

    Of an iterator over a dictionary's items, which makes its tuples anew, `(n, 0)` is the key that comes after n items,
    and `(n, 1)` the value.
    """
    if name == "source":
        return source(iterator)
    if type(name) is tuple:
        found = ahead(iterator, name[0])
        return found[name[1]] if type(found) is tuple else ABSENT
    kind = type(iterator)
    parts = iterator.__reduce__()
    if name == "strict":
        return len(parts) > 2 and parts[2] is True
    if kind is enumerate:
        return parts[1][1] if name == "count" else parts[1][0]
    if kind is map:
        return parts[1][0] if name == "function" else parts[1][1 + name]
    return parts[1][name] if name < len(parts[1]) else ABSENT


def parts(iterator: Any) -> tuple[Any, ...]:
    """The names of the parts of a combined iterator, see `part`."""
    kind, drawn = type(iterator), iterator.__reduce__()[1]
    if kind is enumerate:
        return (0, "count")
    if kind is map:
        return ("function", *range(len(drawn) - 1))
    return (*range(len(drawn)), "strict")


def advance(iterator: Any, count: int) -> None:
    """Take `count` elements from an iterator, or as many as there are."""
    for _ in range(count):
        next(iterator, None)


__all__ = [
    "CHANGED",
    "COMBINED_ITERATORS",
    "INDEXED_ITERATORS",
    "ITEM_ITERATORS",
    "PLAIN_ITERATORS",
    "advance",
    "ahead",
    "part",
    "parts",
    "position",
    "remaining",
    "source",
]
