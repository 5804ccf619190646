"""The one node of a compiled graph in a backward pass, made to do what the nodes do whose place it takes.

In eager, an input that no used result reaches keeps `grad is None`, which optimizers see: AOTAutograd gives zeros. So in
each backward pass the node takes the gradients away of inputs none of whose results has one. And eager raises where what it
has saved for the pass was updated: AOTAutograd looks at what it has saved itself. So version counters of the rest are
compared. Results are a graph's outputs and the inputs that it updates. They need not be the node's own: a view of an input
is made again behind it, and an updated input is copied to.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

import torch
import torch.fx

from . import _torch
from ._graph_facts import storage_of, updates
from ._histories import Edge, History, Saved, UnknownEdge, edge_of, entry_edges

Run = Callable[..., Any]


def partial_reach(module: torch.fx.GraphModule) -> dict[int, frozenset[int]]:
    """For each input that some outputs of a graph do not depend on, the outputs that do; empty where that cannot be told.

    This is for graphs that were not run on stand-ins, whose history tells more.
    """
    if updates(module):
        return {}
    of_nodes: dict[torch.fx.Node, frozenset[int]] = {}
    outputs: tuple[Any, ...] = ()
    count = 0
    for node in module.graph.nodes:
        if node.op == "output":
            found = node.args[0]
            outputs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        elif node.op == "placeholder":
            of_nodes[node] = frozenset((count,))
            count += 1
        else:
            of_nodes[node] = frozenset[int]().union(*(of_nodes[each] for each in node.all_input_nodes))
    of_outputs = [of_nodes[each] if isinstance(each, torch.fx.Node) else frozenset[int]() for each in outputs]
    reach = {place: frozenset(i for i, found in enumerate(of_outputs) if place in found) for place in range(count)}
    return {place: found for place, found in reach.items() if len(found) < len(outputs)} if len(outputs) > 1 else {}


_MODIFIED: Final = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor that the "
    "compiled graph was given or has given is at version {now}; expected version {then} instead"
)
_FAR: Final = 200
"""Nodes between a result and that of the compiled code, beyond which it is not looked for."""


def uncounted(run: Run, numbers: frozenset[int]) -> Run:
    """A compiled graph that does not count updates of some inputs, running statistics, as eager does not.

    Their counters are compared in the backward passes of earlier calls, where there are several before a pass.
    """
    if not numbers:
        return run

    def call(*inputs: Any) -> Any:
        if not torch.is_grad_enabled():
            return run(*inputs)
        kept = tuple([each for number in numbers if not (each := inputs[number]).is_inference()])
        with _torch.preserve_versions(kept):
            return run(*inputs)

    return call


def with_history(run: Run, history: History) -> Run:
    """A compiled graph whose backward pass gives no gradient, and raises, where eager's does so.

    Args:
        run: what a backend gave.
        history: that of eager.
    """
    node: _Node | None = None
    asked = False

    def guarded(*inputs: Any) -> Any:
        nonlocal node, asked
        if not torch.is_grad_enabled():
            return run(*inputs)
        if node is not None:
            found = run(*inputs)
            node.watch(inputs, found)
            return found
        if asked or _torch.hooks_saved():
            return run(*inputs)
        edges = entry_edges(inputs)
        if edges is None or not any(edges):
            return run(*inputs)
        found = run(*inputs)
        with contextlib.suppress(UnknownEdge):
            node = _Node.of(edges, inputs, found, history)
        asked = True
        if node is not None:
            node.watch(inputs, found)
        return found

    return guarded


class _Node:
    """The node of a compiled graph, told from a call: the same at all others, whose inputs and outputs are alike.

    Attributes:
        anchor: the number of a result that has it in its history.
        path: the way there, as numbers of edges.
        kind: its type.
        of_results: by the number of a gradient that it is given, the graph's results that need it.
        masks: by the number of a gradient that it gives, the numbers of those it is given of which one has to be there.
        inputs: by the number of a graph's input those of its gradients.
        saved: what is not compared by the node itself.
        given: the inputs among that; no history of theirs leads to the node.
        made: the outputs among that; updated inputs as their numbers inverted.
        numbers: the places of both, in this order.
    """

    __slots__ = ("anchor", "given", "inputs", "kind", "made", "masks", "numbers", "of_results", "path", "saved")

    def __init__(self, anchor: int, path: tuple[int, ...], kind: Any) -> None:
        self.anchor, self.path, self.kind = anchor, path, kind
        self.of_results: dict[int, set[int]] = {}
        self.masks: dict[int, frozenset[int]] = {}
        self.inputs: dict[int, list[int]] = {}
        self.saved: tuple[Saved, ...] = ()
        self.given: list[int] = []
        self.made: list[int] = []
        self.numbers: dict[int, int] = {}

    @classmethod
    def of(cls, edges: list[list[Edge]], inputs: Any, outputs: Any, history: History) -> _Node | None:
        """None where it cannot be found, or has nothing to do.

        Args:
            edges: `edges_of` the inputs before the call.
            inputs: the inputs after it.
            outputs: what it gave.
            history: that of eager.
        """
        of_inputs: dict[Edge, set[int]] = {}
        for number, found in enumerate(edges):
            for edge in found:
                of_inputs.setdefault(edge, set()).add(number)
        results = {number: edge_of(each) for number, each in enumerate([*outputs, *inputs])}
        ends = {number: edge for number, edge in results.items() if edge is not None and edge not in of_inputs}
        ways = {number: _ways(edge, of_inputs) for number, edge in ends.items()}
        anchor = min(
            (number for number, found in ways.items() if found), key=lambda n: len(ways[n][0][1]), default=None
        )
        if anchor is None:
            return None
        node, path, _ = ways[anchor][0]
        if any(each[0] is not node for found in ways.values() for each in found):
            return None
        _torch.let_keep_graph(node)
        made = cls(anchor, path, type(node))
        for number, of_result in ways.items():
            for _, _, place in of_result:
                made.of_results.setdefault(place, set()).add(number)
        for gradient, edge in enumerate(node.next_functions):
            numbers = of_inputs.get(edge) or _behind_a_copy(edge, of_inputs)
            for number in numbers:
                made.inputs.setdefault(number, []).append(gradient)
            if numbers and numbers <= history.reach.keys():
                reach = frozenset[int]().union(*(history.reach[number] for number in numbers))
                made.masks[gradient] = frozenset([at for at, of in made.of_results.items() if of & reach])
        made._compare(_not_compared(node, history.saved, inputs, outputs), ends.keys(), len(inputs), len(outputs))
        return made if made.masks or made.saved else None

    def _compare(self, saved: tuple[Saved, ...], ends: Collection[int], inputs: int, outputs: int) -> None:
        places = sorted({each.place for each in saved})
        self.given = [at for at in places if at < inputs and at + outputs not in ends]
        others = [at for at in places if at >= inputs or at + outputs in ends]
        self.made = [at - inputs if at >= inputs else ~at for at in others]
        self.numbers = {place: number for number, place in enumerate([*self.given, *others])}
        self.saved = saved

    def watch(self, inputs: Any, outputs: Any) -> None:
        """Take away, in each backward pass, what is not there; raise where what was saved was updated."""
        count = len(outputs)
        result: torch.Tensor = outputs[self.anchor] if self.anchor < count else inputs[self.anchor - count]
        node: Any = result.grad_fn
        for step in self.path:
            if node is None:
                return
            node = node.next_functions[step][0]
        if not isinstance(node, self.kind):
            return
        if self.masks:
            node.register_hook(self._mask)
        if self.saved:
            node.register_prehook(_Versions(self, weakref.ref(node), inputs, outputs))

    def _mask(self, gradients: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
        present = {place for place, each in enumerate(given) if each is not None}
        unknown = not present <= self.of_results.keys()
        masked = list(gradients)
        for number, reached in self.masks.items():
            if not unknown and present.isdisjoint(reached):
                masked[number] = None
        return tuple(masked)


def _ways(edge: Edge, stop: dict[Edge, set[int]]) -> list[tuple[Any, tuple[int, ...], int]]:
    """Where the histories of results lead to the node of compiled code: the node, the way there, and the gradient's number.

    A node that nothing is in front of but inputs is taken for it, whatever its type.
    """
    found: list[tuple[Any, tuple[int, ...], int]] = []
    seen = set[Edge]()
    after: list[tuple[Edge, tuple[int, ...]]] = [(edge, ())]
    while after and len(seen) < _FAR:
        (node, place), path = after.pop(0)
        if (node, place) in seen or (node, place) in stop:
            continue
        seen.add((node, place))
        if isinstance(node, torch.autograd.function.BackwardCFunction) and (_torch.is_compiled(node) or not path):
            found.append((node, path, place))
            continue
        after += [
            (following, (*path, number))
            for number, following in enumerate(node.next_functions)
            if following[0] is not None
        ]
    return found


def _behind_a_copy(edge: Edge, of_inputs: dict[Edge, set[int]]) -> set[int]:
    """The inputs that a gradient goes to by way of a copy, which the code was given instead."""
    node = edge[0]
    if type(node).__name__ != "CloneBackward0":
        return set()
    return of_inputs.get(node.next_functions[0], set())


def _not_compared(node: Any, saved: tuple[Saved, ...], inputs: Any, outputs: Any) -> tuple[Saved, ...]:
    """What eager has saved and the node has not, so that it does not compare its version counter."""
    try:
        memory = {storage_of(each) for each in getattr(node, "saved_tensors", ()) if each is not None}
    except RuntimeError:  # some was updated already, or is gone
        memory = set()
    values = [*inputs, *outputs]
    return tuple([each for each in saved if storage_of(values[each.place]) not in memory])


class _Versions:
    """Compares the version counters of one call's inputs and outputs in its backward passes."""

    __slots__ = ("compiled", "node", "tensors", "then")

    def __init__(self, node: _Node, compiled: Callable[[], Any], inputs: Any, outputs: Any) -> None:
        self.node, self.compiled = node, compiled
        tensors = [inputs[at] for at in node.given]
        tensors += [_counter(outputs[at] if at >= 0 else inputs[~at]) for at in node.made]
        self.tensors, self.then = tensors, [each._version for each in tensors]

    def __call__(self, given: tuple[Any, ...]) -> None:
        now = [each._version for each in self.tensors]
        if now != self.then:
            self._raise(given, now)

    def _raise(self, given: tuple[Any, ...], now: list[int]) -> None:
        of_results = self.node.of_results
        used = {number for place, each in enumerate(given) if each is not None for number in of_results.get(place, ())}
        for each in self.node.saved:
            number = self.node.numbers[each.place]
            modified = now[number] != self.then[number]
            if modified and each.ends & used and any(map(self._is_wanted, each.inputs)):
                raise RuntimeError(_MODIFIED.format(now=now[number], then=self.then[number]))

    def _is_wanted(self, number: int) -> bool:
        gradients = self.node.inputs.get(number)
        return gradients is None or any(_torch.is_wanted(self.compiled().next_functions[each][0]) for each in gradients)


def _counter(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without memory that shares the version counter of another, whose history may lead here."""
    made = tensor.detach()
    if type(made) is torch.Tensor:
        made.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made
