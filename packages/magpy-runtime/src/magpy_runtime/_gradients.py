"""Gradients that are not there: AOTAutograd gives zeros to every input where only some outputs have a gradient.

In eager, an input that no used output reaches keeps `grad is None`, which optimizers see. So in each backward pass the node
of such a graph notes which outputs have gradients, and the inputs that not all outputs reach go through a node that lets
nothing pass unless one of theirs has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ._graph_facts import updates

Run = Callable[..., Any]


def partial_reach(module: torch.fx.GraphModule) -> dict[int, frozenset[int]]:
    """For each input that some outputs of a graph do not depend on, the outputs that do; empty where that cannot be told."""
    if updates(module):
        return {}
    reached: dict[torch.fx.Node, frozenset[int]] = {}
    number = 0
    outputs: tuple[Any, ...] = ()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            reached[node] = frozenset((number,))
            number += 1
        elif node.op == "output":
            found = node.args[0]
            outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        else:
            reached[node] = frozenset[int]().union(*(reached[each] for each in node.all_input_nodes))
    of_outputs = [reached[each] if isinstance(each, torch.fx.Node) else frozenset[int]() for each in outputs]
    reach = {place: frozenset(i for i, found in enumerate(of_outputs) if place in found) for place in range(number)}
    return {place: found for place, found in reach.items() if len(found) < len(outputs)} if len(outputs) > 1 else {}


class _State:
    """Which outputs of one call had a gradient in the backward pass that runs; None where that is not known."""

    __slots__ = ("given",)

    def __init__(self) -> None:
        self.given: frozenset[int] | None = None


class _Input(torch.autograd.Function):
    """Lets a gradient pass if one of the outputs that the input reaches has one."""

    @staticmethod
    def forward(ctx: Any, state: _State, places: frozenset[int], tensor: Any) -> Any:
        ctx.state, ctx.places = state, places
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        given = ctx.state.given
        return None, None, grads[0] if given is None or given & ctx.places else None


def with_missing_gradients(run: Run, reach: dict[int, frozenset[int]]) -> Run:
    """A compiled graph whose inputs have no gradient where no used output depends on them."""
    if not reach:
        return run

    def guarded(*inputs: Any) -> Any:
        places = [place for place in reach if inputs[place].requires_grad and inputs[place].is_floating_point()]
        if not places or not torch.is_grad_enabled():
            return run(*inputs)
        state = _State()
        passed = list(inputs)
        for place in places:
            passed[place] = _Input.apply(state, reach[place], inputs[place])  # type: ignore[no-untyped-call]
        found = run(*passed)
        _watch(state, found)
        return found

    return guarded


def _watch(state: _State, outputs: Any) -> None:
    """Note in each backward pass which outputs have a gradient, if one node made all that can have one."""
    places = {each.output_nr: place for place, each in enumerate(outputs) if _has_history(each)}
    nodes = [each.grad_fn for each in outputs if _has_history(each)]
    if not nodes or any(node is not nodes[0] for node in nodes):
        return

    def note(grads: tuple[Any, ...]) -> None:
        state.given = frozenset(place for number, place in places.items() if grads[number] is not None)

    nodes[0].register_prehook(note)


def _has_history(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None
