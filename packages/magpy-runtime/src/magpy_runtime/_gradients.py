"""Gradients that are not there: AOTAutograd gives zeros to every input where only some outputs have a gradient.

In eager, an input that no used output reaches keeps `grad is None`, which optimizers see. So in each backward pass the node
of such a graph takes the gradients away of inputs none of whose outputs has one. Where it cannot be told which of the
node's gradients are which inputs', those inputs go through a node of their own, which lets nothing pass then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from . import _torch
from ._graph_facts import memory_of, updated_operands, updates

Run = Callable[..., Any]


def partial_reach(module: torch.fx.GraphModule, own_updates: bool = False) -> dict[int, frozenset[int]]:
    """For each input that some outputs of a graph do not depend on, the outputs that do; empty where that cannot be told.

    Args:
        module: the graph. Where it has operators in place, its nodes have the values that they had in one run, as their
            `example_value`.
        own_updates: whether these update what has no gradients, or is the graph's own.
    """
    in_place = updates(module)
    if in_place and not own_updates:
        return {}
    read = _Reached(in_place)
    outputs: tuple[Any, ...] = ()
    count = 0
    for node in module.graph.nodes:
        if node.op == "output":
            found = node.args[0]
            outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        elif in_place and "example_value" not in node.meta:
            return {}
        else:
            count += read.add(node, count)
    of_outputs = [read(each) if isinstance(each, torch.fx.Node) else frozenset[int]() for each in outputs]
    reach = {place: frozenset(i for i, found in enumerate(of_outputs) if place in found) for place in range(count)}
    return {place: found for place, found in reach.items() if len(found) < len(outputs)} if len(outputs) > 1 else {}


class _Reached:
    """The numbers of the inputs that a node's value depends on, at the least.

    Where there are updates, memory depends on what was ever written to it; what shares memory is known from the values.
    """

    def __init__(self, in_place: bool) -> None:
        self._in_place = in_place
        self._of_nodes: dict[torch.fx.Node, frozenset[int]] = {}
        self._of_memory: dict[int, frozenset[int]] = {}

    def __call__(self, node: torch.fx.Node) -> frozenset[int]:
        return self._of_nodes[node].union(*(self._of_memory[each] for each in self._memory(node)))

    def add(self, node: torch.fx.Node, number: int) -> int:
        """Take the next node; 1 if it is an input, to which `number` belongs, else 0."""
        is_input = node.op == "placeholder"
        found = frozenset((number,)) if is_input else frozenset[int]().union(*map(self, node.all_input_nodes))
        self._of_nodes[node] = found
        written = [node, *updated_operands(node)]
        for memory in {each for one in written for each in self._memory(one)}:
            self._of_memory[memory] = self._of_memory.get(memory, frozenset()) | found
        return int(is_input)

    def _memory(self, node: torch.fx.Node) -> set[int]:
        return memory_of(node) if self._in_place else set()


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
    masks: _Masks | None = None
    asked = False
    useless = False

    def guarded(*inputs: Any) -> Any:
        nonlocal masks, asked, useless
        if useless or not torch.is_grad_enabled():
            return run(*inputs)
        if masks is not None:
            found = run(*inputs)
            masks.watch(found)
            return found
        places = [place for place in reach if _may_have_gradient(inputs[place])]
        if not places:
            return run(*inputs)
        state = _State()
        passed = list(inputs)
        for place in places:
            passed[place] = _Input.apply(state, reach[place], inputs[place])  # type: ignore[no-untyped-call]
        found = run(*passed)
        made = _made(found)
        if made is not None:
            _watch(state, *made)
            if not asked:
                masks = _Masks.of(*made, passed, reach)
        useless = made is None
        asked = True
        _let_update([each for each in found if _has_history(each)], [inputs[place] for place in places])
        return found

    return guarded


def _let_update(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Views of inputs may be updated in place, as eager's; that they came through `_Input` does not matter to them."""
    bases = [each if each._base is None else each._base for each in inputs]
    for each in outputs:
        if any(each._base is base for base in bases):
            _torch.let_update(each)


class _Masks:
    """What one node's gradients depend on, told from a call: the same at all others, whose inputs and outputs are alike.

    Attributes:
        anchor: an output that the node makes.
        places: the outputs that it makes, by their numbers there.
        reach: by the number of a gradient, the outputs that its input reaches.
    """

    __slots__ = ("anchor", "places", "reach")

    def __init__(self, anchor: int, places: dict[int, int], reach: dict[int, frozenset[int]]) -> None:
        self.anchor = anchor
        self.places = places
        self.reach = reach

    @classmethod
    def of(
        cls, node: Any, places: dict[int, int], inputs: list[Any], reach: dict[int, frozenset[int]]
    ) -> _Masks | None:
        """None where the node's gradients are not those of the inputs in order."""
        tensors = [place for place, each in enumerate(inputs) if isinstance(each, torch.Tensor)]
        edges = node.next_functions
        if len(edges) != len(tensors) or not all(map(_leads_to, edges, [inputs[place] for place in tensors])):
            return None
        numbers = {place: number for number, place in enumerate(tensors)}
        of_gradients = {numbers[place]: found for place, found in reach.items() if place in numbers}
        return cls(next(iter(places.values())), places, of_gradients)

    def watch(self, outputs: Any) -> None:
        """Take away, in each backward pass, what is not there."""
        node = outputs[self.anchor].grad_fn
        if node is not None:
            node.register_hook(self._mask)

    def _mask(self, gradients: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
        present = {place for number, place in self.places.items() if given[number] is not None}
        masked = list(gradients)
        for number, reached in self.reach.items():
            if present.isdisjoint(reached):
                masked[number] = None
        return tuple(masked)


def _leads_to(edge: tuple[Any, int], tensor: torch.Tensor) -> bool:
    """Whether a node's edge is that to an input, or there is none."""
    node, number = edge
    if not tensor.requires_grad:
        return node is None
    if tensor.grad_fn is None:
        return getattr(node, "variable", None) is tensor
    return node is tensor.grad_fn and number == tensor.output_nr


def _made(outputs: Any) -> tuple[Any, dict[int, int]] | None:
    """The node that made all outputs that can have a gradient, and these by their numbers there; None if there is none."""
    places = {each.output_nr: place for place, each in enumerate(outputs) if _has_history(each)}
    nodes = [each.grad_fn for each in outputs if _has_history(each)]
    return None if not nodes or any(node is not nodes[0] for node in nodes) else (nodes[0], places)


def _watch(state: _State, node: Any, places: dict[int, int]) -> None:
    """Note in each backward pass which outputs have a gradient."""

    def note(grads: tuple[Any, ...]) -> None:
        state.given = frozenset(place for number, place in places.items() if grads[number] is not None)

    node.register_prehook(note)


def _may_have_gradient(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.requires_grad


def _has_history(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None
