"""The arrows between packages, the names that they export, and who may know which version is running."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from imports import Import, imports_below, imports_of

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_NAMES = ROOT / "tests" / "public_names.txt"

# Who may import whom. The meta-package composes the other four; nothing points back.
ARROWS: dict[str, set[str]] = {
    "magpy_refgraph": set(),
    "magpy_annotations": set(),
    "magpy_codegen": {"magpy_refgraph"},
    "magpy_runtime": set(),
    "magpy": {"magpy_refgraph", "magpy_annotations", "magpy_codegen", "magpy_runtime"},
}
SOURCES = {name: ROOT / "packages" / name.replace("_", "-") / "src" / name for name in ARROWS}
SOURCES["magpy"] = ROOT / "src" / "magpy"
PRESENT = [name for name, folder in SOURCES.items() if (folder / "__init__.py").is_file()]


def wrong_arrows(package: str, imports: Iterable[Import]) -> list[str]:
    """The imports of sibling packages that ARROWS does not allow."""
    return [str(i) for i in imports if i.top in ARROWS and i.top not in ARROWS[package] | {package}]


def private_imports(package: str, imports: Iterable[Import]) -> list[str]:
    """The imports of another package's private names."""
    return [str(i) for i in imports if i.top in ARROWS and i.top != package and i.is_private]


def torch_where_none_may_be(package: str, imports: Iterable[Import]) -> list[str]:
    """Torch in the RefGraph, which knows none, or while the annotations are imported."""
    torch = [i for i in imports if i.top == "torch"]
    if package == "magpy_refgraph":
        return [str(i) for i in torch]
    if package == "magpy_annotations":
        return [str(i) for i in torch if i.at_import and not _is_loaded_after(i)]
    return []


def _is_loaded_after(found: Import) -> bool:
    """Whether an import is in the part of the catalogue on that module, which is loaded once the program has imported it.

    That it is so, `test_importing_brings_no_torch` shows.
    """
    return f"/catalogue/{found.top}/" in found.path or f"/catalogue/{found.top}.py" in found.path


@pytest.mark.parametrize("package", PRESENT)
def test_arrows(package: str) -> None:
    assert wrong_arrows(package, imports_below(SOURCES[package], ROOT)) == []


@pytest.mark.parametrize("package", PRESENT)
def test_no_private_name_of_another_package(package: str) -> None:
    assert private_imports(package, imports_below(SOURCES[package], ROOT)) == []


@pytest.mark.parametrize("package", PRESENT)
def test_torch_is_absent_where_promised(package: str) -> None:
    assert torch_where_none_may_be(package, imports_below(SOURCES[package], ROOT)) == []


@pytest.mark.parametrize("package", PRESENT)
def test_private_torch_names_are_in_one_module(package: str) -> None:
    """One adapter module a package; a subpackage such as ``backends`` may be that module."""
    found = {i.path: str(i) for i in imports_below(SOURCES[package], ROOT) if i.top == "torch" and i.is_private}
    assert len(found) <= 1, sorted(found.values())


@pytest.mark.parametrize("package", PRESENT)
def test_only_env_reads_versions(package: str) -> None:
    readers = []
    for path in sorted(SOURCES[package].rglob("*.py")):
        if path.stem.lstrip("_") != "env":
            readers += [f"{path.relative_to(ROOT)}:{line}" for line in _version_reads(path.read_text(encoding="utf-8"))]
    assert readers == []


