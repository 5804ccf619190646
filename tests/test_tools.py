"""The task file's own logic: order of packages, stamps, totals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import environments
import layout
import peer_tests
import tasks


def test_packages_come_after_those_that_they_need() -> None:
    order = [package.distribution for package in layout.packages()]
    for package in layout.packages():
        assert all(order.index(name) < order.index(package.distribution) for name in package.siblings)


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("torch>=2.11,<2.15", "torch"), ("magpy_refgraph==0.1.0", "magpy-refgraph"), ("A.b[c]", "a-b")],
)
def test_requirement_name(requirement: str, name: str) -> None:
    assert layout.requirement_name(requirement) == name


def test_what_is_no_requirement() -> None:
    with pytest.raises(ValueError, match="not a requirement"):
        layout.requirement_name(">=2")


def test_a_step_is_done_again_only_when_its_key_changes(tmp_path: Path) -> None:
    environment = environments.Environment(folder=tmp_path, base=sys.executable)
    done: list[str] = []
    for key in ("a", "a", "b"):
        environment._step("step", key, lambda key=key: done.append(key))
    assert done == ["a", "b"]


def test_a_step_that_failed_is_done_again(tmp_path: Path) -> None:
    environment = environments.Environment(folder=tmp_path, base=sys.executable)
    environment._step("step", "a", lambda: None)
    with pytest.raises(SystemExit):
        environment._step("step", "b", lambda: sys.exit(1))
    done: list[bool] = []
    environment._step("step", "a", lambda: done.append(True))
    assert done == [True]


def test_an_unknown_interpreter_is_not_found() -> None:
    assert environments.find_interpreter("3.0") is None
    found = environments.find_interpreter("{}.{}".format(*sys.version_info[:2]))
    assert found is None or Path(found).exists()


@pytest.mark.parametrize(("failures", "status"), [(0, 0), (1, 1)])
def test_totals(
    failures: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks, "REPORTS", tmp_path)
    for name in ("main", "python3.12"):
        suite = f'<testsuite tests="5" failures="{failures}" errors="0" skipped="1"/>'
        (tmp_path / f"{name}.xml").write_text(f"<testsuites>{suite}</testsuites>")
    assert tasks.summary([]) == status
    assert capsys.readouterr().out == f"{8 - 2 * failures} passed, {2 * failures} failed, 2 skipped\n"


def test_no_test_at_all_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "REPORTS", tmp_path)
    assert tasks.summary([]) == 1


PEER = """
import os, signal, time, unittest
import torch

class Tests(unittest.TestCase):
    runs = 0

    def test_a_same(self):
        self.assertEqual(torch.compile(lambda x: x + 1)(torch.ones(1)).item(), 2)

    def test_b_crashes(self):
        self.__class__.runs += 1
        if self.runs == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def test_c_differs(self):
        self.assertIs(torch.compile(len), len)

    def test_d_crashes_plainly(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def test_e_takes_long(self):
        self.__class__.runs += 1
        if self.runs == 2:
            time.sleep(1000)

    def test_f_compiles_nothing(self):
        pass
"""


def test_peer_tests_go_on_behind_one_that_crashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "peers.py"
    path.write_text(PEER)
    assert peer_tests.main(["torch", str(path), "--timeout", "10"]) == 1
    lines = capsys.readouterr().out.splitlines()
    expected = "1 compiles nothing, 1 crashed, 1 crashed plainly, 1 native, 1 too long, 1 wrong"
    assert lines[0] == f"{path}: {expected}"
    assert [line.split("_")[-2:] for line in lines if "WRONG" in line] == [
        ["b", "crashes"],
        ["c", "differs"],
        ["takes", "long"],
    ]
    assert any("the process ended with -9" in line for line in lines)
