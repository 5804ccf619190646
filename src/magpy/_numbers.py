"""Numbers that differ from call to call, and the objects that carry them through a monitored run.

The program computes with plain ints and floats. A number that was lifted is an *object of its own*, equal to the program's
number in all respects and no subclass, so that nobody can tell; MagPy knows it again by its identity. References move
without being watched, through containers, attributes, calls and C code, and the number's origin with them.
"""

from __future__ import annotations

import collections
import functools
import gc
import math
import operator
import struct
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from magpy_codegen import Computed, Condition, Expression
from magpy_refgraph import Atom, EdgeKind, Key, Node
from magpy_runtime.capture import distinct_int

from . import _torch
from ._originals import Copies, original

NUMBERS: Final = frozenset({int, float, bool})
_OPAQUE: Final = (type, types.FunctionType, types.ModuleType, types.CodeType, types.FrameType, types.GeneratorType,
                  types.CoroutineType, torch.Tensor, str, bytes)  # fmt: skip
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, collections.deque, slice, functools.partial, BaseException,
                      types.MethodType, types.BuiltinFunctionType)  # fmt: skip
_MOST: Final = 4000
_LONGEST: Final = 4000

LIFTABLE: Final = frozenset(
    {EdgeKind.ARGUMENT, EdgeKind.KEYWORD, EdgeKind.ITEM, EdgeKind.CELL, EdgeKind.MEMBER, EdgeKind.LENGTH}
)
"""References that can lead to a lifted number."""

_BOUND: Final = 1 << 62

Operands = tuple[Expression | int | float | bool, ...]


def known_before(node: Node) -> Any:
    """The metadata of a tensor before the run, None where they are not known."""
    known = node.initial.get(Key(EdgeKind.TENSOR))
    return known.value if isinstance(known, Atom) else None


def distinct(number: Any) -> Any:
    """An object of its own that is the same int, float (bit for bit) or string."""
    if type(number) is str:
        return number[:1] + number[1:]
    if type(number) is int:
        return distinct_int(number)
    return struct.unpack("d", struct.pack("d", number))[0]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be lifted.

    Attributes:
        everything: all numbers and sizes that come with the arguments.
        facts: keys of the facts that did not hold at an earlier call; see `fact_key` and `size_key`.
    """

    everything: bool = False
    facts: frozenset[Any] = field(default_factory=frozenset)


def fact_key(path: Callable[[Node], Any], node: Node, key: Key) -> Any:
    """The name of a number that was read, the same in every run."""
    return ("number", path(node), key.kind.value, key.arg if type(key.arg) in (int, str) else repr(key.arg))


def size_key(path: Any, dim: int) -> Any:
    """The name of a tensor's size; `path` says how the tensor is found."""
    return ("size", path, dim)


def is_number(value: Any) -> bool:
    """Whether a value can be lifted. A copy of a NaN would be found to differ from it, by its hash among others."""
    if type(value) is float:
        return value == value
    return type(value) is int and -_BOUND < value < _BOUND


def is_liftable(value: Any) -> bool:
    """The same, or a string of which there can be another object."""
    return is_number(value) or (type(value) is str and len(value) > 1)


