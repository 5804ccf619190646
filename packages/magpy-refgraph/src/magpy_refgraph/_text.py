"""The text form of a RefGraph: stable, diffable, without addresses, and its grammar.

Nodes are renumbered by their position and times by their rank, so neither a run's earlier history nor what was dropped
from the graph shows.  The grammar (two spaces of indentation a level, one line a thing)::

    graph     = { node } [ "effects" { effect } ]
    node      = "#0 external" | "#" N TYPE [ "from" "#" N key ] "@" TIME     then its versions
    version   = "v" N [ "@" TIME ]                                           then its references
    reference = key target [ ";" LOCATION ]
    key       = KIND [ value ]                    KIND is the value of an EdgeKind
    target    = "->" "#" N                        a node
              | "=" value                         an Atom
              | "absent"
    effect    = "@" TIME "#" N FUNCTION "(" [ argument { "," argument } ] ")" [ "sets" key ] [ ";" LOCATION ]
    argument  = [ NAME "=" ] value
    value     = "#" N                             an object that has a node
              | literal | "(" values ")"          numbers, strings, bytes, None, ..., tuples
              | "<" DESCRIPTION ">"               anything else

`#?` is a node that is not in the graph, which `verify` refuses.  The `v0` line has no time when the version was born
with its node, and is left out when it holds nothing.  A location is written when it is a `Location` or a pair of
a code object and a line, its file without the folder.
"""

from __future__ import annotations

import contextvars
import dataclasses
import enum
import functools
import re
import types
import weakref
from collections.abc import Iterator
from typing import Any, Final, NoReturn, final

from ._model import ABSENT, Atom, EdgeKind, Effect, Key, Location, Node, RefGraph, Target

NAMES: Final[dict[str, object]] = {
    "None": None,
    "True": True,
    "False": False,
    "Ellipsis": Ellipsis,
    "NotImplemented": NotImplemented,
    "ABSENT": ABSENT,
}
_FUNCTIONS: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
_HOLDERS: Final = (BaseException, functools.partial, contextvars.ContextVar, types.CellType, super, weakref.ref)
"""Types whose `repr`, in C, calls that of what they hold, or shows its address."""

_LONGEST: Final = 120
"""Descriptions are cut here, in characters."""


@final
class Written:
    """The stand-in, in a parsed graph, of a value or function of which only the description is known."""

    __slots__ = ("__weakref__", "text")

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.text}>"

    def __call__(self, *args: object, **keywords: object) -> NoReturn:
        raise TypeError(f"{self.text} stands in a parsed graph: it cannot be called")


def to_text(graph: RefGraph) -> str:
    """Write a graph down.

    Two runs that did the same give the same text.  User code does not run, such as an object's `__repr__`, but for
    `__hash__` and `__eq__` of dictionary keys.

    Returns:
        The text, one line a thing, with a final newline.
    """
    writer = Writer(graph)
    return "".join(line + "\n" for line in writer.lines())


