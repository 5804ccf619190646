"""The imports of a module, read from its source: what the tests of the architecture look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import of an absolute name."""

    target: str  # "magpy_refgraph._nodes" or "magpy_refgraph.ShadowNode"
    path: str  # as shown in messages
    line: int
    at_import: bool  # runs when the module is imported (not in a function, not for type checkers only)

    @property
    def top(self) -> str:
        """The import package."""
        return self.target.partition(".")[0]

    @property
    def is_private(self) -> bool:
        """Whether it goes through a name with a leading underscore, dunder names aside."""
        return any(part.startswith("_") and not part.endswith("__") for part in self.target.split(".")[1:])

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.target}"


def imports_of(source: str, path: str = "<source>") -> list[Import]:
    """All imports in a module's source: statements, ``import_module("...")``, and uses such as ``magpy_x._y``."""
    finder = _Finder(path)
    finder.visit(ast.parse(source, path))
    return finder.found


def imports_below(folder: Path, root: Path) -> Iterator[Import]:
    """All imports in the modules of a folder."""
    for path in sorted(folder.rglob("*.py")):
        yield from imports_of(path.read_text(encoding="utf-8"), str(path.relative_to(root)))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str) -> None:
        self.found: list[Import] = []
        self._path = path
        self._later = 0  # depth of functions and of blocks for type checkers
        self._modules: set[str] = set()  # top names bound by `import x` or `import x.y`

    def _add(self, target: str, node: ast.AST) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Import(target=target, path=self._path, line=line, at_import=not self._later))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node)
            if alias.asname is None:
                self._modules.add(alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            for alias in node.names:
                self._add(f"{node.module}.{alias.name}", node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self._modules:
            self._add(".".join([inner.id, *reversed(names)]), node)
        else:
            self.visit(inner)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
            if isinstance(node.args[0].value, str):
                self._add(node.args[0].value, node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        for_types = getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"
        self._later += for_types
        for statement in node.body:
            self.visit(statement)
        self._later -= for_types
        for statement in node.orelse:
            self.visit(statement)
        self.visit(test)

    def _visit_function(self, node: ast.AST) -> None:
        self._later += 1
        self.generic_visit(node)
        self._later -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function
