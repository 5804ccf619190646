"""Times several calls side by side, so that a machine that slows down does so for all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """The times of one call, in seconds: median and the fastest."""

    median_s: float
    fastest_s: float
    calls: int


def interleaved(calls: Mapping[str, Callable[[], Any]], *, budget_s: float = 1.0, least: int = 5) -> dict[str, Timing]:
    """Runs the calls in turn until the time is up, each at least `least` times after one warm-up.

    A call that takes less than 200 µs is repeated within a turn, so that the clock does not count.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + budget_s
    turn = 0
    while turn < least or time.perf_counter() < end:
        turn += 1
        for name, call in calls.items():
            count = range(repeats[name])
            start = time.perf_counter()
            for _ in count:
                call()
            times[name].append((time.perf_counter() - start) / len(count))
    return {
        name: Timing(median_s=statistics.median(t), fastest_s=min(t), calls=len(t) * repeats[name])
        for name, t in times.items()
    }
