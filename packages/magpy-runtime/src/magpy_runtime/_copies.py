"""What Inductor must calculate before it writes: values from memory that the same operation writes to.

Inductor takes `x.clone()` for `x`, and makes one loop of reading and writing where views lie between the two. So in
`x[1:].copy_(x[:-1].clone())`, or in `x.view(4, 4).copy_(x.view(4, 4).t() + 1)`, it reads elements that it has written
already. Here such values get memory of their own; where each element depends on itself alone, as in `x[1:] += y`, they don't.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.fx

_copy: Final[Any] = torch.ops.aten.lift_fresh_copy.default

_VIEW_OF: Final = {"slice_scatter": "slice", "select_scatter": "select", "diagonal_scatter": "diagonal"}
_WRITES: Final = frozenset([*_VIEW_OF, "as_strided_scatter", "index_put", "_unsafe_index_put", "copy_"])
"""Functions that write their second or third operand to the first, or that Inductor lets do so."""
_CALCULATED: Final = frozenset(["mm", "addmm", "bmm", "baddbmm", "convolution"])
"""Functions whose results have memory of their own anyhow."""
_COPIES: Final = {"clone": 0, "_to_copy": 0, "convert_element_type": 0, "copy": 1}
"""Functions that Inductor may take for one of their operands, and which."""
_SAME_ORDER: Final = frozenset(["view", "_unsafe_view", "reshape"])


def calculate_first(graph: torch.fx.Graph, in_memory: Any) -> None:
    """Keep values apart from the memory that they are written to, where they depend on other elements of it.

    Each operation that writes a part then writes to a copy, and what is written back to an input lies in memory by itself.

    Args:
        graph: one of ATen operators, before Inductor's own passes; it is changed.
        in_memory: an operator that gives its operand, which has been written to memory.
    """
    writes = [node for node in graph.nodes if _name(node) in _WRITES and isinstance(node.args[0], torch.fx.Node)]
    memories = {node: _memory(node) for node in writes}
    entangled = {memories[node] for node in writes if _depends(node)}
    for node in writes:
        if memories[node] not in entangled:
            continue
        place = 1 if _name(node) == "copy_" else 0
        operand = node.args[place]
        if not isinstance(operand, torch.fx.Node):
            continue
        with graph.inserting_before(node):
            own = graph.call_function(_copy, (operand,))
            own.meta.update(operand.meta)
            if place:
                own = graph.call_function(in_memory, (own,))
                own.meta.update(operand.meta)
        node.update_arg(place, own)


def _read(write: torch.fx.Node) -> list[tuple[torch.fx.Node, bool]]:
    """What an operation reads besides the memory that it writes to; element by element, indices aside."""
    if "index_put" not in _name(write):
        return [(each, True) for each in _operands(write.args[1:2])]
    return [(each, False) for each in (*_operands(tuple(write.args[1])), *_operands(write.args[2:3]))]  # type: ignore[arg-type]


def _name(node: torch.fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.partition("::")[2]


def is_view(node: torch.fx.Node) -> bool:
    """Whether an operator's result shares memory with its operand, which it only reads."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(
        each.alias_info is not None and not each.alias_info.is_write for each in schema.returns
    )


def readers(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that read a tensor, or a view of it."""
    for user in node.users:
        if user.op == "output":
            continue
        yield user
        if is_view(user):
            yield from readers(user)


def _memory(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose result's memory an operand lies in, if all is written in place that can be and no copy is made."""
    while is_view(node) or _name(node) in (*_WRITES, *_COPIES, *_SAME_ORDER):
        operand = node.args[_COPIES.get(_name(node), 0)]
        if not isinstance(operand, torch.fx.Node):
            break
        node = operand
    return node


def _depends(write: torch.fx.Node) -> bool:
    """Whether what is written to an element, or where it is written, may depend on another element of the same memory."""
    memory = _memory(write)
    seen: set[tuple[torch.fx.Node, bool]] = set()
    todo = _read(write)
    while todo:
        node, alike = todo.pop()
        if (node, alike) in seen:
            continue
        seen.add((node, alike))
        if _name(node) not in _COPIES and _memory(node) is memory:
            if not (alike and _is_target(write, node)):
                return True
            continue
        if node.op != "call_function" or _name(node) in _CALCULATED:
            continue
        one_by_one = _name(node) in (*_SAME_ORDER, *_COPIES) or _is_pointwise(node)
        read = _operands(node.args[1:2]) if _name(node) == "copy" else node.all_input_nodes
        todo += [(each, alike and one_by_one and _size(each) == _size(node)) for each in read]
    return False


def _operands(args: tuple[Any, ...]) -> list[torch.fx.Node]:
    return [each for each in args if isinstance(each, torch.fx.Node)]


def _is_pointwise(node: torch.fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def _size(node: torch.fx.Node) -> str:
    value = node.meta.get("val")
    return str(value.numel()) if isinstance(value, torch.Tensor) else ""  # compared as numbers, sizes would be guarded


def _is_target(write: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether a node is what an operation writes to, element by element."""
    node = _in_order(node)
    name = _name(write)
    whole = _in_order(write.args[0])
    if name == "copy_":
        return node is whole
    same = _name(node) == _VIEW_OF.get(name) and _in_order(node.args[0]) is whole
    return same and node.args[1:] == write.args[2:] and node.kwargs == write.kwargs


def _in_order(node: Any) -> Any:
    """What an operand was before it was written to, and before its sizes were looked at in another way."""
    while _name(node) in _SAME_ORDER or _name(node) in _WRITES:
        node = node.args[0]
    return node


__all__ = ["calculate_first", "is_view", "readers"]