class Numbers:
    """The lifted numbers of one run.

    Attributes:
        conditions: what the program asked of numbers, in order.
        everything: whether all numbers are taken for constants, for something was not understood; the reason, or None.
        computed: what operations gave, in order, wanted or not: each has to succeed.
        copies: the objects that carry numbers, in all segments of the run, with the program's own.
    """

    def __init__(self, copies: Copies) -> None:
        self.conditions: list[Condition] = []
        self.computed: list[Computed] = []
        self.everything: str | None = None
        self.copies = copies
        self._objects: dict[int, tuple[Any, Expression]] = {}
        self._read: set[int] = set()
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._objects)

    def find(self, obj: Any) -> Expression | None:
        """The expression that an object carries."""
        found = self._objects.get(id(obj))
        return None if found is None else found[1]

    def carry(self, expression: Expression, own: Any) -> Any:
        """A new object that carries an expression, in the place of the program's own."""
        obj = distinct(expression.value)
        self._objects[id(obj)] = (obj, expression)
        self.copies[id(obj)] = (obj, original(self.copies, own))
        return obj

    def adopt(self, obj: Any, expression: Expression) -> None:
        """Let an object that already is one of its own carry an expression."""
        self._objects[id(obj)] = (obj, expression)

    def operand(self, obj: Any) -> Expression | int | float | bool:
        """A number as an operand: its expression, if it carries one."""
        found = self._objects.get(id(obj))
        return obj if found is None else found[1]

    def compute(self, value: Any, template: str, function: Callable[..., Any], operands: Operands) -> Expression:
        """The expression of what an operation gave."""
        self._count += 1
        if self._count > _LONGEST:
            self.give_up("too many operations on lifted numbers")
        made = Computed(value, template, function, operands)
        self.computed.append(made)
        return made

    def ask(self, template: str, operands: Operands, outcome: bool, where: Any) -> None:
        """The program's way depends on a question."""
        if any(isinstance(each, Expression) for each in operands):
            self.conditions.append(Condition(template, operands, outcome, where))

    def read(self, expression: Expression, where: Any) -> None:
        """The value of a number was read by something that is not followed."""
        if id(expression) not in self._read:
            self._read.add(id(expression))
            self.conditions.append(Condition("{}", (expression,), None, where))

    def give_up(self, why: str) -> None:
        """Take all numbers for constants."""
        if self.everything is None:
            self.everything = why

    def clear(self) -> None:
        """Forget all objects: a new segment starts."""
        self.conditions = []
        self.computed = []
        self.everything = None
        self._objects.clear()
        self._read.clear()

    def reached(self, *roots: Any) -> list[Expression]:
        """The expressions of all numbers that C code could find in some objects."""
        if not self._objects:
            return []
        found: dict[int, Expression] = {}
        stack = [*roots]
        seen: set[int] = set()
        while stack:
            obj = stack.pop()
            carried = self._objects.get(id(obj))
            if carried is not None:
                found[id(carried[1])] = carried[1]
                continue
            kind = type(obj)
            if kind in NUMBERS or obj is None or issubclass(kind, _OPAQUE) or id(obj) in seen:
                continue
            seen.add(id(obj))
            if len(seen) > _MOST:
                self.give_up("a container with very many objects was handed to C code")
                break
            if issubclass(kind, _CONTAINERS) or not kind.__flags__ & (1 << 9):
                stack += gc.get_referents(obj)
            elif _is_callable_of_c(kind):
                stack += gc.get_referents(obj)
        return list(found.values())


def _is_callable_of_c(kind: type) -> bool:
    return kind.__module__ in ("builtins", "itertools", "functools", "operator", "_operator", "collections")


BINARY: Final[dict[str, Callable[..., Any]]] = {
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
    "__truediv__": operator.truediv,
    "__floordiv__": operator.floordiv,
    "__mod__": operator.mod,
}
SYMBOLS: Final = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
}  # fmt: skip
DIVISIONS: Final = frozenset({"__truediv__", "__floordiv__", "__mod__"})
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

FUNCTIONS: Final[dict[Any, tuple[str, Callable[..., Any]]]] = {
    float: ("float({})", torch.sym_float),
    int: ("int({})", torch.sym_int),
    abs: ("abs({})", operator.abs),
    math.sqrt: ("math.sqrt({})", _torch.sym_sqrt),
    math.floor: ("math.floor({})", math.floor),
    math.ceil: ("math.ceil({})", math.ceil),
}
"""Functions of one number that give a number."""

MOVERS: Final = frozenset(
    {
        list, tuple, dict, zip, enumerate, reversed, iter, next, slice, torch.Size, collections.deque,
        collections.OrderedDict, functools.partial, list.append, list.extend, list.copy, list.pop, list.reverse,
        list.clear, list.__add__, list.__iadd__, list.__init__, tuple.__add__, tuple.__iter__, list.__iter__,
        dict.get, dict.items, dict.values, dict.keys, dict.update, dict.setdefault, dict.pop, dict.popitem,
        dict.copy, dict.__iter__, collections.deque.append, collections.deque.appendleft, collections.deque.extend,
        collections.deque.pop, collections.deque.popleft, object.__init__, object.__new__, list.__len__, tuple.__len__,
        dict.__len__, len, tuple.__new__,
    }
)  # fmt: skip
"""C functions that hand on what is in containers, without looking at numbers. Keys of dictionaries aside."""
