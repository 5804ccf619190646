"""A compiled callable: its records, how its calls were served, and why some ran natively."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from magpy_annotations import Registry, default_registry
from magpy_runtime import Record, RecordCache

from ._monitor import Monitor, Run, internal_error
from ._reasons import REASONS, Boundary
from ._recording import Entry, make_record

_ATTEMPTS = 3


class FullGraphError(RuntimeError):
    """`fullgraph=True` was asked for, and the program is not one operator graph.

    Attributes:
        reason: slug of the reason, see `magpy.REASONS`.
        file: the user's file.
        line: the line in it.
    """

    def __init__(self, boundary: Boundary) -> None:
        place = f" at {boundary.file}:{boundary.line}" if boundary.file else ""
        super().__init__(f"[{boundary.slug}] {boundary}{place}. {REASONS[boundary.slug].advice}")
        self.reason = boundary.slug
        self.file = boundary.file
        self.line = boundary.line


class NotCompiledWarning(UserWarning):
    """A compiled callable runs natively; once for each callable."""


class Unsupported(FullGraphError):
    """The name under which graph capturers' refusals are known."""


@dataclass(slots=True)
class NotCompiled:
    """Why something was not compiled, and how often.

    Attributes:
        slug: the reason, see `magpy.REASONS`.
        message: the reason in words.
        file: the user's file, "" if unknown.
        line: the line in it, 0 if unknown.
        count: number of calls.
    """

    slug: str
    message: str
    file: str
    line: int
    count: int


@dataclass(frozen=True, slots=True)
class Config:
    """Options of `magpy.compile`, resolved."""

    backend: Callable[..., Any]
    backend_name: Any
    fullgraph: bool
    dynamic: bool | None
    options: dict[str, Any] | None
    record_limit: int


@dataclass(slots=True)
class Statistics:
    """How the calls of one compiled callable were served."""

    monitored: int = 0
    hits: int = 0
    native: int = 0
    reasons: dict[tuple[str, str, int], NotCompiled] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)


class _Recording(threading.local):
    active = False


_recording = _Recording()
_registry: Registry | None = None
_registry_lock = threading.Lock()


def registry() -> Registry:
    """The annotations in force: the catalogue and installed packages'."""
    global _registry
    with _registry_lock:
        if _registry is None:
            _registry = default_registry()
        return _registry


class GraphFailed(Exception):  # noqa: N818 - it never leaves this module
    """The compiled graph raised."""


class _Graph:
    """Calls a compiled graph and tells its failures from the mock's."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __call__(self, *inputs: Any) -> Any:
        try:
            return self.run(*inputs)
        except Exception as error:
            raise GraphFailed from error


class Compiled:
    """One compiled callable."""

    def __init__(self, target: Callable[..., Any], config: Config) -> None:
        self.target = target
        self.config = config
        self.cache = RecordCache(config.record_limit)
        self.statistics = Statistics()
        self.failures = 0
        self.lock = threading.Lock()
        self.warned = False

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve one call: from a record, by a monitored run, or natively."""
        if _recording.active:
            return self.target(*args, **kwargs)
        found = self.cache.find(args, kwargs)
        if found is not None:
            record, bound = found
            if record.run is None or record.mutates:
                result = record.mock(bound, record.run)
            else:
                state = torch.get_rng_state() if record.random else None
                graph = _Graph(record.run)
                try:
                    result = record.mock(bound, graph)
                except GraphFailed:
                    # An operator raised that did not when the record was made. Nothing has changed yet, so the
                    # program itself runs, and raises or recovers as it would.
                    if state is not None:
                        torch.set_rng_state(state)
                    return self._native(args, kwargs)
            record.hits += 1
            self.statistics.hits += 1
            return result
        return self._miss(args, kwargs)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.failures >= _ATTEMPTS or not self.lock.acquire(blocking=False):
            return self._native(args, kwargs)
        try:
            if self.cache.records:
                self.cache.note_miss(args, kwargs)
            if self.cache.full:
                worst = sorted(self.cache.failed.items(), key=lambda item: -item[1])[:3]
                self._refuse(Boundary("record-limit", "; ".join(text for text, _ in worst)))
                return self._native(args, kwargs)
            return self._record(args, kwargs)
        finally:
            self.lock.release()

    def _native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.statistics.native += 1
        for reason in self.statistics.reasons.values():
            reason.count += self.failures >= _ATTEMPTS
        return self.target(*args, **kwargs)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        monitor = None
        _recording.active = True
        try:
            try:
                entry = Entry.now()
                monitor = Monitor(registry())
            except Exception as error:
                self._refuse(internal_error(error))
                return self._native(args, kwargs)
            run = monitor.run(self.target, args, kwargs)
            self.statistics.monitored += 1
            self._add_time("run", run.seconds)
            record, failure = self._generate(monitor, entry, args, kwargs, run)
            if record is not None:
                self.cache.add(record)
                self.failures = 0
        finally:
            _recording.active = False
            if monitor is not None:
                monitor.release()
        if failure is not None:
            self.failures += 1
            if run.error is None:
                self._refuse(failure)
            else:
                self._note(failure)
        if run.error is not None:
            error_, run.error = run.error, None
            raise error_
        return run.result

    def _generate(
        self, monitor: Monitor, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run
    ) -> tuple[Record | None, Boundary | None]:
        if run.failure is not None:
            return None, run.failure
        started = time.perf_counter()
        try:
            record = make_record(monitor, entry, args, kwargs, run.result, self.config.backend, self.cache.unstable)
        except Boundary as boundary:
            return None, boundary
        except Exception as error:
            return None, internal_error(error)
        finally:
            self._add_time("generate", time.perf_counter() - started)
        for name, seconds in record.timings.items():
            self._add_time(name, seconds)
        return record, None

    def _add_time(self, name: str, seconds: float) -> None:
        self.statistics.timings[name] = self.statistics.timings.get(name, 0.0) + seconds

    # -- reasons ------------------------------------------------------------------------------------------------------

    def _note(self, boundary: Boundary) -> None:
        key = (boundary.slug, boundary.file, boundary.line)
        found = self.statistics.reasons.get(key)
        if found is None:
            self.statistics.reasons[key] = NotCompiled(boundary.slug, str(boundary), boundary.file, boundary.line, 1)
        else:
            found.count += 1

    def _refuse(self, boundary: Boundary) -> None:
        """A call is not compiled: keep the reason; raise or warn."""
        self._note(boundary)
        if self.config.fullgraph:
            raise Unsupported(boundary) from boundary
        if not self.warned:
            self.warned = True
            place = f" ({boundary.file}:{boundary.line})" if boundary.file else ""
            name = getattr(self.target, "__qualname__", type(self.target).__qualname__)
            try:
                warnings.warn(f"{name} runs natively: {boundary}{place}", NotCompiledWarning, stacklevel=4)
            except NotCompiledWarning:
                pass  # warnings are errors here, but the program's result must not depend on MagPy

    def reset(self) -> None:
        """Drop all records and start anew."""
        with self.lock:
            self.cache.clear()
            self.statistics = Statistics()
            self.failures = 0
            self.warned = False
