"""Collects, while a program runs, what its compiled callables did; keeps plain data and none of the program's objects."""

from __future__ import annotations

import dis
import re
import threading
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import torch

from magpy._api import Info, info
from magpy._explain import explain
from magpy._monitor import locate
from magpy._nested import Root
from magpy._observe import Observer, observe
from magpy.cli._clock import BoundaryClock
from magpy.cli._lines import Function, Line, Lines
from magpy_refgraph import RefGraph, to_svg
from magpy_runtime.capture import type_lookup
from magpy_runtime.twins import plain_calls

_PLACE: Final = re.compile(r'File "(.*)", line (\d+), in ')
_DRAWN: Final = 120  # objects in one drawing
_DRAWINGS: Final = 8  # of one compiled callable


@dataclass(slots=True)
class Times:
    """How many calls were served in one way, and how long they took altogether."""

    calls: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class RecordText:
    """One record as text.

    Attributes:
        hits: calls that it served.
        end: the boundary at which it ends, "" where it ends with the call.
        checks: number of facts that its guard checks.
        operators: number of operators in its graph.
        guard: source of the guard.
        held: source of the facts about held objects.
        mock: source of the mock.
        graph: the operator graph, "" when there is none.
        effects: what the mock replays, in words.
        drawing: the RefGraph of its run as SVG, "" when it was not drawn.
    """

    hits: int
    end: str
    checks: int
    operators: int
    guard: str
    held: str
    mock: str
    graph: str
    effects: tuple[str, ...]
    drawing: str


@dataclass(slots=True, kw_only=True)
class Summary:
    """All that is known of one compiled callable.

    Attributes:
        name: its qualified name.
        file: where it is defined, "" if unknown.
        line: where in the file, 0 if unknown.
        info: what `magpy.info` says of it.
        explanation: what `magpy.explain` says of it.
        served: calls and seconds by how they were served: `monitored`, `hit`, `native`, or `inlined` into another one.
        failed: facts that did not hold when a guard missed, with how often each was the one.
        records: its records: those of the call, newest first, then those of what comes behind boundaries.
        lines: what its watched runs did line by line.
    """

    name: str
    file: str
    line: int
    info: Info
    explanation: str
    served: dict[str, Times]
    failed: dict[str, int]
    records: tuple[RecordText, ...]
    lines: Lines


@dataclass(slots=True)
class _Kept:
    """What is kept of a compiled callable while it lives."""

    number: int
    served: dict[str, Times] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)
    drawings: dict[int, str] = field(default_factory=dict)


class Collector(Observer):
    """Is told of all compiled callables and sums up each of them, at the end or when it is freed. A context manager.

    Args:
        lines: whether to note which lines ran and to draw the RefGraphs, which slows the watched runs down.
    """

    def __init__(self, *, lines: bool = False) -> None:
        super().__init__()
        self.started = time.perf_counter()
        self._want_lines = lines
        # By id, since `gone` may come when the weak references are cleared already.
        self._alive: dict[int, tuple[weakref.ref[Any], _Kept]] = {}
        self._finished: dict[int, Summary] = {}
        self._made = 0
        self._local = threading.local()

    def __enter__(self) -> Self:
        self._before = observe(self)
        # Calls of modules are native; their way in Python goes through `dispatch`, which has a clock.
        self._calls = plain_calls()
        self._calls.__enter__()
        self._clock = BoundaryClock().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._clock.__exit__(*error)
        self._calls.__exit__(None, None, None)
        observe(self._before)

    def made(self, compiled: Any) -> None:
        kept = _Kept(self._made)
        self._alive[id(compiled)] = weakref.ref(compiled), kept
        self._made += 1
        compiled.dispatch = _timed(compiled, kept.served)

    def gone(self, compiled: Any) -> None:
        found = self._alive.pop(id(compiled), None)
        if found is not None:
            self._finished[found[1].number] = _summary(compiled, found[1])

    def planned(self, code: types.CodeType, plan: Any) -> None:
        if self._want_lines:
            functions, seen = self._noted()
            functions.add((code.co_filename, code.co_qualname, code.co_firstlineno, _mark_lines(code, plan, seen)))

    def recorded(self, compiled: Any, monitor: Any, run: Any, record: Any, failure: Any) -> None:
        functions, seen = self._noted()
        del self._local.noted
        found = self._alive.get(id(compiled))
        if found is None or not self._want_lines:
            return
        kept = found[1]
        lines = kept.lines
        lines.add_run(functions, seen, recorded=record is not None)
        if failure is not None and failure.file:
            lines.stops[failure.file, failure.line].add(failure.slug)
        graphs = [*monitor.older, monitor.graph]
        records = [draft.record for _, draft in monitor.drafts]
        for graph in graphs if records else ():
            lines.facts |= _facts(graph)
        for each in records:
            lines.operators |= _operators(each.graph)
        for graph, each in zip(graphs, records, strict=False) if len(graphs) == len(records) else ():
            if len(kept.drawings) < _DRAWINGS:
                kept.drawings[id(each)] = to_svg(graph, limit=_DRAWN)

    def _noted(self) -> tuple[set[Function], set[Line]]:
        """The functions and lines that came by in the watched run of this thread."""
        noted: tuple[set[Function], set[Line]] | None = getattr(self._local, "noted", None)
        if noted is None:
            noted = self._local.noted = (set(), set())
        return noted

    def summaries(self) -> list[Summary]:
        """All compiled callables that were made, in that order."""
        found = dict(self._finished)
        for reference, kept in list(self._alive.values()):
            compiled = reference()
            if compiled is not None:
                found[kept.number] = _summary(compiled, kept)
        return [found[number] for number in sorted(found)]


