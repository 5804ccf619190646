"""What the backward pass of a compiled graph may read of the graph's inputs: what eager keeps, and no more.

Eager keeps what the operators' derivatives need: of `w * (x * 2)` that is `w` and the product, not `x`. AOTAutograd may
keep `x` and multiply again in the backward pass. Whoever updates `x` between the two passes, which eager allows, gets an
error then, or wrong gradients where version counters do not show the update: through `x.data`, through numpy, in running
statistics. So what AOTAutograd calculates again starts from copies of inputs that eager does not keep.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.fx
from torch.utils.checkpoint import CheckpointPolicy

from ._copies import is_view, readers

_OURS: Final = "magpy_copy"
_NOT_KEPT: Final = "magpy_not_kept"
_clone: Final[Any] = torch.ops.aten.clone.default


def not_kept(joint: torch.fx.Graph) -> tuple[int, ...]:
    """The numbers of a joint graph's inputs that eager would not keep for the backward pass.

    Args:
        joint: the forward and backward operators, as autograd has made them.
    """
    inputs = joint.find_nodes(op="placeholder")
    return tuple(
        number
        for number, node in enumerate(inputs)
        if not _is_backward(node)
        and isinstance(node.meta.get("val"), torch.Tensor)
        and not any(_is_backward(user) for user in readers(node))
    )


def _is_backward(node: torch.fx.Node) -> bool:
    return node.op != "output" and node.meta.get("partitioner_tag") in ("is_backward", "must_be_in_backward")


def mark(joint: torch.fx.GraphModule) -> None:
    """Say in a joint graph what is not kept, for `cut`; no other pass has run over it."""
    joint.meta[_NOT_KEPT] = not_kept(joint.graph)


def ban(joint: torch.fx.GraphModule) -> None:
    """Forbid any partitioner to calculate again what reads an input that is not kept."""
    inputs = joint.graph.find_nodes(op="placeholder")
    for number in not_kept(joint.graph):
        for user in readers(inputs[number]):
            if not is_view(user):
                user.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def cut(partition: Any, joint: torch.fx.GraphModule, inputs: Any, **keywords: Any) -> tuple[Any, Any]:
    """Partition a joint graph so that its backward part reads copies of inputs that are not kept.

    Args:
        partition: torch's partitioner, which may calculate again what it finds cheap.
        joint: a graph that went through `mark`.
        inputs: like those of a call.
        keywords: handed on.

    Returns:
        The forward and the backward graph.
    """
    numbers: tuple[int, ...] = joint.meta[_NOT_KEPT] if _NOT_KEPT in joint.meta else not_kept(joint.graph)
    placeholders = joint.graph.find_nodes(op="placeholder")
    for number in numbers:
        _put_copy(joint.graph, placeholders[number], placeholders[-1])
    forward, backward = partition(joint, inputs, **keywords)
    (output,) = forward.graph.find_nodes(op="output")
    for node in forward.graph.find_nodes(op="call_function", target=_clone):
        if _OURS in node.meta:  # only what is kept has to be a copy
            node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user is not output)
            if not node.users:
                forward.graph.erase_node(node)
    forward.recompile()
    return forward, backward


def _put_copy(graph: torch.fx.Graph, node: torch.fx.Node, last: torch.fx.Node) -> None:
    if all(user.op == "output" for user in node.users):
        return
    with graph.inserting_after(last):
        copy = graph.call_function(_clone, (node,))
    copy.meta.update(node.meta)
    copy.meta.update({_OURS: True, "recompute": CheckpointPolicy.MUST_SAVE})
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy and user.op != "output")


__all__ = ["ban", "cut", "mark", "not_kept"]
