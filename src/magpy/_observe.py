"""Who is told what happens to compiled callables: nobody, unless a tool such as the command line has asked for it.

Nothing here lies on the way of a call that a record serves.
"""

from __future__ import annotations

import types
from typing import Any


class Observer:
    """Is told of compiled callables and of the runs that are watched; every method may be left as it is.

    The methods run in the user's process between the user's own code: what one raises is kept in `errors` and goes no
    further.
    """

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def made(self, compiled: Any) -> None:
        """A compiled callable was made."""

    def gone(self, compiled: Any) -> None:
        """A compiled callable is about to be freed."""

    def watching(self, compiled: Any) -> None:
        """A monitored run of a compiled callable starts on this thread."""

    def planned(self, code: types.CodeType, plan: Any) -> None:
        """A code object runs under observation for the first time in this run; `plan` may be added to."""

    def backend(self, operators: int) -> None:
        """The backend is given a graph of this many operators."""

    def recorded(self, compiled: Any, monitor: Any, run: Any, record: Any, failure: Any) -> None:
        """A monitored run is over.

        Args:
            compiled: the compiled callable.
            monitor: what watched, with its RefGraph; it is emptied afterwards.
            run: the outcome of the run.
            record: what came of it, or None.
            failure: why there is no record, or None.
        """


_observer: Observer | None = None


def observe(observer: Observer | None) -> Observer | None:
    """Set who is told, and give who was told before."""
    global _observer
    before, _observer = _observer, observer
    return before


def tell(event: str, *arguments: Any) -> None:
    """Call the method `event` of the observer, if there is one. Raises nothing."""
    observer = _observer
    if observer is not None:
        try:
            getattr(observer, event)(*arguments)
        except Exception as error:
            observer.errors.append(error)
