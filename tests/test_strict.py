"""Strict mode finds what it looks for, and says so in the program that calls."""

from __future__ import annotations

import gc
import linecache
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

import magpy
from magpy import _recording, _strict

SCALE = [2.0]


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE[0]


def compiled() -> Any:
    return magpy.compile(scaled, backend="eager")


def test_the_tests_run_in_strict_mode() -> None:
    assert _strict.STRICT


@pytest.mark.parametrize(
    "source", ["def held():\n    return 1\n", "def held():\n    raise IndexError\n"], ids=["another number", "raises"]
)
def test_table_and_generated_python_must_agree(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(_recording, "render", lambda *args: (source, {}))
    f = compiled()
    f(torch.ones(2))
    with pytest.raises(_strict.StrictError, match="held facts"):
        f(torch.ones(2))


def test_a_broken_graph_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_strict, "verify", lambda graph: ["#1 list is odd"])
    with pytest.raises(_strict.StrictError, match="#1 list is odd"):
        compiled()(torch.ones(2))
    monkeypatch.undo()
    f = compiled()
    assert f(torch.ones(2)).tolist() == f(torch.ones(2)).tolist() == [2.0, 2.0]


def test_other_threads_changes_are_no_difference() -> None:
    answers = iter([0, None, None, None])
    table = _strict.StrictTable(lambda: next(answers), lambda: ("def held():\n    return None\n", {}))
    assert table() is None


def test_the_generated_source_goes_with_the_table() -> None:
    table = _strict.StrictTable(lambda: None, lambda: ("def held():\n    return None\n", {}))
    assert table() is None
    assert any("held facts" in name for name in linecache.cache)
    gc.collect()
    before = len(linecache.cache)
    del table
    assert len(linecache.cache) == before - 1


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_the_switch_is_an_environment_variable(value: str) -> None:
    program = "from magpy import _strict; table = len; print(_strict.checked(table, None) is not table)"
    environment = {**os.environ, "MAGPY_STRICT": value}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(value == "1")
