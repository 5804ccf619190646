"""The native forms of a record: its guard as steps, and its mock where that only runs the graph."""

from __future__ import annotations

import itertools
import types
from typing import Any

from magpy_codegen import GuardWriter, Step, StepKind, direct_form
from magpy_runtime import Record, native_guard

from ._strict import strict_guard

_numbers = itertools.count()


def add_native_form(record: Record, guard: GuardWriter, modes: Any, *, plain: bool) -> None:
    """Give a record its native guard, if it can have one; again after its guard was written anew.

    Args:
        record: with its guard and mock.
        guard: what wrote the guard.
        modes: checks the modes.
        plain: whether the mock may do nothing but to run the graph: no effects, no changed inputs, modes or random state.
    """
    namespace = record.namespace
    steps = [step.entry() for step in guard.steps]
    rest = record.guard_source.splitlines()[1 + len(steps) :]
    bound = [guard.name(node) for node in guard.bound]
    record.native = record.form = None
    source = ""
    if not guard.whole or rest != [f"    return ({''.join(name + ', ' for name in bound)})"]:
        made = _rest(guard, rest, bound, namespace)
        if made is None:
            return
        step, source = made
        steps.append(step.entry())
    direct = direct_form(record.mock_source, namespace) if plain else None
    record.form = (steps, source, direct)
    held, tensors = namespace["held_facts"], namespace["tensors_match"]
    record.native = native_guard(steps, modes, held, tensors, strict_guard(record.guard), direct)


def _rest(guard: GuardWriter, rest: list[str], bound: list[str], namespace: dict[str, Any]) -> tuple[Step, str] | None:
    """The lines behind the steps, as a function of what is bound so far; and its source."""
    known = bound[: sum(step.kind is StepKind.BIND for step in guard.steps)]
    text = "\n".join(rest)
    with_call = "args[" in text or "kwargs[" in text
    head = ["args", "kwargs", *known] if with_call else known
    if not rest or len(head) > 60 or len(bound) + len(guard.extra) > 60:
        return None
    source = f"def guard({', '.join(head)}):\n{text}\n"
    code = compile(source, f"<magpy rest of a guard {next(_numbers)}>", "exec")
    [function] = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    step = Step(
        StepKind.REST,
        operands=tuple([(number, None) for number in range(len(known))]),
        question=int(with_call),
        key=types.FunctionType(function, namespace, "guard"),
        expected=len(bound) + len(guard.extra),
    )
    return step, source


__all__ = ["add_native_form"]
