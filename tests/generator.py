"""Random programs, run eager and compiled: see `soundness`. Failing programs shrink.

A program is a small module: a world (globals, a class, a torch module, a closure, arguments) that shares objects freely, a
function of random statements, and some calls of it with changes of the world in between. After each step everything that can
be reached is looked at.

`python tests/generator.py --seed 1 --programs 500` looks for failures and prints the smallest programs that it finds.
"""

from __future__ import annotations

import argparse
import ast
import collections
import itertools
import linecache
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import soundness
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from random_words import HEAD
from random_writer import programs

_names: Iterator[int] = iter(range(1 << 60))


def load(text: str) -> soundness.Program:
    """A program that makes its world anew in each run."""
    source = HEAD + text
    name = f"<program {next(_names)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    code = compile(source, name, "exec")

    def program(c: Callable[[Any], Any]) -> Iterator[Any]:
        module = types.ModuleType("generated")
        sys.modules["generated"] = module
        exec(code, vars(module))
        yield from vars(module)["program"](c)

    return program


class Tally:
    """How the calls of the programs were served."""

    def __init__(self) -> None:
        self.programs = self.monitored = self.hits = self.native = 0
        self.reasons: collections.Counter[str] = collections.Counter()
        self.features: collections.Counter[str] = collections.Counter()
        self.missed: list[str] = []
        self.agreed: set[str] = set()
        self.unchanged = self.unchanged_hits = self.operators = self.in_graphs = 0

    def add_calls(self, text: str, calls: soundness.Calls) -> None:
        """Count the calls before which nothing has changed since the call before them began, and their operators."""
        steps = [line.strip() for line in text.partition("def program(c):")[2].splitlines()]
        steps = [line for line in steps if line.startswith(("r = attempt(", "change("))]
        number = 0
        for before, step in zip(["", *steps], steps, strict=False):
            if not step.startswith("r = "):
                continue
            same = 1 < number <= len(calls.pictures) and calls.pictures[number - 1] == calls.pictures[number - 2]
            if same and before.startswith("r = ") and number < min(len(calls.served), len(calls.operators)):
                self.unchanged += 1
                self.unchanged_hits += calls.served[number] == "hits"
                self.operators += calls.operators[number]
                self.in_graphs += calls.in_graphs[number]
                if calls.served[number] != "hits":
                    self.missed.append(text)
            number += 1
        for node in ast.walk(ast.parse(text)):
            self.features[type(node).__name__] += 1
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                self.features[f"{name}()"] += 1

    def add(self, served: soundness.Served) -> None:
        self.programs += 1
        self.monitored += served.monitored
        self.hits += served.hits
        self.native += served.native
        self.reasons.update({reason[:60] for reason in served.reasons})


def differs(text: str, tally: Tally | None = None) -> str | None:
    """The first difference between the eager and the compiled run of a program; with a tally each program runs once."""
    if tally is not None and text in tally.agreed:
        return None
    program = load(text)
    calls = soundness.Calls() if tally is not None else None
    try:
        found, served = soundness.difference(program, calls=calls)
    except Exception as error:  # the eager run: not a program
        if tally is not None:
            tally.agreed.add(text)
            print(f"no program: {error!r}\n{text}")
        return None
    if tally is not None:
        tally.add(served)
    if tally is not None and calls is not None:
        tally.add_calls(text, calls)
        if found is None:
            tally.agreed.add(text)
    return found


def search(start: int, wanted: int, tally: Tally, chunk: int = 50) -> Iterator[str]:
    """Run different programs until there are as many as wanted; yields what differs, shrunk.

    What is drawn depends on `start` alone.
    """
    for number in itertools.count():
        if tally.programs >= wanted:
            return

        @seed(start * 1_000_000 + number)
        @settings(
            max_examples=chunk,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
        )
        @given(programs())
        def agrees(text: str) -> None:
            found = differs(text, tally)
            assert found is None, f"{text}\n{found}"

        try:
            agrees()
        except (AssertionError, Flaky) as error:
            yield f"seed {start * 1_000_000 + number}\n{error}"


def main() -> None:
    """Look for failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--chunk", type=int, default=50)
    options = parser.parse_args()
    tally = Tally()
    started = time.perf_counter()
    for failure in search(options.seed, options.programs, tally, options.chunk):
        print(f"=== {failure[:6000]}", flush=True)
    print(
        f"{tally.programs} different programs, {time.perf_counter() - started:.0f} s,"
        f" monitored {tally.monitored}, hits {tally.hits}, native {tally.native}"
    )
    print(
        f"seed {options.seed}; later calls with nothing changed: {tally.unchanged},"
        f" of which hits {tally.unchanged_hits / max(tally.unchanged, 1):.1%};"
        f" operators of these calls: {tally.operators}, in graphs {tally.in_graphs / max(tally.operators, 1):.1%}"
    )
    print("features: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.features.items())))
    for reason, count in tally.reasons.most_common(25):
        print(f"{count:6} {reason}")


if __name__ == "__main__":
    sys.exit(main())
