#!/usr/bin/env python3
"""Run somebody else's tests under MagPy, and compare each with the plain run.

    python tools/peer_tests.py cpython test_list test_dict ...
    python tools/peer_tests.py torch PATH/test_functions.py ...

`cpython` takes modules of CPython's own `test` package: each test method is compiled and called several times, with a fresh
fixture each time, so that later calls come from records. `torch` takes files that call `torch.compile`, such as those of
PyTorch's `test/dynamo`, from a path that you give: they run with `torch.compile` as a function that changes nothing, and as
`magpy.compile`. Each module runs in a process of its own.

A test that passes plainly and not under MagPy is *wrong*. The others are counted by how their calls were served: *record*
where a later call was, *native* where none was.
"""

from __future__ import annotations

import argparse
import collections
import doctest
import importlib
import importlib.util
import io
import json
import subprocess
import sys
import types
import unittest
import warnings
from pathlib import Path
from typing import Any

CALLS = 3
TIMEOUT_S = 900


def main(arguments: list[str] | None = None) -> int:
    """Run the suites; the exit status is 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=["cpython", "torch"])
    parser.add_argument("names", nargs="+", help="modules of the `test` package, or paths of test files")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_S, help="seconds for each module")
    parser.add_argument("--only", default="", help="run only tests whose id holds this")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        return _report(options)
    totals: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for name in options.names:
        found = _in_a_process(options, name)
        if found is None:
            totals["crashed"] += 1
            print(f"{name}: crashed or took too long", flush=True)
            continue
        counts = collections.Counter(found["counts"])
        totals += counts
        reasons += collections.Counter(found["reasons"])
        print(f"{name}: {', '.join(f'{number} {what}' for what, number in sorted(counts.items()))}", flush=True)
        for test, text in found["wrong"].items():
            print(f"    WRONG {test}\n        " + "\n        ".join(text.strip().splitlines()[-6:]), flush=True)
    print("total:", ", ".join(f"{number} {what}" for what, number in sorted(totals.items())))
    print("why native:", ", ".join(f"{slug} {number}" for slug, number in reasons.most_common(12)))
    return 1 if totals["wrong"] or totals["crashed"] else 0


def _in_a_process(options: argparse.Namespace, name: str) -> dict[str, Any] | None:
    command = [sys.executable, __file__, options.suite, name, "--one", "--backend", options.backend]
    command += ["--only", options.only] if options.only else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
    except (subprocess.TimeoutExpired, IndexError, json.JSONDecodeError):
        return None


def _report(options: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")
    run = _cpython if options.suite == "cpython" else _torch
    real = sys.stdout
    sys.stdout = sys.stderr = io.StringIO()
    try:
        found = run(options)
    finally:
        sys.stdout, sys.stderr = real, sys.__stderr__
    print(json.dumps(found))
    return 0


def _tests(suite: Any, only: str) -> list[unittest.TestCase]:
    found: list[unittest.TestCase] = []
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            found += _tests(each, only)
        elif isinstance(each, unittest.TestCase) and only in each.id() and "_FailedTest" not in each.id():
            found.append(each)
    return found


def _outcome(test: unittest.TestCase) -> tuple[str, str]:
    """How one run of a test ends: ok, failed or skipped, with the text."""
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)  # with the fixtures of its class and module
    problems = result.failures + result.errors
    if problems:
        return "failed", problems[0][1]
    return ("skipped", "") if result.skipped else ("ok", "")


class _Tally:
    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.reasons: collections.Counter[str] = collections.Counter()
        self.wrong: dict[str, str] = {}

    def served(self, infos: list[Any]) -> None:
        hits = sum(each.hits for each in infos)
        self.counts["record" if hits else "native"] += 1
        if not hits:
            self.reasons.update({reason.slug for each in infos for reason in each.reasons} or {"other facts each time"})

    def as_json(self) -> dict[str, Any]:
        return {"counts": self.counts, "reasons": self.reasons, "wrong": self.wrong}


def _cpython(options: argparse.Namespace) -> dict[str, Any]:
    import magpy

    [name] = options.names
    module = importlib.import_module(f"test.{name}")
    tally = _Tally()
    for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module), options.only):
        cls, method = type(test), test._testMethodName
        plain = getattr(cls, method)
        if not isinstance(plain, types.FunctionType) or isinstance(test, doctest.DocTestCase):
            tally.counts["left out"] += 1
            continue
        before = _outcome(cls(method))
        if before[0] != "ok":
            tally.counts[f"{before[0]} plainly"] += 1
            continue
        compiled = magpy.compile(plain, backend=options.backend)
        owner = next(base for base in cls.__mro__ if method in vars(base))
        setattr(owner, method, compiled)
        try:
            outcomes = [_outcome(cls(method)) for _ in range(CALLS)]
        finally:
            setattr(owner, method, plain)
        bad = [text for what, text in outcomes if what != "ok"]
        if bad and all(_outcome(cls(method))[0] == "ok" for _ in range(CALLS)):
            tally.counts["wrong"] += 1
            tally.wrong[test.id()] = bad[0]
        else:
            tally.served([magpy.info(compiled)])
    return tally.as_json()


def _torch(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    import magpy

    made: list[Any] = []

    def unchanged(model: Any = None, **ignored: Any) -> Any:
        return (lambda function: function) if model is None else model

    def compiled(model: Any = None, *, fullgraph: bool = False, **ignored: Any) -> Any:
        if model is None:
            return compiled
        try:
            made.append(magpy.compile(model, backend=options.backend))
        except TypeError:
            return model
        return made[-1]

    torch.compile = unchanged
    torch._dynamo.optimize = lambda *args, **kwargs: torch.compile  # type: ignore[assignment]
    path = Path(options.names[0]).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    tally = _Tally()
    for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module), options.only):
        cls, method = type(test), test._testMethodName
        torch.compile = unchanged
        before = _outcome(cls(method))
        if before[0] != "ok":
            tally.counts[f"{before[0]} plainly"] += 1
            continue
        torch.compile = compiled
        made.clear()
        what, text = _outcome(cls(method))
        if what != "ok":
            tally.counts["wrong"] += 1
            tally.wrong[test.id()] = text
        elif not made:
            tally.counts["compiles nothing"] += 1
        else:
            tally.served([magpy.info(each) for each in made])
    return tally.as_json()


if __name__ == "__main__":
    sys.exit(main())
