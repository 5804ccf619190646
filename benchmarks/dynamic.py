"""Programs whose control flow depends on tensors' values: eager, torch.compile and MagPy side by side.

    python benchmarks/dynamic.py [--backend eager|inductor] [--calls 50] [--rounds 5] [--only NAME] [--json FILE]

Each program is called on so many varied arguments, twice to warm up, then in rounds that are timed, the three interleaved
call by call. Printed are the time of a round against eager and against torch.compile, MagPy's monitored runs, and the
monitored and native runs after the warm-up, which have to be zero. `merged` is the time with `merge_branches` against the time
without, where a branch was merged. Every result is compared with eager's.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import magpy

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from dynamic_programs import PROGRAMS


def same(one: Any, other: Any) -> bool:
    """Whether two results are the same, but for rounding."""
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, rtol=1e-3, atol=1e-4)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def timed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, float]:
    """A call's result and seconds."""
    started = time.perf_counter()
    result = function(*args)
    return result, time.perf_counter() - started


def measure(name: str, backend: str, calls: int, rounds: int) -> dict[str, Any]:
    """The figures of one program."""
    worlds: dict[str, Any] = {}
    for kind in ("eager", "torch", "magpy", "merged"):
        target, arguments = PROGRAMS[name]()
        if kind == "torch":
            torch._dynamo.reset()
            target = torch.compile(target, backend=backend)
        elif kind == "magpy":
            target = magpy.compile(target, backend=backend)
        elif kind == "merged":
            target = magpy.compile(target, backend=backend, options={"merge_branches": True})
        worlds[kind] = target
    different = 0
    first = dict.fromkeys(worlds, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(2):
            for number in range(calls):
                results = {}
                for kind, target in worlds.items():
                    results[kind], seconds = timed(target, copy.deepcopy(arguments(number)))
                    first[kind] += seconds
                different += not all(same(results["eager"], results[kind]) for kind in ("magpy", "merged"))
        warm = magpy.info(worlds["magpy"])
        totals: dict[str, list[float]] = {kind: [] for kind in worlds}
        for _ in range(rounds):
            spent = dict.fromkeys(worlds, 0.0)
            for number in range(calls):
                results = {}
                for kind, target in worlds.items():
                    args = copy.deepcopy(arguments(number))
                    results[kind], seconds = timed(target, args)
                    spent[kind] += seconds
                different += not all(same(results["eager"], results[kind]) for kind in ("magpy", "merged"))
            for kind, seconds in spent.items():
                totals[kind].append(seconds)
    after = magpy.info(worlds["magpy"])
    medians = {kind: statistics.median(found) / calls for kind, found in totals.items()}
    return {
        "program": name,
        "different": different,
        "milliseconds": {kind: 1000 * value for kind, value in medians.items()},
        "of_eager": medians["magpy"] / medians["eager"],
        "of_torch_compile": medians["magpy"] / medians["torch"],
        "merged_of_tree": medians["merged"] / medians["magpy"],
        "merged": "MergedGraph" in magpy.explain(worlds["merged"]),
        "monitored": warm.monitored,
        "native": warm.native,
        "records": after.records,
        "later_monitored": after.monitored - warm.monitored,
        "later_native": after.native - warm.native,
        "warm_up_seconds": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL - 1)
    found = []
    names = f"{'program':26} {'of eager':>9} {'of torch.compile':>17} {'monitored':>10} {'later':>6}"
    print(f"{names} {'native':>7} {'equal':>6} {'merged':>7}")
    for name in options.only or PROGRAMS:
        each = measure(name, options.backend, options.calls, options.rounds)
        found.append(each)
        print(
            f"{name:26} {each['of_eager']:9.2f} {each['of_torch_compile']:17.2f} {each['monitored']:10} "
            f"{each['later_monitored']:6} {each['later_native']:7} {'yes' if not each['different'] else each['different']:>6} "
            f"{format(each['merged_of_tree'], '7.2f') if each['merged'] else '-':>7}",
            flush=True,
        )
    if len(found) > 1:
        for key in ("of_eager", "of_torch_compile"):
            print(f"geometric mean {key}: {statistics.geometric_mean([each[key] for each in found]):.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
