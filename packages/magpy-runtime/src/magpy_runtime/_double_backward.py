"""Gradients of gradients: what AOTAutograd's backward graphs give has no history that can be relied on.

It raises, or takes for constants what its backward graph has computed from saved intermediate values, so that a gradient
penalty has no gradient, silently. Where a backward pass creates a graph (`create_graph=True`), the operator graph is run
again, eagerly, and what it gives replaces what the compiled backward graph gave.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.fx

from . import _torch
from ._graph_facts import statistics, updates
from ._histories import edge_of

Run = Callable[..., Any]


class DoubleBackwardError(RuntimeError):
    """The gradient of a compiled graph cannot be differentiated."""


@dataclass(frozen=True, slots=True)
class Again:
    """How a graph is run again.

    Attributes:
        make: a copy of the graph, which no backend has changed.
        updated: numbers of the inputs that it updates.
        autocast: for each type of device whether its operators were cast, and to what.
    """

    make: Callable[[], torch.fx.GraphModule]
    updated: tuple[int, ...]
    autocast: tuple[tuple[str, bool, torch.dtype], ...]


@dataclass(slots=True)
class _Call:
    """What one call of the graph started with.

    Attributes:
        inputs: as they are after it.
        versions: their version counters then, of those that the graph does not update.
        kept: copies of those that it updates, from before it.
        random: the states of the random number generators before and after it, where it draws from them.
    """

    inputs: tuple[Any, ...]
    versions: list[int]
    kept: dict[int, torch.Tensor]
    random: tuple[list[torch.Tensor], list[torch.Tensor]] | None


def with_double_backward(run: Run, graph: Again | None, refused: str) -> Run:
    """A compiled graph whose gradients have a history where the backward pass is to create one.

    Args:
        run: what the backend gave.
        graph: how it is run again, None where it cannot be.
        refused: why it cannot.
    """
    places: dict[int, int] | None = None
    anchor = 0
    draws = True  # unknown before the first call
    updated = () if graph is None else graph.updated

    def guarded(*inputs: Any) -> Any:
        nonlocal places, anchor, draws
        if not torch.is_grad_enabled():
            return run(*inputs)
        kept = {number: inputs[number].detach().clone() for number in updated}
        before = _random_states() if draws else None
        found = run(*inputs)
        random = None
        if before is not None:
            after = _random_states()
            draws = not _same(before, after)
            random = (before, after) if draws else None
        if places is None:
            places = _places(found)
            anchor = next(reversed(places.values()), 0)
        if places:
            node = getattr(_made(found, anchor), "grad_fn", None)
            if _torch.is_compiled(node):
                _watch(node, places, _Call(inputs, _versions(inputs, updated), kept, random), graph, refused)
        return found

    return guarded


def _places(outputs: Any) -> dict[int, int]:
    """The outputs that the compiled code's node makes, by their numbers there; the same at each call.

    Of outputs that are views of what it makes, one for each such tensor, as its number inverted.
    """
    places = {}
    for place, each in enumerate(outputs):
        if isinstance(each, torch.Tensor) and _torch.is_compiled(each.grad_fn):
            places[each.output_nr] = place
        elif isinstance(each, torch.Tensor) and _torch.is_compiled(getattr(each._base, "grad_fn", None)):
            places.setdefault(each._base.output_nr, ~place)  # type: ignore[union-attr]
    return places


def _made(outputs: Any, place: int) -> Any:
    """The tensor at a place."""
    return outputs[place] if place >= 0 else outputs[~place]._base


_MOST_KEPT: Final = 1 << 18
"""Elements of updated inputs that are kept from before a call, for a backward pass that hardly ever comes."""

_DEVICES: Final = ("cpu", "cuda")


def rerunnable(
    module: torch.fx.GraphModule, inputs: list[Any], updated: tuple[int, ...] | None
) -> tuple[Again | None, str]:
    """How a graph may be run again in a backward pass; or None, and why it cannot.

    Args:
        module: the graph.
        inputs: inputs like those of a call.
        updated: numbers of the inputs that it updates, None where that is not known.
    """
    if updated is None and updates(module):
        return None, "it updates its inputs"
    updated = tuple(sorted({*(updated or ()), *statistics_of(module)}))
    if any(inputs[number].requires_grad or inputs[number].is_inference() for number in updated):
        return None, "it updates an input that has gradients"
    if sum(inputs[number].numel() for number in updated) > _MOST_KEPT:
        return None, "it updates large inputs"
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    autocast = tuple((each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _DEVICES)
    return Again(functools.partial(torch.fx.GraphModule, module, graph), updated, autocast), ""


def statistics_of(module: torch.fx.GraphModule) -> set[int]:
    """The inputs that are running statistics, which a norm updates without counting that as an update."""
    numbers = {node: number for number, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    return {numbers[each] for node in module.graph.nodes for each in statistics(node) if each in numbers}


def _watch(compiled: Any, places: dict[int, int], call: _Call, graph: Again | None, refused: str) -> None:
    node = weakref.ref(compiled)  # else it would keep itself alive, and the inputs

    def again(gradients: Any, given: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        if graph is None:
            raise DoubleBackwardError(f"create_graph=True through a compiled graph: {refused}; use backend='eager'")
        if call.versions != _versions(call.inputs, graph.updated):
            raise DoubleBackwardError("create_graph=True through a compiled graph: its inputs were modified in place")
        if any(each is not None and number not in places for number, each in enumerate(given)):
            raise DoubleBackwardError("create_graph=True through a compiled graph: it gives a view of its inputs")
        used = {place: given[number] for number, place in places.items() if given[number] is not None}
        return _differentiate(graph, call, used, node().next_functions, gradients)  # type: ignore[union-attr]

    compiled.register_hook(again)


def _versions(inputs: tuple[Any, ...], updated: tuple[int, ...]) -> list[int]:
    """The version counters of tensors; those made in inference mode have none, nor have numbers."""
    try:
        found = [each._version for each in inputs]
    except (RuntimeError, AttributeError):
        found = [each._version if isinstance(each, torch.Tensor) and not each.is_inference() else 0 for each in inputs]
    for number in updated:
        found[number] = 0
    return found


def _differentiate(
    graph: Again, call: _Call, used: dict[int, Any], edges: tuple[Any, ...], gradients: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The gradients of the inputs for those of some outputs, with a history."""
    inputs = [*call.inputs]
    for number, kept in call.kept.items():
        inputs[number] = kept.clone()
    with contextlib.ExitStack() as outer:
        for device in _DEVICES:
            outer.enter_context(torch.autocast(device, enabled=False))
        wanted: dict[Any, torch.Tensor] = {}
        for number, each in enumerate(inputs):
            if (edge := edge_of(each)) in edges:
                if edge not in wanted:
                    wanted[edge] = each.view_as(each)  # hooks of the tensor itself are called behind this node
                inputs[number] = wanted[edge]
        found = _run_again(graph, call, inputs)
        results = {place: _made(found, place) for place in used}
        if any(each is None or each.shape != used[place].shape for place, each in results.items()):
            raise DoubleBackwardError("create_graph=True through a compiled graph: its outputs are other views")
        outputs = [place for place, each in results.items() if each.requires_grad]
        made = torch.autograd.grad(
            [results[place] for place in outputs],
            list(wanted.values()),
            [used[place] for place in outputs],
            create_graph=True,
            allow_unused=True,
        )
    by_edge = dict(zip(wanted, made, strict=True))
    if any(each is not None and edge not in by_edge for edge, each in zip(edges, gradients, strict=True)):
        raise DoubleBackwardError("create_graph=True through a compiled graph: an input's history changed")
    result = tuple(by_edge.get(edge) for edge in edges)
    if call.random is not None and not all(map(_alike, result, gradients)):
        raise DoubleBackwardError(
            "create_graph=True through a compiled graph: it draws other random numbers than eager; use backend='eager'"
        )
    return result


