"""The command `magpy`: programs run as they would without it, and what it says of them and of annotations."""

from __future__ import annotations

import importlib
import os
import pty
import re
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import layout
import magpy
from magpy.cli import main
from magpy_annotations import Registry

Write = Callable[[str], Path]

PROGRAM = """
    import sys
    import torch
    import magpy

    @magpy.compile(backend="eager")
    def double(x, times=1):
        for _ in range(times):
            x = x * 2
        return x

    x = torch.ones(3)
    for times in (1, 1, 2, 2, 2):
        double(x, times)
    print("program", __name__, sys.argv[1:], double(x, 1).tolist())
"""


@pytest.fixture(autouse=True)
def _process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command leaves the process to the program; here it goes on."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return made


def test_run_keeps_the_programs_output_apart(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(PROGRAM)
    assert main(["run", str(path), "-o", "its own"]) == 0
    seen = capsys.readouterr()
    assert seen.out == "program __main__ ['-o', 'its own'] [2.0, 2.0, 2.0]\n"
    assert "magpy: 1 compiled object" in seen.err
    assert "6 calls: 4 from records (" in seen.err
    assert ", 2 watched (" in seen.err
    assert "2 records, 2 graphs, 3 operators" in seen.err
    assert f"double  {path}:6" in seen.err


def test_run_writes_the_report_where_it_is_told(
    write: Write, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", "-o", str(tmp_path / "report.txt"), str(write(PROGRAM))]) == 0
    assert (tmp_path / "report.txt").read_text().startswith("magpy: 1 compiled object")
    assert "compiled object" not in capsys.readouterr().err


def test_run_says_why_something_was_not_compiled(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("""
        import time
        import magpy

        clock = magpy.compile(lambda: time.time(), backend="eager")
        clock()
    """)
    assert main(["run", str(path)]) == 0
    wanted = (
        rf"boundary \[impure-call\] time\.time at {re.escape(str(path))}:5: 1 time, [\d.]+ [µm]s; then line 5 \(1\)"
    )
    assert re.search(wanted, capsys.readouterr().err)
    path = write("""
        import magpy

        @magpy.compile(backend="eager")
        def generator():
            return (each for each in [1])

        generator()
    """)
    assert main(["run", str(path)]) == 0
    seen = capsys.readouterr().err
    assert "not compiled [unbuildable] " in seen
    assert magpy.REASONS["unbuildable"].advice in seen


def test_run_says_that_nothing_was_compiled(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write("print(1)"))]) == 0
    assert "did not call magpy.compile" in capsys.readouterr().err


def test_a_decorated_function_is_where_it_is_written(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("""
        import functools
        import torch
        import magpy

        def twice(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(function(*args))
            return wrapper

        class Module(torch.nn.Module):
            @twice
            def forward(self, x):
                return x + 1

        keep = magpy.compile(Module(), backend="eager")
    """)
    assert main(["run", str(path)]) == 0
    assert f"Module  {path}:13" in capsys.readouterr().err


def test_the_installed_command_is_this_one() -> None:
    scripts = layout.metadata(layout.ROOT)["project"]["scripts"]
    module, _, name = scripts["magpy"].partition(":")
    assert getattr(importlib.import_module(module), name) is main


def test_explain_prints_the_records(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(write(PROGRAM))]) == 0
    seen = capsys.readouterr().out
    assert "==== double" in seen
    assert seen.count("def guard(args, kwargs):") == 2
    assert "operator graph:" in seen


def test_what_was_freed_is_reported(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("""
        import weakref
        import torch
        import magpy

        def once():
            module = magpy.compile(torch.nn.ReLU(), backend="eager")
            module(torch.ones(2)), module(torch.ones(2))
            return weakref.ref(module)

        print(once()())
    """)
    assert main(["run", str(path)]) == 0
    seen = capsys.readouterr()
    assert seen.out == "None\n"
    assert "ReLU" in seen.err
    assert "2 calls: 1 from records" in seen.err


def test_calls_inside_of_another_compiled_call(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("""
        import torch
        import magpy

        @magpy.compile(backend="eager")
        def inner(x):
            return x + 1

        @magpy.compile(backend="eager")
        def outer(x):
            return inner(x) * 2

        outer(torch.ones(2))
    """)
    assert main(["run", str(path)]) == 0
    assert "1 inside of another compiled call" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('why')", 1),
        ("raise ValueError('what')", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_exit_status(text: str, status: int, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write(text))]) == status
    seen = capsys.readouterr().err
    assert seen.endswith("did not call magpy.compile\n")
    assert {7: "", 0: "", 1: "wh", 130: "KeyboardInterrupt"}[status] in seen


def test_a_traceback_is_that_of_python(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("""
        import torch, magpy

        @magpy.compile(backend="eager")
        def broken(x):
            raise ValueError("what")

        broken(torch.ones(2))
    """)
    alone = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert main(["run", str(path)]) == 1
    seen = capsys.readouterr().err
    traceback = alone.stderr[alone.stderr.index("Traceback") :]
    assert traceback.count("File ") == 2
    assert traceback in seen


def test_a_module_runs_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "some_package_of_the_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import other\nprint(__name__, __package__, sys.argv[1:])\n"
    )
    (package / "other.py").write_text("print(__name__)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", package.name, "a"]) == 0
    assert capsys.readouterr().out == f"{package.name}.other\n__main__ {package.name} ['a']\n"
    assert main(["run", "-m", f"{package.name}.other"]) == 0
    assert capsys.readouterr().out == "__main__\n"


@pytest.mark.parametrize("arguments", [["nowhere.py"], ["-m", "no_such_module_anywhere"], ["-m", "sys"]])
def test_there_is_no_program(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *arguments]) == 2
    assert capsys.readouterr().err.startswith("magpy: ")


