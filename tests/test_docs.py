"""The code blocks of all pages and READMEs run as they are written.

What a fence's language means:

- `python`: all blocks of a page are one program, in order. A block that begins with `# file: NAME` is written to that file
  instead, in the folder that the page's commands run in.
- `pycon`: an interactive session, by doctest, with the names of the page's program so far.
- `console`: each `$ magpy ...` is run, and what it prints is compared with what follows, `...` standing for anything. Other
  commands may not be in such a block.
- `shell`, `text`, `toml`, `ini`, `ebnf`: not code that could run here.

An HTML comment `<!-- before: ... -->` holds Python that a page's readers are spared, such as a model to compile.
"""

from __future__ import annotations

import doctest
import importlib.util
import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("examples/*/README.md")]
)
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$|^<!-- before:\n(?P<before>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
RUN = {"python", "pycon", "console"}
PLAIN = {"shell", "text", "toml", "ini", "ebnf"}
ELLIPSIS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Blocks in there are excerpts of what the package's own tests compare with the parser (test_readme.py).
WITHOUT_LANGUAGE = {ROOT / "README.md", *ROOT.glob("packages/*/README.md")}


@dataclass(frozen=True)
class Block:
    """One fenced block, or a hidden piece of Python."""

    language: str
    code: str
    line: int  # of its first line of code


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        hidden = match["before"] is not None
        language, name = ("python", "before") if hidden else (match["language"], "code")
        indent = len(match["indent"] or "")
        code = "".join(line[indent:] for line in match[name].splitlines(keepends=True))
        yield Block(language, code, text.count("\n", 0, match.start(name)) + 1)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_code(page: Path) -> bool:
    return any(block.language in RUN for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    known = RUN | PLAIN | ({""} if page in WITHOUT_LANGUAGE else set())
    unknown = [(block.line, block.language) for block in blocks(page) if block.language not in known]
    assert [each for each in unknown if not each[1].startswith("{")] == []


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.filterwarnings("default::magpy.NotCompiledWarning")  # pages show what is not compiled, too
@pytest.mark.parametrize("page", [page for page in PAGES if has_code(page)], ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks(page)):
        if block.language == "python" and block.code.startswith("# file: "):
            (tmp_path / block.code.split("\n", 1)[0].removeprefix("# file: ").strip()).write_text(block.code)
        elif block.language == "python":
            # Empty lines stand for what comes before, so that a failure names the page's own line.
            program = "\n" * (block.line - 1) + block.code
            path = tmp_path / f"{page.stem}_{number}.py"  # the compiler needs the source
            path.write_text(program, encoding="utf-8")
            exec(compile(program, str(path), "exec"), names)
        elif block.language == "pycon":
            _session(page, block, names)
        elif block.language == "console":
            _commands(page, block)


def _session(page: Path, block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, names, name_of(page), str(page), block.line)
    runner = doctest.DocTestRunner(optionflags=ELLIPSIS)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def _commands(page: Path, block: Block) -> None:
    for command, wanted in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", block.code, re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "magpy", f"{name_of(page)}:{block.line}: {program}: mark it as shell"
        printed = _printed(arguments)
        assert doctest.OutputChecker().check_output(wanted, printed, ELLIPSIS), (
            f"{name_of(page)}:{block.line}: {command}\n-- wanted\n{wanted}-- printed\n{printed}"
        )


def _printed(arguments: list[str]) -> str:
    """What the command prints on both streams; it runs in this process, which is put back as it was."""
    from magpy.cli import main

    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        patch.setattr(sys, "argv", list(sys.argv))
        patch.setattr(sys, "path", list(sys.path))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        main(arguments)
    return printed.getvalue()


def test_statements_with_numbers_name_their_benchmark() -> None:
    """Pages speak of times and ratios only beside the command that gives them."""
    measured = re.compile(
        r"\b\d+(?:\.\d+)? ?(?:ms|[µu]s|ns|s|(?:milli|micro|nano)?seconds|times (?:faster|slower|sooner|as|ours))\b"
        r"|\d ?%|\b0\.\d+ (?:on|of \S+ time)\b"
    )
    command = re.compile(r"`?(?:make (?:demo|bench)|benchmarks/\w+\.py|packages/\S+/benchmarks/\w+\.py)")
    unnamed = []
    for page in PAGES:
        for paragraph in re.split(
            r"\n\s*\n", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        ):
            if measured.search(paragraph) and not command.search(paragraph):
                unnamed.append(f"{name_of(page)}: {' '.join(paragraph.split())[:90]}")
    assert unnamed == []
