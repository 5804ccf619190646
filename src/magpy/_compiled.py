"""A compiled callable: its records, how its calls were served, and why some ran natively."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from magpy_annotations import Registry, default_registry
from magpy_codegen import raised
from magpy_runtime import (
    CountSlots,
    Record,
    RecordCache,
    raise_again,
    raise_built,
    strip,
    wrap,
)
from magpy_runtime.capture import NULL, call_below, instance_dict
from magpy_runtime.segments import Point, Tree, line_of

from . import _torch
from ._behind import ATTEMPTS, Behind, recording
from ._disk import Shelf
from ._later import Pending
from ._lifted import make_monitor
from ._monitor import Monitor, Run, internal_error
from ._nested import Nested, Root, root_codes
from ._observe import tell
from ._reasons import Boundary as Refusal
from ._recording import Draft, make_draft
from ._refusals import FullGraphError, NotCompiled, NotCompiledWarning, settle, shown_name, warn
from ._state import is_own
from ._verify import can_verify
from ._verifying import forget

_LONGEST_WAIT: Final = 1 << 16
_REFUSALS: Final = 8


@dataclass(frozen=True, slots=True)
class Config:
    """Options of `magpy.compile`, resolved."""

    backend: Callable[..., Any]
    backend_name: Any
    fullgraph: bool
    dynamic: bool | None
    options: dict[str, Any] | None
    record_limit: int
    freeze: bool = False
    compile_async: bool = False
    verify: int = 0
    cache: str | None = None
    merge: bool = False


@dataclass(slots=True)
class Statistics(CountSlots):
    """How the calls of one compiled callable were served."""

    monitored: int = 0
    hits: int = 0
    native: int = 0
    reasons: dict[tuple[str, str, int], NotCompiled] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)


_registry: Registry | None = None
_registry_lock = threading.Lock()


def registry() -> Registry:
    """The annotations in force: the catalogue and installed packages'."""
    global _registry
    with _registry_lock:
        if _registry is None:
            _registry = default_registry()
        return _registry


