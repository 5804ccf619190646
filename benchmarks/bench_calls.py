"""Microseconds a call: eager, and compiled with the graph run as it is, so that only the Python around it differs.

    python benchmarks/bench_calls.py [--backend eager] [--calls 200]

Three shapes of program: one layer (what a call costs at least), a deep tree of modules (what guarding a tree costs), and a
loop over Python containers (what not running it saves). The first call includes the monitored run and compilation. Each
figure is the median of the calls; eager and compiled calls take turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import magpy


def one_layer() -> tuple[Any, torch.Tensor]:
    return torch.nn.Linear(16, 16), torch.randn(4, 16)


def deep_tree() -> tuple[Any, torch.Tensor]:
    def block() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16))

    return torch.nn.Sequential(*(block() for _ in range(100))), torch.randn(4, 16)


def python_loop() -> tuple[Any, torch.Tensor]:
    settings = {f"step{i}": {"gain": 1.0 + i, "use": i % 10 == 0} for i in range(500)}

    def run(x: torch.Tensor) -> torch.Tensor:
        for name in sorted(settings):
            if settings[name]["use"]:
                x = torch.relu(x) * settings[name]["gain"]
        return x

    return run, torch.randn(4, 16)


def timed_us(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    """Microseconds of one call."""
    start = time.perf_counter_ns()
    function(x)
    return (time.perf_counter_ns() - start) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(f"{'program':<14}{'eager us':>12}{'compiled us':>14}{'first call us':>16}")
    with torch.no_grad():
        for make in (one_layer, deep_tree, python_loop):
            program, x = make()
            compiled = magpy.compile(program, backend=options.backend)
            first = timed_us(compiled, x)
            if not torch.allclose(compiled(x), program(x), atol=1e-4):
                raise SystemExit(f"{make.__name__}: not what eager gives")
            pairs = [(timed_us(program, x), timed_us(compiled, x)) for _ in range(options.calls)]
            eager, fast = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(f"{make.__name__:<14}{eager:>12.1f}{fast:>14.1f}{first:>16.0f}")


if __name__ == "__main__":
    main()