class Writer:
    """Names for the parts of one graph, which the text form and the drawing share.

    Args:
        graph: the graph.
        ranked: write the rank of a time instead of the time.
    """

    def __init__(self, graph: RefGraph, *, ranked: bool = True) -> None:
        self.graph = graph
        self._numbers = {id(node): number for number, node in enumerate(graph.nodes)}
        self._by_index = {node.index: node for node in graph.nodes}
        self._ranks: dict[int, int] = {}
        if not ranked:
            return
        times = {effect.time for effect in graph.effects}
        for node in graph.nodes:
            times.add(node.born)
            times.update(version.born for version in node.versions)
        self._ranks = {time: rank for rank, time in enumerate(sorted(times))}

    def lines(self) -> Iterator[str]:
        """The whole text, line by line."""
        for node in self.graph.nodes:
            yield self.heading(node)
            for number, version in enumerate(node.versions):
                early = number == 0 and version.born == node.born
                if version.refs or not early:
                    yield f"  v{number}" if early else f"  v{number} {self.time(version.born)}"
                for key, target in version.refs.items():
                    where = node.reads.get(key) if number == 0 else None
                    yield f"    {self.key(key)} {self.target(target)}{self.location(where)}"
        if self.graph.effects:
            yield "effects"
        for effect in self.graph.effects:
            yield f"  {self.effect(effect)}"

    def number(self, node: Node | None) -> str:
        """`#3`, or `#?` for what is not in the graph."""
        return f"#{self._numbers.get(id(node), '?')}"

    def time(self, time: int) -> str:
        """`@7`: a time, or its rank among all those of the graph."""
        return f"@{self._ranks.get(time, time)}"

    def heading(self, node: Node) -> str:
        """The line that a node starts with."""
        if node is self.graph.root and node is self.graph.nodes[0]:
            return "#0 external"
        parts = [self.number(node), type_name(node.type)]
        if node.parent is not None and node.key is not None:
            parts += ["from", self.number(node.parent), self.key(node.key)]
        return " ".join([*parts, self.time(node.born)])

    def key(self, key: Key) -> str:
        """A reference's name, as `item 3`."""
        name, arg = str(key.kind.value), key.arg
        if arg is None and key.kind is not EdgeKind.ITEM:
            return name
        if key.kind is EdgeKind.SAME and type(arg) is int:
            return f"{name} {self.number(self._by_index.get(arg))}"
        return f"{name} {self.value(arg)}"

    def target(self, target: Target) -> str:
        """What a reference leads to."""
        if isinstance(target, Node):
            return f"-> {self.number(target)}"
        return f"= {self.value(target.value)}" if isinstance(target, Atom) else "absent"

    def effect(self, effect: Effect) -> str:
        """The line of an effect."""
        arguments = [self.value(arg) for arg in effect.args]
        arguments += [
            f"{re.sub(r'^(?=[0-9])|[^a-zA-Z0-9_]', '_', k)}={self.value(v)}" for k, v in effect.keywords.items()
        ]
        call = f"{self.number(effect.node)} {function_name(effect.function)}({', '.join(arguments)})"
        sets = "" if effect.key is None else f" sets {self.key(effect.key)}"
        return f"{self.time(effect.time)} {call}{sets}{self.location(effect.location)}"

    def location(self, location: object) -> str:
        """` ; file:line in function`, the file without its folder, or nothing."""
        if type(location) is tuple and len(location) == 2 and isinstance(location[0], types.CodeType):
            location = Location(location[0].co_filename, location[1], location[0].co_qualname)
        if not isinstance(location, Location):
            return ""
        short = dataclasses.replace(location, file=location.file.rpartition("/")[2])
        return " ; " + " ".join(str(short).split())

    def value(self, value: Any) -> str:
        """A runtime value: a literal, the number of its node, or a description."""
        kind = type(value)
        if kind is str or kind is bytes or kind is float:
            return repr(value)
        if kind is int:
            return repr(value) if abs(value) < 1 << 256 else hex(value)  # Python refuses to write very long decimals
        for name, constant in NAMES.items():
            if value is constant:
                return name
        node = self.graph.find(value)
        if node is not None and id(node) in self._numbers:
            return self.number(node)
        if kind is tuple:
            return f"({', '.join(map(self.value, value))}{',' * (len(value) == 1)})"
        return f"<{value.text if kind is Written else _balanced(self._describe(value, kind))}>"

    def _describe(self, value: Any, kind: Any) -> str:
        # `isinstance` and plain attribute access could run code: a class may define `__getattribute__`.
        name = type_name(kind)
        if issubclass(kind, type):
            return f"type {type_name(value)}"
        if issubclass(kind, _FUNCTIONS):
            return f"function {function_name(value)}"
        if issubclass(kind, types.ModuleType):
            return f"module {_attribute(value, '__dict__').get('__name__')}"
        if issubclass(kind, enum.Enum):
            return f"{name}.{_attribute(value, '_name_') or _attribute(value, '_value_')}"
        if issubclass(kind, tuple):
            return f"{name}({', '.join(map(self.value, tuple.__iter__(value)))})"
        if kind is frozenset:
            return f"frozenset({', '.join(sorted(map(self.value, value)))})"
        if kind is range or kind is slice:
            return f"{name}({', '.join(map(self.value, (value.start, value.stop, value.step)))})"
        params = _class_attribute(kind, "__dataclass_params__")
        if params is not None and params.frozen and type(kind) is type:
            fields = (field.name for field in dataclasses.fields(kind) if field.repr)
            return f"{name}({', '.join(f'{field}={self.value(_attribute(value, field))}' for field in fields)})"
        return _plain(value, kind, name)


def _attribute(value: object, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _class_attribute(kind: type, name: str) -> Any:
    for base in type.__dict__["__mro__"].__get__(kind):
        attributes = type.__dict__["__dict__"].__get__(base)
        if name in attributes:
            return attributes[name]
    return None


def _plain(value: Any, kind: type, name: str) -> str:
    """The `repr` of values whose type has one from C that calls no other object's; otherwise the type's name."""
    for base in (str, bytes, int, float):
        if issubclass(kind, base):
            return f"{name} {base.__repr__(value)}"
    how = _class_attribute(kind, "__repr__")
    if not isinstance(how, types.WrapperDescriptorType) or how.__objclass__ is not kind or kind is object:
        return name
    if issubclass(kind, _HOLDERS) or _class_attribute(kind, "__iter__") is not None:
        return name
    try:
        return re.sub(r"\b0x[0-9a-fA-F]{6,}", "0x", how(value))
    except Exception:
        return name


def type_name(kind: type) -> str:
    """A type's name, qualified by its module unless that is `builtins`; without blanks."""
    name: object = type.__dict__["__qualname__"].__get__(kind)
    return _qualified(_module(kind), name)


def _module(kind: type) -> object:
    try:
        found: object = type.__dict__["__module__"].__get__(kind)
    except AttributeError:  # a class statement that ran in globals without a `__name__`
        return None
    return found


def function_name(function: Any) -> str:
    """A function's name, qualified likewise; for other callables that of their type."""
    kind = type(function)
    if kind is Written:
        return str(function.text)
    if issubclass(kind, type):
        return type_name(function)
    if not issubclass(kind, _FUNCTIONS):
        return type_name(kind)
    if kind is types.MethodType:
        return function_name(function.__func__)
    owner = getattr(function, "__objclass__", None)
    module = getattr(function, "__module__", None) if owner is None else _module(owner)
    return _qualified(module, function.__qualname__)


def _qualified(module: object, name: object) -> str:
    text = f"{module}.{name}" if type(module) is str and module != "builtins" else str(name)
    return _balanced(re.sub(r"[^\w.<>?-]", "?", text))


def _balanced(text: str) -> str:
    """The text on one line, cut, and with every angle bracket closed."""
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    depth = 0
    for char in text:
        depth += (char == "<") - (char == ">")
        if depth < 0:
            break
    return text if depth == 0 else re.sub("[<>]", "?", text)
