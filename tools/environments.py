"""Virtual environments for the gates, made once and brought up to date by stamps.

A step (make the environment, install a list of requirements, install a package in place) is done again only when what
it depends on has changed: its key is hashed into a stamp file inside the environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from layout import ROOT, Package

REQUIREMENTS = ROOT / "tools" / "requirements"
# Installed first and by exactly this requirement, so that no other package's wider range chooses another build.
TORCH = "torch==2.13.0"
NO_TESTS = 5  # pytest's exit status when it collected none


def run(command: Sequence[object], *, cwd: Path = ROOT, check: bool = True) -> int:
    """Run a command with no standard input, showing it first.

    Raises:
        SystemExit: The command failed and ``check`` is set.
    """
    words = [str(word) for word in command]
    print("+", " ".join(_shown(word) for word in words if "\n" not in word), flush=True)
    status = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, check=False).returncode
    if status and check:
        raise SystemExit(f"failed with exit status {status}: {words[0]} ...")
    return status


def _shown(word: str) -> str:
    return word.replace(f"{ROOT}{os.sep}", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One virtual environment."""

    folder: Path
    base: str  # the interpreter that it is made from

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"

    def create(self) -> Environment:
        """Make the environment; an environment of another interpreter in its place is removed."""
        version = subprocess.run(
            [self.base, "-c", "import sys; print(sys.version, sys.base_prefix)"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

        def make() -> None:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            run([self.base, "-m", "venv", self.folder])

        self._step("venv", version, make)
        return self

    def install_torch(self) -> Environment:
        """Install the torch that the gates run with."""
        self._step("torch", TORCH, lambda: self._pip(TORCH))
        return self

    def install_requirements(self, *names: str) -> Environment:
        """Install the requirement lists of these names."""
        for name in names:
            path = REQUIREMENTS / f"{name}.txt"
            pins = ["-c", str(self._torch_constraint())] if self._has("torch") else []

            def install(path: Path = path, pins: list[str] = pins) -> None:
                self._pip("-r", str(path), *pins)

            self._step(f"requirements-{name}", path.read_text(), install)
        return self

    def install_packages(self, packages: Iterable[Package]) -> Environment:
        """Install the packages in place (editable), compiling the native one again when its sources changed.

        Their dependencies come from the requirement lists: nothing is resolved here.
        """
        for package in packages:

            def install(package: Package = package) -> None:
                if package.native:  # a stale object file must not survive a change of headers
                    shutil.rmtree(package.folder / "build", ignore_errors=True)
                self._pip("--no-build-isolation", "--no-deps", "-e", str(package.folder))

            self._step(f"package-{package.distribution}", _package_key(package), install)
        return self

    def _torch_constraint(self) -> Path:
        path = self.folder / "constraints.txt"
        path.write_text(f"{TORCH}\n")
        return path

    def _pip(self, *arguments: str) -> None:
        run([self.python, "-m", "pip", "install", "--quiet", *arguments])

    def _has(self, step: str) -> bool:
        return (self.folder / "stamps" / step).is_file()

    def _step(self, name: str, key: str, action: Callable[[], None]) -> None:
        stamp = self.folder / "stamps" / name
        digest = hashlib.sha256(key.encode()).hexdigest()
        if stamp.is_file() and stamp.read_text() == digest:
            return
        stamp.unlink(missing_ok=True)
        action()
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(digest)


def _package_key(package: Package) -> str:
    """What an in-place installation depends on: metadata, and for a native package the sources to compile."""
    files = [package.folder / "pyproject.toml"]
    if package.native:
        files += [package.folder / "setup.py", package.folder / "MANIFEST.in"]
        files += sorted(p for p in package.folder.rglob("*") if p.suffix in {".c", ".h"} and "build" not in p.parts)
    return "\0".join(f"{path.relative_to(package.folder)}\0{path.read_text()}" for path in files if path.is_file())


def main_environment(*requirements: str) -> Environment:
    """The environment in ``.venv``, with torch and these requirement lists, made from the running interpreter."""
    environment = Environment(folder=ROOT / ".venv", base=sys.executable).create()
    return environment.install_torch().install_requirements("build", *requirements)


def find_interpreter(version: str) -> str | None:
    """An interpreter of this version (such as ``3.12``) with C headers, from the path or from pyenv."""
    candidates = []
    if found := shutil.which(f"python{version}"):
        candidates.append(found)
    candidates += [str(folder / "bin" / "python") for folder in _pyenv_versions(version)]
    return next((path for path in candidates if _is_usable(path, version)), None)


def _pyenv_versions(version: str) -> list[Path]:
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    answer = subprocess.run([pyenv, "root"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answer.returncode:
        return []
    folders = (Path(answer.stdout.strip()) / "versions").glob(f"{version}.*")
    return sorted((p for p in folders if p.name[len(version) + 1 :].isdigit()), key=_patch_number, reverse=True)


def _patch_number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def _is_usable(path: str, version: str) -> bool:
    """Whether the interpreter starts, is of the version, and can make an environment and compile an extension."""
    probe = (
        "import sys, sysconfig, pathlib, ensurepip, venv\n"
        f"assert '%d.%d' % sys.version_info[:2] == {version!r}\n"
        "assert pathlib.Path(sysconfig.get_path('include'), 'Python.h').is_file()\n"
    )
    try:
        answer = subprocess.run([path, "-c", probe], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return False
    return answer.returncode == 0
