"""Annotations as a separate package: `examples/magpy-annotations-demo`, built, installed, and seen to matter.

The environment is a clean one. It has the wheels of magpy-annotations and, later, of the demo; torch, xxhash and pytest
are seen where they are installed, and MagPy's other packages in the source tree, so that the test stays quick.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import layout

DEMO = layout.ROOT / "examples" / "magpy-annotations-demo"
PROGRAM = DEMO / "program.py"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
    pytest.mark.skipif(importlib.util.find_spec("xxhash") is None, reason="needs xxhash"),
]


def _run(*command: object, cwd: Path, check: bool = True) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class House:
    """A clean environment, and a folder to run in."""

    python: Path
    folder: Path

    def install(self, wheel: Path) -> None:
        """Install one wheel and nothing that it depends on."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps", "--no-index"]
        _run(*pip, wheel, cwd=self.folder)

    def program(self) -> dict[str, Any]:
        """Run the demo's program and give what it says of itself."""
        found: dict[str, Any] = json.loads(_run(self.python, PROGRAM, cwd=self.folder).splitlines()[-1])
        return found


def _build(folder: Path, target: Path) -> Path:
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", target, folder, cwd=target)
    (wheel,) = target.glob(f"{layout.metadata(folder)['project']['name'].replace('-', '_')}-*.whl")
    return wheel


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    folder = tmp_path_factory.mktemp("demo")
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    (own,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
    sources = [p.source.parent for p in layout.installable() if p.import_name != "magpy_annotations"]
    seen = [*sources, Path(sysconfig.get_path("purelib"))]
    (own / "seen-elsewhere.pth").write_text("".join(f"{path}\n" for path in seen))
    return House(python=folder / "venv" / "bin" / "python", folder=folder)


def test_the_package_makes_one_graph_of_what_had_a_boundary(house: House) -> None:
    annotations = next(package for package in layout.packages() if package.import_name == "magpy_annotations")
    house.install(_build(annotations.folder, house.folder))
    before = house.program()
    assert before["equal"]
    stops = [*before["reasons"], *before["reasons"].values(), *before["boundaries"]]
    assert any("unannotated-call" in each for each in stops)
    assert any("xxh32_intdigest" in each for each in stops)

    house.install(_build(DEMO, house.folder))
    after = house.program()
    # Two lists of words, so two records of one graph each: all calls but the first with either list are hits.
    wanted = {"equal": True, "monitored": 2, "hits": 3, "native": 0, "records": 2, "graphs": 2}
    assert after == wanted | {"reasons": {}, "boundaries": []}

    where = _run(house.python, "-c", "import magpy_annotations as a; print(a.__file__)", cwd=house.folder)
    assert Path(where.strip()).is_relative_to(house.folder), "the annotations did not come from their wheel"
    totals = _run(house.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", DEMO, cwd=house.folder)
    assert " passed" in totals
