"""Objects of another process, found again in this one: by the questions that led to them from the target, or by name."""

from __future__ import annotations

import abc
import collections
import functools
import importlib
import operator
import re
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from . import iterators
from ._archive import class_hash, code_hash
from ._building import build
from ._checks import ABSENT, cell_get, dict_get, guard_helpers, member_get, members_match, same_value
from .capture import instance_dict, super_lookup, type_lookup

_ABSENT_WHY: Final = "is not there"


TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    re.Pattern: lambda obj: repr((obj.pattern, obj.flags)),
    types.GenericAlias: repr,
    types.UnionType: repr,
}
"""What immutable objects say that are known by where they are found."""


class Missing(Exception):
    """An object is not there, or is another one."""


def _element(container: Any, index: int) -> Any:
    base: Any = list if issubclass(type(container), list) else tuple
    return base.__getitem__(container, index) if base.__len__(container) > index else ABSENT


def _length(container: Any) -> int:
    base: Any = next(base for base in (dict, list, tuple, set, frozenset) if issubclass(type(container), base))
    return int(base.__len__(container))


_ASK: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda obj, key: dict_get(obj, key, ABSENT),
    lambda obj, key: instance_dict(obj),
    lambda obj, key: type(obj),
    lambda obj, key: _length(obj),
    lambda obj, key: _length(obj) > 0,
    lambda obj, key: type_lookup(obj, key),
    _element,
    lambda obj, key: cell_get(obj),
    lambda obj, key: obj.__code__,
    lambda obj, key: obj.__defaults__,
    lambda obj, key: obj.__kwdefaults__,
    lambda obj, key: key(obj),
    lambda obj, key: key(obj),
    lambda obj, key: key(obj),
    member_get,
)
"""The questions of the native table of facts, by their numbers."""

CODE: Final = 8
TYPE: Final = 2

_TAKES: Final[tuple[tuple[int, type], ...]] = (
    (0, dict), (7, types.CellType), (8, types.FunctionType), (9, types.FunctionType), (10, types.FunctionType)
)  # fmt: skip


def ask(kind: int, obj: Any, key: Any) -> Any:
    """The answer to a question of the table of facts."""
    for number, expected in _TAKES:
        if kind == number and not issubclass(type(obj), expected):
            raise Missing(f"is a {type(obj).__qualname__}")
    if kind == 5 and not isinstance(obj, type):
        raise Missing(f"is a {type(obj).__qualname__}")
    return _ASK[kind](obj, key)


def question(name: str, args: tuple[Any, ...]) -> Callable[[Any], Any]:
    """The function of a fact whose question has no number of its own."""
    match name:
        case "item":
            index = args[0]
            return lambda obj: collections.deque.__getitem__(obj, index)
        case "super":
            after, attribute = args
            return lambda obj: super_lookup(obj, after, attribute)
        case "ahead" | "part":
            asked, arg = (iterators.ahead if name == "ahead" else iterators.part), args[0]
            return lambda obj: asked(obj, arg)
        case "keys":
            return lambda obj: members_match(obj, args)  # who saw the order of a set is not saved
        case "attribute":
            return operator.attrgetter(*args)
        case "method":
            return operator.methodcaller(*args)
        case "deque length":
            return collections.deque.__len__
        case "deque truth":
            return lambda obj: collections.deque.__len__(obj) > 0
    raise Missing(f"question {name!r} is not known")


def _always() -> bool:
    return True


SINGLETONS: Final[dict[str, Any]] = {
    "absent": ABSENT,
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "always": _always,
    "changed iterator": iterators.CHANGED,
}


def resolve_name(module: str, qualname: str) -> Any:
    """What a module holds under a dotted name; nothing but the import runs code."""
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
    except Exception as error:
        raise Missing(f"module {module} cannot be imported ({type(error).__name__}: {error})") from None
    for name in qualname.split("."):
        try:
            found = getattr(found, name) if not isinstance(found, type) else _of_class(found, name)
        except AttributeError:
            raise Missing(f"{module} has no {qualname}") from None
    return found


