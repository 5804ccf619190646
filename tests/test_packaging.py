"""The packages' metadata agree with each other, and a built wheel says what the source tree says."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

import layout
from layout import Package

PACKAGES = layout.packages()
ROOT = layout.ROOT
NAMES = [package.distribution for package in PACKAGES]
FRAGMENT = re.compile(r"(\d+|\+[\w-]+)\.(feature|change|bugfix|removal|doc)\.md")

each_package = pytest.mark.parametrize("package", PACKAGES, ids=NAMES)


def test_the_house_is_complete() -> None:
    expected = {"magpy-refgraph", "magpy-annotations", "magpy-codegen", "magpy-runtime", "magpy-jit"}
    assert set(NAMES) == expected


def test_versions_agree() -> None:
    assert len({package.version for package in PACKAGES}) == 1


@each_package
def test_siblings_are_pinned_exactly(package: Package) -> None:
    versions = {p.distribution: p.version for p in PACKAGES}
    pins = [text for text in package.dependencies if layout.requirement_name(text) in versions]
    assert pins == [f"{name}=={versions[name]}" for name in package.siblings]


@each_package
def test_poetry_takes_siblings_from_their_folders(package: Package) -> None:
    table = layout.metadata(package.folder).get("tool", {}).get("poetry", {}).get("dependencies", {})
    by_name = {p.distribution: p for p in PACKAGES}
    assert sorted(table) == sorted(package.siblings)
    for name, entry in table.items():
        assert entry["develop"] is True
        assert (package.folder / entry["path"]).resolve() == by_name[name].folder


@each_package
def test_common_metadata_agree(package: Package) -> None:
    project = layout.metadata(package.folder)["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert project["license"] == "Apache-2.0"
    torch = [text for text in package.dependencies if layout.requirement_name(text) == "torch"]
    assert torch == (["torch>=2.11,<2.15"] if torch else [])
    assert bool(torch) == (package.import_name in {"magpy", "magpy_codegen", "magpy_runtime"})


@each_package
def test_pure_packages_use_poetry_core(package: Package) -> None:
    backend = layout.metadata(package.folder)["build-system"]["build-backend"]
    native = package.distribution == "magpy-runtime"
    assert backend == ("setuptools.build_meta" if native else "poetry.core.masonry.api")


@each_package
def test_every_package_has_its_papers(package: Package) -> None:
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        assert (package.folder / name).is_file(), f"{package.distribution} has no {name}"
    assert (package.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (package.source / "py.typed").is_file()


@each_package
def test_version_in_the_source_agrees(package: Package) -> None:
    """A literal ``__version__`` is a second place for the version, so it has to be the same."""
    if not package.has_source:
        pytest.skip("no source yet")
    for statement in ast.parse((package.source / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            if any(isinstance(target, ast.Name) and target.id == "__version__" for target in statement.targets):
                assert statement.value.value == package.version


@each_package
def test_built_metadata_keep_the_pins(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel must not name a path: someone who installs it has no folder beside it."""
    if package.native or not package.has_source:
        pytest.skip("built by setuptools, which knows no paths" if package.native else "no source yet")
    from poetry.core.masonry import api

    monkeypatch.chdir(package.folder)
    folder = api.prepare_metadata_for_build_wheel(os.fspath(tmp_path))
    lines = (tmp_path / folder / "METADATA").read_text(encoding="utf-8").splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    assert not [text for text in required if "@" in text or "file:" in text]
    versions = {p.distribution: p.version for p in PACKAGES}
    found = {re.sub(r"[ ()]", "", text) for text in required if layout.requirement_name(text) in versions}
    pins = {text for text in found if "extra==" not in text}  # an extra may ask for one of a sibling's
    assert {re.sub(r"\[\w+\]|;.*", "", text) for text in found} == pins
    assert pins == {f"{name}=={versions[name]}" for name in package.siblings}


@each_package
def test_changelog_fragments_are_named_by_their_kind(package: Package) -> None:
    folder = package.folder / "changes"
    names = [path.name for path in folder.glob("*") if path.name not in {"README.md", ".gitkeep"}]
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []
