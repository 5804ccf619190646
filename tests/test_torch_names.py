"""Each private name of torch that MagPy uses exists, and all of them stand in the adapter modules."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ADAPTERS = {
    "magpy": ROOT / "src" / "magpy" / "_torch.py",
    "magpy_codegen": ROOT / "packages" / "magpy-codegen" / "src" / "magpy_codegen" / "_operators.py",
    "magpy_runtime": ROOT / "packages" / "magpy-runtime" / "src" / "magpy_runtime" / "_torch.py",
}
MAY_BE_MISSING = {
    "torch._C._is_torch_function_all_disabled",
    "torch._C._LegacyVariableBase",
    "torch._C._dynamo.eval_frame.set_eval_frame_isolate_recompiles_id",
    "torch._C._dynamo.eval_frame.set_skip_guard_eval_unsafe",
}
"""Names that the adapters look for and can do without."""


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an attribute chain."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def names_in(path: Path) -> Iterator[str]:
    """The names below torch that a module uses: attribute chains, imports, and strings given to getattr on a chain."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            found = dotted(node)
            if found is not None and found.startswith("torch."):
                yield found
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == "torch":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "torch")
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp):
            yield from _looked_up(node)
        elif isinstance(node, ast.Call) and dotted(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
            if (dotted(node.args[0]) or "").startswith("torch."):
                yield f"{dotted(node.args[0])}.{node.args[1].value}"


def _looked_up(node: ast.GeneratorExp) -> Iterator[str]:
    """`getattr(torch.x, name) for name in ("a", "b")`."""
    call, names = node.elt, node.generators[0].iter
    if isinstance(call, ast.Call) and dotted(call.func) == "getattr" and isinstance(names, ast.Tuple):
        yield from (f"{dotted(call.args[0])}.{name.value}" for name in names.elts if isinstance(name, ast.Constant))


def is_private(name: str) -> bool:
    return name.startswith("torch.") and any(part[0] == "_" and part[:2] != "__" for part in name.split("."))


def look_up(name: str) -> Any:
    """The object behind a dotted name, importing modules on the way."""
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 1):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[: number + 1]))
        found = getattr(found, part)
    return found


ALL = sorted({(package, name) for package, path in ADAPTERS.items() for name in names_in(path)})


@pytest.mark.parametrize(("package", "name"), ALL, ids=[name for _, name in ALL])
def test_the_name_exists(package: str, name: str) -> None:
    try:
        look_up(name)
    except (AttributeError, ImportError):
        assert name in MAY_BE_MISSING


def test_private_names_are_found() -> None:
    found = {name for _, name in ALL}
    assert {
        "torch._C._push_on_torch_function_stack",
        "torch._C._dynamo.guards.TensorGuards",
        "torch._C._has_torch_function_unary",
        "torch._C._dynamo.eval_frame.set_eval_frame",
        "torch._inductor.compile_fx.compile_fx",
        "torch._guards.TracingContext",
    } <= found
    assert MAY_BE_MISSING <= found, "an exemption that nobody needs"


def test_methods_and_globals_that_are_not_looked_up_by_a_chain() -> None:
    """Attributes of objects that torch gives out."""
    import torch
    import torch.fx

    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for obj, names in (
        (graph, ("_root",)),
        (node, ("_update_args_kwargs", "_prev", "_next", "users", "meta")),
        (torch.zeros(0), ("_version",)),
        (torch.zeros(0).untyped_storage(), ("_cdata",)),
        (torch.compiler.is_compiling, ("__globals__",)),
    ):
        assert [name for name in names if not hasattr(obj, name)] == []
    assert torch.compiler.is_compiling.__globals__["_is_compiling_flag"] is False
    assert "_is_compiling_flag" in torch.compiler.is_compiling.__code__.co_names


@pytest.mark.parametrize("package", sorted(ADAPTERS))
def test_no_other_module_uses_a_private_name(package: str) -> None:
    found = []
    for path in sorted(ADAPTERS[package].parent.rglob("*.py")):
        if path != ADAPTERS[package]:
            found += [f"{path.name}: {name}" for name in names_in(path) if is_private(name)]
    assert found == []
