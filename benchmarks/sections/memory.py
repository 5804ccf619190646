"""Memory: what a record holds beside the model, and whether many calls leave anything behind."""

import gc
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, table, to_device
from benchmarks.models import Pointwise, rows, squares, thousand

import magpy


def measure(settings: Settings) -> dict[str, Any]:
    """Resident memory before and after recording, and after many calls."""
    calls = 2_000 if settings.quick else 100_000
    return {
        "calls": calls,
        "models": {
            "pointwise": _one(Pointwise(), squares(SEED), calls, settings),
            "1000 modules": _one(thousand(), rows(SEED), calls // 100, settings),
        },
    }


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _one(model: torch.nn.Module, arguments: Any, calls: int, settings: Settings) -> dict[str, Any]:
    model = model.eval().to(settings.device)
    args, kwargs = to_device(arguments, settings.device)
    with torch.no_grad():
        model(*args, **kwargs)
        gc.collect()
        before = resident_bytes()
        compiled = magpy.compile(model, backend="eager")
        compiled(*args, **kwargs)
        compiled(*args, **kwargs)
        gc.collect()
        recorded = resident_bytes()
        tenth = max(calls // 10, 1)
        times = []
        for part in range(10):
            started = time.perf_counter()
            for _ in range(tenth):
                compiled(*args, **kwargs)
            times.append((time.perf_counter() - started) / tenth)
            if part == 0:
                gc.collect()
                warm = resident_bytes()
        gc.collect()
        after = resident_bytes()
    return {
        "record_bytes": recorded - before,
        "growth_bytes": after - warm,
        "records": magpy.info(compiled).records,
        "first_tenth_us": 1e6 * times[0],
        "last_tenth_us": 1e6 * times[-1],
    }


def show(found: dict[str, Any]) -> str:
    """A table."""
    head = ["model", "record KiB", "growth KiB", "records", "us at first", "us at last"]
    return table(
        head,
        [
            [
                name,
                each["record_bytes"] / 1024,
                each["growth_bytes"] / 1024,
                each["records"],
                each["first_tenth_us"],
                each["last_tenth_us"],
            ]
            for name, each in found["models"].items()
        ],
    )
