"""Partitions of operator graphs: no cycles, as few parts as there can be, order kept, and checks skipped."""

from __future__ import annotations

import operator
import random

import pytest
import torch.fx
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from magpy_runtime.partition import Partition, partition


def dag(count: int, kinds: int, rare: float, window: int, source: random.Random) -> torch.fx.Graph:
    """A random graph; the kind of a node is in its `meta`."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(count):
        node = graph.call_function(operator.add, tuple(source.choices(nodes[-window:], k=2)))
        node.meta["kind"] = source.randrange(1, kinds) if source.random() < rare else 0
        nodes.append(node)
    graph.output(tuple(node for node in nodes if not node.users))
    return graph


def kind_of(node: torch.fx.Node) -> int | None:
    return node.meta.get("kind")


def check(graph: torch.fx.Graph, found: Partition) -> None:
    """Every operator is in one part of its kind, and runs after what it needs."""
    place = {}
    for number, part in enumerate(found.parts):
        assert part.nodes
        for node in part.nodes:
            assert node not in place and kind_of(node) == part.kind
            place[node] = number
    assert set(place) == {node for node in graph.nodes if kind_of(node) is not None}
    order = {node: number for number, node in enumerate(graph.nodes)}
    for node, number in place.items():
        for needed in node.all_input_nodes:
            assert needed not in place or place[needed] <= number, "a cycle, or a wrong order"
    for part in found.parts:
        assert [order[node] for node in part.nodes] == sorted(order[node] for node in part.nodes)


def least(graph: torch.fx.Graph, kind: int) -> int:
    """The largest number of parts of a kind on one path: there can be no fewer."""
    level: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        best = 0
        for needed in node.all_input_nodes:
            here = level[needed]
            if kind_of(node) == kind and not (kind_of(needed) == kind):
                here += 1
            best = max(best, here)
        level[node] = max(best, int(kind_of(node) == kind and not node.all_input_nodes))
    return max(level.values())


graphs = st.builds(
    dag,
    st.integers(0, 120),
    st.integers(2, 4),
    st.floats(0.0, 1.0),
    st.integers(1, 40),
    st.integers(0, 2**32).map(random.Random),
)


@seed(20240601)
@settings(max_examples=150, deadline=None, database=None)
@given(graphs)
def test_never_a_cycle(graph: torch.fx.Graph) -> None:
    check(graph, partition(graph, kind_of))
    check(graph, partition(graph, kind_of, merge=False))
    assert len(partition(graph, kind_of).parts) <= len(partition(graph, kind_of, merge=False).parts)


@seed(20240601)
@settings(max_examples=100, deadline=None, database=None)
@given(
    st.builds(
        dag, st.integers(1, 150), st.just(2), st.floats(0, 0.5), st.integers(1, 40), st.randoms(use_true_random=False)
    )
)
def test_two_kinds_give_the_fewest_parts(graph: torch.fx.Graph) -> None:
    found = partition(graph, kind_of, fewest=0)
    assert found.count(0) == least(graph, 0)
    assert found.checks.searched == 0


@seed(20240601)
@settings(max_examples=40, deadline=None, database=None)
@given(
    st.builds(
        dag, st.integers(1, 80), st.just(2), st.floats(0, 0.4), st.integers(2, 30), st.randoms(use_true_random=False)
    )
)
def test_no_more_parts_than_torch_makes(graph: torch.fx.Graph) -> None:
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    support = create_op_support(lambda modules, node: kind_of(node) == 0)
    module = torch.fx.GraphModule({}, graph)
    # The graph module has a copy of the graph, with copies of each node's `meta`.
    theirs = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
    assert partition(module.graph, kind_of).count(0) <= len(theirs)


def test_around_an_unsupported_operator() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.neg, (x,))
    b = graph.call_function(operator.pos, (a,))
    c = graph.call_function(operator.add, (a, b))
    graph.output((c,))
    for node, kind in ((a, 0), (b, 1), (c, 0)):
        node.meta["kind"] = kind
    assert [part.nodes for part in partition(graph, kind_of).parts] == [(a,), (b,), (c,)]


def test_what_keeps_its_order() -> None:
    """An operator that draws random numbers waits for the one before it, although it needs nothing of it."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(operator.neg, (x,))
    drawn = graph.call_function(operator.pos, (a,))
    again = graph.call_function(operator.pos, (x,))
    b = graph.call_function(operator.add, (drawn, again))
    graph.output((b,))
    for node, kind in ((a, 0), (drawn, 1), (again, 1), (b, 0)):
        node.meta["kind"] = kind
    free = partition(graph, kind_of)
    kept = partition(graph, kind_of, in_order=lambda node: node in (drawn, again))
    assert again in free.parts[0].nodes or again in free.parts[1].nodes
    sequence = [node for part in kept.parts for node in part.nodes]
    assert sequence.index(drawn) < sequence.index(again)
    check(graph, kept)


def test_a_search_visits_each_part_once() -> None:
    source = random.Random(7)
    for _ in range(20):
        graph = dag(400, 4, 0.4, 60, source)
        before = len(partition(graph, kind_of, merge=False).parts)
        checks = partition(graph, kind_of).checks
        assert checks.searched >= checks.cycles
        assert checks.visited <= 65 * before


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_nothing_to_part(kinds: int) -> None:
    graph = torch.fx.Graph()
    graph.output(())
    assert partition(graph, kind_of).parts == ()
