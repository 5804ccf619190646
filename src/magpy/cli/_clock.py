"""Measures how long the operations at boundaries take."""

from __future__ import annotations

import time
from typing import Any, Self

from magpy._splitting import SplitRules
from magpy_runtime.segments import BoundarySite, set_timed


class BoundaryClock:
    """While it is entered, each boundary notes how long its operation takes, in watched runs and in served calls.

    These methods are put in place of the classes' own, and served calls go through them. A boundary notes the time whether
    its operation returns or raises, except in a watched run that an exception ends, which does not count as having reached
    the boundary.
    """

    def __enter__(self) -> Self:
        self._run, self._split, self._crossed = BoundarySite.run, SplitRules._split, SplitRules.crossed
        serve, split, crossed = self._run, self._split, self._crossed
        began: dict[int, float] = {}  # by the boundary's id, while its operation runs in a watched run

        def timed_run(site: BoundarySite, *args: Any) -> Any:
            started = time.perf_counter()
            try:
                return serve(site, *args)
            finally:
                _add(site, time.perf_counter() - started)

        def timed_split(rules: SplitRules, *args: Any) -> None:
            split(rules, *args)
            began[id(rules.pending)] = time.perf_counter()

        def timed_crossed(rules: SplitRules, state: None, outputs: tuple[Any, ...] | None, arg: None) -> None:
            ended = time.perf_counter()
            started = began.pop(id(rules.pending), None)
            if started is not None and outputs is not None:
                _add(rules.pending[0], ended - started)
            crossed(rules, state, outputs, arg)

        BoundarySite.run = timed_run  # type: ignore[assignment, method-assign]
        SplitRules._split = timed_split  # type: ignore[assignment, method-assign]
        SplitRules.crossed = timed_crossed  # type: ignore[assignment, method-assign]
        set_timed(True)
        return self

    def __exit__(self, *error: object) -> None:
        set_timed(False)
        BoundarySite.run = self._run  # type: ignore[method-assign]
        SplitRules._split = self._split  # type: ignore[method-assign]
        SplitRules.crossed = self._crossed  # type: ignore[method-assign]


def _add(site: BoundarySite, seconds: float) -> None:
    site.seconds = (site.seconds or 0.0) + seconds
