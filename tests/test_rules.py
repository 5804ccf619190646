"""What the rules record of programs without tensors: on every Python version the same, as `cases/rules` says."""

from __future__ import annotations

import dis
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plain_monitor import (
    Boundary,
    PlainMonitor,
    Planner,
    Watched,
    executed,
    known_intrinsics,
    known_opcodes,
    text,
    watch,
)
from rule_programs import PROGRAMS, Program

CASES = Path(__file__).parent / "cases" / "rules"
PYTHON = sys.version_info[:2]


def _natively(program: Program) -> tuple[str, str]:
    """How the program ends without a monitor, and its arguments afterwards."""
    args = program.make()
    try:
        outcome = repr(program.function(*args))
    except Exception as error:
        outcome = f"raises {error!r}"
    finally:
        if program.reset is not None:
            program.reset()
    return _plain(outcome), _plain(repr(args))


def _watched(program: Program) -> tuple[str, str, Watched]:
    """The same with a monitor, and what it saw."""
    args = program.make()
    try:
        watched = watch(program.function, *args)
        outcome = repr(watched.result) if watched.error is None else f"raises {watched.error!r}"
    finally:
        if program.reset is not None:
            program.reset()
    return _plain(outcome), _plain(repr(args)), watched


def _plain(shown: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", shown)


def _written(program: Program, outcome: str, watched: Watched) -> str:
    failure = watched.failure
    if failure is None:
        end = "watched to the end"
    elif isinstance(failure, Boundary):
        end = f"boundary: {failure.slug}: {failure.detail}"
    else:
        raise AssertionError("the monitor failed") from failure
    facts = text(watched.graph) if program.facts else "facts depend on the standard library's Python code\n"
    return f"{outcome}\n{end}\n\n{facts}"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name: str, update_cases: bool) -> None:
    program = PROGRAMS[name]
    outcome, after, watched = _watched(program)
    written = _written(program, outcome, watched)
    path = CASES / f"{name}.txt"
    if update_cases:
        path.parent.mkdir(exist_ok=True)
        path.write_text(written, encoding="utf-8")
    else:
        assert written == path.read_text(encoding="utf-8")
    assert (outcome, after) == _natively(program)


# -- every instruction -------------------------------------------------------------------------------------------------

# What no program executes, and why.
NOT_EXECUTED = {
    "CACHE": "room for the interpreter's own notes",
    "EXTENDED_ARG": "reported together with the instruction that follows",
    "END_FOR": "FOR_ITER jumps over it",
    "INTERPRETER_EXIT": "in frames of the interpreter's own, which have no events",
    "EXIT_INIT_CHECK": "in frames of the interpreter's own, which have no events",
    "ENTER_EXECUTOR": "put in by the optimiser, and seen as what it replaces",
    "RESERVED": "not an instruction",
    "IMPORT_STAR": "in modules only",
    "PRINT_EXPR": "at an interactive prompt only",
}
REFUSED = {
    "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE", "IMPORT_STAR", "PRINT_EXPR",
    "RESERVED",
}  # fmt: skip


def _opcodes() -> set[str]:
    """The instructions that code objects of this Python can hold."""
    return {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@pytest.fixture(scope="module")
def executions() -> dict[str, set[str]]:
    """The instructions that each program executes."""
    found: dict[str, set[str]] = {}
    for program in PROGRAMS.values():
        found[program.name] = executed(program.function, *program.make())
        if program.reset is not None:
            program.reset()
    return found


def test_every_instruction_is_executed_by_a_program(executions: dict[str, set[str]]) -> None:
    found = set[str]().union(*executions.values())
    assert sorted(_opcodes() - found - set(NOT_EXECUTED)) == []
    assert sorted(found & set(NOT_EXECUTED) - {"CACHE", "EXTENDED_ARG"}) == []


# Rules that can be left out and nothing is missed.
NOT_NEEDED = {
    "CALL", "PRECALL",  # made elsewhere in the planner
    "STORE_NAME", "DELETE_NAME", "CALL_INTRINSIC_2",  # have none, on purpose
    "UNARY_NOT", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE",  # TO_BOOL has it from 3.13 on
    "LIST_APPEND", "LIST_TO_TUPLE",  # matter behind a boundary only, see test_filling.py
    "WITH_EXCEPT_START",  # the frame of a context manager's own exit explains itself
}  # fmt: skip


@pytest.mark.parametrize("opname", sorted((known_opcodes(rules=True) & _opcodes()) - NOT_NEEDED))
def test_every_rule_is_needed(
    opname: str, executions: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch, update_cases: bool
) -> None:
    """Without it, what is recorded of some program differs: the golden files would show that it is missing."""
    if update_cases:
        pytest.skip("the golden files are being written")
    make = Planner._make_table
    monkeypatch.setattr(Planner, "_make_table", lambda self: make(self) | {opname: lambda instruction: None})
    for name in sorted(executions, key=lambda name: not name.startswith("single")):
        if opname in executions[name]:
            outcome, _, watched = _watched(PROGRAMS[name])
            golden = (CASES / f"{name}.txt").read_text(encoding="utf-8")
            if watched.failure is not None and not isinstance(watched.failure, Boundary):
                return
            if _written(PROGRAMS[name], outcome, watched) != golden:
                return
    raise AssertionError(f"no program misses the rule of {opname}")


def test_what_is_refused() -> None:
    """Instructions that no table knows; a new Python may not add to them unseen."""
    assert _opcodes() - known_opcodes() == REFUSED & _opcodes()
    assert not known_opcodes() & REFUSED


@pytest.mark.parametrize(
    "source", ["from os import *", "async def f():\n await f()", "async def f():\n async with f(): pass"]
)
def test_what_is_refused_ends_the_region(source: str) -> None:
    monitor = PlainMonitor()
    plans = [monitor.plan_for(code) for code in _codes(compile(source, "<source>", "exec"))]
    refusals = [item for plan in plans if plan for item in plan if item and item[0] == monitor.unsupported]
    assert refusals
    monitor.user_line = lambda: ("", 0)  # type: ignore[method-assign]
    with pytest.raises(Boundary) as caught:
        monitor.unsupported((), refusals[0][4])
    assert caught.value.slug == "unsupported-instruction"


@pytest.mark.skipif(PYTHON < (3, 12), reason="3.11 has an instruction for each")
def test_intrinsics_that_are_refused() -> None:
    """Their numbers are a version's own: a new one must not pass for an old one."""
    opcode: Any = __import__("opcode")
    names = {*opcode._intrinsic_1_descs, *opcode._intrinsic_2_descs}
    assert names - known_intrinsics() == {
        "INTRINSIC_1_INVALID", "INTRINSIC_2_INVALID", "INTRINSIC_PRINT", "INTRINSIC_IMPORT_STAR",
        "INTRINSIC_UNARY_POSITIVE", "INTRINSIC_LIST_TO_TUPLE",  # have rules
    }  # fmt: skip
