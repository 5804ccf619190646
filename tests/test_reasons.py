"""The catalogue of reasons: every one is used, well formed, and the only place that a slug comes from."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "magpy"
TABLE = SOURCE / "_reasons.py"
SLUG = re.compile(r"[a-z]+(-[a-z]+)*")

pytestmark = pytest.mark.skipif(not (SOURCE / "__init__.py").is_file(), reason="magpy has no source yet")


def _strings_elsewhere() -> set[str]:
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path != TABLE:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found


def test_every_reason_is_used() -> None:
    from magpy._reasons import REASONS

    assert sorted(set(REASONS) - _strings_elsewhere()) == []


def test_every_slug_that_is_raised_is_in_the_catalogue() -> None:
    """A misspelt slug would only be found when its boundary is met."""
    from magpy._reasons import REASONS

    unknown = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Boundary":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and first.value not in REASONS:
                    unknown.append(f"{path.name}:{node.lineno}: {first.value}")
    assert unknown == []


def test_reasons_are_well_formed() -> None:
    from magpy._reasons import REASONS

    for slug, reason in REASONS.items():
        assert SLUG.fullmatch(slug), slug
        assert reason.slug == slug
        assert reason.message.count("{") == reason.message.count("{detail}"), slug
        assert reason.advice.endswith("."), slug
