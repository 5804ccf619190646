"""A monitor without tensors: the rules that need no torch, on any Python that is supported.

Importing `magpy` imports torch. Where there is none, its modules are loaded below a package object that was never run.
"""

from __future__ import annotations

import dis
import gc
import importlib.util
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magpy_annotations import default_registry
from magpy_refgraph import EdgeKind, Key, RefGraph, to_text
from magpy_runtime.capture import Plan, Recorder

SOURCE = Path(__file__).resolve().parent.parent / "src" / "magpy"

if importlib.util.find_spec("torch") is None and "magpy" not in sys.modules:
    _spec = importlib.util.spec_from_file_location(
        "magpy", SOURCE / "__init__.py", submodule_search_locations=[str(SOURCE)]
    )
    assert _spec is not None
    sys.modules["magpy"] = importlib.util.module_from_spec(_spec)

_frames: Any = importlib.import_module("magpy._frames")
_opcodes: Any = importlib.import_module("magpy._opcodes")
_reasons: Any = importlib.import_module("magpy._reasons")
_state: Any = importlib.import_module("magpy._state")

Boundary: Any = _reasons.Boundary
Planner: Any = _opcodes.Planner
_REGISTRY = default_registry()


class PlainMonitor(_frames.FrameRules):  # type: ignore[misc]
    """Watches one call of a program in which there are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = _REGISTRY
        self.planner = Planner(self)
        self.recorder = Recorder(self.plan_for, self.on_enter, self.on_exit)

    def plan_for(self, code: types.CodeType) -> Plan | None:
        """The plan of a code object."""
        return None if _state.is_own(code.co_filename) else self.planner.plan(code)

    def where(self) -> None:
        """Places are left out: lines and names of comprehensions differ between versions."""
        return None


@dataclass(slots=True)
class Watched:
    """The outcome of a watched call.

    Attributes:
        result: what the program returned.
        error: what it raised, or None.
        failure: what ended the region, or None; an `AssertionError` of the monitor is one, too.
        graph: what was seen.
    """

    result: Any
    error: BaseException | None
    failure: BaseException | None
    graph: RefGraph


def watch(function: Any, *args: Any, **kwargs: Any) -> Watched:
    """Run a program under a plain monitor."""
    monitor = PlainMonitor()
    try:
        monitor.pin(function)
        for index, arg in enumerate(args):
            monitor.follow(monitor.graph.root, Key(EdgeKind.ARGUMENT, index), arg)
        for name, arg in kwargs.items():
            monitor.follow(monitor.graph.root, Key(EdgeKind.KEYWORD, name), arg)
        monitor.call(function, args, kwargs)
    except Boundary as boundary:
        return Watched(None, None, boundary, monitor.graph)
    result = error = None
    collecting = gc.isenabled()
    gc.disable()  # as the monitor does: collection runs others' finalizers and callbacks
    try:
        result = monitor.recorder.run(function, args, kwargs)
    except Exception as raised:
        error = raised
    finally:
        if collecting:
            gc.enable()
    monitor.settle()
    return Watched(result, error, monitor.recorder.error, monitor.graph)


def text(graph: RefGraph) -> str:
    """A graph's text without what no two interpreters have in common: where code objects lie."""
    return re.sub(r"= <[<?]?code object ([\w.<>?]+) at .*", r"= <code \1>", to_text(graph))


def known_opcodes(*, rules: bool = False) -> set[str]:
    """The names of all instructions that are known, those of other versions included; or of those that have rules."""
    table = set(PlainMonitor().planner._table)
    return table if rules else table | _opcodes._SKIPPED


def known_intrinsics() -> set[str]:
    """The operands of CALL_INTRINSIC that need no rule."""
    return set(_opcodes._QUIET_INTRINSICS)


def executed(function: Any, *args: Any) -> set[str]:
    """The names of the instructions that a call executes, in all Python code that it runs."""
    names: set[str] = set()

    def seen(inputs: tuple[Any, ...], opname: str) -> None:
        names.add(opname)

    def plan_for(code: types.CodeType) -> Plan | None:
        plan: Plan = [None] * (len(code.co_code) // 2)
        before_resume = True
        for instruction in dis.get_instructions(code, show_caches=True):
            if before_resume or instruction.opname in ("CACHE", "EXTENDED_ARG"):
                names.add(instruction.opname)
            else:
                plan[instruction.offset // 2] = (seen, None, 0, 0, instruction.opname)
            before_resume &= instruction.opname != "RESUME"
        return plan

    try:
        Recorder(plan_for).run(function, args)
    except Exception:
        pass
    return names
