"""Serving saved records: `load` attaches an archive to a callable of this process; nothing is watched or compiled."""

from __future__ import annotations

import functools
import os
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

from ._archive import ArchiveMismatch, unpack
from ._env import environment_differs
from ._record import CountSlots, Dispatcher, Record, RecordCache
from ._restoring import attach
from ._running import Damage, is_in_graph, raise_built, raise_damage, strip
from .capture import call_below, resume
from .segments import BoundarySite, Point, Tree, following
from .twins import state_of, twin_of

_CHILDREN: Final = 1 << 16


class RecordMiss(RuntimeError):
    """No saved record fits a call, and `on_miss="error"` was asked for.

    Attributes:
        failed: for each record the check that failed, in words.
    """

    def __init__(self, name: str, failed: list[str]) -> None:
        super().__init__(name, failed)
        self.failed = failed

    def __str__(self) -> str:
        return f"no saved record of {self.args[0]} fits this call: {'; '.join(self.failed[:5]) or 'there is none'}"


@dataclass(slots=True)
class _Statistics(CountSlots):
    native: int = 0
    missed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadedInfo:
    """How the calls of a callable with saved records were served.

    Attributes:
        hits: calls served from a record.
        native: calls, or the rest of calls behind a boundary, that ran natively.
        records: number of records.
        boundaries: operations at which records are split, with how often each ran.
        differences: what did not fit when the archive was loaded.
        missed: for each check that failed at a call, how often.
        digest: SHA-256 of the archive.
    """

    hits: int
    native: int
    records: int
    boundaries: dict[str, int]
    differences: tuple[str, ...]
    missed: dict[str, int]
    digest: str


