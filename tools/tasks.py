"""Every gate of the project, as one command each: ``python tools/tasks.py TASK``.

The Makefile, continuous integration and pre-commit call these and nothing else. The script itself needs the standard
library only; what a task needs is installed into the environments that it makes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path

import environments
import layout
import wheels
from environments import NO_TESTS, Environment, run
from layout import ROOT

BUILD = ROOT / "build"
REPORTS = BUILD / "reports"
OTHER_PYTHONS = ("3.12", "3.13")
# What runs without torch: these packages' tests on the other Python versions (see conftest.py for what is left out).
TORCH_FREE = ("magpy-refgraph", "magpy-annotations", "magpy-runtime")
# ... and these of the tests that cross packages.
VERIFIED_TESTS = [ROOT / "tests" / f"test_{name}.py" for name in ("programs", "exceptions", "iterators")]
TORCH_FREE_TESTS = (ROOT / "tests" / "test_rules.py",)
# The example of somebody else's package, which tests/test_demo_package.py builds and installs.
DEMO_SOURCE = ROOT / "examples" / "magpy-annotations-demo" / "src" / "magpy_annotations_demo"
TEST_TIMEOUT_S = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task; the exit status is 0 when it succeeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="handed on to pytest, the demo or the benchmarks")
    options = parser.parse_args(arguments)
    return TASKS[options.task](options.rest)


def install(rest: list[str]) -> int:
    """Make ``.venv`` with everything that the other tasks need."""
    _no_more(rest)
    _installed("test", "models", "lint", "docs")
    return 0


def test(rest: list[str]) -> int:
    """Run all tests, and those without torch on the other Python versions; ends with one line of totals."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    environment = _installed("test", "models")
    folders = [package.tests for package in layout.packages() if package.tests.is_dir()]
    failed = _pytest(environment, folders, "main", rest) != 0
    os.environ["MAGPY_VERIFY"] = "1"  # once more, with the first hit of each record verified
    failed |= _pytest(environment, VERIFIED_TESTS, "verified", rest) != 0
    del os.environ["MAGPY_VERIFY"]
    for version in OTHER_PYTHONS:
        failed |= _test_without_torch(version, rest) != 0
    return summary([]) or int(failed)


def summary(rest: list[str]) -> int:
    """Print the totals of the last test run as one line, ``N passed, N failed``."""
    _no_more(rest)
    total = failed = skipped = 0
    for path in REPORTS.glob("*.xml"):
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    return int(failed > 0 or total == 0)


def lint(rest: list[str]) -> int:
    """Check style and format (ruff) and types (mypy, strict, package by package)."""
    _no_more(rest)
    environment = _installed("models", "lint", "test")
    failed = _ruff(environment, "check", "--quiet") != 0
    failed |= _ruff(environment, "format", "--check", "--quiet") != 0
    for source in [*(package.source for package in layout.installable()), DEMO_SOURCE, ROOT / "tools"]:
        failed |= run([environment.python, "-m", "mypy", "--strict", source], check=False) != 0
    return int(failed)


def format_(rest: list[str]) -> int:
    """Rewrite the sources in the project's format."""
    _no_more(rest)
    environment = _installed("lint")
    return _ruff(environment, "check", "--fix", "--quiet") or _ruff(environment, "format", "--quiet")


def docs(rest: list[str]) -> int:
    """Build the documentation; every warning and every reference that leads nowhere is an error."""
    _no_more(rest)
    environment = _installed("models", "docs")
    out = BUILD / "docs"
    strict = ["-n", "-W", "--keep-going"]
    command = [environment.python, "-m", "sphinx", *strict, "-q", "-b", "html", "-d", out / "doctrees"]
    status = run([*command, ROOT / "docs", out / "html"], check=False)
    if not status:
        print(f"documentation: {(out / 'html' / 'index.html').relative_to(ROOT)}", flush=True)
    return status


def build_wheels(rest: list[str]) -> int:
    """Build every package as sdist and, from that, as wheel; import each from its wheel alone."""
    _no_more(rest)
    environment = environments.main_environment("test")
    return wheels.build_and_check(environment, BUILD)


def demo(rest: list[str]) -> int:
    """Run the demonstration."""
    return _script(ROOT / "examples" / "demo.py", rest)


def bench(rest: list[str]) -> int:
    """Run the benchmarks."""
    return _script(ROOT / "benchmarks" / "run.py", rest)


def changelog(rest: list[str]) -> int:
    """Gather the fragments under ``changes/`` into the changelogs of the version that the metadata names."""
    environment = _installed("lint")
    for package in layout.packages():
        if any(path.name.count(".") > 1 for path in (package.folder / "changes").glob("*.md")):
            command = [environment.python, "-m", "towncrier", "build", "--config", ROOT / "pyproject.toml"]
            run([*command, "--dir", package.folder, "--version", package.version, *rest])
    return 0


def _installed(*requirements: str) -> Environment:
    environment = environments.main_environment(*requirements)
    return environment.install_packages(layout.installable())


def _test_without_torch(version: str, rest: list[str]) -> int:
    base = environments.find_interpreter(version)
    if base is None:
        print(f"python{version}: not found here, its tests are left out", flush=True)
        return 0
    packages = [p for p in layout.installable() if p.distribution in TORCH_FREE]
    environment = Environment(folder=BUILD / f"venv-{version}", base=base).create()
    environment.install_requirements("build", "test").install_packages(packages)
    tests = [*(p.tests for p in packages if p.tests.is_dir()), *TORCH_FREE_TESTS]
    return _pytest(environment, tests, f"python{version}", rest)


def _pytest(environment: Environment, tests: Sequence[Path], name: str, rest: list[str]) -> int:
    if not tests:
        return 0
    command: list[object] = [environment.python, "-m", "pytest", "-q", f"--timeout={TEST_TIMEOUT_S}"]
    command += [f"--junitxml={REPORTS / name}.xml", "-o", f"junit_suite_name={name}"]
    status = run([*command, *tests, *rest], check=False)
    if status == NO_TESTS and name != "main":  # nothing that runs without torch yet
        return 0
    return status


def _ruff(environment: Environment, *arguments: str) -> int:
    # One configuration for all packages, whatever theirs say for someone who works on one of them alone.
    config = ["--config", ROOT / "pyproject.toml"]
    return run([environment.folder / "bin" / "ruff", *arguments, *config, ROOT], check=False)


def _script(path: Path, rest: list[str]) -> int:
    return run([_installed("models").python, path, *rest], check=False)


def _no_more(rest: list[str]) -> None:
    if rest:
        raise SystemExit(f"this task takes no arguments: {rest}")


TASKS: dict[str, Callable[[list[str]], int]] = {
    "bench": bench,
    "changelog": changelog,
    "demo": demo,
    "docs": docs,
    "format": format_,
    "install": install,
    "lint": lint,
    "summary": summary,
    "test": test,
    "wheels": build_wheels,
}

if __name__ == "__main__":
    sys.exit(main())
