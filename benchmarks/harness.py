"""What all benchmarks share: the device, timing of several calls side by side, and tables."""

import gc
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SEED = 2024


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the command line asked for.

    Attributes:
        device: `cpu` or `cuda`.
        quick: small models and few rounds: shows that all works, not how fast it is.
        budget_s: seconds for one comparison.
        only: names of models; all when empty.
        options: settings of Inductor's for both front ends.
    """

    device: str = "cpu"
    quick: bool = False
    budget_s: float = 6.0
    only: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The times of calls that were measured in turn.

    Attributes:
        median_s: of each call.
        rounds: how many there were.
        ratios: for each call, the median over the rounds of its time by that of the first call.
    """

    median_s: dict[str, float]
    rounds: int
    ratios: dict[str, float]

    def ratio(self, name: str, to: str) -> float:
        """How long one call takes, compared with another."""
        return self.ratios[name] / self.ratios[to]


class Clock:
    """Times calls on a device: by events where there are some."""

    def __init__(self, device: str) -> None:
        self.cuda = device == "cuda"

    def __call__(self, call: Callable[[], Any], count: int) -> float:
        """Seconds of one of `count` calls."""
        if self.cuda:
            event: Any = torch.cuda.Event
            start, end = event(enable_timing=True), event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            for _ in range(count):
                call()
            end.record()
            torch.cuda.synchronize()
            return float(start.elapsed_time(end)) / 1e3 / count
        started = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - started) / count


def compare(
    calls: Mapping[str, Callable[[], Any]],
    *,
    device: str = "cpu",
    budget_s: float = 2.0,
    least: int = 7,
    turn_s: float = 2e-3,
) -> Compared:
    """Run the calls in turn until the time is up, so that a machine that slows down does so for all of them.

    Args:
        calls: by name; the first is what ratios refer to.
        device: where they run.
        budget_s: for all of them.
        least: rounds at least.
        turn_s: a call that takes less is repeated within a turn.
    """
    clock = Clock(device)
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        counts[name] = max(1, min(10_000, int(turn_s / max(clock(call, 3), 1e-8))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = [*calls]
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + budget_s
        rounds = 0
        while rounds < least or time.perf_counter() < end:
            for name in names if rounds % 2 else reversed(names):
                times[name].append(clock(calls[name], counts[name]))
            rounds += 1
    finally:
        if enabled:
            gc.enable()
    first = times[names[0]]
    return Compared(
        median_s={name: statistics.median(each) for name, each in times.items()},
        rounds=rounds,
        ratios={
            name: statistics.median(one / base for one, base in zip(each, first, strict=True))
            for name, each in times.items()
        },
    )


def to_device(value: Any, device: str) -> Any:
    """Arguments of a call with their tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(to_device(each, device) for each in value)
    if isinstance(value, dict):
        return {name: to_device(each, device) for name, each in value.items()}
    return value


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean, NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else float("nan")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in text: numbers to three digits, words to the left."""
    cells = [[_cell(each) for each in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(head), *cells]) for n in range(len(head))]
    lines = [[*head], ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not n else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return str(value)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform
