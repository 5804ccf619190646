"""What comes behind a boundary: native code serves a call from segment to segment, and leaves to this what is not usual."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final

import torch

from magpy_runtime import (
    Damage,
    Record,
    RecordCache,
    RecordingFlag,
    is_in_graph,
    raise_built,
    raise_damage,
    strip,
)
from magpy_runtime.capture import resume
from magpy_runtime.segments import BoundarySite, Point, following

from ._later import Pending
from ._lifted import make_monitor
from ._merging import is_due, merge
from ._monitor import Monitor, Run, internal_error
from ._reasons import Boundary as Refusal
from ._refusals import settle
from ._verify import can_verify
from ._verifying import Verifying, forget

if TYPE_CHECKING:
    from ._nested import Nested

ATTEMPTS: Final = 3
"""How many attempts in a row may fail."""

recording: Final = RecordingFlag()


class Behind(Verifying):
    """Serves what comes behind boundaries. The loop is native (`go_on`); see `chain.c` for what it asks of this class."""

    pending: Pending
    lock: threading.Lock

    strip = staticmethod(strip)

    def operate(
        self,
        site: BoundarySite,
        function: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        slots: tuple[Any, ...],
    ) -> Any:
        """Run the operation at a boundary; frames inside of it are served."""
        return site.run(function, args, keywords, slots, self._frames)

    def guard_raised(self, point: Point, box: list[tuple[Any, ...]], error: Exception) -> Any:
        """A guard behind a boundary has raised."""
        settle(internal_error(error))
        return self._resume(point, box)

    def serve_segment(self, point: Point, record: Record, box: list[tuple[Any, ...]]) -> tuple[bool, Any]:
        """Run a record behind a boundary that needs more than its mock.

        Args:
            point: where it starts.
            record: its guard has let pass.
            box: holds the slots, and what the guard has bound.

        Returns:
            Whether the call is over, and its result, or else what the mock gave.
        """
        bound = box.pop()
        if self.config.verify > record.verified and can_verify() is None:
            record.verified += 1
            kept = box[:]
            roots = [(f"slot {number}", slot) for number, slot in enumerate(box[0])]
            native = functools.partial(self._go_on_natively, point, kept)
            told = self._verified_chain(record, bound, native, roots)
            if told.served:
                return True, self._told(told)
            del told, native, roots, kept
        random_state = torch.default_generator.get_state() if record.random else None
        try:
            result = self._first_part(point.cache, record, bound)
        except Exception as error:
            problem = self._served_badly(record, error)
        else:
            record.hits += 1
            if record.boundary is not None:
                return False, result
            self.statistics.hits += 1
            if record.raises:
                raise_built(result)
            return True, result
        if random_state is not None:
            torch.default_generator.set_state(random_state)
        del bound
        return True, self._go_on_without(point, record, box, problem)

    def segment_failed(self, point: Point, record: Record, box: list[tuple[Any, ...]], error: Exception) -> Any:
        """A mock behind a boundary has raised that native code ran."""
        return self._go_on_without(point, record, box, self._served_badly(record, error))

    def _go_on_without(self, point: Point, record: Record, box: list[tuple[Any, ...]], problem: Refusal) -> Any:
        point.cache.discard(record)
        forget(record)
        self._note(problem)
        return self._resume(point, box)

    def no_segment(self, point: Point, box: list[tuple[Any, ...]], made: bool) -> Any:
        """No segment fits what comes behind a boundary: the program goes on, and is watched where that may give one.

        Args:
            point: where it goes on.
            box: holds the slots.
            made: whether nobody but the program holds what the boundary operation gave.
        """
        if point.cache.full and not point.refused:
            point.refused = True
            self._note(Refusal("record-limit", f"after a boundary in {point.frames[-1].code.co_qualname}"))
        if self.pending and self.pending.covers(point.cache, box[0], {}):
            self._note(Refusal("compiling", f"what comes after a boundary in {point.frames[-1].code.co_qualname}"))
            return self._resume(point, box)
        if self.config.freeze:
            self._thaw(point.cache, box[0], {})
        if point.cache.full or point.failures >= ATTEMPTS or not self.lock.acquire(blocking=False):
            return self._resume(point, box)
        monitor = None
        problem = None
        recording.active = True
        try:
            try:
                if point.cache.records:
                    point.cache.note_miss(box[0], {})
                monitor = make_monitor(
                    self._registry(), self.config.dynamic, point.cache.unstable, box[0], {}, point, made
                )
                monitor.prepare(self.tree, point, point.cache.unstable, self._freeze())
            except Refusal as boundary:
                problem = boundary
            except Exception as error:
                problem = settle(internal_error(error))
            if monitor is not None:
                native = functools.partial(self._go_on_natively, point, box)
                return self._watched(monitor, monitor.run(native, (), {}, point, box), point)
        finally:
            recording.active = False
            self.lock.release()
        assert problem is not None
        self._note(problem)
        return self._resume(point, box)

    def _resume(self, point: Point, box: list[tuple[Any, ...]]) -> Any:
        """Let the program itself go on at a resume point."""
        self.statistics.native += 1
        return self._go_on_natively(point, box)

    def _go_on_natively(self, point: Point, box: list[tuple[Any, ...]], *ignored: Any) -> Any:
        frames, error = point.rebuild(following, box.pop())
        return resume(frames, error)

    def _first_part(self, cache: RecordCache, record: Record, bound: tuple[Any, ...]) -> Any:
        """Run a record; where it ends at a branch whose ways are to be merged, see whether they can be."""
        site = record.boundary
        if site is None or not self.config.merge or not is_due(site):
            return record.mock(bound, record.run)
        result, merged = merge(record, bound, self.config.backend)
        if merged is not None and not cache.full:
            self._wrap(merged)
            cache.add(merged)
        return result

    def _served_badly(self, record: Record, error: Exception) -> Refusal:
        """Graph or mock raised. Returns the reason if the call can be made again; raises where something was changed."""
        if isinstance(error, Damage):
            raise_damage(error)
        in_graph = is_in_graph(record, error)
        if record.effects and not in_graph:
            raise error
        if in_graph:
            boundary = Refusal("backend-failed", f"{type(error).__name__}: {str(error)[:200]}")
            boundary.__cause__ = error
            return settle(boundary)
        return settle(internal_error(error))

    # -- what the rest of the class is for ------------------------------------------------------------------------------

    def _frames(self) -> Nested:
        raise NotImplementedError

    def _wrap(self, record: Record) -> None:
        raise NotImplementedError

    def _freeze(self) -> set[Any] | None:
        raise NotImplementedError

    def _thaw(self, cache: RecordCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise NotImplementedError

    def _watched(self, monitor: Monitor, run: Run, point: Point | None) -> Any:
        raise NotImplementedError


__all__ = ["ATTEMPTS", "Behind", "recording"]
