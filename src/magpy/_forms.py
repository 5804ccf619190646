"""The native forms of a record: its guard as steps, and its mock where that only runs the graph."""

from __future__ import annotations

import ast
import itertools
import operator
import textwrap
import types
from typing import Any, Final

from magpy_codegen import Comparison, FactKind, GuardWriter, Operand, Step, StepKind, direct_form
from magpy_runtime import Record, native_guard

from ._strict import strict_guard

_numbers = itertools.count()


def add_native_form(record: Record, guard: GuardWriter, modes: Any, *, plain: bool) -> None:
    """Give a record its native guard, if it can have one; again after its guard was written anew.

    Args:
        record: with its guard and mock.
        guard: what wrote the guard.
        modes: checks the modes.
        plain: whether the graph changes no inputs, modes or random state: the mock can be tried without Python.
    """
    namespace = record.namespace
    *rest, last = record.guard_source.splitlines()[1 + len(guard.steps) :]
    bound = [guard.name(node) for node in guard.bound]
    handed = [*bound, *guard.extra]
    record.native = record.form = None
    source = ""
    steps = list(guard.steps)
    lines = _Lines(steps, handed)
    made: tuple[Step | None, str] | None
    if not guard.whole:
        made = _rest(lines, [*rest, last], handed, namespace)
    else:
        made = _last(lines, rest, len(guard.checks), handed, namespace)
    if made is None:
        return
    step, source = made
    if step is not None:
        steps.append(step)
    direct = direct_form(record.mock_source, namespace) if plain else None
    entries = [each.entry(lines.registers) for each in steps]
    record.form = (entries, source, direct, len(handed))
    held, tensors = namespace["held_facts"], namespace["tensors_match"]
    record.native = native_guard(entries, modes, held, tensors, strict_guard(record.guard), direct, len(handed))


class _Lines:
    """The lines of a guard that have steps, and those that get some here.

    Attributes:
        steps: the steps.
        registers: those of numbers that differ from call to call, by name.
        known: the names that the steps bind, and those that the lines behind bind here, with their operands.
    """

    def __init__(self, steps: list[Step], handed: list[str]) -> None:
        self.steps = steps
        self.registers: dict[str, int] = {}
        self.known: dict[str, Operand] = {}
        self._handed = handed
        for step in steps:
            if step.kind is StepKind.BIND:
                name = step.expected if type(step.expected) is str else handed[step.expected]
                self.bind(name)

    def bind(self, name: str) -> int:
        """A name is bound to an object from here on; gives the register."""
        if name in self._handed:
            register = self._handed.index(name)
        else:
            used = [*self.registers.values(), len(self._handed) - 1]
            register = self.registers.get(name, max(used) + 1)
        self.registers[name] = register
        self.known[name] = (register, None)
        return register

    def convert(self, line: str, number: int) -> bool:
        """Add the step of a line about a number or a size, if it has one; fails are `number`."""
        if line.strip() == "try:":
            return False
        match ast.parse(textwrap.dedent(line)).body:
            case [
                ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id=tensor), attr="size"),
                        args=[ast.Constant(value=int() as dim)],
                    ),
                )
            ] if tensor in self.known:
                ask = operator.methodcaller("size", dim)
                step = Step(StepKind.BIND, (self.known[tensor],), FactKind.OTHER, ask, self.bind(name))
            case [
                ast.If(
                    test=ast.Compare(
                        left=ast.Call(func=ast.Attribute(value=ast.Name(id=tensor), attr="stride"), args=[]),
                        ops=[ast.NotEq()],
                        comparators=[ast.Tuple(elts=strides)],
                    )
                )
            ] if tensor in self.known and all(type(each) is ast.Constant for each in strides):
                wanted = tuple([each.value for each in strides if type(each) is ast.Constant])
                ask = operator.methodcaller("stride")
                step = Step(StepKind.PLAIN, (self.known[tensor],), FactKind.OTHER, ask, wanted, number)
            case [
                ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Compare() as test) | (ast.Compare() as test)) as line_
            ] if len(test.ops) == 1 and type(test.ops[0]) in _COMPARISONS:
                one, other = self._number(test.left), self._number(test.comparators[0])
                if one is None or other is None:
                    return False
                fails_where_true = line_.test is test
                asked = _COMPARISONS[type(test.ops[0])]
                step = Step(StepKind.COMPARE, (one, other), asked, None, not fails_where_true, number)
            case _:
                return False
        self.steps.append(step)
        return True

    def _number(self, value: ast.expr) -> Operand | None:
        match value:
            case ast.Name(id=name) if name in self.registers and name in self.known:
                return self.known[name]
            case ast.Constant(value=constant) if type(constant) in (int, float):
                return -1, constant
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as constant)):
                return -1, -constant
        return None


_COMPARISONS: Final = {
    ast.Lt: Comparison.LT, ast.LtE: Comparison.LE, ast.Eq: Comparison.EQ,
    ast.NotEq: Comparison.NE, ast.Gt: Comparison.GT, ast.GtE: Comparison.GE,
}  # fmt: skip


def _last(
    lines: _Lines, rest: list[str], checks: int, handed: list[str], namespace: dict[str, Any]
) -> tuple[Step | None, str]:
    """The lines behind the steps: as steps, as far as they can be; from the first on that cannot, as a function."""
    number = checks - sum(_fails(line) for line in rest)
    while rest and lines.convert(rest[0], number):
        number += _fails(rest.pop(0))
    if not rest:
        return None, ""
    text = "\n".join(rest)
    tree = ast.parse(textwrap.dedent(text))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = [name for name in handed if any(node.id == name and isinstance(node.ctx, ast.Store) for node in names)]
    needed = [name for name in lines.known if any(node.id == name for node in names)]
    operands = tuple([lines.known[name] for name in needed])
    registers = tuple([lines.bind(name) for name in made])
    text += f"\n    return ({''.join(name + ', ' for name in made)})"
    function, source = _function(needed, text, namespace)
    return Step(StepKind.MORE, operands, key=function, expected=registers), source


def _fails(line: str) -> bool:
    """Whether a line has a failure number."""
    return line.strip().startswith(("if ", "except "))


def _rest(lines: _Lines, rest: list[str], handed: list[str], namespace: dict[str, Any]) -> tuple[Step, str] | None:
    """The lines behind the steps, as a function of what is bound so far that gives all that is handed on; and its source."""
    text = "\n".join(rest)
    with_call = "args[" in text or "kwargs[" in text
    head = ["args", "kwargs", *lines.known] if with_call else [*lines.known]
    if len(head) > 60 or len(handed) > 60:
        return None
    function, source = _function(head, text, namespace)
    step = Step(
        StepKind.REST,
        operands=tuple(lines.known.values()),
        question=int(with_call),
        key=function,
        expected=len(handed),
    )
    return step, source


def _function(head: list[str], text: str, namespace: dict[str, Any]) -> tuple[types.FunctionType, str]:
    source = f"def guard({', '.join(head)}):\n{text}\n"
    code = compile(source, f"<magpy rest of a guard {next(_numbers)}>", "exec")
    [function] = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return types.FunctionType(function, namespace, "guard"), source


__all__ = ["add_native_form"]
