"""Numbers that differ from call to call: expressions of what a guard reads on entry, as Python and as torch.fx.

A monitored run computes with plain numbers. Beside them an `Expression` is kept for each that came of a lifted one, and a
`Condition` for each question that the program asked of one. The guard answers the conditions anew at each call, and the
mock takes the values of expressions that leave the call from the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch.fx

Number = int | float | bool


class Expression:
    """A number that is known as an expression.

    Attributes:
        value: what it was in the monitored run.
        node: the operator graph's node of it, None as long as no operator needed it.
    """

    __slots__ = ("node", "value")

    def __init__(self, value: Number) -> None:
        self.value = value
        self.node: torch.fx.Node | None = None


class Lifted(Expression):
    """A number that is read on entry.

    Attributes:
        name: its variable in the guard.
        text: what it is, in words.
        why: why it is an input.
    """

    __slots__ = ("name", "text", "why")

    def __init__(self, value: Number, name: str, text: str, why: str) -> None:
        super().__init__(value)
        self.name = name
        self.text = text
        self.why = why


class Measured(Expression):
    """A size of a tensor, or a product of sizes: what a node of the operator graph gives."""

    __slots__ = ()

    def __init__(self, value: Number, node: torch.fx.Node) -> None:
        super().__init__(value)
        self.node = node


class Computed(Expression):
    """What an operation on numbers gave.

    Attributes:
        template: the operation as Python, with `{}` for each operand.
        function: the same for the operator graph.
        operands: expressions and plain numbers.
    """

    __slots__ = ("function", "operands", "template")

    def __init__(
        self, value: Number, template: str, function: Callable[..., Any], operands: tuple[Expression | Number, ...]
    ) -> None:
        super().__init__(value)
        self.template = template
        self.function = function
        self.operands = operands


@dataclass(frozen=True, slots=True)
class Condition:
    """A question that the program asked of numbers, or that a C function or an f-string asked by reading one's value.

    Attributes:
        template: the question as Python, with `{}` for each operand.
        operands: expressions and plain numbers.
        outcome: whether the answer was true; None: the value itself was read, and must be the same.
        where: where it was asked.
    """

    template: str
    operands: tuple[Expression | Number, ...]
    outcome: bool | None
    where: Any = None


class UnknownNumber(Exception):
    """A number cannot be said in terms of what the guard reads."""


@dataclass(slots=True)
class NumberWriter:
    """Writes expressions as lines of a guard, each once.

    Attributes:
        measured: the text of a measured number in terms of names that the guard has.
        lines: lines so far, each with a comment; a line that starts with `if` is a check.
    """

    measured: Callable[[Measured], str]
    lines: list[tuple[str, str]] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _kept: list[Expression] = field(default_factory=list)

    def text(self, number: Expression | Number) -> str:
        """The text of a number, after the lines that compute it.

        Raises:
            UnknownNumber: it cannot be said.
        """
        if not isinstance(number, Expression):
            return plain(number)
        for each in _in_order(number, self._names):
            self._names[id(each)] = self._write(each)
            self._kept.append(each)
        return self._names[id(number)]

    def variable(self, number: Expression) -> str:
        """The name of a variable that holds a number."""
        text = self.text(number)
        if text.isidentifier():
            return text
        return self._assign(number, text)

    def _write(self, number: Expression) -> str:
        if isinstance(number, Lifted):
            return number.name
        if isinstance(number, Measured):
            text = self.measured(number)
            return text if text.isidentifier() or text.isdigit() else self._assign(number, text)
        assert isinstance(number, Computed)
        operands = [self._names[id(each)] if isinstance(each, Expression) else plain(each) for each in number.operands]
        return self._assign(number, number.template.format(*operands))

    def _assign(self, number: Expression, text: str) -> str:
        name = f"e{sum(not line.startswith('if ') for line, _ in self.lines)}"
        self.lines.append((f"{name} = {text}", ""))
        self._names[id(number)] = name
        return name

    def condition(self, condition: Condition) -> None:
        """Write the check of a condition, unless it says nothing."""
        operands = [self.text(each) for each in condition.operands]
        if condition.outcome is None:
            number = condition.operands[0]
            assert isinstance(number, Expression)
            if operands[0] == plain(number.value):
                return
            if type(number.value) is float:
                line = f"if not same_value({operands[0]}, {plain(number.value)})"
            else:
                line = f"if {operands[0]} != {plain(number.value)}"
            text = "the program read the value"
        else:
            asked = condition.template.format(*operands)
            line = f"if not ({asked})" if condition.outcome else f"if {asked}"
            text = "a branch on it"
        if (line, text) not in self.lines:
            self.lines.append((line, text))


def _in_order(number: Expression, known: dict[int, str]) -> Iterator[Expression]:
    """An expression's parts that are not known yet, before what is made of them."""
    stack: list[tuple[Expression, bool]] = [(number, False)]
    done: set[int] = set()
    while stack:
        each, ready = stack.pop()
        if id(each) in known or id(each) in done:
            continue
        if ready or not isinstance(each, Computed):
            done.add(id(each))
            yield each
            continue
        stack.append((each, True))
        stack += [(operand, False) for operand in reversed(each.operands) if isinstance(operand, Expression)]


_SPECIAL: Final = {"inf": "float('inf')", "-inf": "-float('inf')", "nan": "float('nan')"}


def plain(number: Number) -> str:
    """A plain number as Python source."""
    shown = repr(number)
    shown = _SPECIAL.get(shown, shown)
    return f"({shown})" if shown.startswith("-") else shown


class NumberNodes:
    """Nodes of an operator graph for numbers.

    Attributes:
        graph: the graph.
        placeholders: those of lifted numbers, in order; they come after the tensors'.
        inputs: the lifted numbers themselves.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.placeholders: list[torch.fx.Node] = []
        self.inputs: list[Lifted] = []

    def node(self, number: Expression, last_input: torch.fx.Node | None) -> torch.fx.Node:
        """The node of a number.

        Args:
            number: it is put at the graph's end unless it is there.
            last_input: the last placeholder of a tensor.
        """
        for each in _in_order(number, {}):
            if each.node is not None and not each.node._erased:
                continue
            if isinstance(each, Lifted):
                each.node = self._placeholder(each, last_input)
            else:
                assert isinstance(each, Computed)
                args = tuple(part.node if isinstance(part, Expression) else part for part in each.operands)
                each.node = self.graph.create_node("call_function", each.function, args)
            each.node.meta["number"] = each
        assert number.node is not None
        return number.node

    def _placeholder(self, number: Lifted, last_input: torch.fx.Node | None) -> torch.fx.Node:
        before = self.placeholders[-1] if self.placeholders else last_input
        made = self.graph.create_node("placeholder", number.name)
        (before.append if before is not None else self.graph._root.append)(made)
        self.placeholders.append(made)
        self.inputs.append(number)
        return made


__all__ = [
    "Computed",
    "Condition",
    "Expression",
    "Lifted",
    "Measured",
    "NumberNodes",
    "NumberWriter",
    "UnknownNumber",
    "plain",
]