def _timed(compiled: Any, served: dict[str, Times]) -> Callable[..., Any]:
    """The `dispatch` of a compiled callable with a clock around it; it refers to the callable weakly."""
    dispatch, reference = type(compiled).dispatch, weakref.ref(compiled)

    def timed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        state: Any = reference()
        before = state.statistics
        counts = before.monitored, before.hits, before.native
        started = time.perf_counter()
        try:
            return dispatch(state, args, kwargs)
        finally:
            seconds = time.perf_counter() - started
            after = state.statistics
            kinds = ("monitored", "hit", "native")
            now = (after.monitored, after.hits, after.native)
            kind = next((name for name, one, other in zip(kinds, now, counts, strict=True) if one > other), "inlined")
            times = served.setdefault(kind, Times())
            times.calls += 1
            times.seconds += seconds

    return timed


def _mark_lines(code: types.CodeType, plan: Any, seen: set[Line]) -> tuple[int, ...]:
    """Let the plan of a code object note each line that runs; gives the lines that it has."""
    file = code.co_filename
    numbers: set[int] = set()
    for start, _, line in code.co_lines():
        if line is None:
            continue
        numbers.add(line)
        place, mark = start // 2, _marker(seen, (file, line))
        while code.co_code[2 * place] == dis.EXTENDED_ARG:  # is part of the instruction behind it
            place += 1
        found = plan[place]
        if found is None:
            plan[place] = (mark, None, 0, 0, None)
        else:
            plan[place] = (_both(mark, found[0]), *found[1:])
    return tuple(sorted(numbers))


def _marker(seen: set[Line], line: Line) -> Callable[[Any, Any], None]:
    def mark(inputs: Any, arg: Any) -> None:
        seen.add(line)

    return mark


def _both(mark: Callable[[Any, Any], None], before: Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], Any]:
    def both(inputs: Any, arg: Any) -> Any:
        mark(inputs, arg)
        return None if before is None else before(inputs, arg)

    return both


def _facts(graph: RefGraph) -> Counter[Line]:
    """How many facts about the state before the call each line was the first to read."""
    found: Counter[Line] = Counter()
    for node in graph.nodes:
        for where in node.reads.values() if node.external else ():
            location = locate(where)
            if location is not None:
                found[location.file, location.line] += 1
    return found


def _operators(graph: Any) -> Counter[Line]:
    """How many operators of a graph each line made."""
    found: Counter[Line] = Counter()
    for node in () if graph is None else graph.graph.nodes:
        match = _PLACE.search(node.stack_trace or "")
        if match is not None and node.op not in ("placeholder", "output"):
            found[match[1], int(match[2])] += 1
    return found


def _summary(compiled: Any, kept: _Kept) -> Summary:
    def handle() -> None:
        """What `info` and `explain` take for the compiled callable."""

    vars(handle)["__magpy__"] = compiled
    name, file, line = _place(compiled.target)
    known = info(handle)
    for boundary in known.boundaries:
        kept.lines.stops[boundary.file, boundary.line].add(boundary.reason)
    failed: Counter[str] = Counter()
    for cache in (compiled.cache, *(point.cache for point in [*compiled.tree.points.values()])):
        failed.update(cache.failed)
    return Summary(
        name=name,
        file=file,
        line=line,
        info=known,
        explanation=explain(handle),
        served=kept.served,
        failed=dict(failed),
        records=tuple(_text(record, kept) for record in compiled.records()),
        lines=kept.lines,
    )


def _text(record: Any, kept: _Kept) -> RecordText:
    return RecordText(
        hits=record.hits,
        end="" if record.boundary is None else f"{record.boundary.text}, line {record.boundary.line}",
        checks=len(record.checks) + len(record.held),
        operators=record.operators,
        guard=record.guard_source,
        held=record.held_source()[0],
        mock=record.mock_source,
        graph="" if record.graph is None else record.graph.print_readable(print_output=False),
        effects=tuple(record.effects),
        drawing=kept.drawings.get(id(record), ""),
    )


def _place(target: Any) -> tuple[str, str, int]:
    """Name and place of what was compiled."""
    while isinstance(target, types.MethodType):
        target = target.__func__
    if isinstance(target, Root):
        return target.__qualname__, target.__code__.co_filename, target.__code__.co_firstlineno
    name = target.__qualname__ if isinstance(target, types.FunctionType) else type(target).__qualname__
    if isinstance(target, torch.nn.Module):
        target = vars(target).get("forward", type(target).forward)
    elif not isinstance(target, types.FunctionType):
        target = type_lookup(type(target), "__call__")
    while isinstance(target, types.FunctionType) and "__wrapped__" in vars(target):
        target = vars(target)["__wrapped__"]
    code = getattr(target, "__code__", None)
    if not isinstance(code, types.CodeType):
        return name, "", 0
    return name, code.co_filename, code.co_firstlineno
