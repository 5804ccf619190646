"""What the tests of all packages share: one switch for golden files, and what is left out where torch is missing."""

from __future__ import annotations

import ast
import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("MAGPY_STRICT", "1")  # before anybody imports magpy, which reads it once

_WITHOUT_TORCH = importlib.util.find_spec("torch") is None
_NEED_TORCH = {"torch", "transformers", "magpy", "magpy_codegen"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-cases",
        action="store_true",
        default=False,
        help="write the golden files (text cases, tests/public_names.txt) anew instead of comparing with them",
    )


@pytest.fixture(autouse=True, scope="session")
def unmeasured() -> None:
    """No test depends on how fast compiled code is: graphs keep it. Tests of that choice ask for it themselves."""
    if not _WITHOUT_TORCH and importlib.util.find_spec("magpy_runtime") is not None:
        from magpy_runtime import _measuring

        _measuring.shortest_s = float("inf")


@pytest.fixture(scope="session")
def update_cases(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-cases"))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out test modules that import torch where there is none (the runs on other Python versions)."""
    if _WITHOUT_TORCH and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        if _NEED_TORCH & _imported_at_top(collection_path):
            return True
    return None


def _imported_at_top(path: Path) -> set[str]:
    names: set[str] = set()
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names.add(statement.module.partition(".")[0])
    return names
