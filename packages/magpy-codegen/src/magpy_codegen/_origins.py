"""Plain values that only pass through a call: the mock takes the object that is there now, not an equal one of the record."""

from __future__ import annotations

from typing import Any, Final

from magpy_refgraph import Atom, EdgeKind, Key, Node

from ._facts import compared_by_value
from ._guard import GuardWriter

_PLACES: Final = frozenset(
    {EdgeKind.ARGUMENT, EdgeKind.KEYWORD, EdgeKind.ITEM, EdgeKind.MEMBER, EdgeKind.CELL, EdgeKind.CLASS,
     EdgeKind.SUPER, EdgeKind.AHEAD, EdgeKind.PART}
)  # fmt: skip
"""References that lead to an object, and not to one that the question makes."""

_MOST_PLACES: Final = 3
"""So many places where one object was found are told apart."""

_MOST_BOUND: Final = 40
"""Where a guard hands on so many objects, the rest are the record's."""


class Origins:
    """Where the plain values of a run came from.

    Attributes:
        lines: lines of the guard that read them once more.
    """

    def __init__(self, guard: GuardWriter) -> None:
        self.lines: list[str] = []
        self._guard = guard
        self._names: dict[int, str] = {}
        self._places: dict[int, list[tuple[Node, Key]]] | None = None

    def name(self, value: Any) -> str | None:
        """The variable of the object that stands where a plain value was found, None for one that came from nowhere."""
        if not has_identity(value):
            return None
        known = self._names.get(id(value))
        if known is not None:
            return known
        if self._places is None:
            self._places = self._find()
        places = self._places.get(id(value))
        guard = self._guard
        if not places or len(guard.bound) + len(guard.extra) >= _MOST_BOUND:
            return None
        name = None if guard.lifted is None else guard.lifted(*places[0])
        if name is None:
            name = f"p{len(self._names)}"
            self.lines.append(guard.again(*places[0], name))
        self._names[id(value)] = name
        if name not in guard.extra:
            guard.extra.append(name)
        self.lines += [guard.same_again(*each, name) for each in places[1:_MOST_PLACES]]
        return name

    def _find(self) -> dict[int, list[tuple[Node, Key]]]:
        """The places of each value."""
        found: dict[int, list[tuple[Node, Key]]] = {}
        for node in self._guard.graph.external():
            for key, target in node.initial.items():
                if isinstance(target, Atom) and key.kind in _PLACES and has_identity(target.value):
                    if self._guard.varies(node, key, target):
                        found.setdefault(id(target.value), []).append((node, key))
        return found


def has_identity(value: Any) -> bool:
    """Whether there can be another object that is equal to a plain value."""
    kind = type(value)
    if kind is int:
        return not -5 <= value <= 256
    if kind is str:
        return len(value) > 1 or value > "\xff"
    if kind is bytes:
        return len(value) > 1
    return compared_by_value(kind)


__all__ = ["Origins"]