def _run_again(graph: Again, call: _Call, inputs: list[Any]) -> Any:
    """What the graph gives for what it was given, with the random numbers and casts that it had."""
    now = _random_states()
    if call.random is not None:
        _restore(call.random[0])
    try:
        with contextlib.ExitStack() as casts:
            for device, enabled, dtype in graph.autocast:
                if enabled:
                    casts.enter_context(torch.autocast(device, dtype))
            found = graph.make()(*inputs)
        expected = now if call.random is None else call.random[1]
        if not _same(expected, _random_states()):
            raise DoubleBackwardError(
                "create_graph=True through a compiled graph: it draws other random numbers than eager; "
                "use backend='eager'"
            )
        return found
    finally:
        if not _same(now, _random_states()):
            _restore(now)


def _alike(one: Any, other: Any) -> bool:
    """Whether two gradients may come from the same random numbers; rounding differs."""
    if one is None or other is None:
        return one is other
    scale = float(other.detach().abs().max()) if other.numel() else 0.0
    return torch.allclose(one.detach(), other.detach(), rtol=_ROUNDED, atol=_ROUNDED * scale, equal_nan=True)


_ROUNDED: Final = 0.05


def _random_states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return states


def _restore(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for number, state in enumerate(states[1:]):
        torch.cuda.set_rng_state(state, number)


def _same(states: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(states) == len(others) and all(map(torch.equal, states, others))
