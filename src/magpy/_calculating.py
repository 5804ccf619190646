"""What may raise where numbers that vary are calculated with: the guard does it first, while nothing has been done yet."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

from magpy_codegen import Computed, Expression, Lifted, Measured, plain
from magpy_refgraph import EdgeKind, Key

_LIMIT: Final = 1 << 63
_ROUNDS: Final = frozenset({"int({})", "math.floor({})", "math.ceil({})"})
_QUESTIONS: Final = frozenset({"size", "stride"})


class Risks:
    """Which calculations of a run may raise at another call.

    Attributes:
        raising: they raise themselves, for infinities or for ints that are too large.
        handed: ints that an operator gets, and may find too large.
    """

    def __init__(self, computed: Iterable[Computed], roots: dict[tuple[int, Key], Lifted]) -> None:
        self._free: dict[Expression, bool] = {root: key.kind is not EdgeKind.LENGTH for (_, key), root in roots.items()}
        self.raising: list[Computed] = []
        self.handed: list[Computed] = []
        for each in computed:
            self._free[each] = any(isinstance(part, Expression) and self._is_free(part) for part in each.operands)
            if self._raises(each):
                self.raising.append(each)
            if each.node is not None and type(each.value) is int and self._free[each]:
                self.handed.append(each)

    def is_free(self, number: Lifted) -> bool:
        """Whether an int may be as large as it likes: it is no length and no size."""
        return type(number.value) is int and self._is_free(number)

    def _is_free(self, number: Expression) -> bool:
        return not isinstance(number, Measured) and self._free.get(number, False)

    def _raises(self, computed: Computed) -> bool:
        if computed.template == "math.sqrt({})":
            return True
        free = [each.value for each in computed.operands if isinstance(each, Expression) and self._is_free(each)]
        if computed.template in _ROUNDS:
            return any(type(value) is float for value in free)
        if type(computed.value) is not float:
            return False
        return any(type(value) is int for value in free) or (computed.template == "{} ** {}" and bool(free))


def fits(number: Lifted) -> list[str]:
    """Lines of a guard that check whether an int is one that operators take."""
    return [f"if {number.name} < {plain(-_LIMIT)}", f"if {number.name} >= {_LIMIT}"]


def fits_at_all(text: str) -> str:
    """The same in one line, of an expression."""
    return f"if not {-_LIMIT} <= {text} < {_LIMIT}"


def may_raise(line: str) -> bool:
    """Whether a line of a guard calculates."""
    return any(map(_calculates, ast.walk(ast.parse(f"{line}: ..." if line.startswith("if ") else line))))


def _calculates(node: Any) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        return not (
            called.attr in _QUESTIONS
            if isinstance(called, ast.Attribute)
            else isinstance(called, ast.Name) and called.id == "same_value"
        )
    return isinstance(node, ast.BinOp)


__all__ = ["Risks", "fits", "fits_at_all", "may_raise"]
