"""Rules for lifted numbers, what C code does with them: functions of numbers, functions that move them, all others."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import types
from typing import Any, Final

import torch

from magpy_annotations import Annotation, OpKind, Read, Relation, unbind
from magpy_codegen import Expression
from magpy_refgraph import EdgeKind
from magpy_runtime.capture import NULL, type_lookup

from . import _torch
from ._lifted_numbers import SEQUENCES, LiftedNumbers
from ._numbers import BINARY, COMPARE, FUNCTIONS, LIFTABLE, MOVERS, is_number
from ._points import instruction_at
from ._state import is_mutable_type

REFERENCES: Final = LIFTABLE - {EdgeKind.LENGTH}
_LENGTHS: Final = frozenset({EdgeKind.LENGTH})
_NOTHING: Final[frozenset[EdgeKind]] = frozenset()
_HASHABLE: Final = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType,
)  # fmt: skip
_FOLDS: Final = {math.prod: ("*", "__mul__"), sum: ("+", "__add__"), torch.Size.numel: ("*", "__mul__")}
HARMLESS: Final = frozenset(
    map(id, (*_torch.MODE_QUERIES, _torch.FUNCTION_APPLY, isinstance, issubclass, getattr, hasattr, setattr, delattr,
             object.__setattr__, object.__delattr__, object.__getattribute__, types.ModuleType.__getattribute__,
             type.__setattr__, type, super, object.__new__, object.__init__, type.__call__, vars, globals, callable))
)  # fmt: skip
"""Builtins with rules of their own that look at no number."""

_CALLERS: Final = frozenset(
    {map, filter, zip, enumerate, iter, next, list, tuple, list.extend, list.__iadd__, list.__init__, collections.deque,
     collections.deque.extend, torch.Size, reversed}
)  # fmt: skip
"""C functions that hand on what the frames give that they call."""

_PASS_ON: Final = frozenset({map, functools.partial, functools.reduce, itertools.starmap, itertools.accumulate})
"""C functions that hand on what a callback gives that they were given."""

_MOVED: Final = (Read.NONE, Read.TYPE, Read.LENGTH, Read.ITEMS)

_CONVERSIONS: Final = frozenset(
    {"__len__", "__bool__", "__hash__", "__index__", "__int__", "__float__", "__contains__", "__length_hint__",
     "__format__", "__str__", "__repr__", "__complex__", "__instancecheck__", "__subclasscheck__", "__eq__", "__lt__"}
)  # fmt: skip
"""Special methods whose results C code looks into."""

_RESULTS: Final = frozenset(
    {"FOR_ITER", "SEND", "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR",
     "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "BEFORE_WITH", "STORE_ATTR", "STORE_SUBSCR", "DELETE_ATTR",
     "DELETE_SUBSCR", "YIELD_VALUE", "IMPORT_NAME", "RESUME"}
)  # fmt: skip
"""Instructions that put on the stack, or drop, what the frames give that they call."""

CALLS: Final = frozenset({"CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX"})


class LiftedCalls(LiftedNumbers):
    """Rules for calls that get lifted numbers.

    Attributes:
        calls: by number of monitored frames, the C function that the innermost of them is calling, and the kinds of
            references of its arguments that it may give.
        lengths: what `len` will give.
    """

    def _reading(self, rule: Any) -> Any:
        """A rule of its own for a builtin that reads the numbers that it gets."""

        def read(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if self.numbers:
                self.consume(*args, *keywords.values())
            return rule(args, keywords)

        return read

    def _naming(self, rule: Any) -> Any:
        """A rule of its own for a builtin that moves numbers; strings that it gets may be names."""

        def read(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if self.numbers and len(args) > 1:
                self.consume(*[each for each in args[:2] if type(each) is str])
            return rule(args, keywords)

        return read

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Before a call."""
        self.calls.pop(self._depth(), None)
        self.lengths = None
        return super().call(function, args, keywords)

    def _depth(self) -> int:
        try:
            return self.recorder.depth()
        except RuntimeError:
            return 0

    def apply(self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Annotated C code is called: what of its inputs it reads."""
        if annotation.as_op_node is None:
            gives = REFERENCES if annotation.output.relation in (Relation.ITEM, Relation.ATTRIBUTE) else _NOTHING
            self.calls.setdefault(self._depth(), (function, _LENGTHS if function is len else gives))
            if self.numbers and annotation.pure_closure and not annotation.effect:
                self._apply(function, annotation, args, keywords)
        return super().apply(function, annotation, args, keywords)

    def _apply(self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.handled:
            return
        if not keywords and self._number_function(function, args):
            return
        form = annotation.for_call(len(args), keywords)
        inputs = None if form is None else form.bind(len(args), keywords)
        if inputs is None:
            self.consume(*args, *keywords.values())
            return
        for each, value in zip(inputs, (*args, *keywords.values()), strict=True):
            if each.called:
                self._called_back(function, value, (*args, *keywords.values()))
                continue
            if type(value) is str and each.value_read in (Read.LENGTH, Read.ITEMS):
                self.consume(value)
            if function in MOVERS and not each.hashed and each.value_read in _MOVED:
                continue
            if (
                each.value_read in (Read.NONE, Read.TYPE, Read.LENGTH)
                and not each.operators
                and not each.element_operators
                and not each.hashed
                and not each.iterated
            ):
                continue
            self.consume(value)

    def _number_function(self, function: Any, args: tuple[Any, ...]) -> bool:
        """A function of numbers that gives a number."""
        numbers = self.numbers
        if function in (min, max) and len(args) > 1 and all(type(each) in (int, float) for each in args):
            if not self.carries(*args):
                return False
            best = args[0]
            symbol = "<" if function is min else ">"
            for each in args[1:]:
                self.compared(symbol, each, best)
                if COMPARE[symbol](each, best):
                    best = each
            return True  # the result is one of them, the same object
        if function in _FOLDS and len(args) == 1 and type(args[0]) in SEQUENCES:
            return self._folded(function, args[0])
        if len(args) != 1 or not self.carries(args[0]):
            return False
        expression = numbers.find(args[0])
        assert expression is not None
        if function is bool:
            self.asked_truth(args)
            return True
        if type(args[0]) is str:
            return False
        known = FUNCTIONS.get(function) if _is_hashable(function) else None
        if known is None or (function is math.sqrt and not args[0] >= 0):
            return False
        if type(args[0]) is float and not math.isfinite(args[0]):
            return False
        if function in (int, float) and type(args[0]) is function:
            return True  # the same object
        if function is math.sqrt:
            numbers.ask("{} >= 0", (expression,), True, self.where())
        self._answer(function(args[0]), known[0], known[1], (expression,))
        return True

    def _folded(self, function: Any, parts: Any) -> bool:
        """The sum or the product of some numbers."""
        if not all(type(part) in (int, float) for part in parts) or not self.carries(*parts):
            return False
        symbol, name = _FOLDS[function]
        method = BINARY[name]
        numbers = self.numbers
        total, value = (0, 0) if symbol == "+" else (1, 1)
        folded: Expression | int | float = total
        for part in parts:
            try:
                value = method(value, part)
            except ArithmeticError:
                return False
            folded = numbers.compute(value, f"{{}} {symbol} {{}}", method, (folded, numbers.operand(part)))
        assert isinstance(folded, Expression)
        if not is_number(value) or (symbol == "+" and any(type(part) is float for part in parts)):
            return False  # `sum` of floats compensates errors from 3.12 on
        self.answer = folded
        return True

    def _called_back(self, caller: Any, function: Any, objects: tuple[Any, ...]) -> None:
        """C code calls `function` with elements of some objects, or with what iterators give."""
        base, _ = unbind(function)
        while type(base) in (types.MethodType, functools.partial):
            base = base.func if type(base) is functools.partial else base.__func__
        if function is None:
            self.consume(*objects)
            return
        if type(base) is types.FunctionType:
            if caller not in _PASS_ON:
                self.looked_into.add(base.__code__)
            return
        if is_mutable_type(type(base)) and caller not in _PASS_ON:
            self.numbers.give_up("C code looks at what a callable object gives")
        if _is_hashable(base) and base in MOVERS:
            return
        annotation = self.registry.find(base)[0]
        if annotation is not None and annotation.as_op_node is not None:
            return
        self.consume(*objects)
        if any(not issubclass(type(each), (list, tuple, dict, set, frozenset, types.FunctionType, type)) and
               type_lookup(type(each), "__next__") is not NULL for each in objects):  # fmt: skip
            self.numbers.give_up("C code calls C code on what an iterator gives")

    def operator_call(
        self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A torch function is called from bytecode; the mode reports what is no change of a mode."""
        if annotation.as_op_node is not None and annotation.as_op_node.kind is OpKind.STATE:
            self.consume(*args, *keywords.values())
        return super().operator_call(function, annotation, args, keywords)

    def state_call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A mode of torch is read or changed."""
        self.consume(*args, *keywords.values())
        return super().state_call(function, args, keywords)

    def on_exit(self, code: types.CodeType, value: Any, kind: int) -> None:
        """A frame is left: if C code has called it, it gets the value."""
        if kind != 2 and self.numbers and not self._stays_in_python(code, value):
            self.consume(value)
        super().on_exit(code, value, kind)

    def _stays_in_python(self, code: types.CodeType, value: Any) -> bool:
        """Whether the value that a frame gives is only moved."""
        pending = self.recorder.pending()
        if len(pending) < 2:
            return True  # the call's result
        outer, index = pending[-2]
        opname = instruction_at(outer, index).opname
        if code in self.looked_into:
            return False
        if opname in CALLS:
            called = self.calls.get(len(pending) - 1)
            if called is None:
                return True
            function = called[0]
            if function is len:
                self.lengths = self.numbers.find(value)
                return True
            return _is_hashable(function) and function in _CALLERS
        return opname in _RESULTS and code.co_name not in _CONVERSIONS


def _is_hashable(obj: Any) -> bool:
    return type(obj) in _HASHABLE or issubclass(type(obj), type)
