"""Gradients of gradients: what AOTAutograd's backward graphs give has no history that can be relied on.

It raises, or takes for constants what its backward graph has computed from saved intermediate values, so that a gradient
penalty has no gradient, silently. Where a backward pass creates a graph (`create_graph=True`), the operator graph is run
again, eagerly, and what it gives replaces what the compiled backward graph gave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx

from ._graph_facts import updates

Run = Callable[..., Any]
Again = Callable[[], torch.fx.GraphModule]


class DoubleBackwardError(RuntimeError):
    """The gradient of a compiled graph cannot be differentiated."""


def with_double_backward(run: Run, graph: Again | None, refused: str) -> Run:
    """A compiled graph whose gradients have a history where the backward pass is to create one.

    Args:
        run: what the backend gave.
        graph: makes a copy of the operator graph that no backend has changed, None where it cannot be run again.
        refused: why it cannot.
    """
    places: dict[int, int] | None = None
    anchor = 0

    def guarded(*inputs: Any) -> Any:
        nonlocal places, anchor
        found = run(*inputs)
        if not torch.is_grad_enabled():
            return found
        if places is None:
            places = _places(found)
            anchor = next(reversed(places.values()), 0)
        if places:
            node = found[anchor].grad_fn
            if type(node).__name__ == _COMPILED:
                _watch(node, places, inputs, graph, refused)
        return found

    return guarded


def _places(outputs: Any) -> dict[int, int]:
    """The outputs that the compiled code's node makes, by their numbers there; the same at each call."""
    places = {}
    for place, each in enumerate(outputs):
        if isinstance(each, torch.Tensor) and type(each.grad_fn).__name__ == _COMPILED:
            places[each.output_nr] = place
    return places


_COMPILED: Final = "CompiledFunctionBackward"


def rerunnable(module: torch.fx.GraphModule) -> tuple[Again | None, str]:
    """What makes a copy of a graph that may be run in a backward pass; or None, and why there is none."""
    if updates(module):
        return None, "it updates its inputs"
    if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
        return None, "it ran under autocast"
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return functools.partial(torch.fx.GraphModule, module, graph), ""


def _watch(compiled: Any, places: dict[int, int], inputs: tuple[Any, ...], graph: Again | None, refused: str) -> None:
    versions = _versions(inputs)

    def again(gradients: Any, given: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        if graph is None:
            raise DoubleBackwardError(f"create_graph=True through a compiled graph: {refused}; use backend='eager'")
        if versions != _versions(inputs):
            raise DoubleBackwardError("create_graph=True through a compiled graph: its inputs were modified in place")
        used = {place: given[number] for number, place in places.items() if given[number] is not None}
        return _differentiate(graph, inputs, used, compiled, gradients)

    compiled.register_hook(again)


def _versions(inputs: tuple[Any, ...]) -> list[int]:
    """The version counters of tensors; those made in inference mode have none, nor have numbers."""
    try:
        return [each._version for each in inputs]
    except (RuntimeError, AttributeError):
        return [each._version if isinstance(each, torch.Tensor) and not each.is_inference() else 0 for each in inputs]


def _differentiate(
    graph: Again, inputs: tuple[Any, ...], used: dict[int, Any], node: Any, gradients: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The gradients of the inputs for those of some outputs, with a history."""
    before = _random_states()
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        found = graph()(*inputs)
        if any(not torch.equal(one, two) for one, two in zip(before, _random_states(), strict=True)):
            torch.set_rng_state(before[0])
            for number, state in enumerate(before[1:]):
                torch.cuda.set_rng_state(state, number)
            raise DoubleBackwardError(
                "create_graph=True through a compiled graph: it draws random numbers; use backend='eager'"
            )
        wanted = {
            _edge(each): each
            for each in inputs
            if isinstance(each, torch.Tensor) and each.requires_grad and _edge(each) in node.next_functions
        }
        outputs = [place for place in used if found[place].requires_grad]
        made = torch.autograd.grad(
            [found[place] for place in outputs],
            list(wanted.values()),
            [used[place] for place in outputs],
            create_graph=True,
            allow_unused=True,
        )
    by_edge = dict(zip(wanted, made, strict=True))
    if any(each is not None and edge not in by_edge for edge, each in zip(node.next_functions, gradients, strict=True)):
        raise DoubleBackwardError("create_graph=True through a compiled graph: an input's history changed")
    return tuple(by_edge.get(edge) for edge in node.next_functions)


def _edge(tensor: torch.Tensor) -> tuple[Any, int]:
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return (edge.node, edge.output_nr)


def _random_states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return states
