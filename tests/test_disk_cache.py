"""The automatic disk cache: a second process starts warm, several at once do no harm, it is bounded and private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import magpy
from magpy import _disk
from magpy.cli import main

FOLDER = Path(__file__).parent / "deploy"
sys.path.insert(0, str(FOLDER))
import deployed  # noqa: E402


def start(root: Path, backend: str, calls: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "MAGPY_CACHE_DIR": str(root)}
    command = [sys.executable, str(FOLDER / "cached.py"), backend, str(calls)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def archives(root: Path) -> list[Path]:
    return [path for path, _ in _disk.files(root)]


def test_a_second_process_starts_warm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "cache"
    first = said(start(root, "eager", 20))
    assert first["equal"] == 40 and first["model"]["monitored"] == 1 and first["dynamic"]["monitored"] > 0
    assert len(archives(root)) == 2 and root.stat().st_mode & 0o077 == 0
    second = said(start(root, "eager", 20))
    assert second == {"equal": 40, "model": {"monitored": 0, "hits": 20}, "dynamic": {"monitored": 0, "hits": 20}}
    assert main(["cache", "ls", "--dir", str(root)]) == 0
    listed = capsys.readouterr().out
    assert "1 record of deployed.Model" in listed and "records of deployed.dynamic" in listed
    assert main(["cache", "clear", "--dir", str(root)]) == 0
    assert "removed 2 archives" in capsys.readouterr().out and archives(root) == []


def test_two_processes_at_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    processes = [start(root, "eager", 12) for _ in range(2)]
    assert [said(process)["equal"] for process in processes] == [24, 24]
    third = said(start(root, "eager", 12))
    assert third["equal"] == 24 and third["model"]["monitored"] == 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def compiled_once(root: Path, **options: Any) -> Any:
    compiled = magpy.compile(deployed.model(), backend="eager", options={"cache": root}, **options)
    with torch.no_grad():
        compiled(torch.ones(4, 8))
    state = type(compiled)._magpy_state.__get__(compiled).call
    state.disk.save()
    return compiled


def test_in_one_process(root: Path) -> None:
    assert magpy.info(compiled_once(root)).monitored == 1
    again = compiled_once(root)
    assert magpy.info(again).monitored == 0 and magpy.info(again).hits == 1
    with torch.no_grad():
        again(torch.ones(3, 8))  # a new record beside the one from the disk
        again(torch.ones(4, 8))
    assert magpy.info(again).monitored == 1 and magpy.info(again).hits == 2


def test_damaged_files_are_removed(root: Path) -> None:
    compiled_once(root)
    [path] = archives(root)
    path.write_bytes(path.read_bytes()[:-5])
    assert magpy.info(compiled_once(root)).monitored == 1
    assert magpy.info(compiled_once(root)).monitored == 0


def test_a_folder_that_others_can_write_to_is_not_used(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled_once(root)
    root.chmod(0o777)
    compiled = compiled_once(root)
    assert magpy.info(compiled).monitored == 1
    assert "can be written by others" in capsys.readouterr().err


def test_it_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "some-key"
    folder.mkdir()
    for number in range(5):
        path = folder / f"{number}.magpy"
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    _disk.prune(root, 2500, keep=folder / "0.magpy")
    assert [path.name for path in archives(root)] == ["0.magpy", "4.magpy"]


def test_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_disk, "CACHE_DIR", "")
    assert _disk.cache_folder({"cache": "/x", "a": 1}) == ({"a": 1}, "/x")
    assert _disk.cache_folder({"cache": False}) == (None, None)
    assert _disk.cache_folder(None) == (None, None)
    assert _disk.cache_folder({"cache": True}) == (None, _disk.default_folder())
    monkeypatch.setattr(_disk, "CACHE_DIR", "/y")
    assert _disk.cache_folder(None) == (None, "/y")
    assert _disk.cache_folder({"cache": None}) == (None, None)
    with pytest.raises(TypeError, match="cache must be a folder"):
        magpy.compile(deployed.model(), options={"cache": 3})
