"""What eager's history of a graph shows, told from a run on fake tensors: which inputs each result reaches, and what is saved.

AOTAutograd puts one node in the place of this history. It gives zeros where eager has no gradient, and does not look at
version counters of what eager would have saved and it has not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ._graph_facts import storage_of, tensors_in

Edge = tuple[Any, int]

_MODIFIED: Final = "modified by an inplace operation"


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor whose version counter eager's backward pass compares.

    Attributes:
        place: the input's number, or that of an output behind the inputs.
        ends: the results whose backward pass it is.
        inputs: the inputs one of which has to be asked for.
    """

    place: int
    ends: frozenset[int]
    inputs: frozenset[int]


@dataclass(frozen=True, slots=True)
class History:
    """The history that eager gives the results of a graph. They are its outputs, then its inputs, as they are afterwards.

    Attributes:
        reach: for each input that only some of the results reach, those results.
        saved: what was saved for the backward pass and is an input or an output.
        raises: whether the backward pass raises, since what was saved for it was updated.
    """

    reach: dict[int, frozenset[int]] = field(default_factory=dict)
    saved: tuple[Saved, ...] = ()
    raises: bool = False


class UnknownEdge(RuntimeError):
    """Autograd does not tell where a tensor's gradient goes: it is a view that was made without gradients."""


def edge_of(tensor: Any) -> Edge | None:
    """Where a tensor's gradient goes; None where it has none.

    Raises:
        UnknownEdge: autograd does not tell.
    """
    if not isinstance(tensor, torch.Tensor) or not tensor.requires_grad:
        return None
    try:
        edge = torch.autograd.graph.get_gradient_edge(tensor)
    except (AssertionError, AttributeError, RuntimeError) as error:
        raise UnknownEdge(str(error)) from error
    return edge.node, edge.output_nr


def edges_of(inputs: Any) -> list[list[Edge]]:
    """For each input where its gradient goes, and that of what it is a view of, which an update of the view is noted in.

    Raises:
        UnknownEdge: autograd does not tell.
    """
    return [[edge for each in _and_base(one) if (edge := edge_of(each)) is not None] for one in inputs]


def entry_edges(inputs: Any) -> list[list[Edge]] | None:
    """`edges_of` inputs, None where these are not known."""
    try:
        return edges_of(inputs)
    except UnknownEdge:
        return None


def _and_base(value: Any) -> list[Any]:
    return [value, value._base] if isinstance(value, torch.Tensor) and value._base is not None else [value]


def history(before: list[list[Edge]], inputs: list[Any], outputs: Any) -> History:
    """What a run of a graph shows.

    Args:
        before: `edges_of` its inputs before the run.
        inputs: these inputs after it.
        outputs: what it gave.

    Returns:
        Nothing is known where autograd does not tell where a result's gradient goes.
    """
    try:
        return _history(before, inputs, outputs)
    except UnknownEdge:
        return History()


def _history(before: list[list[Edge]], inputs: list[Any], outputs: Any) -> History:
    results = [*(outputs if isinstance(outputs, (tuple, list)) else (outputs,))]
    first_input = len(results)
    ends: dict[int, Edge] = {}
    for number, each in enumerate([*results, *inputs]):
        edge = edge_of(each)
        if edge is not None and not (number >= first_input and edge in before[number - first_input]):
            ends[number] = edge
    numbers: dict[Edge, int] = {}
    for number, edges in enumerate(before):
        for edge in edges:
            numbers[edge] = numbers.get(edge, 0) | 1 << number
    order, below = _below([*ends.values()], numbers)
    of_ends = {number: numbers.get(edge, 0) or below.get(edge[0], 0) for number, edge in ends.items()}
    wanted = [number for number, edges in enumerate(before) if edges]
    reach = {each: frozenset([end for end, found in of_ends.items() if found >> each & 1]) for each in wanted}
    partial = {each: found for each, found in reach.items() if len(found) < len(ends)}
    saved, raises = _all_saved(order, below, _above(order, ends, numbers), inputs, results)
    return History(partial, saved, raises)


def _below(ends: list[Edge], numbers: dict[Edge, int]) -> tuple[list[Any], dict[Any, int]]:
    """All nodes, each behind those that its gradients go to, and the inputs that each reaches."""
    order: list[Any] = []
    below: dict[Any, int] = {}
    stack = [(edge[0], False) for edge in ends if edge not in numbers]
    while stack:
        node, done = stack.pop()
        if node in below and not done:
            continue
        following = [edge for edge in node.next_functions if edge[0] is not None]
        if done:
            order.append(node)
            for edge in following:
                below[node] |= numbers.get(edge, 0) or below[edge[0]]
            continue
        below[node] = 0
        stack.append((node, True))
        stack += [(edge[0], False) for edge in following if edge not in numbers]
    return order, below


def _above(order: list[Any], ends: dict[int, Edge], numbers: dict[Edge, int]) -> dict[Any, int]:
    """The results from which each node is reached."""
    above = dict.fromkeys(order, 0)
    for number, edge in ends.items():
        if edge not in numbers:
            above[edge[0]] |= 1 << number
    for node in reversed(order):
        for edge in node.next_functions:
            if edge[0] is not None and edge not in numbers:
                above[edge[0]] |= above[node]
    return above


def _all_saved(
    order: list[Any], below: dict[Any, int], above: dict[Any, int], inputs: list[Any], outputs: list[Any]
) -> tuple[tuple[Saved, ...], bool]:
    places: dict[int, int] = {}
    for place, each in enumerate([*inputs, *outputs]):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            places.setdefault(storage_of(each), place)
    found: dict[Saved, None] = {}
    for node in order:
        try:
            tensors = [*_saved_by(node)]
        except RuntimeError as error:
            if _MODIFIED in str(error):
                return (), True
            continue
        for each in tensors:
            at = places.get(storage_of(each)) if each.layout is torch.strided else None
            if at is not None:
                found[Saved(at, _members(above[node]), _members(below[node]))] = None
    return (*found,), False


def _saved_by(node: Any) -> Iterator[torch.Tensor]:
    kind: Any = type(node)
    for name in _names(kind):
        value = getattr(node, name, None)
        yield from tensors_in(value)


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple([name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors"])


def _members(bits: int) -> frozenset[int]:
    return frozenset([number for number in range(bits.bit_length()) if bits >> number & 1])


__all__ = ["Edge", "History", "Saved", "UnknownEdge", "edge_of", "edges_of", "entry_edges", "history"]
