"""How a reference is read at a call: by an expression in the guard's Python, and by a question of the native table."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any, Final

from magpy_refgraph import EdgeKind, Key, Node

from ._facts import FactKind
from ._questions import Drawn, Item, Super, deque_truth
from ._source import Namespace

_BASES: Final = (dict, list, tuple, set, frozenset, collections.deque)
_FUNCTION_PARTS: Final = {
    "__code__": FactKind.CODE,
    "__defaults__": FactKind.DEFAULTS,
    "__kwdefaults__": FactKind.KWDEFAULTS,
}
_ITERATOR: Final = {EdgeKind.AHEAD: "iterator_ahead", EdgeKind.PART: "iterator_part"}


class References:
    """Reads references of external objects.

    Attributes:
        namespace: the constants of the generated code.
        names: by node index, the name under which that code knows the object.
    """

    def __init__(self, namespace: Namespace, pinned: Callable[[Node], bool], helpers: dict[str, Any]) -> None:
        self.namespace = namespace
        self.names: dict[int, str] = {}
        self._pinned_now = pinned
        self._pinned: dict[int, bool] = {}
        self._helpers = helpers

    def pinned(self, node: Node) -> bool:
        """Whether the record holds an object by identity."""
        found = self._pinned.get(node.index)
        if found is None:
            found = self._pinned[node.index] = self._pinned_now(node)
        return found

    def name(self, node: Node) -> str:
        """The expression for an external object.

        Raises:
            KeyError: it is not held by identity, and no line before gives it a name.
        """
        found = self.names.get(node.index)
        if found is None:
            if not self.pinned(node):
                raise KeyError(f"{node!r} is not bound")
            obj = node.obj()
            hint = (
                getattr(obj, "__name__", None)
                if issubclass(node.type, (type, types.FunctionType, types.ModuleType))
                else None
            )
            found = self.names[node.index] = self.namespace.constant(obj, hint or node.type.__name__.lower())
        return found

    def _value(self, node: Node, key: Key) -> str:
        """The expression that gives a reference now."""
        kind, arg = key
        if kind is EdgeKind.ARGUMENT:
            return f"args[{arg}]"
        if kind is EdgeKind.KEYWORD:
            return f"kwargs[{arg!r}]"
        if kind is EdgeKind.MODE:
            if type(arg) is tuple:
                values = ", ".join(self.namespace.constant(each, "mode") for each in arg[1])
                return f"{self.namespace.constant(arg[0], arg[0].__name__)}({values})"
            return f"mode_{arg}()"
        name = self.name(node)
        base = next((base for base in _BASES if issubclass(node.type, base)), None)
        plain = node.type is base
        match kind:
            case EdgeKind.DICT:
                return f"instance_dict({name})"
            case EdgeKind.ITEM if base is dict:
                item = self._key(arg)
                return f"{name}.get({item}, ABSENT)" if plain else f"dict_get({name}, {item}, ABSENT)"
            case EdgeKind.ITEM:
                assert base is not None
                if plain:
                    return f"{name}[{arg}]"
                item = self.namespace.constant(base.__getitem__, f"{base.__name__}_item")  # type: ignore[index]
                return f"{item}({name}, {arg})"
            case EdgeKind.LENGTH | EdgeKind.TRUTH:
                assert base is not None
                length = (
                    f"len({name})"
                    if plain
                    else f"{self.namespace.constant(base.__len__, f'{base.__name__}_len')}({name})"
                )
                return length if kind is EdgeKind.LENGTH or not plain else name
            case EdgeKind.KEYS:
                return name
            case EdgeKind.CLASS:
                return f"type_lookup({name}, {arg!r})"
            case EdgeKind.SUPER:
                return f"super_lookup({name}, {self.namespace.constant(arg[0], arg[0].__name__)}, {arg[1]!r})"
            case EdgeKind.CELL:
                return f"cell_get({name})"
            case EdgeKind.REFERENT:
                return f"referent_get({name})"
            case EdgeKind.VALUE:
                return f"plain_value({name})"
            case EdgeKind.AHEAD | EdgeKind.PART:
                return f"{_ITERATOR[kind]}({name}, {arg!r})"
            case EdgeKind.MEMBER:
                if node.type.__flags__ & (1 << 9) and not issubclass(node.type, type):
                    return f"member_get({name}, {arg!r})"
                return f"{name}.{arg}"
        raise AssertionError(key)

    def _key(self, arg: Any) -> str:
        """The expression for a dictionary key."""
        obj = getattr(arg, "obj", arg) if type(arg).__name__ == "ByIdentity" else arg
        if type(obj) in (int, str, bytes, bool, type(None)):
            return repr(obj)
        return self.namespace.constant(obj, "key")

    def _question(self, node: Node, key: Key) -> tuple[FactKind, Any]:
        """How the native table asks for a reference."""
        kind, arg = key
        helpers = self._helpers
        match kind:
            case EdgeKind.DICT:
                return FactKind.DICT, None
            case EdgeKind.ITEM if issubclass(node.type, dict):
                return FactKind.ITEM, arg.obj if type(arg).__name__ == "ByIdentity" else arg
            case EdgeKind.ITEM if issubclass(node.type, (list, tuple)):
                return FactKind.ELEMENT, arg
            case EdgeKind.ITEM:
                return FactKind.OTHER, Item(arg)
            case EdgeKind.LENGTH | EdgeKind.TRUTH if not issubclass(node.type, collections.deque):
                return (FactKind.LENGTH if kind is EdgeKind.LENGTH else FactKind.TRUTH), None
            case EdgeKind.LENGTH:
                return FactKind.OTHER, collections.deque.__len__
            case EdgeKind.TRUTH:
                return FactKind.OTHER, deque_truth
            case EdgeKind.CLASS:
                return FactKind.CLASS, arg
            case EdgeKind.SUPER:
                return FactKind.SUPER, Super(helpers["super_lookup"], arg[0], arg[1])
            case EdgeKind.CELL:
                return FactKind.CELL, None
            case EdgeKind.REFERENT:
                return FactKind.OTHER, helpers["referent_get"]
            case EdgeKind.AHEAD | EdgeKind.PART:
                return FactKind.OTHER, Drawn(helpers[_ITERATOR[kind]], arg)
            case EdgeKind.MEMBER if node.type is types.FunctionType and arg in _FUNCTION_PARTS:
                return _FUNCTION_PARTS[arg], None
            case EdgeKind.MEMBER if node.type.__flags__ & (1 << 9) and not issubclass(node.type, type):
                return FactKind.MEMBER, arg
            case EdgeKind.MEMBER:
                return FactKind.OTHER, operator.attrgetter(arg)
        return FactKind.OTHER, None


__all__ = ["References"]