def _of_class(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return getattr(cls, name)


class Finder:
    """Finds the objects of one archive, in their order.

    Attributes:
        objects: what was found; a `Missing` where something was not.
        differences: what is not as it was, in words.
    """

    def __init__(self, entries: list[dict[str, Any]], target: Any) -> None:
        self.entries = entries
        self.target = target
        self.objects: list[Any] = []
        self.differences: list[str] = []
        seen: dict[int, int] = {}
        for number, entry in enumerate(entries):
            try:
                found = self._find(entry)
                if found is ABSENT:
                    raise Missing(_ABSENT_WHY)
                self._verify(entry, found)
                known = seen.setdefault(id(found), number)
                if known != number and not entry.get("shared"):
                    raise Missing(f"is the same object as {self.text(known)}")
            except Missing as missing:
                if not (missing.args and missing.args[0] == "!"):
                    self.differences.append(f"{self.text(number)} {missing}")
                self.objects.append(Missing("!"))
            except Exception as error:
                self.differences.append(f"{self.text(number)} cannot be found: {type(error).__name__}: {error}")
                self.objects.append(Missing("!"))
            else:
                self.objects.append(found)

    def at(self, number: int) -> Any:
        """An object.

        Raises:
            Missing: it was not found.
        """
        found = self.objects[number]
        if type(found) is Missing:
            raise Missing("!")
        return found

    def _find(self, entry: dict[str, Any]) -> Any:
        kind: str = entry["kind"]
        what: Any = entry.get("what")
        match kind:
            case "target":
                return self.target
            case "module":
                try:
                    return sys.modules.get(what) or importlib.import_module(what)
                except Exception as error:
                    raise Missing(f"cannot be imported ({type(error).__name__}: {error})") from None
            case "name":
                return resolve_name(*what)
            case "operator":
                return functools.reduce(getattr, what.split("."), torch.ops)
            case "member":
                owner = self.at(what[0])
                return vars(owner).get(what[1], ABSENT)
            case "bound":
                return getattr(self.at(what[0]), what[1])
            case "namespace":
                return vars(self.at(what))
            case "class":
                return type(self.at(what))
            case "enum":
                return self.at(what[0]).__members__.get(what[1], ABSENT)
            case "ask":
                return ask(what[1], self.at(what[0]), self.value(what[2]))
            case "code":
                return self.at(what).__code__
            case "constant":
                return self.at(what[0]).co_consts[what[1]]
            case "question":
                return question(what[0], tuple(map(self.value, what[1])))
            case "built":
                return build(what[0], tuple(map(self.value, what[1])))
            case "abc token":
                return _token()
            case "ids":
                return frozenset(id(self.at(number)) for number in what)
        raise Missing(f"of a kind that is not known: {kind}")

    def _verify(self, entry: dict[str, Any], found: Any) -> None:
        """Whether what was found is what was meant."""
        named = entry.get("type")
        if named is not None and (actual := type_name(type(found))) != named:
            raise Missing(f"is a {actual}, was a {named}")
        if (wanted := entry.get("text")) is not None and (said := TEXTS[type(found)](found)) != wanted:
            raise Missing(f"is {said}, was {wanted}")
        if (items := entry.get("items")) is not None and (
            len(found) != len(items)
            or not all(
                one is other or same_value(one, other) for one, other in zip(found, map(self.value, items), strict=True)
            )
        ):
            raise Missing("has other items")
        if (wanted := entry.get("named")) is not None and getattr(found, "__qualname__", None) != wanted:
            raise Missing(f"is {getattr(found, '__qualname__', None)}, was {wanted}")
        if (wanted := entry.get("code")) is not None:
            code = found if isinstance(found, types.CodeType) else found.__code__
            if code_hash(code) != wanted:
                raise Missing("has other code")
        if (wanted := entry.get("form")) is not None and class_hash(found) != wanted:
            raise Missing("is another class now: its bases or what it defines have changed")

    def text(self, number: int) -> str:
        """An object in words: the way to it."""
        entry = self.entries[number]
        kind: str = entry["kind"]
        what: Any = entry.get("what")
        match kind:
            case "target":
                return "target"
            case "module":
                return f"module {what}"
            case "name":
                return ".".join(what)
            case "ask":
                return self._asked(*what)
            case "namespace":
                return f"vars({self.text(what)})"
            case "class":
                return f"type({self.text(what)})"
            case "member" | "bound" | "enum":
                return f"{self.text(what[0])}.{what[1]}"
            case "code":
                return f"{self.text(what)}.__code__"
            case "constant":
                return f"constant {what[1]} of {self.text(what[0])}"
        return str(what)

    def _asked(self, parent: int, kind: int, key: Any) -> str:
        owner = self.text(parent)
        if kind == 1:
            return f"vars({owner})"
        if kind == 0 and owner.startswith("vars(") and type(key) is str:
            return f"{owner[5:-1]}.{key}"
        if kind in (5, 14):
            return f"{owner}.{key}"
        if kind in (0, 6):
            shown = self.text(key["at"]) if type(key) is dict and "at" in key else repr(key)
            return f"{owner.removesuffix('._modules')}.{key}" if "_modules" in owner[-9:] else f"{owner}[{shown}]"
        names = {7: "cell_contents", 8: "__code__", 9: "__defaults__", 10: "__kwdefaults__"}
        if kind in names:
            return f"{owner}.{names[kind]}"
        if type(key) is dict and "at" in key and (asked := self.entries[key["at"]])["kind"] == "question":
            return (
                f"{owner}.{asked['what'][1][0]}"
                if asked["what"][0] == "attribute"
                else f"{asked['what'][0]} of {owner}"
            )
        return f"part of {owner}"

    def value(self, encoded: Any) -> Any:
        """A value as it was written.

        Raises:
            Missing: an object in it was not found.
        """
        if type(encoded) is not dict:
            return encoded
        [(kind, what)] = encoded.items()
        match kind:
            case "at":
                return self.at(what)
            case "int":
                return int(what)
            case "float":
                return float.fromhex(what)
            case "complex":
                return complex(float.fromhex(what[0]), float.fromhex(what[1]))
            case "bytes":
                return bytes.fromhex(what)
            case "tuple":
                return tuple(map(self.value, what))
            case "frozenset":
                return frozenset(map(self.value, what))
            case "size":
                return torch.Size(what)
            case "range":
                return range(*what)
            case "slice":
                return slice(*map(self.value, what))
            case "torch":
                return getattr(torch, what)
            case "device":
                return torch.device(what)
            case "finfo":
                return torch.finfo(getattr(torch, what))
            case "iinfo":
                return torch.iinfo(getattr(torch, what))
            case "is":
                return SINGLETONS[what]
        raise Missing(f"a value of a kind that is not known: {kind}")


def type_name(cls: type) -> str:
    """A class in words."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _token() -> int:
    return abc.get_cache_token()  # type: ignore[return-value]


def is_subclass(cls: type, base: type) -> bool | None:
    """What `issubclass` says, None where it raises."""
    try:
        return bool(issubclass(cls, base))
    except Exception:
        return None


HELPERS: Final = frozenset(guard_helpers())

__all__ = [
    "CODE",
    "HELPERS",
    "SINGLETONS",
    "TEXTS",
    "TYPE",
    "Finder",
    "Missing",
    "ask",
    "is_subclass",
    "question",
    "resolve_name",
    "type_name",
]
