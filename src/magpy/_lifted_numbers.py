"""Rules for lifted numbers, what the program itself does with them: arithmetic, comparisons, branches, subscripts."""

from __future__ import annotations

from typing import Any, Final

import torch

from magpy_codegen import Expression

from ._lifted_references import LiftedReferences
from ._numbers import BINARY, COMPARE, DIVISIONS, NUMBERS, SYMBOLS, is_number
from ._state import is_atom, is_mutable_type

_METHODS: Final = {symbol: method for method, symbol in SYMBOLS.items()}
SEQUENCES: Final = (tuple, list, torch.Size)
_UNLIKE: Final = frozenset({str, bytes, type(None), type(...), type(NotImplemented), tuple, list, dict, set})

_EQUAL_OR_NANS: Final = "{0} == {1} or ({0} != {0} and {1} != {1})"


class LiftedNumbers(LiftedReferences):
    """Rules for instructions on lifted numbers.

    Attributes:
        answer: what the current instruction will give.
        handled: whether the special methods that the current instruction calls need no further look.
    """

    def carries(self, *objects: Any) -> bool:
        """Whether any of some objects is a lifted number itself."""
        return any(self.numbers.find(each) is not None for each in objects)

    def arithmetic(self, symbol: str, inputs: tuple[Any, ...]) -> None:
        """Before a binary operator."""
        numbers = self.numbers
        if not numbers:
            return
        left, right = inputs
        if type(left) in NUMBERS and type(right) in NUMBERS:
            if self.carries(left, right):
                self.number_operator(symbol, left, right)
            return
        if symbol == "+" and issubclass(type(left), (list, tuple)) and issubclass(type(right), (list, tuple)):
            self.handled = True
            return
        if self._is_python(left) or self._is_python(right):
            return
        self.consume(left, right)

    def _is_python(self, obj: Any) -> bool:
        """Whether operators on an object are reported: a tensor's, and those of classes that no number is a base of."""
        tp = type(obj)
        if issubclass(tp, torch.Tensor):
            return True
        return is_mutable_type(tp) and all(base is object or is_mutable_type(base) for base in tp.__mro__)

    def number_operator(self, symbol: str, left: Any, right: Any) -> None:
        """Before a binary operator of two numbers of which one is lifted."""
        numbers = self.numbers
        method = _METHODS.get(symbol)
        operands = (numbers.operand(left), numbers.operand(right))
        if symbol == "**":
            self.powered(left, right)
            return
        if method is None:
            self.consume(left, right)
            return
        if method in DIVISIONS:
            if right == 0:
                self.consume(left, right)
                return
            numbers.ask("{} != 0", (operands[1],), True, self.where())
        try:
            value = BINARY[method](left, right)
        except ArithmeticError:  # the program's instruction raises that, too
            self.consume(left, right)
            return
        self._answer(value, f"{{}} {SYMBOLS[method]} {{}}", BINARY[method], operands)

    def powered(self, base: Any, exponent: Any) -> None:
        """Before `base ** exponent`: with an exponent of the program's own."""
        numbers = self.numbers
        if self.carries(exponent) or type(exponent) not in (int, float) or not -16 <= exponent <= 16:
            self.consume(base, exponent)
            return
        expression = numbers.operand(base)
        if exponent < 0 or type(exponent) is float:
            if not base > 0:
                self.consume(base)
                return
            numbers.ask("{} > 0", (expression,), True, self.where())
        try:
            value = base**exponent
        except ArithmeticError:
            self.consume(base)
            return
        self._answer(value, "{} ** {}", pow, (expression, exponent))

    def negated(self, opname: str, operand: Any) -> None:
        """Before a unary operator."""
        expression = self.numbers.find(operand)
        if expression is None:
            return
        if opname == "UNARY_NEGATIVE":
            self._answer(-operand, "-{}", _negative, (expression,))
        elif opname != "UNARY_POSITIVE":
            self.consume(operand)

    def _answer(self, value: Any, template: str, function: Any, operands: tuple[Any, ...]) -> None:
        if not is_number(value):
            self.consume_operands(operands)
            return
        self.answer = self.numbers.compute(value, template, function, operands)

    def consume_operands(self, operands: tuple[Any, ...]) -> None:
        """The values of some operands are read."""
        for each in operands:
            if isinstance(each, Expression):
                self.numbers.read(each, self.where())

    def compared(self, symbol: str, left: Any, right: Any) -> None:
        """Before a comparison."""
        numbers = self.numbers
        if not numbers:
            return
        if self.carries(left, right):
            one, other = type(left), type(right)
            if one is other is str:
                self.consume(left, right)
            elif one in NUMBERS and other in NUMBERS:
                operands = (numbers.operand(left), numbers.operand(right))
                numbers.ask(f"{{}} {symbol} {{}}", operands, bool(COMPARE[symbol](left, right)), self.where())
            elif one in _UNLIKE or other in _UNLIKE:
                return  # told apart by their types
            elif not (self._is_python(left) or self._is_python(right)):
                self.consume(left, right)
            return
        if is_atom(left) or is_atom(right) or self._is_python(left) or self._is_python(right):
            return
        if (
            symbol in ("==", "!=")
            and type(left) in SEQUENCES
            and type(right) in SEQUENCES
            and numbers.reached(left, right)
        ):
            self.handled = True
            self._compared_items(left, right)
        else:
            self.consume(left, right)

    def _compared_items(self, left: Any, right: Any) -> None:
        """Two sequences are compared, item by item until two differ."""
        if len(left) != len(right):
            return
        for one, other in zip(left, right, strict=True):
            if not (type(one) in NUMBERS and type(other) in NUMBERS):
                self.consume(left, right)
                return
        for one, other in zip(left, right, strict=True):
            self._compared_in_c(one, other)
            if one is not other and one != other:
                return

    def _compared_in_c(self, one: Any, other: Any) -> None:
        """Before C code asks whether an element is another object or equal to it: of two NaNs that is another question."""
        if type(one) in NUMBERS and type(other) in NUMBERS and float in (type(one), type(other)) and one != other:
            if self.carries(one, other):
                operands = (self.numbers.operand(one), self.numbers.operand(other))
                self.numbers.ask(_EQUAL_OR_NANS, operands, False, self.where())
        else:
            self.compared("==", one, other)

    def asked_truth(self, inputs: tuple[Any, ...]) -> None:
        """Before an object's truth is asked for."""
        expression = self.numbers.find(inputs[-1])
        if type(inputs[-1]) is str:
            self.consume(inputs[-1])
        elif expression is not None:
            self.numbers.ask("{} != 0", (expression,), bool(inputs[-1]), self.where())

    def identified(self, inputs: tuple[Any, ...]) -> None:
        """Before `one is other`: the program's own objects are compared."""
        if type(inputs[0]) is not type(inputs[1]):
            return
        if self.carries(*inputs):
            self.consume(*inputs)
        if any(id(each) in self.copies for each in inputs):
            self.recorder.replace(self.copies, False, True)

    def is_in_c(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`operator.is_` and `operator.is_not`."""
        if any(id(each) in self.copies for each in args):
            self.recorder.replace(self.copies, False, True)
        super().is_in_c(args, keywords)

    def searched(self, inputs: tuple[Any, ...]) -> None:
        """Before `item in container`."""
        item, container = inputs
        if not self.numbers or self._is_python(container):
            return
        if type(container) in SEQUENCES and type(item) in NUMBERS:
            for each in container:
                self._compared_in_c(each, item)
                if each is item or (type(each) in NUMBERS and each == item):
                    return
            return
        self.consume(item, container)

    def subscripted(self, container: Any, key: Any) -> None:
        """Before `container[key]`: an index or a key is read, but for tensors and classes written in Python."""
        if type(container) is str:
            self.consume(container)
        if self.numbers and not self._is_python(container):
            self.pins(key)

    def subscript_stored(self, value: Any, container: Any, key: Any) -> None:
        """Before `container[key] = value`."""
        if not self.numbers or self._is_python(container):
            return
        self.pins(key)
        node = self.find(container)
        if id(key) in self.copies and node is not None and node.external:
            self.recorder.replace({id(key): self.copies[id(key)]}, False, True)
        if not issubclass(type(container), (list, dict)):
            self.consume(value)


def _negative(number: Any) -> Any:
    return -number
