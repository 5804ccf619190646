"""Inputs that a graph updates after it has read them: its backward pass needs what they held before.

Where eager saves a copy of an input, AOTAutograd saves the input and copies it again in the backward graph. If the graph
updates it meanwhile, that copy holds other values: gradients come out wrong, without a word where the input has no gradient
itself. So such a graph works on copies of these inputs, and what it makes of them is written back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ._graph_facts import is_update, memory_of, statistics, tensors_in, updated_operands, updates

Run = Callable[..., Any]


class NotApart(Exception):
    """An update cannot be taken out of a graph."""


def late_updates(module: torch.fx.GraphModule) -> tuple[int, ...]:
    """The numbers of the inputs that a graph updates after it has read them, or in a way that has gradients.

    Args:
        module: the graph; its nodes have the values that they had in one run, as their `example_value`.

    Raises:
        NotApart: eager would see some of the updates in its backward pass, or an output shares memory with such an input.
    """
    inputs = module.graph.find_nodes(op="placeholder")
    numbers = {memory: number for number, node in enumerate(inputs) for memory in memory_of(node)}
    with_gradients = {memory for node in inputs if _has_gradients(node) for memory in memory_of(node)}
    read: set[int] = set()
    through_data: set[int] = set()
    late: set[int] = set()
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        operands = {each: memory_of(each) for each in node.all_input_nodes}
        updated = {memory for each in (*updated_operands(node), *statistics(node)) for memory in memory_of(each)}
        if is_update(node):
            differentiable = _has_gradients(node)
            late |= {each for each in updated if differentiable or each in read or each in with_gradients}
        elif updated:
            late |= updated & read
        elif is_data(node):
            through_data.update(*operands.values())
        read |= set[int]().union(*operands.values()) - memory_of(node) - updated
    late &= numbers.keys()
    if not late:
        return ()
    if late & through_data:
        raise NotApart("an input is updated through `.data` after it was read")
    (output,) = module.graph.find_nodes(op="output")
    if any(late & memory_of(each) for each in output.all_input_nodes):
        raise NotApart("an output shares memory with an input that is updated after it was read")
    return tuple(sorted(numbers[each] for each in late))


def may_be_late(module: torch.fx.GraphModule) -> bool:
    """Whether a graph updates anything."""
    return updates(module) or any(map(statistics, module.graph.nodes))


def is_data(node: torch.fx.Node) -> bool:
    """Whether a node is `x.data`, or what it was replaced by."""
    return (node.target is getattr and node.args[1] == "data") or bool(node.meta.get("is_data"))


def _has_gradients(node: torch.fx.Node) -> bool:
    return any(each.requires_grad for each in tensors_in(node.meta["example_value"]))


def on_copies(module: torch.fx.GraphModule, numbers: tuple[int, ...], mode: Any) -> None:
    """Let a graph work on copies of some inputs, and give what these hold at its end behind its outputs.

    Args:
        module: the graph; it is changed.
        numbers: of the inputs.
        mode: the mode of the fake tensors that are their `example_value`.

    Raises:
        NotApart: a copy lies in memory in another way.
    """
    inputs = module.graph.find_nodes(op="placeholder")
    (output,) = module.graph.find_nodes(op="output")
    copies = []
    for number in numbers:
        node = inputs[number]
        with mode:
            value = node.meta["example_value"].clone()
        if value.stride() != node.meta["example_value"].stride():
            raise NotApart("an input that is updated after it was read is not dense")
        with module.graph.inserting_after(inputs[-1]):
            own = module.graph.call_method("clone", (node,))
        own.meta["example_value"] = value
        node.replace_all_uses_with(own, delete_user_cb=lambda user, own=own: user is not own)
        copies.append(own)
    output.args = ((*output.args[0], *copies),)
    module.recompile()


def written_back(run: Run, numbers: tuple[int, ...], differentiable: frozenset[int], outputs: int) -> Run:
    """What calls the code of such a graph.

    Args:
        run: the code.
        numbers: of the inputs of which it is given copies.
        differentiable: those whose update has gradients.
        outputs: how many the graph had before.
    """

    def call(*inputs: Any) -> Any:
        given = [*inputs]
        for number in numbers:
            given[number] = inputs[number].clone()
        found = run(*given)
        for number, value in zip(numbers, found[outputs:], strict=True):
            if number in differentiable:
                inputs[number].copy_(value)
            else:
                with torch.no_grad():
                    inputs[number].copy_(value)
        return found[:outputs]

    return call


__all__ = ["NotApart", "is_data", "late_updates", "may_be_late", "on_copies", "written_back"]