class Compiled(Behind):
    """One compiled callable. `dispatch(args, kwargs)`, which is native, serves a call; what it cannot do comes to `serve`.

    Attributes:
        target: what runs natively.
        config: the options.
        cache: the records.
        statistics: how calls were served.
        failures: attempts in a row that gave no record.
        exceptions: attempts in a row that gave none because the program raised.
        wait: calls that run natively before the next attempt.
        lock: held by the thread that records.
        warned: whether the user was told that calls run natively.
        latest: the reason that stands for native calls without an attempt.
        pending: records whose graphs are being compiled.
        late: an error of the worker's, to be raised by the next call.
        thawed: paths of tensors that are updated too often to be constants.
        refusals: how often operators were set apart because the backend had refused a graph.
        nested: what serves frames inside of what runs natively.
        disk: its records on disk, None where there is no such cache.
    """

    def __init__(self, target: Callable[..., Any], config: Config) -> None:
        self.target = target
        self.config = config
        self.cache = RecordCache(config.record_limit)
        self.tree = Tree(config.record_limit)
        self.statistics = Statistics()
        self.failures = 0
        self.exceptions = 0
        self.wait = 0
        self.lock = threading.Lock()
        self.warned = False
        self.latest: NotCompiled | None = None
        self.pending = Pending()
        self.late: FullGraphError | None = None
        self.thawed: set[Any] = set()
        self.refusals = 0
        self.nested: Nested | None = None
        self.fresh = _torch.TOLIST
        self.disk = None if config.cache is None else Shelf(self, config)
        tell("made", self)

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve one call: from a record, by a monitored run, or natively.

        Whoever calls this hands exceptions to `strip`. The program never runs inside of an exception handler here: it
        could see the exception that is handled, as `sys.exc_info()` or as the context of its own.
        """
        if recording.active:
            return self._inlined(args, kwargs)
        found, problem = None, None
        try:
            found = self.cache.find(args, kwargs)
        except Exception as error:
            problem = settle(internal_error(error))
        if found is None:
            return self._miss(args, kwargs) if problem is None else self._guard_failed(problem, args, kwargs)
        record, bound = found
        return self.serve_found(record, bound, args, kwargs)

    def serve_found(self, record: Record, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call that a record's guard has let pass."""
        if self.config.verify > record.verified:
            record.verified += 1
            if (refused := can_verify()) is not None:
                self._note(Refusal("unverified", refused))
            elif record.boundary is None:
                return self._verified(record, bound, args, kwargs)
            else:
                native = functools.partial(self.target, *args, **kwargs)
                outcome = self._verified_chain(record, bound, native, self._roots(args, kwargs))
                if outcome.served:
                    return self._told(outcome)
                del outcome, native
        random_state = torch.default_generator.get_state() if record.random else None
        try:
            result = self._first_part(self.cache, record, bound)
        except Exception as error:
            problem = self._served_badly(record, error)
        else:
            record.hits += 1
            if record.boundary is not None:
                box = [result]
                del bound, result
                return self.go_on(record.boundary, box)
            self.statistics.hits += 1
            if record.raises:
                raise_built(result)
            return result
        if random_state is not None:
            torch.default_generator.set_state(random_state)
        return self._serve_without(record, args, kwargs, problem)

    def call_failed(self, record: Record, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        """A mock has raised that native code ran."""
        return self._serve_without(record, args, kwargs, self._served_badly(record, error))

    def _serve_without(self, record: Record, args: tuple[Any, ...], kwargs: dict[str, Any], problem: Refusal) -> Any:
        """An operator raised that did not when the record was made, or the backend's code fails.

        Nothing has changed yet, so the program itself runs, and raises or recovers as it would.
        """
        result = self._native(args, kwargs)
        self._drop(record)
        self._refuse(problem)
        return result

    def _guard_failed(self, problem: Refusal, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A guard raised: its record goes."""
        for record in self.cache.records:
            try:
                record.guard(args, kwargs)
            except Exception:
                self._drop(record)
        self._refuse(problem)
        return self._native(args, kwargs)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fullgraph = self.config.fullgraph
        if is_disabled(self.target):
            self._refuse(Refusal("disabled", shown_name(self.target)))
            return self._native(args, kwargs)
        if (mode := _torch.mode_on_entry()) is not None:  # no failed attempt: a call without it may come
            self._refuse(Refusal("function-mode", mode))
            return self._native(args, kwargs)
        if self.late is not None:
            late, self.late = self.late, None
            raise late
        if self.pending and self.pending.covers(self.cache, args, kwargs):
            self._note(Refusal("compiling", shown_name(self.target)))
            return self._native(args, kwargs)
        if not fullgraph and (self.failures >= ATTEMPTS or self.wait):
            if self.wait:
                self.wait -= 1
            if self.latest is not None:
                self.latest.count += 1
            return self._native(args, kwargs)
        if not self.lock.acquire(blocking=False):
            return self._native(args, kwargs)  # another thread records
        monitor = None
        problem = None
        if self.disk is not None and not self.disk.tried and self._from_disk():
            self.lock.release()
            return self.serve(args, kwargs)
        recording.active = True
        try:
            try:
                self._prepare(args, kwargs)
                monitor = make_monitor(registry(), self.config.dynamic, self.cache.unstable, args, kwargs)
                monitor.prepare(None if fullgraph else self.tree, None, self.cache.unstable, self._freeze())
            except Refusal as boundary:
                problem = boundary
            except Exception as error:
                problem = settle(internal_error(error))
            if monitor is not None:
                return self._record(monitor, args, kwargs)
        finally:
            recording.active = False
            self.lock.release()
        assert problem is not None
        self._refuse(problem)
        return self._native(args, kwargs)

    def _from_disk(self) -> bool:
        """Take records from the disk; whether there were any."""
        assert self.disk is not None
        try:
            return self.disk.load(self.target, self.cache, self.tree)
        except Exception as error:
            self._note(settle(internal_error(error)))
            return False

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn from a miss which facts do not hold."""
        cache = self.cache
        if self.config.freeze:
            self._thaw(cache, args, kwargs)
        if cache.full and ("record-limit", "", 0) in self.statistics.reasons:
            raise Refusal("record-limit")
        if cache.records:
            cache.note_miss(args, kwargs)
        if cache.full:
            worst = sorted(cache.failed.items(), key=lambda item: -item[1])[:3]
            raise Refusal("record-limit", "; ".join(text for text, _ in worst))

    def _freeze(self) -> set[Any] | None:
        return self.thawed if self.config.freeze else None

    def _thaw(self, cache: RecordCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Drop records whose constants have changed: they cannot serve again. What changes at every call is none again."""
        for record in cache.records:
            frozen = record.frozen
            if frozen is None:
                continue
            moved = frozen.moved()
            number = None
            if not moved:
                with contextlib.suppress(Exception):  # whoever asks the guard next deals with it
                    number = record.guard(args, kwargs)
            if type(number) is int:  # was another tensor put in the place of one of them?
                _, key = record.failed(number)
                moved = [key] if key in frozen.paths else []
            if moved:
                if not record.hits:
                    self.thawed.update(moved)
                cache.discard(record)
                forget(record)

    def _native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.statistics.native += 1
        if self.config.fullgraph or not self.gave_up() or is_disabled(self.target):
            return call_below((), self.target, args, kwargs)
        return self._frames().call(self.target, args, kwargs)

    def _inlined(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call by a program that is being watched."""
        return call_below((), self.target, args, kwargs)

    def gave_up(self) -> bool:
        """Whether calls run natively for now, without an attempt."""
        return self.failures >= ATTEMPTS or self.wait > 0 or self.cache.full

    def _frames(self) -> Nested:
        """What serves frames inside of what runs natively."""
        if self.nested is None:
            config = replace(self.config, fullgraph=False, verify=0, cache=None)
            self.nested = Nested(functools.partial(Inner, config), root_codes(self.target))
        return self.nested

    def _record(self, monitor: Monitor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tell("watching", self)
        return self._watched(monitor, monitor.run(self.target, args, kwargs), None)

    def _watched(self, monitor: Monitor, run: Run, point: Point | None) -> Any:
        """Make records of what a monitored run of the call, or of its rest behind a point, has shown."""
        statistics = self.statistics
        if run.observed:
            statistics.monitored += 1
        else:
            statistics.native += 1
        self._add_time("run", run.seconds)
        failure = run.failure
        kept: set[int] = set()
        record: Record | None = None
        try:
            if failure is not None:
                settle(failure)
            elif not monitor.over and monitor.known is None:
                failure = self._draft(monitor, run)
            made, problem = self._finish(monitor, kept)
            failure = failure or problem
            record = made[0] if made else None
            if made and self.disk is not None:
                self.disk.changed()
            tell("recorded", self, monitor, run, record, failure)
        finally:
            try:
                monitor.give_back(run)
            except Exception as broken:
                failure = failure or settle(internal_error(broken))
            _release(monitor, kept)
        if failure is not None:
            self._failed(failure, run.error, monitor_hint(monitor), point, bool(made))
        if run.error is not None:
            error, run.error = run.error, None
            raise_again(error)
        return run.result

    def _avoid(self, hint: tuple[types.CodeType, int]) -> None:
        """An instruction is a boundary as a whole from now on: records that lead into it go."""

        def leads(record: Record) -> bool:
            site = record.boundary
            return site is not None and any((shape.code, shape.at) == hint for shape in site.frames[:-1])

        for cache in (self.cache, *[point.cache for point in [*self.tree.points.values()]]):
            for record in cache.records:
                if leads(record):
                    cache.discard(record)
                    forget(record)

    def _draft(self, monitor: Monitor, run: Run) -> Refusal | None:
        """The last segment of a run, which ends with the call."""
        started = time.perf_counter()
        monitor.collects_not()  # what is made here lives on: looking through it again and again takes half of the time
        try:
            draft = make_draft(
                monitor,
                monitor.entry,
                monitor.positional,
                monitor.keywords,
                run.result,
                monitor.unstable,
                None,
                monitor.freeze,
                None if run.error is None else raised(run.error, run.outer, is_own, monitor.thrown_with()),
            )
        except Refusal as boundary:
            if boundary.slug == "update-then-raise":
                monitor.apart(boundary)
            return settle(boundary)
        except Exception as error:
            return settle(internal_error(error))
        finally:
            monitor.collects_again()
            self._add_time("generate", time.perf_counter() - started)
        monitor.drafts.append((monitor.point, draft))
        return None

    def _finish(self, monitor: Monitor, kept: set[int]) -> tuple[list[Record], Refusal | None]:
        """Compile the graphs of the segments and add the records; gives those, and why there are no more."""
        made: list[Record] = []
        for point, draft in monitor.drafts:
            cache = self.cache if point is None else point.cache
            record = draft.record
            if self.config.compile_async and record.graph is not None:
                if self.pending.add(self, cache, draft, self.config.backend, Compiled._came):
                    kept.add(id(record.graph.graph))
                    made.append(record)
                continue
            started = time.perf_counter()
            try:
                record = draft.finish(self.config.backend)
            except Refusal as boundary:
                return made, self._set_apart(draft, settle(boundary), monitor)
            except Exception as error:
                return made, settle(internal_error(error))
            finally:
                self._add_time("generate", time.perf_counter() - started)
            self._wrap(record)
            if draft.differs is not None:
                self._note(settle(draft.differs))
            if record.graph is not None:
                kept.add(id(record.graph.graph))
            made.append(record)
            if point is None:
                self.cache.add(record)
                self.failures = self.exceptions = 0
            else:
                point.cache.add(record)
                point.failures = 0
        return made, None

    def _set_apart(self, draft: Draft, problem: Refusal, monitor: Monitor | None = None) -> Refusal:
        """The backend has refused a graph. Operators that it cannot take are boundaries in the next monitored run.

        Args:
            draft: the record.
            problem: what the backend said.
            monitor: of the run, if that has just ended.

        Returns:
            Why there is no record.
        """
        hints = self.tree.hints
        fresh = {name: place for name, place in draft.refused.items() if place not in hints}
        if not fresh or self.config.fullgraph or self.refusals >= _REFUSALS:
            return problem
        self.refusals += 1
        for name, place in fresh.items():
            hints[place] = ("backend-operator", f"{name}: {problem.detail.partition(chr(10))[0]}")
            self._avoid(place)
            if monitor is not None:
                monitor.hint = place
        code, unit = place
        reason = Refusal("backend-operator", hints[place][1], code.co_filename, line_of(code, unit))
        for note in getattr(problem, "__notes__", ()):
            reason.add_note(note)
        return reason

    def _wrap(self, record: Record) -> None:
        """A graph was compiled."""
        for name, seconds in record.timings.items():
            self._add_time(name, seconds)
        wrap(record)
        if self.config.verify:
            record.native = None  # calls come to `serve_found`
        if self.config.verify or (self.config.merge and record.boundary is not None):
            record.plain = False

    def _registry(self) -> Registry:
        return registry()

    def _came(self, draft: Draft, cache: RecordCache, problem: Refusal | None, seconds: float) -> None:
        """The worker has compiled a graph, or could not."""
        self._add_time("generate", seconds)
        record = draft.record
        if problem is None:
            self._wrap(record)
            if draft.differs is not None:
                self._note(draft.differs)
            cache.add(record)
            return
        forget(record)
        reason = self._set_apart(draft, problem)
        if reason is not problem:
            self._note(reason)
            return
        self.failures += 1
        try:
            self._refuse(problem)
        except FullGraphError as error:
            self.late = error

    def _failed(
        self, failure: Refusal, error: BaseException | None, hint: Any, point: Point | None, made: bool
    ) -> None:
        """An attempt gave no record, or not all."""
        if hint is not None:
            self._avoid(hint)
        if point is not None or made:
            if hint is None and point is not None and not made:
                point.failures += 1
            self._note(failure)
            return
        if hint is not None:
            self._note(failure)
            return
        if failure.slug == "exception":
            # It may be the arguments' fault, so attempts go on, but ever more rarely.
            self.exceptions += 1
            self.wait = 0 if self.exceptions < ATTEMPTS else min(1 << self.exceptions, _LONGEST_WAIT)
            self._note(failure)
            return
        self.failures += 1
        self._refuse(failure, may_raise=error is None)

    def _add_time(self, name: str, seconds: float) -> None:
        self.statistics.timings[name] = self.statistics.timings.get(name, 0.0) + seconds

    # -- reasons ------------------------------------------------------------------------------------------------------

    def _note(self, boundary: Refusal) -> str:
        details = "".join(getattr(boundary, "__notes__", ()))
        key = (boundary.slug, boundary.file, boundary.line)
        found = self.statistics.reasons.get(key)
        if found is None:
            found = NotCompiled(boundary.slug, str(boundary), boundary.file, boundary.line, 1, details)
            self.statistics.reasons[key] = found
        else:
            found.count += 1
        self.latest = found
        return details

    def _refuse(self, boundary: Refusal, *, may_raise: bool = True) -> None:
        """A call is not compiled: keep the reason; raise or warn."""
        details = self._note(boundary)
        if self.config.fullgraph:
            if may_raise:
                error = FullGraphError(boundary.slug, str(boundary), boundary.file, boundary.line)
                if details:
                    error.add_note(details)
                raise error
        elif not self.warned:
            self.warned = True
            warn(shown_name(self.target), boundary)

    # -- the end ------------------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """All records: those of the call, then those of what comes behind boundaries."""
        found = [*self.cache.records]
        for point in [*self.tree.points.values()]:
            found += point.cache.records
        return found

    def reset(self) -> None:
        """Drop all records and start anew. Calls that other threads are serving now are not disturbed."""
        records = self.records()
        self.cache = RecordCache(self.config.record_limit)
        self.tree = Tree(self.config.record_limit)
        self.statistics = Statistics()
        self.failures = self.exceptions = self.wait = 0
        self.warned = False
        self.latest = self.late = None
        self.thawed = set()
        self.refusals = 0
        self.nested = None
        for record in [*records, *self.pending.clear()]:
            forget(record)

    def _drop(self, record: Record) -> None:
        self.cache.discard(record)
        forget(record)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            tell("gone", self)
            for record in [*self.records(), *self.pending.clear()]:
                forget(record)


@dataclass(frozen=True, slots=True)
class Compile:
    """Makes compiled callables."""

    config: Config

    def __call__(self, target: Callable[..., Any]) -> Compiled:
        """The one for a callable."""
        return Compiled(target, self.config)


class Inner(Compiled):
    """Serves frames of one code object inside of what runs natively. What it gives for a call that it does not serve is NULL.

    The first argument of a call is the function, which may be another one each time; its closure is guarded as any
    argument's is.
    """

    def __init__(self, config: Config, code: types.CodeType, nested: Nested) -> None:
        self.around = weakref.ref(nested)
        super().__init__(Root(code), config)
        self.warned = True

    def _native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.statistics.native += 1
        return NULL

    def _inlined(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return NULL

    def _frames(self) -> Nested:
        return self.around() or super()._frames()


def _release(monitor: Monitor, kept: set[int]) -> None:
    """Let a monitor go. It refers to itself in many ways; without its attributes it needs no garbage collection."""
    graphs = [monitor.operators.graph]
    graphs += [draft.record.graph.graph for _, draft in monitor.drafts if draft.record.graph is not None]
    for graph in graphs:
        if id(graph) not in kept and vars(graph):
            _torch.dismantle(graph)
    with contextlib.suppress(Exception):
        monitor.release()
        for older in monitor.older:
            older.release()
    hint = monitor.hint
    vars(monitor.planner).clear()
    vars(monitor).clear()
    monitor.hint = hint


def monitor_hint(monitor: Monitor) -> Any:
    """The instruction that the next run takes for a boundary as a whole, if this one has found such."""
    return monitor.hint


def is_disabled(target: Any) -> bool:
    """Whether `magpy.disable` was applied to a callable. Runs no user code."""
    while isinstance(target, types.MethodType):
        target = target.__func__
    return (instance_dict(target) or {}).get("__magpy_disable__") is True


__all__ = [
    "Compile",
    "Compiled",
    "Config",
    "FullGraphError",
    "NotCompiled",
    "NotCompiledWarning",
    "Statistics",
    "is_disabled",
    "registry",
    "strip",
]
