"""The tutorial runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted((DOCS / "tutorial").glob("*.md")), ids=lambda page: page.stem)
def test_tutorial_page(page: Path, tmp_path: Path) -> None:
    """All Python blocks of a page, in order, as one program in a file (the compiler needs the source)."""
    magpy = pytest.importorskip("magpy")
    if not hasattr(magpy, "compile"):
        pytest.skip("magpy.compile is not there yet")
    text = page.read_text(encoding="utf-8")
    # Empty lines stand for the prose, so that a failure names the page's own line.
    program, at = "", 0
    for match in BLOCK.finditer(text):
        program += "\n" * text.count("\n", at, match.start(1)) + match.group(1)
        at = match.end(1)
    assert program.strip(), "a tutorial without a program"
    path = tmp_path / f"{page.stem}.py"
    path.write_text(program, encoding="utf-8")
    exec(compile(program, str(path), "exec"), {"__name__": "tutorial"})
