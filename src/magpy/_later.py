"""Compiling while the program goes on: records whose graphs a worker compiles, for `compile_async=True`."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from magpy_runtime import Record, RecordCache, worker

from ._failures import internal_error
from ._reasons import Boundary
from ._recording import Draft
from ._refusals import settle

Done = Callable[[Any, Draft, RecordCache, Boundary | None, float], None]


class Pending:
    """The records of one compiled callable whose graphs are being compiled, each with the cache that it will go to."""

    def __init__(self) -> None:
        self._drafts: tuple[tuple[RecordCache, Draft], ...] = ()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._drafts)

    def __iter__(self) -> Any:
        return iter(self._drafts)

    def covers(self, cache: RecordCache, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a record for this call is on its way."""
        for place, draft in self._drafts:
            if place is cache:
                try:
                    if type(draft.record.guard(args, kwargs)) is tuple:
                        return True
                except Exception:
                    continue
        return False

    def add(self, owner: Any, cache: RecordCache, draft: Draft, backend: Any, done: Done) -> bool:
        """Compile a graph later, and call `done(owner, draft, cache, problem, seconds)` then.

        Args:
            owner: the compiled callable; it may go meanwhile.
            cache: where the record is to go.
            draft: the record.
            backend: what compiles.
            done: called by the worker, unless the record was dropped meanwhile.

        Returns:
            Whether there is a worker.
        """
        inference = torch.is_inference_mode_enabled()
        reference = weakref.ref(owner)
        with self._changed:
            self._drafts += ((cache, draft),)

        def job() -> None:
            if not self._has(draft) or reference() is None:
                return
            started = time.perf_counter()
            problem: Boundary | None = None
            try:
                try:
                    with torch.inference_mode(inference):
                        draft.finish(backend)
                except Boundary as boundary:
                    problem = settle(boundary)
                except Exception as error:
                    problem = settle(internal_error(error))
                living = reference()
                if living is not None and self._has(draft):
                    done(living, draft, cache, problem, time.perf_counter() - started)
            finally:
                self.remove(draft)

        if worker.submit(job):
            return True
        self.remove(draft)
        return False

    def remove(self, draft: Draft) -> None:
        """A record has come, or is not wanted any more."""
        with self._changed:
            self._drafts = tuple([each for each in self._drafts if each[1] is not draft])
            self._changed.notify_all()

    def clear(self) -> list[Record]:
        """Drop all; gives the records that will not come."""
        with self._changed:
            drafts, self._drafts = self._drafts, ()
            self._changed.notify_all()
        return [draft.record for _, draft in drafts]

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is on its way; False if it takes longer than that."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._drafts, timeout_s)

    def _has(self, draft: Draft) -> bool:
        return any(each is draft for _, each in self._drafts)


__all__ = ["Pending"]
