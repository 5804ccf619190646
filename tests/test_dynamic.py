"""Programs whose control flow depends on tensors' values: right on varied calls, and no Python of the user's on a hit.

The programs are those of `benchmarks/dynamic.py`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import logging
import pathlib
import sys
from collections import Counter
from typing import Any

import pytest
from serving import equal
from test_zero_python import instructions

import magpy
from magpy_runtime import segments as _segments

_PATH = pathlib.Path(__file__).parent.parent / "benchmarks" / "dynamic_programs.py"
_SPEC = importlib.util.spec_from_file_location("dynamic_programs", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
programs: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["dynamic_programs"] = programs
_SPEC.loader.exec_module(programs)

CALLS = 12


class Lines(logging.Handler):
    """Keeps what is logged, with its place."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), record.funcName, record.lineno))


def observed(function: Any, *args: Any) -> tuple[Any, str, list[tuple[str, str, int]]]:
    """What a call gives, prints and logs."""
    handler, out = Lines(), io.StringIO()
    programs.LOGGER.addHandler(handler)
    try:
        with contextlib.redirect_stdout(out):
            result = function(*args)
    finally:
        programs.LOGGER.removeHandler(handler)
    return result, out.getvalue(), handler.lines


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to eager on every call; after each kind of call was seen, no monitored and no native run."""
    eager, arguments = programs.PROGRAMS[name]()
    target, _ = programs.PROGRAMS[name]()
    compiled = magpy.compile(target, backend="eager")
    for _ in range(2):
        for number in range(CALLS):
            args = arguments(number)
            expected = observed(eager, *copy.deepcopy(args))
            got = observed(compiled, *args)
            assert equal(got[0], expected[0]), (number, got[0], expected[0])
            assert got[1:] == expected[1:]
    before = magpy.info(compiled)
    assert before.boundaries and before.hits >= CALLS // 2
    outside: Counter[str] = Counter()
    inside = [False]
    run = _segments.BoundarySite.run

    def watched(site: Any, *rest: Any, **keywords: Any) -> Any:
        tracer, inside[0] = sys.gettrace(), True
        sys.settrace(None)
        try:
            return run(site, *rest, **keywords)
        finally:
            inside[0] = False
            sys.settrace(tracer)

    monkeypatch.setattr(_segments.BoundarySite, "run", watched)
    for number in range(CALLS):
        args = arguments(number)

        def call() -> None:
            observed(compiled, *args)  # noqa: B023 - called at once

        for code, count in instructions(call).items():
            if "test_dynamic.py" not in code and "logging" not in code and "dynamic_programs.py) " not in code:
                outside[code] += count
    after = magpy.info(compiled)
    assert (after.monitored, after.native) == (before.monitored, before.native), after.reasons
    assert after.hits == before.hits + CALLS
    users = {
        code: count for code, count in outside.items() if "dynamic_programs" in code or "site-packages/torch/nn" in code
    }
    assert not users