class Served(Dispatcher):
    """A callable with saved records. `dispatch(args, kwargs)`, which is native, serves a call.

    Attributes:
        target: what runs natively.
        differences: what did not fit.
        on_miss: what becomes of a call that no record fits.
        digest: SHA-256 of the archive.
    """

    def __init__(self, target: Callable[..., Any], on_miss: str, digest: str) -> None:
        self.target = target
        self.cache = RecordCache(_CHILDREN)
        self.tree = Tree(_CHILDREN)
        self.statistics = _Statistics()
        self.differences: list[str] = []
        self.on_miss = on_miss
        self.digest = digest
        self._lock = threading.Lock()

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve one call that native code has not served."""
        found = None
        try:
            found = self.cache.find(args, kwargs)
        except Exception as error:
            self._note(f"a guard raised {type(error).__name__}")
        if found is None:
            return self._miss(args, kwargs)
        record, bound = found
        return self.serve_found(record, bound, args, kwargs)

    def serve_found(self, record: Record, bound: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call that a record's guard has let pass."""
        random_state = torch.default_generator.get_state() if record.random else None
        try:
            result = record.mock(bound, record.run)
        except Exception as error:
            self._failed_mock(self.cache, record, error, random_state)
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
        return self._native(args, kwargs)

    def call_failed(self, record: Record, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        """A mock has raised that native code ran."""
        self._failed_mock(self.cache, record, error)
        return self._native(args, kwargs)

    def _failed_mock(self, cache: RecordCache, record: Record, error: Exception, random_state: Any = None) -> None:
        """A mock that fails in its graph has changed nothing, and its record goes; else its error is raised."""
        if isinstance(error, Damage):
            raise_damage(error)
        if record.effects and not is_in_graph(record, error):
            raise error
        self._note(f"a record raised {type(error).__name__}: {str(error)[:200]}")
        if random_state is not None:
            torch.default_generator.set_state(random_state)
        cache.discard(record)

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        failed = self._failed(self.cache, args, kwargs)
        if self.on_miss == "error":
            raise RecordMiss(_name(self.target), failed or self.differences)
        return self._native(args, kwargs)

    def _native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.statistics.native += 1
        return call_below((), self.target, args, kwargs)

    def _failed(self, cache: RecordCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """Which check of each record a call fails."""
        failed = []
        for record in cache.records:
            try:
                number = record.guard(args, kwargs)
            except Exception as error:
                failed.append(f"a guard raised {type(error).__name__}")
                continue
            if type(number) is int:
                failed.append(record.failed(number)[0])
        for text in failed:
            self._note(text)
        return failed

    def _note(self, text: str) -> None:
        with self._lock:
            missed = self.statistics.missed
            if text in missed or len(missed) < 256:
                missed[text] = missed.get(text, 0) + 1

    # -- behind a boundary --------------------------------------------------------------------------------------------

    def operate(
        self,
        site: BoundarySite,
        function: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        slots: tuple[Any, ...],
    ) -> Any:
        """Run the operation at a boundary."""
        return site.run(function, args, keywords, slots)

    strip = staticmethod(strip)

    def no_segment(self, point: Point, box: list[tuple[Any, ...]], made: bool) -> Any:
        """No segment fits what comes behind a boundary; `box` holds the slots."""
        failed = self._failed(point.cache, box[0], {})
        if not point.cache.records:
            failed.append(f"what comes after a boundary in {point.frames[-1].code.co_qualname}")
            self._note(failed[-1])
        if self.on_miss == "error":
            raise RecordMiss(_name(self.target), failed)
        return self._resume(point, box)

    def guard_raised(self, point: Point, box: list[tuple[Any, ...]], error: Exception) -> Any:
        """A guard behind a boundary has raised."""
        self._note(f"a guard raised {type(error).__name__}")
        return self._resume(point, box)

    def serve_segment(self, point: Point, record: Record, box: list[tuple[Any, ...]]) -> tuple[bool, Any]:
        """Run a record behind a boundary that needs more than its mock; `box` holds the slots and what the guard has bound.

        Returns:
            Whether the call is over, and its result, or else what the mock gave.
        """
        random_state = torch.default_generator.get_state() if record.random else None
        try:
            result = record.mock(box.pop(), record.run)
        except Exception as error:
            self._failed_mock(point.cache, record, error, random_state)
        else:
            record.hits += 1
            if record.boundary is not None:
                return False, result
            self.statistics.hits += 1
            if record.raises:
                raise_built(result)
            return True, result
        return True, self._resume(point, box)

    def segment_failed(self, point: Point, record: Record, box: list[tuple[Any, ...]], error: Exception) -> Any:
        """A mock behind a boundary has raised that native code ran."""
        self._failed_mock(point.cache, record, error)
        return self._resume(point, box)

    def _resume(self, point: Point, box: list[tuple[Any, ...]]) -> Any:
        """Let the program itself go on at a resume point."""
        self.statistics.native += 1
        frames, error = point.rebuild(following, box.pop())
        return resume(frames, error)


@dataclass(frozen=True, slots=True)
class _Attach:
    """Makes what serves a module's calls; copies of the module are served from the same file."""

    path: str
    digest: str
    on_miss: str
    strict: bool

    def __call__(self, target: Any) -> Served:
        if not isinstance(target, torch.nn.Module):  # a direct call of `forward`
            return Served(target, "native", self.digest)
        return _served(self.path, target, self.digest, self.on_miss, self.strict)


def load(
    path: str | os.PathLike[str],
    target: Any,
    *,
    digest: str | None = None,
    on_miss: Literal["native", "error"] = "native",
    strict: bool = True,
) -> Any:
    """Attach saved records to a function or a module: nothing is watched or compiled.

    An archive is code, which this runs. Load only what you would run, and pin it with `digest`.

    Args:
        path: what `magpy.save` wrote.
        target: the function or module, as it was given to `magpy.compile`.
        digest: SHA-256 of the file, in hexadecimal, as `magpy.save` returned it. Another file is refused.
        on_miss: what becomes of a call that no record fits: it runs natively, or raises `RecordMiss`.
        strict: raise `ArchiveMismatch` where the archive does not fit the target or this process as they are now; else
            such records stay away, calls run natively, and `info` says what differs.

    Returns:
        A function for a function; for a module a module of the same class that shares everything with the original.

    Raises:
        ArchiveError: the file is damaged, foreign, or not the one of that digest. Nothing in it was run.
        ArchiveMismatch: it does not fit.
        RecordMiss: at a call, with `on_miss="error"`.
    """
    if on_miss not in ("native", "error"):
        raise ValueError(f'on_miss must be "native" or "error", not {on_miss!r}')
    where = os.fspath(path)
    if isinstance(target, torch.nn.Module):
        known = state_of(target)
        module = target if known is None else known.module
        with open(where, "rb") as file:
            found = _digest_of(file.read())
        return twin_of(module, _Attach(where, digest or found, on_miss, strict))
    served = _served(where, target, digest, on_miss, strict)
    dispatch = served.dispatch

    @functools.wraps(
        target, updated=("__dict__",) if isinstance(target, (types.FunctionType, types.MethodType)) else ()
    )
    def loaded(*args: Any, **kwargs: Any) -> Any:
        try:
            return dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del args, kwargs
            raise

    loaded.__magpy_served__ = served  # type: ignore[attr-defined]
    return loaded


def _digest_of(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _served(path: str, target: Any, digest: str | None, on_miss: str, strict: bool) -> Served:
    with open(path, "rb") as file:
        data = file.read()
    manifest, members = unpack(data, path, digest)
    differences = environment_differs(manifest)
    served = Served(target, on_miss, _digest_of(data))
    if not differences:
        fits = attach(members, target, served.cache, served.tree, differences)
    else:
        fits = False
    served.differences = differences
    if strict and not fits:
        raise ArchiveMismatch(path, differences or ["it holds no record"])
    return served


def info(loaded: Any) -> LoadedInfo:
    """How the calls of what `load` returned were served.

    Raises:
        TypeError: `load` did not return it.
    """
    state = state_of(loaded)
    served = getattr(loaded, "__magpy_served__", None) if state is None else state.call
    if not isinstance(served, Served):
        raise TypeError(f"a {type(loaded).__qualname__} that magpy_runtime.load did not make")
    records = [*served.cache.records, *[each for point in served.tree.points.values() for each in point.cache.records]]
    boundaries: dict[str, int] = {}
    for record in records:
        site = record.boundary
        if site is not None:
            text = f"{site.text} ({site.file}:{site.line})"
            boundaries[text] = boundaries.get(text, 0) + site.taken
    statistics = served.statistics
    return LoadedInfo(
        hits=statistics.hits,
        native=statistics.native,
        records=len(records),
        boundaries=boundaries,
        differences=tuple(served.differences),
        missed=dict(statistics.missed),
        digest=served.digest,
    )


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", type(target).__qualname__))


__all__ = ["LoadedInfo", "RecordMiss", "Served", "info", "load"]
