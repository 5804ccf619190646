"""What this repository consists of, read from the packages' own metadata.

Nothing here is a list to keep up to date: a package is a folder with a ``pyproject.toml``, and whether it needs torch,
a compiler or a sibling is what that file says.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One distribution of the monorepo."""

    folder: Path
    distribution: str  # "magpy-refgraph"
    version: str
    import_name: str  # "magpy_refgraph"
    dependencies: tuple[str, ...]  # requirement strings, as written
    siblings: tuple[str, ...]  # distributions of this repository among the dependencies
    native: bool  # has a C extension to compile

    @property
    def source(self) -> Path:
        """The folder of the import package."""
        return self.folder / "src" / self.import_name

    @property
    def tests(self) -> Path:
        """The folder of the package's own tests (for the meta-package: those that cross packages)."""
        return self.folder / "tests"

    @property
    def has_source(self) -> bool:
        """Whether there is something to install yet: a package, and the README that its metadata name."""
        return (self.source / "__init__.py").is_file() and (self.folder / "README.md").is_file()

    @property
    def needs_torch(self) -> bool:
        """Whether the metadata asks for torch."""
        return any(requirement_name(text) == "torch" for text in self.dependencies)


def requirement_name(requirement: str) -> str:
    """The distribution's name in a requirement such as ``torch>=2.11,<2.15``."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    if match is None:
        raise ValueError(f"not a requirement: {requirement!r}")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def metadata(folder: Path) -> dict[str, Any]:
    """The parsed ``pyproject.toml`` of a folder."""
    with (folder / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def _read(folder: Path) -> Package:
    data = metadata(folder)
    project = data["project"]
    dependencies = tuple(project.get("dependencies", ()))
    name = project["name"]
    return Package(
        folder=folder,
        distribution=name,
        version=project["version"],
        import_name="magpy" if folder == ROOT else name.replace("-", "_"),
        dependencies=dependencies,
        siblings=tuple(n for n in map(requirement_name, dependencies) if n.startswith("magpy-")),
        native=data["build-system"]["build-backend"].startswith("setuptools"),
    )


def packages() -> list[Package]:
    """All distributions, each after those that it depends on."""
    folders = sorted(path.parent for path in (ROOT / "packages").glob("*/pyproject.toml"))
    waiting = [_read(folder) for folder in (*folders, ROOT)]
    ordered: list[Package] = []
    while waiting:
        done = {package.distribution for package in ordered}
        missing = {package.distribution for package in waiting}
        ready = [p for p in waiting if not (set(p.siblings) & missing - done)]
        if not ready:
            raise ValueError(f"the packages depend on each other in a circle: {sorted(missing)}")
        ordered += ready
        waiting = [p for p in waiting if p not in ready]
    return ordered


def installable() -> list[Package]:
    """The packages that have source."""
    return [package for package in packages() if package.has_source]
