"""Which of several ways to run a graph is the fastest: they are timed, in turn, on the inputs of a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import torch

from . import _torch
from ._graph_facts import Hints

Run = Callable[..., Any]

shortest_s = 1e-3
"""Calls that take less are not compared."""

_LONG_S: Final = 0.5
_TURNS: Final = 7
_SLOWER: Final = 0.85
_FAR: Final = 4.0


def keeping_random(action: Callable[[], Any], hints: Hints | None) -> None:
    """Run something without gradients and leave the random generators as they were."""
    if hints is not None and not hints.random:
        with torch.no_grad():
            action()
        return
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        action()


def takes_less(run: Run, inputs: list[Any], limit_s: float, hints: Hints | None) -> bool:
    """Whether a call takes less than so many seconds. Calls that take far longer are made twice only."""
    times: list[float] = []

    def measure() -> None:
        run(*inputs)
        while len(times) < _TURNS and not (times and times[0] > _FAR * limit_s):
            started = time.perf_counter()
            run(*inputs)
            times.append(time.perf_counter() - started)

    keeping_random(measure, hints)
    return statistics.median(times) < limit_s


def compare(runs: dict[str, Run], inputs: list[Any], hints: Hints | None) -> dict[str, float]:
    """Seconds of a call of each, medians in turn. Only for graphs that update nothing."""
    times: dict[str, list[float]] = {name: [] for name in runs}

    def measure() -> None:
        for turn in range(7):
            for name, run in runs.items():
                started = time.perf_counter()
                run(*inputs)
                if turn > 1:
                    times[name].append(time.perf_counter() - started)

    keeping_random(measure, hints)
    return {name: statistics.median(each) for name, each in times.items()}


def is_slower(code: Run, eager: Run, inputs: list[Any]) -> bool:
    """Whether compiled code takes clearly longer than the operators of its graph by themselves. Short calls are not looked at.

    Args:
        code: the compiled code; like the graph it updates nothing and draws no random numbers.
        eager: the graph.
        inputs: inputs of a call.
    """
    if any(map(_torch.is_symbolic, inputs)):
        return False
    times: tuple[list[float], list[float]] = ([], [])
    try:
        with torch.no_grad():
            code(*inputs)
            started = time.perf_counter()
            code(*inputs)
            if time.perf_counter() - started < shortest_s:
                return False
            for _ in range(_TURNS):
                for run, found in zip((code, eager), times, strict=True):
                    begun = time.perf_counter()
                    run(*inputs)
                    _wait()
                    found.append(time.perf_counter() - begun)
                if times[0][0] < times[1][0] or (time.perf_counter() - started > _LONG_S and len(times[0]) > 1):
                    break
    except Exception:  # the first call tells
        return False
    return statistics.median(times[1]) < _SLOWER * statistics.median(times[0])


def _wait() -> None:
    """For what a device is still doing."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


__all__ = ["compare", "is_slower", "keeping_random", "takes_less"]
