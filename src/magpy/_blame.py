"""Which operators a backend could not take, once it has refused a graph: from its error, or from what they are."""

from __future__ import annotations

import re
import types
from typing import Final

import torch.fx

Place = tuple[types.CodeType, int]
"""An instruction: a code object and a code unit."""

_EXECUTING: Final = re.compile(r"While executing %(\w+)")
_NAMED: Final = re.compile(r"\b(?:aten|prims)(?:\.|::)(\w+)")
_DYNAMIC: Final = re.compile(r"DataDependent|data-dependent|DynamicOutputShape|dynamic shape|[Uu]nbacked")


def operators_to_blame(
    graph: torch.fx.Graph, places: dict[str, Place], shaped: frozenset[str], error: BaseException
) -> dict[str, Place]:
    """The operators that are to run between graphs from now on.

    An operator whose result's shape depends on values is blamed for what comes of that shape.

    Args:
        graph: the graph that was refused.
        places: by name of a node the instruction that called the operator.
        shaped: nodes of operators whose result's shape depends on values.
        error: what the backend raised.

    Returns:
        By name the instructions; nothing where nobody knows.
    """
    named_at_once = {name: places[name] for name in getattr(error, "nodes", ()) if name in places}
    if named_at_once:
        return named_at_once
    text = _text(error)
    nodes = {node.name: node for node in graph.nodes if node.name in places}
    failing = [nodes[name] for name in _EXECUTING.findall(text) if name in nodes]
    if not failing:
        named = set(_NAMED.findall(text))
        failing = [node for node in nodes.values() if _name(node) in named]
    if failing:
        origins = {name for name in shaped if name in nodes and any(_reaches(nodes[name], node) for node in failing)}
        found = sorted(origins) or [failing[0].name]
    else:
        found = sorted(shaped & nodes.keys()) if _DYNAMIC.search(text) else []
    return {name: places[name] for name in found}


def _text(error: BaseException) -> str:
    """The types and messages of an error and of those behind it."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 8:
        parts.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _reaches(start: torch.fx.Node, end: torch.fx.Node) -> bool:
    """Whether a node's result goes into another one."""
    stack, seen = [start], {start}
    while stack:
        node = stack.pop()
        if node is end:
            return True
        fresh = [user for user in node.users if user not in seen]
        seen.update(fresh)
        stack += fresh
    return False


__all__ = ["Place", "operators_to_blame"]
