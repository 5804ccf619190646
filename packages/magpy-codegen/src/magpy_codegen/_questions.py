"""Functions that ask an object for a fact, and what they ask, so that a fact can be written down and asked anew elsewhere."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """An element of a sequence that is no list or tuple."""

    index: int

    def __call__(self, container: Any) -> Any:
        return collections.deque.__getitem__(container, self.index)


@dataclass(frozen=True, slots=True)
class Super:
    """A name looked up behind a class in an MRO."""

    lookup: Callable[..., Any]
    after: type
    name: str

    def __call__(self, cls: type) -> Any:
        return self.lookup(cls, self.after, self.name)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Something about an iterator."""

    ask: Callable[..., Any]
    arg: Any

    def __call__(self, iterator: Any) -> Any:
        return self.ask(iterator, self.arg)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a dictionary or members of a set, in order."""

    match: Callable[..., bool]
    keys: tuple[Any, ...]

    def __call__(self, container: Any) -> bool:
        return self.match(container, self.keys)


def deque_truth(container: Any) -> bool:
    return collections.deque.__len__(container) > 0


def question_parts(function: Any) -> tuple[str, tuple[Any, ...]] | None:
    """What a fact's function asks, by name, with its constants; None for a function that is no form of this module's.

    The names are `item`, `super`, `ahead`, `part`, `keys`, `attribute`, `method`, `deque length` and `deque truth`.
    """
    match function:
        case Item(index):
            return "item", (index,)
        case Super(_, after, name):
            return "super", (after, name)
        case Drawn(ask, arg):
            return ask.__name__, (arg,)
        case Keys(_, keys):
            return "keys", keys
        case operator.attrgetter():
            names: Any = function.__reduce__()[1]
            return "attribute", names
        case operator.methodcaller():
            called: Any = function.__reduce__()[1]
            return "method", called
    if function is collections.deque.__len__:
        return "deque length", ()
    return ("deque truth", ()) if function is deque_truth else None


__all__ = ["Drawn", "Item", "Keys", "Super", "deque_truth", "question_parts"]
