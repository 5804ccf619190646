"""A record: what one monitored run left behind, and what serves later calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._native import (
    CacheSlots,
    CountSlots,
    Dispatcher,
    NativeGuard,
    RecordSlots,
    TwinCall,
    TwinSlots,
    is_recording,
    set_recording,
)

if TYPE_CHECKING:
    from ._freezing import FrozenCheck


@dataclass(slots=True)
class Record(RecordSlots):
    """Guard, compiled operator graph and mock.

    Attributes:
        guard: `guard(args, kwargs)` gives the bound objects as a tuple, or the number of the check that failed.
        mock: `mock(bound, run)` runs the graph, replays effects and gives the result.
        run: the compiled graph; None when the run had no operators.
        guard_source: the guard as readable Python.
        held_source: gives the facts about objects that the record holds as readable Python, a function `held()`, and its
            globals.
        mock_source: the mock as readable Python.
        checks: for each number that the guard may give, what it checks, in words.
        check_keys: for each number, a key that stays the same from record to record, or None.
        held: the same two for the facts about held objects: the guard gives -1 - i where the i-th failed.
        graph: the operator graph as torch.fx, None when the run had no operators.
        operators: number of operators in the graph.
        effects: what the mock replays, in words.
        mutates: whether the graph updates its inputs, so that it cannot be tried again.
        updated: numbers of the graph's inputs that it updates.
        may_raise: whether an operator of the graph raises for some values of its inputs.
        switches: whether the graph changes modes of torch on its way.
        frozen: whether the tensors that the graph takes for constants are as they were; None where it takes none.
        random: whether the graph draws random numbers.
        boundary: the boundary at which it ends, None where it ends with the call.
        lifted: the numbers and sizes that are its inputs, in words, with why.
        survey: gives the keys of all numbers and sizes that differ at a call; the guard only says which check fails first.
        raises: whether the mock gives an exception, which the call raises.
        hits: calls that it served.
        plain: whether running the mock is all that serving a call takes; native code does so then.
        steady: whether it leaves the modes of torch as they are.
        verified: calls that were verified.
        native: the guard as the dispatcher runs it; it gives what `guard` gives. None where there is only the Python.
        namespace: the globals of guard and mock; it holds what is guarded by identity.
        parts: what it was made of, for whoever writes it to a file.
        form: the native guard's steps, the source of the step that is left to Python, and the direct form of the mock.
    """

    guard: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    mock: Callable[[tuple[Any, ...], Any], Any]
    run: Callable[..., Any] | None
    guard_source: str
    held_source: Callable[[], tuple[str, dict[str, Any]]]
    mock_source: str
    checks: tuple[str, ...]
    check_keys: tuple[Any, ...]
    held: tuple[tuple[str, Any], ...]
    graph: Any
    operators: int
    effects: tuple[str, ...]
    mutates: bool = False
    random: bool = False
    updated: tuple[int, ...] = ()
    may_raise: bool = False
    switches: bool = False
    frozen: FrozenCheck | None = None
    boundary: Any = None
    lifted: tuple[str, ...] = ()
    survey: Callable[[tuple[Any, ...], dict[str, Any]], list[Any]] | None = None
    raises: bool = False
    verified: int = 0
    hits: int = 0
    plain: bool = False
    steady: bool = False
    native: NativeGuard | None = None
    timings: dict[str, float] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    parts: Any = None
    form: tuple[Any, ...] | None = None

    def failed(self, number: int) -> tuple[str, Any]:
        """What check `number` is about, in words, and its key or None."""
        if number < 0:
            return self.held[-1 - number]
        return self.checks[number], self.check_keys[number]

    def release(self) -> None:
        """Let everything go."""
        self.namespace.clear()
        self.held = ()
        self.held_source = _no_source
        self.run = self.graph = self.native = self.survey = self.parts = self.form = None


def _no_source() -> tuple[str, dict[str, Any]]:
    return "def held():\n    return None\n", {}


class RecordCache(CacheSlots):
    """The records of one compiled callable, tried most recent first.

    Attributes:
        records: newest first.
        limit: how many there may be.
        barren: how many there may be without one of them ever being used again.
        failed: for each check that failed on a miss, how often.
    """

    def __init__(self, limit: int, barren: int | None = None) -> None:
        self.records: tuple[Record, ...] = ()
        self.limit = limit
        self.barren = limit if barren is None else barren
        self.failed: dict[str, int] = {}
        self.unstable: set[Any] = set()
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether no further record may be added."""
        count = len(self.records)
        return count >= self.limit or (count >= self.barren and not any(each.hits for each in self.records))

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Record, tuple[Any, ...]] | None:
        """The record whose guard passes, with what the guard bound; None on a miss.

        Args:
            args: positional arguments, or slots.
            kwargs: keyword arguments.
        """
        for record in self.records:
            bound = (record.native or record.guard)(args, kwargs)
            if type(bound) is tuple:
                if record is not self.records[0]:
                    with self._lock:
                        others = tuple([each for each in self.records if each is not record])
                        if len(others) < len(self.records):  # unless it was dropped meanwhile
                            self.records = (record, *others)
                return record, bound
        return None

    def note_miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remember which checks failed, so that the next record does not rest on them."""
        for record in self.records:
            number = record.guard(args, kwargs)
            if type(number) is int:
                text, key = record.failed(number)
                self.failed[text] = self.failed.get(text, 0) + 1
                if key is not None:
                    self.unstable.add(key)
                if record.survey is not None:
                    self.unstable.update(record.survey(args, kwargs))

    def append(self, record: Record) -> None:
        """Add a record behind the others."""
        with self._lock:
            self.records = (*self.records, record)

    def add(self, record: Record) -> None:
        """Add a record in front."""
        with self._lock:
            self.records = (record, *self.records)

    def discard(self, record: Record) -> None:
        """Take a record out; calls that it is serving now are not disturbed."""
        with self._lock:
            self.records = tuple([each for each in self.records if each is not record])

    def clear(self) -> None:
        """Drop all records."""
        records, self.records = self.records, ()
        for record in records:
            record.release()
        self.failed.clear()
        self.unstable.clear()


class RecordingFlag:
    """Whether this thread records a run; the dispatcher leaves calls alone then."""

    @property
    def active(self) -> bool:
        """The flag of the thread that asks."""
        return is_recording()

    @active.setter
    def active(self, value: bool) -> None:
        set_recording(value)


__all__ = [
    "CountSlots",
    "Dispatcher",
    "NativeGuard",
    "Record",
    "RecordCache",
    "RecordSlots",
    "RecordingFlag",
    "TwinCall",
    "TwinSlots",
]
