"""The guard once more as a list of steps, for the native check.

Each line of a guard that can fail, and each that binds an object, has a step; what generated code calls by a name, a step
knows by the number of its register. From a line on whose writer gives no step, the guard is left to its generated Python.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

ARGUMENT: Final = 16
"""Question: a positional argument; the key is its number. Questions below 16 are those of `FactKind`."""

KEYWORD: Final = 17
"""Question: a keyword argument; the key is its number among the keywords."""

CALL: Final = 18
"""Question: what a function gives; the key is the function and its arguments."""

NAMED: Final = -3
"""Of an operand: the register of a number that differs from call to call, known by its name."""

Operand = tuple[int, Any]
"""The number of a register, or -1 and an object that the record holds, or `NAMED` and a name."""


class StepKind(enum.IntEnum):
    """What a step does; the numbers are those of the native guard."""

    POSITIONAL = 0  # the number of positional arguments is `expected`
    KEYWORDS = 1  # the keywords' names are `expected`
    MODES = 2
    HELD = 3  # the facts about what the record holds
    IS = 4  # the answer is `expected`
    PLAIN = 5  # the answer is a plain value like `expected`
    SAME = 6  # the answer is what register `expected` holds
    BIND = 7  # the answer goes into register `expected`
    DIFFERENT = 8  # the operands are distinct objects
    OUTSIDE = 9  # the operand's id is not in `expected`
    TENSORS = 10  # metadata of the operands
    TRUE = 11  # `key`, a function of the operands, gives a true value
    REST = 12  # `key`, a function of the operands, is the rest of the guard, which binds `expected` objects in all
    COMPARE = 13  # two numbers compare as `question` (a `Comparison`) asks, or do not, as `expected` says
    MORE = 14  # `key`, a function of the operands, is the last lines; it gives what goes into the registers `expected`


class Comparison(enum.IntEnum):
    """How two numbers are compared; the numbers are CPython's."""

    LT = 0
    LE = 1
    EQ = 2
    NE = 3
    GT = 4
    GE = 5


@dataclass(slots=True)
class Step:
    """One step.

    Attributes:
        kind: what it does.
        operands: what it looks at.
        question: what it asks of its operand.
        key: see `FactKind`.
        expected: see `StepKind`.
        number: of the check, which a failure gives.
    """

    kind: StepKind
    operands: tuple[Operand, ...] = ()
    question: int = -1
    key: Any = None
    expected: Any = None
    number: int = -1

    def entry(self, registers: dict[str, int]) -> tuple[int, int, int, tuple[Operand, ...], Any, Any]:
        """The step for the native guard; `registers` are those of numbers that differ from call to call."""
        operands = tuple(
            [(registers[obj], None) if number == NAMED else (number, obj) for number, obj in self.operands]
        )
        named = self.kind in (StepKind.BIND, StepKind.SAME) and type(self.expected) is str
        return (
            self.kind,
            self.number,
            self.question,
            operands,
            self.key,
            registers[self.expected] if named else self.expected,
        )