def test_a_program_that_cannot_be_compiled(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write("def"))]) == 2
    assert "cannot compile" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["run"], ["annotations"]])
def test_wrong_use(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


def test_nothing_is_observed_afterwards(write: Write) -> None:
    from magpy._observe import observe

    main(["run", str(write(PROGRAM))])
    assert observe(None) is None


def test_an_observer_that_fails_does_not_reach_the_program() -> None:
    from magpy._observe import Observer, observe

    class Broken(Observer):
        def watching(self, compiled: object) -> None:
            raise RuntimeError("what")

    broken = Broken()
    before = observe(broken)
    try:
        fast = magpy.compile(torch.relu, backend="eager")
        fast(torch.ones(2))
    finally:
        observe(before)
    assert [str(error) for error in broken.errors] == ["what"]
    assert magpy.info(fast).records == 1


SLOW = """
    import time
    import torch
    import magpy

    def slow(graph, inputs):
        time.sleep(2)
        return graph

    double = magpy.compile(lambda x: x * 2, backend=slow)
    double(torch.ones(3))
"""


def _on_terminal(*command: object) -> str:
    """What a command writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            found = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not found:
            break
        seen += found
    os.close(ours)
    assert process.wait() == 0, seen
    return seen.decode()


def test_a_long_compile_shows_its_progress_on_a_terminal(write: Write) -> None:
    seen = _on_terminal(sys.executable, "-m", "magpy", "run", write(SLOW))
    assert "\rmagpy: " not in seen
    assert "\r\x1b[Kmagpy: compiling 1 operator of <lambda>, 1 s" in seen
    assert seen.index("compiling") < seen.rindex("\r\x1b[K") < seen.index("1 compiled object")


def test_there_is_no_progress_elsewhere(write: Write) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magpy", "run", write(SLOW)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert "compiling" not in done.stderr
    assert "\x1b" not in done.stderr


# -- annotations ------------------------------------------------------------------------------------------------------


def test_annotations_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotations", "list", "builtins.list.a*"]) == 0
    assert capsys.readouterr().out == "builtins.list.append  magpy-annotations\n"
    assert main(["annotations", "list", "nobody.*"]) == 1


@pytest.mark.parametrize("name", ["builtins.list.append", "builtins.list.append"])
def test_an_annotation_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotations", "show", name]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "builtins.list.append(self: none inplace, object: none) -> constant",
        "registered by magpy-annotations",
        "  self: reads nothing, updates it",
        "  object: reads nothing",
        "  output: constant",
    ]


def test_an_annotation_is_found_by_another_name_of_its_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotations", "show", "heapq.heappush"]) == 0
    assert "heappush(" in capsys.readouterr().out


def test_what_has_no_annotation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotations", "show", "zlib.crc32"]) == 1
    assert "no annotation" in capsys.readouterr().err
    assert main(["annotations", "show", "nothing.at.all"]) == 1


def test_annotations_of_a_module_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotations", "check", "math"]) == 0
    seen = capsys.readouterr().out
    assert ", 0 violations" in seen
    assert "C callables have no annotation" not in seen
    assert main(["annotations", "check", "nobody"]) == 1


def test_a_wrong_annotation_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from magpy_annotations import parse

    registry = Registry()
    registry.add(parse("zlib.crc32(data: type, value?) -> constant", owner="someone"))
    registry.add(parse("zlib.no_such_thing(data) -> constant", owner="someone"))
    monkeypatch.setattr("magpy.cli._annotations.default_registry", lambda: registry)
    assert main(["annotations", "check", "zlib"]) == 1
    seen = capsys.readouterr().out
    assert "zlib.crc32: value_read: reads more of data than type" in seen
    assert "zlib.no_such_thing: names nothing here" in seen
    assert "C callables have no annotation: " in seen
    assert main(["annotations", "check"]) == 1


def test_no_package_has_registered_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("magpy.cli._annotations.default_registry", Registry)
    assert main(["annotations", "check"]) == 0
    assert "no package" in capsys.readouterr().err
