"""Programs whose control flow depends on tensors' values: right on varied calls, and no Python of the user's on a hit.

The programs are those of `benchmarks/dynamic.py`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import itertools
import logging
import pathlib
import sys
from collections import Counter
from typing import Any

import pytest
import torch
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


def users_instructions(function: Any, args: tuple[Any, ...]) -> Counter[str]:
    """How many instructions of the program and of torch's modules a call runs."""
    counts = instructions(lambda: observed(function, *args))
    return Counter(
        {
            code: count
            for code, count in counts.items()
            if "dynamic_programs" in code or "site-packages/torch/nn" in code
        }
    )


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
    run = _segments.BoundarySite.run

    def watched(site: Any, *rest: Any, **keywords: Any) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return run(site, *rest, **keywords)
        finally:
            sys.settrace(tracer)

    monkeypatch.setattr(_segments.BoundarySite, "run", watched)
    assert users_instructions(eager, arguments(0)), "the count sees what eager runs"
    for number in range(CALLS):
        outside += users_instructions(compiled, arguments(number))
    after = magpy.info(compiled)
    assert (after.monitored, after.native) == (before.monitored, before.native), after.reasons
    assert after.hits == before.hits + CALLS
    assert not outside


def changing_modes(x: torch.Tensor, w: torch.Tensor) -> list[Any]:
    """Boundaries at which modes of torch stay, and some at which they change."""
    found: list[Any] = []
    for value in x:
        if value > 0:
            with torch.no_grad():
                found.append((w * value).requires_grad)
        elif value < 0:
            found.append((w * value).requires_grad)
        else:
            changed = torch.get_default_dtype() is torch.float32
            torch.set_default_dtype(torch.float64 if changed else torch.float32)
        found.append(torch.ones(1).dtype)
    torch.set_grad_enabled(bool(x.sum() > 0))
    found.append((w * x).requires_grad)
    return found


def test_modes_are_asked_again_where_they_may_have_changed() -> None:
    w = torch.ones(3, requires_grad=True)
    compiled = magpy.compile(changing_modes, backend="eager")
    for _ in range(3):
        for values in itertools.product([-1.0, 0.0, 1.0], repeat=3):
            results = []
            for function in (changing_modes, compiled):
                try:
                    results.append(
                        (function(torch.tensor(values), w), torch.is_grad_enabled(), torch.get_default_dtype())
                    )
                finally:
                    torch.set_grad_enabled(True)
                    torch.set_default_dtype(torch.float32)
            assert results[0] == results[1], values
    info = magpy.info(compiled)
    assert info.hits > 50 and info.native == 0, info