def _version_reads(source: str) -> Iterator[int]:
    watched = {("sys", "version_info"), ("sys", "hexversion"), ("torch", "__version__"), ("torch", "version")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in watched:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if any((node.module, alias.name) in watched for alias in node.names):
                yield node.lineno


@pytest.mark.parametrize("package", PRESENT)
def test_imports_only_what_is_declared(package: str) -> None:
    """No undeclared third party: what is imported is the standard library's, a sibling, or in the metadata."""
    import layout

    by_name = {p.import_name: p for p in layout.packages()}
    declared = {layout.requirement_name(text).replace("-", "_") for text in by_name[package].dependencies}
    allowed = declared | set(sys.stdlib_module_names) | {package} | ARROWS[package]
    optional = {"numpy", "transformers", "torch"}  # looked up only where the program has imported them
    extras = layout.metadata(by_name[package].folder)["project"].get("optional-dependencies", {})
    # A subpackage that is called like an extra is imported only where that is installed.
    added = {(extra, layout.requirement_name(text)) for extra, texts in extras.items() for text in texts}
    imports = [
        i for i in imports_below(SOURCES[package], ROOT) if not any(f"/{e}/" in i.path and i.top == n for e, n in added)
    ]
    undeclared = [i for i in imports if i.top not in allowed]
    assert [str(i) for i in undeclared if i.top not in optional or (i.at_import and not _is_loaded_after(i))] == []


@pytest.mark.parametrize("package", [name for name in PRESENT if name in {"magpy_refgraph", "magpy_annotations"}])
def test_importing_brings_no_torch(package: str) -> None:
    program = f"import sys, {package} as p; getattr(p, 'default_registry', list)(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, stdin=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize(
    ("package", "source", "check"),
    [
        ("magpy_refgraph", "import magpy_codegen", wrong_arrows),
        ("magpy_codegen", "from magpy_runtime import Record", wrong_arrows),
        ("magpy_runtime", "def f():\n    import magpy", wrong_arrows),
        ("magpy_annotations", "import importlib\nimportlib.import_module('magpy.monitor')", wrong_arrows),
        ("magpy", "from magpy_refgraph._nodes import ShadowNode", private_imports),
        ("magpy", "from magpy_runtime import _native", private_imports),
        ("magpy", "import magpy_refgraph\nmagpy_refgraph._nodes.ShadowNode()", private_imports),
        ("magpy_refgraph", "def f():\n    import torch", torch_where_none_may_be),
        ("magpy_annotations", "try:\n    import torch\nexcept ImportError:\n    torch = None", torch_where_none_may_be),
    ],
)
def test_the_checks_can_fail(package: str, source: str, check: object) -> None:
    assert callable(check)
    assert check(package, imports_of(source))


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations",
        "from ._nodes import ShadowNode",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        "def f():\n    import torch",
    ],
)
def test_the_checks_can_pass(source: str) -> None:
    imports = imports_of(source)
    for check in (wrong_arrows, private_imports, torch_where_none_may_be):
        assert check("magpy_annotations", imports) == []


def test_version_reads_are_found() -> None:
    assert list(_version_reads("import sys\nif sys.version_info >= (3, 12):\n    pass")) == [2]
    assert list(_version_reads("from sys import version_info")) == [1]


def _exports(path: Path) -> list[str] | None:
    """The literal ``__all__`` of a module, or None when it has none."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                assert statement.value is not None
                names = ast.literal_eval(statement.value)
                return [str(name) for name in names]
    return None


def _all_exports() -> dict[str, list[str]]:
    found = {}
    for package in PRESENT:
        for path in sorted(SOURCES[package].rglob("__init__.py")):
            module = ".".join([package, *path.parent.relative_to(SOURCES[package]).parts])
            exports = _exports(path)
            if exports is not None:
                found[module] = exports
    return found


@pytest.mark.parametrize("package", PRESENT)
def test_every_package_says_what_it_exports(package: str) -> None:
    exports = _exports(SOURCES[package] / "__init__.py")
    assert exports, f"{package} has no literal __all__"
    module = importlib.import_module(package)
    assert [name for name in exports if not hasattr(module, name)] == []


def _in_order(names: Iterable[str]) -> list[str]:
    """Constants, then classes, then functions, each by name: the order that ruff's fix gives."""
    return sorted(set(names), key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def test_exports_are_sorted() -> None:
    for module, exports in _all_exports().items():
        assert exports == _in_order(exports), f"{module}.__all__ is not sorted"


def test_order_of_exports() -> None:
    assert _in_order(["compile", "Record", "NULL", "Atom", "add"]) == ["NULL", "Atom", "Record", "add", "compile"]


def test_public_names_are_the_checked_in_ones(update_cases: bool) -> None:
    """A public name appears or goes only together with a change to tests/public_names.txt.

    ``pytest tests/test_architecture.py --update-cases`` writes the file anew.
    """
    names = sorted(f"{module}.{name}" for module, exports in _all_exports().items() for name in exports)
    if update_cases:
        PUBLIC_NAMES.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    listed = PUBLIC_NAMES.read_text(encoding="utf-8").splitlines()
    assert names == listed, "public names changed: if that is meant, run this test with --update-cases"
