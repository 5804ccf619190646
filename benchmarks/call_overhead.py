#!/usr/bin/env python3
"""What a compiled call costs besides its graph: guards and dispatch, by graph and by number of submodules.

    python benchmarks/call_overhead.py [--json] [--quick] [--rounds 30] [--only tiny,modules] [--out FILE]

Everything in this process, one thread, without gradients, in turn; medians of rounds and of ratios within a round.

*tiny*: three pointwise operations on 16 x 16 as a function and as a module: eager, `torch.compile` and MagPy, both with
Inductor. *modules*: models of 1 to 1,000 submodules with and without parameters, under a backend whose graphs only hand out
what they gave the first time, so that what is measured is the front end alone; `graph` is the call of such a graph.
Exits 1 where MagPy misses a limit: on a tiny graph 1/3 of torch.compile(model) and less than eager; for 1,000 submodules
10 us, and 0.1 us for each parameter on top.
"""

import argparse
import gc
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import magpy

TINY_OF_COMPILE = 1 / 3
TINY_OF_EAGER = 1.0
PLAIN_1000_US = 10.0
PARAMETER_US = 0.1
TURN_S = 2e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison.

    Attributes:
        name: what was called.
        submodules: in the model, 0 for functions.
        parameters: in the model.
        median_us: of each way to call it.
        best_us: the fastest round of each.
        ratios: MagPy's time by that of each, medians over the rounds.
    """

    name: str
    submodules: int
    parameters: int
    median_us: dict[str, float]
    best_us: dict[str, float]
    ratios: dict[str, float]


def compare(
    calls: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Medians and minima in microseconds, and MagPy's ratios; the calls take turns."""
    counts = {}
    for name, call in calls.items():
        for _ in range(10):
            call()
        started = time.perf_counter()
        for _ in range(5):
            call()
        counts[name] = max(3, int(TURN_S / max((time.perf_counter() - started) / 5, 1e-8)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for name in calls if number % 2 else reversed(calls):
                call = calls[name]
                call()
                started = time.perf_counter()
                for _ in range(counts[name]):
                    call()
                times[name].append((time.perf_counter() - started) / counts[name] * 1e6)
    finally:
        gc.enable()
    ratios = {
        name: statistics.median(one / other for one, other in zip(times["magpy"], each, strict=True))
        for name, each in times.items()
        if name != "magpy"
    }
    medians = {name: statistics.median(each) for name, each in times.items()}
    return medians, {name: min(each) for name, each in times.items()}, ratios


class Pointwise(nn.Module):
    """Three pointwise operations."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.relu(x + y))


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.relu(x + y))


def once(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """A backend whose graphs hand out what they gave the first time."""
    kept: list[Any] = []

    def run(*args: Any) -> Any:
        if not kept:
            kept.append(module.forward(*args))
        return kept[0]

    return run


def model_of(submodules: int, parameters: bool) -> nn.Sequential:
    """A model with that many submodules; one in two has two parameters."""
    layers: list[nn.Module] = []
    while len(layers) < submodules:
        layers.append(nn.Linear(8, 8) if parameters else nn.Identity())
        layers.append(nn.ReLU())
    return nn.Sequential(*layers[:submodules])


def tiny(rounds: int, backend: str) -> list[Row]:
    """Whole calls of a small graph."""
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    rows = []
    for name, target in (("function", pointwise), ("module", Pointwise())):
        torch._dynamo.reset()
        theirs = torch.compile(target, backend=backend)
        ours = magpy.compile(target, backend=backend)
        calls: dict[str, Callable[[], Any]] = {
            "eager": lambda target=target: target(x, y),
            "torch.compile": lambda theirs=theirs: theirs(x, y),
            "magpy": lambda ours=ours: ours(x, y),
        }
        rows.append(row(name, 0, 0, calls, rounds))
        assert magpy.info(ours).monitored == 1
    return rows


def overhead_of_function(rounds: int) -> Row:
    """Guards and dispatch of a function of two tensors."""
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    torch._dynamo.reset()
    theirs, ours = torch.compile(pointwise, backend=once), magpy.compile(pointwise, backend=once)
    graph = once(torch.fx.symbolic_trace(pointwise), [])
    calls: dict[str, Callable[[], Any]] = {
        "graph": lambda: graph(x, y),
        "torch.compile": lambda: theirs(x, y),
        "magpy": lambda: ours(x, y),
    }
    return row("function", 0, 0, calls, rounds)


def modules(rounds: int, sizes: list[int]) -> list[Row]:
    """Guards and dispatch by number of submodules."""
    x = torch.randn(4, 8)
    rows = []
    for parameters in (False, True):
        for size in sizes:
            model = model_of(size, parameters)
            torch._dynamo.reset()
            theirs, ours = torch.compile(model, backend=once), magpy.compile(model, backend=once)
            graph = once(torch.fx.symbolic_trace(model), [])
            values = [x, *model.parameters()]
            calls: dict[str, Callable[[], Any]] = {
                "eager": lambda model=model: model(x),
                "graph": lambda graph=graph, values=values: graph(*values),
                "torch.compile": lambda theirs=theirs: theirs(x),
                "magpy": lambda ours=ours: ours(x),
            }
            graph(x)
            name = "with parameters" if parameters else "without parameters"
            rows.append(row(name, size, len(values) - 1, calls, rounds))
            assert magpy.info(ours).monitored == 1
    return rows


def row(name: str, submodules: int, parameters: int, calls: dict[str, Callable[[], Any]], rounds: int) -> Row:
    medians, best, ratios = compare(calls, rounds)
    return Row(name=name, submodules=submodules, parameters=parameters, median_us=medians, best_us=best, ratios=ratios)


def missed(found: dict[str, list[Row]]) -> list[str]:
    """The limits that were missed, in words. Limits in microseconds refer to the best round: the machine may be busy."""
    problems = []
    for each in found.get("tiny", []):
        if each.name == "module" and each.ratios["torch.compile"] > TINY_OF_COMPILE:
            problems.append(f"tiny {each.name}: {each.ratios['torch.compile']:.2f} of torch.compile")
        if each.ratios["eager"] > TINY_OF_EAGER:
            problems.append(f"tiny {each.name}: {each.ratios['eager']:.2f} of eager")
    for each in found.get("modules", []):
        limit = PLAIN_1000_US + PARAMETER_US * each.parameters
        spent = each.best_us["magpy"] - each.best_us["graph"]
        if spent > limit:
            problems.append(f"{each.submodules} modules {each.name}: {spent:.1f} us, limit {limit:.0f} us")
    return problems


def show(title: str, rows: list[Row]) -> None:
    """Print a table."""
    names = [*rows[0].median_us]
    print(f"\n{title}")
    head = ["", "modules", "parameters", *[f"{name} us" for name in names], *[f"of {name}" for name in rows[0].ratios]]
    lines = [head]
    for each in rows:
        lines.append(
            [each.name, str(each.submodules or ""), str(each.parameters or "")]
            + [f"{each.median_us[name]:.2f} ({each.best_us[name]:.2f})" for name in names]
            + [f"{ratio:.3f}" for ratio in each.ratios.values()]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--out", type=Path, help="write the JSON to a file, too")
    parser.add_argument("--quick", action="store_true", help="few rounds, small models")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--backend", default="inductor", help="of the tiny graph")
    parser.add_argument("--only", default="tiny,function,modules")
    options = parser.parse_args(argv)
    rounds = 5 if options.quick else options.rounds
    sizes = [1, 10] if options.quick else [1, 10, 100, 1000]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    wanted = options.only.split(",")
    found: dict[str, list[Row]] = {}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if "tiny" in wanted:
            found["tiny"] = tiny(rounds, options.backend)
        if "function" in wanted:
            found["function"] = [overhead_of_function(rounds)]
        if "modules" in wanted:
            found["modules"] = modules(rounds, sizes)
    problems = missed(found)
    result = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "rows": {name: [asdict(each) for each in rows] for name, rows in found.items()},
        "missed": problems,
    }
    text = json.dumps(result, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        titles = {
            "tiny": f"three pointwise operations, 16 x 16, {options.backend}: median (best)",
            "function": "the same as a function, front end alone",
            "modules": "front end alone, by number of submodules",
        }
        for name, rows in found.items():
            show(titles[name], rows)
        for problem in problems:
            print(f"missed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
