#!/usr/bin/env python3
"""Run somebody else's tests under MagPy, and compare each with the plain run.

    python tools/peer_tests.py cpython test_list test_dict ...
    python tools/peer_tests.py torch PATH/test_functions.py ...

`cpython` takes modules of CPython's own `test` package: each test method is compiled and called several times, with a fresh
fixture each time, so that later calls come from records. `torch` takes files that call `torch.compile`, such as those of
PyTorch's `test/dynamo`, from a path that you give: they run with `torch.compile` as a function that changes nothing, and as
`magpy.compile`.

Each module runs in a process of its own. One that crashes in a test, or takes too long for it, is ended, and another goes on
behind that test, so that the others have their results.

A test that passes plainly and not under MagPy is *wrong*. The others are counted by how their calls were served: *record*
where a later call was, *native* where none was.
"""

from __future__ import annotations

import argparse
import collections
import doctest
import faulthandler
import functools
import importlib
import importlib.util
import io
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CALLS = 3
TIMEOUT_S = 300
START_S = 120
"""What importing the libraries and the module may take, besides."""


def main(arguments: list[str] | None = None) -> int:
    """Run the suites; the exit status is 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=["cpython", "torch"])
    parser.add_argument("names", nargs="+", help="modules of the `test` package, or paths of test files")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_S, help="seconds for each test, its calls together")
    parser.add_argument("--only", default="", help="run only tests whose id holds this")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        return _report(options)
    tally = _Tally()
    for name in options.names:
        found = _Tally()
        _module(options, name, found)
        tally.add(found)
        print(f"{name}: {found}", flush=True)
        for test, text in found.wrong.items():
            print(f"    WRONG {test}\n        " + "\n        ".join(text.strip().splitlines()[-6:]), flush=True)
    print(f"total: {tally}")
    print("why native:", ", ".join(f"{slug} {number}" for slug, number in tally.reasons.most_common(12)))
    return 1 if tally.wrong or not tally.counts else 0


class _Event(NamedTuple):
    """What the process that runs a module tells, or is told of it.

    `stage` is "plain" when a test begins, "compiled" when it passed plainly, and "done" with its result; the last one is
    "end", or says that the process "crashed" or took "too long".
    """

    stage: str
    test: str
    what: str = ""
    text: str = ""
    reasons: tuple[str, ...] = ()


@dataclass
class _Tally:
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: dict[str, str] = field(default_factory=dict)

    def add(self, other: _Tally) -> None:
        self.counts += other.counts
        self.reasons += other.reasons
        self.wrong |= other.wrong

    def take(self, event: _Event) -> None:
        self.counts[event.what] += 1
        self.reasons.update(event.reasons)
        if event.what in ("wrong", "crashed", "too long"):
            self.wrong[event.test] = event.text

    def __str__(self) -> str:
        return ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))


def _module(options: argparse.Namespace, name: str, tally: _Tally) -> None:
    """Run one module's tests, in as many processes as it takes."""
    ended = 0
    while True:
        last = _Event("none", name)
        for event in _events(options, name, ended):
            match event.stage, last.stage:
                case "end", _:
                    return
                case ("crashed" | "too long") as how, "compiled":
                    tally.take(last._replace(what=how, text=event.text))
                    ended += 1
                case ("crashed" | "too long") as how, "plain":
                    tally.take(last._replace(what=f"{how} plainly"))
                    ended += 1
                case ("crashed" | "too long") as how, _:  # before the first test, between two, or behind the last
                    tally.take(_Event("done", f"{name} behind {last.test}", how, event.text))
                    return
                case "done", _:
                    tally.take(event)
                    ended += 1
            last = event


