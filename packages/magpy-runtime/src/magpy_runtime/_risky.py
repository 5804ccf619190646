"""Which graphs a backend may get wrong: those whose operators update memory, or whose outputs share it.

Backends take such operators out of the graph and put copies in their place. Views that leave elements out, operands that
overlap, strides that are not those of a copy and views made without gradients have each come out wrong, without a word.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.fx

from ._graph_facts import is_update, memory_of, statistics, storage_of, tensors_in

_METADATA: Final = frozenset(
    {"t_", "transpose_", "swapdims_", "swapaxes_", "squeeze_", "unsqueeze_", "resize_", "resize_as_", "as_strided_",
     "set_", "set_data", "rename_", "resize_as_sparse_"}
)  # fmt: skip
"""Operators that give a tensor other sizes, strides or memory in place."""

_PARTIAL: Final = frozenset({"as_strided", "unfold"})
"""Views that need not cover what they are of; whether they do depends on sizes."""

_ANYWHERE: Final = frozenset({"as_strided", "as_strided_"})
"""Views that may lie outside of what they are of, but in its memory."""

_GRADUAL: Final = frozenset(
    {"add_", "sub_", "mul_", "div_", "__iadd__", "__isub__", "__imul__", "__itruediv__", "iadd", "isub", "imul",
     "itruediv", "neg_", "abs_", "exp_", "tanh_", "sigmoid_", "relu_", "relu6_", "leaky_relu_", "elu_", "selu_", "celu_",
     "hardtanh_", "clamp_", "clamp_min_", "clamp_max_", "silu_", "hardswish_", "hardsigmoid_", "mish_", "dropout_",
     "lerp_", "addcmul_", "addcdiv_"}
)  # fmt: skip
_WHOLE: Final = _GRADUAL | {"zero_", "fill_", "copy_", "__ior__", "__iand__", "logical_not_"}
"""Operators that write each element from the same place of their operands."""


@dataclass(frozen=True, slots=True)
class Risk:
    """What a graph's run has shown.

    Attributes:
        updated: numbers of the inputs that it may update.
        constants: names of tensors of its own that it may update.
        at_all: whether its code is to be compared with its operators.
        by_size: whether code that is right for some sizes may be wrong for others.
        never: why its operators have to run one by one, whatever a trial shows.
    """

    updated: tuple[int, ...] = ()
    constants: tuple[str, ...] = ()
    at_all: bool = False
    by_size: bool = False
    never: str = ""


def changes_metadata(module: torch.fx.GraphModule) -> str | None:
    """The first operator of a graph that gives a tensor another shape in place; with symbols torch may crash in it."""
    nodes = (node for node in module.graph.nodes if node.op.startswith("call_"))
    return next((name for name in map(_name, nodes) if name in _METADATA), None)


def risk(module: torch.fx.GraphModule, outputs: Any, aliases: bool) -> Risk:
    """How a graph may be compiled wrongly.

    Args:
        module: the graph, after it has run; its nodes have their values as `example_value`.
        outputs: what the run gave.
        aliases: whether inputs share memory, which their stand-ins in the run may not do.
    """
    nodes = [node for node in module.graph.nodes if node.op != "output"]
    inputs = [node for node in nodes if node.op == "placeholder"]
    updating = [node for node in nodes if is_update(node) or node.meta.get("updates")]
    norms = [node for node in nodes if statistics(node)]
    names = {_name(node) for node in nodes if node.op.startswith("call_")}
    results = tensors_in(outputs)
    switches = any("grad_enabled" in name for name in names) and any(each.requires_grad for each in results)
    given = [storage_of(each) for node in inputs for each in tensors_in(node.meta["example_value"])]
    made = [storage_of(each) for each in results]
    shared = len(set(made)) != len(made) or not set(given).isdisjoint(made)
    if not (updating or norms):
        return Risk(at_all=switches or shared)
    on: dict[int, list[torch.fx.Node]] = collections.defaultdict(list)
    for node in nodes:
        for memory in memory_of(node):
            on[memory].append(node)
    written = {memory for node in updating for each in node.all_input_nodes for memory in memory_of(each)}
    written |= {memory for node in norms for each in statistics(node) for memory in memory_of(each)}
    safe = (
        not (switches or shared or aliases)
        and len(set(given)) == len(given)
        and all(_is_plain(node, on) for node in updating)
        and all(_is_alone(each, on) for node in norms for each in statistics(node))
    )
    updated = tuple(number for number, node in enumerate(inputs) if not written.isdisjoint(memory_of(node)))
    constants = tuple(
        [str(node.target) for node in nodes if node.op == "get_attr" and not written.isdisjoint(memory_of(node))]
    )
    by_size = bool(updating) and not names.isdisjoint(_PARTIAL | _METADATA)
    writes = any(_name(node) not in _METADATA for node in updating)
    never = "as_strided where memory is updated" if writes and not names.isdisjoint(_ANYWHERE) else ""
    by_size = by_size or any(map(_is_list, updating))
    return Risk(updated, constants, not safe or bool(never), by_size, never)


def _is_list(node: torch.fx.Node) -> bool:
    return "out" in node.kwargs or _name(node).startswith("_foreach_")


def _is_alone(node: torch.fx.Node, on: dict[int, list[torch.fx.Node]]) -> bool:
    """Whether a node is an input that one operator alone has to do with."""
    (value,) = tensors_in(node.meta["example_value"]) or (None,)
    return (
        node.op == "placeholder" and value is not None and len(node.users) == 1 and not value.requires_grad
        and on[storage_of(value)] == [node]
    )  # fmt: skip


def _is_plain(node: torch.fx.Node, on: dict[int, list[torch.fx.Node]]) -> bool:
    """Whether an update is that of a whole dense tensor, of which there is no view, from operands that lie as it does."""
    name = _name(node)
    first = node.args[0] if node.args else None
    if name not in _WHOLE or "out" in node.kwargs or not isinstance(first, torch.fx.Node):
        return False
    target = first.meta["example_value"]
    if not isinstance(target, torch.Tensor) or target.layout is not torch.strided:
        return False
    origins = [each for each in on[storage_of(target)] if _name(each) not in _WHOLE or each.op == "placeholder"]
    if len(origins) != 1 or origins[0].op == "get_attr" or len(tensors_in(origins[0].meta["example_value"])) != 1:
        return False
    if target.requires_grad and (origins[0].op == "placeholder" or name not in _GRADUAL):
        return False
    operands = [value for each in node.all_input_nodes for value in tensors_in(each.meta["example_value"])]
    return _is_dense(target) and all(each.dim() == 0 or _lie_alike(each, target) for each in operands)


def _lie_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether sizes and strides are the same, without assuming anything of those that vary."""
    same_layout = one.layout is torch.strided
    return same_layout and str((one.shape, one.stride())) == str((other.shape, other.stride()))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements follow each other; of sizes that vary only if they do in order."""
    pairs = [*zip(tensor.stride(), tensor.shape, strict=True)]
    if all(type(each) is int for pair in pairs for each in pair):
        pairs = sorted((pair for pair in pairs if pair[1] != 1), reverse=True)
    expected: Any = 1
    for stride, size in reversed(pairs):
        if str(stride) != str(expected):
            return False
        expected = size * expected
    return True


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", "")).partition(".")[0]


def watched(operands: Iterable[Any]) -> list[tuple[torch.Tensor, int]]:
    """The tensors among operands, with their version counters."""
    found = [each for value in operands for each in tensors_in(value)]
    return [(each, each._version) for each in found if not each.is_inference()]


__all__ = ["Risk", "changes_metadata", "risk", "watched"]
