"""Verify mode: the first hits of each record run natively, too, and must not differ.

The record serves the call in a copy of the process (`os.fork`), which has a copy of everything that the call can reach: the
arguments, the model, globals, generators of random numbers, iterators. The program runs natively, for real, here; the user
gets what it gives. Portraits of both are compared. Where they differ, a second copy of the process watches the program
once more, and what its guard checks and the record's does not is what should have been guarded.

A call that passes boundaries is served by its whole chain of segments in the copy, before the program runs here: only if the
copy has come to the end, so that every boundary operation could be done twice, is there something to compare. Otherwise the
call is served as ever. See `_chains`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from ._portrait import Known, Line, Portrait, difference
from ._refusals import strip

_PATIENCE_S: Final = 120.0
_TOLERANCE: Final = {"eager": 1e-5}
_OTHER_TOLERANCE: Final = 1e-3
"""The copy computes on one thread, since thread pools do not survive in it: sums may have other last bits."""


class VerificationWarning(UserWarning):
    """A record gave something else than the program itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a verified call came to.

    Attributes:
        result: what the program returned.
        error: what it raised, or None.
        difference: the first difference, in words; None where there is none.
        unverified: why nothing was compared; None where it was.
        missing: what the program reads that the record does not guard, with places.
        served: whether the call is over; if not, it has not begun here.
        again: whether a later call may be verified where this one was not.
        trail: the records that served it in the copy, by `id`.
    """

    result: Any
    error: BaseException | None
    difference: str | None
    unverified: str | None = None
    missing: tuple[str, ...] = ()
    served: bool = True
    again: bool = False
    trail: tuple[int, ...] = ()


def _known(roots: list[tuple[str, Any]]) -> Known:
    """What is there before a call."""
    known = Known()
    before = Portrait(known, first=True)
    for name, obj in roots:
        before.paint(obj, name)
    return known


def can_verify() -> str | None:
    """Why the process cannot be copied, or None."""
    if not hasattr(os, "fork"):
        return "processes cannot be copied here"
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "a process that uses CUDA cannot be copied"
    return None


def verify(
    program: Callable[[], Any],
    served: Callable[[], Any],
    watch: Callable[[], list[str]],
    roots: list[tuple[str, Any]],
    backend: Any,
) -> Outcome:
    """Run a call natively here and from a record in a copy of the process, and compare.

    Args:
        program: the call, natively.
        served: the call, from the record.
        watch: watches the call and gives what a record of it would check.
        roots: what the call can reach, by name.
        backend: the name of the backend, which says how near results must be.
    """
    known = _known(roots)
    copy = _Copy(lambda: _portrait(served, known, roots))
    spare = _Copy(watch, waits=True)
    result, error, lines, _ = _run(program, known, roots)
    answer = copy.answer()
    if answer is None:
        spare.stop()
        return Outcome(result, error, None, "the copy of the process gave no answer")
    what, others = answer
    if what is not None:
        spare.stop()
        return Outcome(result, error, None, what)
    found = difference(lines, others, _TOLERANCE.get(backend, _OTHER_TOLERANCE))
    missing: list[str] = []
    if found is None:
        spare.stop()
    else:
        missing = spare.answer() or []
    return Outcome(result, error, found, None, tuple(missing))


def verify_chain(
    program: Callable[[], Any],
    served: Callable[[], Any],
    trail: list[int],
    roots: list[tuple[str, Any]],
    backend: Any,
) -> Outcome:
    """Run a call from its segments in a copy of the process, and if that was possible, natively here; compare.

    Args:
        program: the call, natively.
        served: the call, from the segments.
        trail: `served` adds the records that it uses, by `id`.
        roots: what the call can reach, by name.
        backend: the name of the backend, which says how near results must be.
    """
    known = _known(roots)

    def painted() -> tuple[str | None, list[Line], bool, tuple[int, ...]]:
        _, error, lines, _ = _run(served, known, roots)
        if isinstance(error, _NotServed):
            return str(error), [], error.again, ()
        return None, lines, False, tuple(trail)

    answer = _Copy(painted).answer()
    if answer is None:
        return Outcome(None, None, None, "the copy of the process gave no answer", served=False)
    what, others, again, used = answer
    if what is not None:
        return Outcome(None, None, None, what, served=False, again=again)
    result, error, lines, _ = _run(program, known, roots)
    found = difference(lines, others, _TOLERANCE.get(backend, _OTHER_TOLERANCE))
    return Outcome(result, error, found, trail=used)


def _run(
    function: Callable[[], Any], known: Known, roots: list[tuple[str, Any]]
) -> tuple[Any, BaseException | None, list[Line], bool]:
    result, error = None, None
    try:
        result = function()
    except Exception as raised:
        strip(raised)
        error = raised
    portrait = Portrait(known, first=False)
    portrait.process()
    portrait.paint(error if error is not None else result, "raised" if error is not None else "result")
    for name, obj in roots:
        portrait.paint(obj, name)
    return result, error, portrait.lines, portrait.cut


def _portrait(function: Callable[[], Any], known: Known, roots: list[tuple[str, Any]]) -> tuple[str | None, list[Line]]:
    _, error, lines, _ = _run(function, known, roots)
    if isinstance(error, _NotServed):
        return str(error), []
    return None, lines


class _NotServed(Exception):
    """The record could not serve the call, which then runs natively.

    Attributes:
        again: whether a later call may be served.
    """

    again = False


def not_served(why: str, *, again: bool = False) -> Exception:
    """What `served` raises where the record does not serve the call after all."""
    error = _NotServed(why)
    error.again = again
    return error


class _Copy:
    """A copy of the process that computes something and is gone."""

    def __init__(self, function: Callable[[], Any], *, waits: bool = False) -> None:
        self.reader, writer = os.pipe()
        starter, self.starter = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        state = random.getstate()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.pid = os.fork()
        if self.pid == 0:
            gc.disable()  # finalizers of the program would run a second time
            random.setstate(state)  # a copy seeds its generator anew
            self._child(function, writer, starter, waits)
        os.close(writer)
        os.close(starter)

    def _child(self, function: Callable[[], Any], writer: int, starter: int, waits: bool) -> None:
        try:
            os.close(self.reader)
            os.close(self.starter)
            if waits and os.read(starter, 1) != b"!":
                os._exit(0)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            torch.set_num_threads(1)
            data = pickle.dumps(function())
            with os.fdopen(writer, "wb") as stream:
                stream.write(data)
        except BaseException:
            os._exit(1)
        os._exit(0)

    def answer(self) -> Any:
        """What it computed, None if it gave nothing."""
        with contextlib.suppress(OSError):
            os.write(self.starter, b"!")
        os.close(self.starter)
        data = bytearray()
        end = time.monotonic() + _PATIENCE_S
        try:
            while (left := end - time.monotonic()) > 0:
                if select.select([self.reader], [], [], left)[0]:
                    part = os.read(self.reader, 1 << 20)
                    if not part:
                        return pickle.loads(bytes(data)) if data else None
                    data += part
            return None
        finally:
            self._reap()

    def stop(self) -> None:
        """It is not needed."""
        os.close(self.starter)
        self._reap()

    def _reap(self) -> None:
        os.close(self.reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