def _events(options: argparse.Namespace, name: str, skip: int) -> Iterator[_Event]:
    """What a process tells that runs a module's tests from one on."""
    command = [
        sys.executable,
        __file__,
        options.suite,
        name,
        "--one",
        "--backend",
        options.backend,
        "--skip",
        str(skip),
    ]
    command += ["--only", options.only] if options.only else []
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        ends = False
        try:
            limit = max(options.timeout, START_S)
            while line := lines.get(timeout=limit):
                limit = options.timeout
                event = _Event(*json.loads(line))
                ends = event.stage == "end"
                if not ends:
                    yield event
            status = process.wait(options.timeout)
        except (queue.Empty, subprocess.TimeoutExpired):
            yield _Event("too long", "", text=f"took longer than {options.timeout} s")
            return
        finally:
            process.kill()
        if ends and status == 0:
            yield _Event("end", "")
            return
        errors.seek(0)
        yield _Event("crashed", "", text=f"{errors.read()}\nthe process ended with {status}")


def _report(options: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")
    faulthandler.enable()
    suite = _Cpython(options) if options.suite == "cpython" else _Torch(options)
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(*parts: Any) -> None:
        print(json.dumps(_Event(*parts)), file=channel, flush=True)

    real = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = io.StringIO()
    try:
        tests = _tests(unittest.defaultTestLoader.loadTestsFromModule(suite.module()), options.only)
        for test in tests[options.skip :]:
            tell("plain", test.id())
            what, text, reasons = suite.run(test, functools.partial(tell, "compiled", test.id()))
            tell("done", test.id(), what, text, reasons)
    finally:
        sys.stdout, sys.stderr = real
    tell("end", "")
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


def _served(infos: list[Any]) -> tuple[str, str, tuple[str, ...]]:
    if any(each.hits for each in infos):
        return "record", "", ()
    return "native", "", tuple({reason.slug for each in infos for reason in each.reasons} or {"other facts each time"})


class _Cpython:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def module(self) -> types.ModuleType:
        return importlib.import_module(f"test.{self.options.names[0]}")

    def run(self, test: unittest.TestCase, passed: Callable[[], None]) -> tuple[str, str, tuple[str, ...]]:
        import magpy

        cls, method = type(test), test._testMethodName
        plain = getattr(cls, method)
        if not isinstance(plain, types.FunctionType) or isinstance(test, doctest.DocTestCase):
            return "left out", "", ()
        before, _ = _outcome(cls(method))
        if before != "ok":
            return f"{before} plainly", "", ()
        passed()
        compiled = magpy.compile(plain, backend=self.options.backend)
        owner = next(base for base in cls.__mro__ if method in vars(base))
        setattr(owner, method, compiled)
        try:
            outcomes = [_outcome(cls(method)) for _ in range(CALLS)]
        finally:
            setattr(owner, method, plain)
        bad = [text for what, text in outcomes if what != "ok"]
        if bad and all(_outcome(cls(method))[0] == "ok" for _ in range(CALLS)):
            return "wrong", bad[0], ()
        return _served([magpy.info(compiled)])


class _Torch:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.made: list[Any] = []

    def module(self) -> types.ModuleType:
        self._replace(self._unchanged)
        path = Path(self.options.names[0]).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    def run(self, test: unittest.TestCase, passed: Callable[[], None]) -> tuple[str, str, tuple[str, ...]]:
        import magpy

        cls, method = type(test), test._testMethodName
        self._replace(self._unchanged)
        before, _ = _outcome(cls(method))
        if before != "ok":
            return f"{before} plainly", "", ()
        passed()
        self._replace(self._compiled)
        self.made.clear()
        what, text = _outcome(cls(method))
        if what != "ok":
            return "wrong", text, ()
        return _served([magpy.info(each) for each in self.made]) if self.made else ("compiles nothing", "", ())

    @staticmethod
    def _replace(function: Callable[..., Any]) -> None:
        import torch

        torch.compile = function
        torch._dynamo.optimize = lambda *args, **kwargs: torch.compile  # type: ignore[assignment]

    @staticmethod
    def _unchanged(model: Any = None, **ignored: Any) -> Any:
        return (lambda function: function) if model is None else model

    def _compiled(self, model: Any = None, *, fullgraph: bool = False, **ignored: Any) -> Any:
        import magpy

        if model is None:
            return self._compiled
        try:
            self.made.append(magpy.compile(model, backend=self.options.backend))
        except TypeError:
            return model
        return self.made[-1]


if __name__ == "__main__":
    sys.exit(main())
