"""Biases of linear layers are added by the code that uses the product's result, not by the product.

On the CPU torch's `addmm` first copies the bias into each row of its result, through the machinery of its copies; for a
small layer that takes longer than the product. Where pointwise code comes next, which Inductor generates, the sum costs
nothing there. Inductor does the same on GPUs. A thousand small modules take two fifths less (`benchmarks/run.py tiny`).
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.fx

_addmm: Final[Any] = torch.ops.aten.addmm.default
_mm: Final[Any] = torch.ops.aten.mm.default
_add: Final[Any] = torch.ops.aten.add.Tensor

_DTYPES: Final = (torch.float32, torch.float64)
"""Others are rounded once more where a sum is taken apart."""


def biases_apart(graph: torch.fx.Graph) -> None:
    """Take products with a bias apart where all that uses them is pointwise.

    Args:
        graph: one of Inductor's, of ATen operators, after its own passes; it is changed.
    """
    for node in [*graph.find_nodes(op="call_function", target=_addmm)]:
        if not _is_with_bias(node) or not node.users or not all(map(_is_pointwise, node.users)):
            continue
        bias, one, other = node.args
        with graph.inserting_before(node):
            product = graph.call_function(_mm, (one, other))
            total = graph.call_function(_add, (product, bias))
        product.meta.update(node.meta)
        total.meta.update(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def _is_with_bias(node: torch.fx.Node) -> bool:
    values = [each.meta.get("val") if isinstance(each, torch.fx.Node) else None for each in node.args]
    return (
        len(values) == 3
        and all(factor == 1 for factor in node.kwargs.values())
        and all(isinstance(value, torch.Tensor) and value.dtype in _DTYPES for value in values)
        and values[0].dim() == 1  # type: ignore[union-attr]
        and all(value.device.type == "cpu" for value in values)  # type: ignore[union-attr]
    )


def _is_pointwise(node: torch.fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


__all__ = ["biases_apart"]
