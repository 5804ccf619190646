"""The verifier: each rule broken once (more in `cases/broken_*.txt`), and random runs that break none."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magpy_refgraph import (
    ABSENT,
    Atom,
    EdgeKind,
    Effect,
    Key,
    Node,
    RefGraph,
    guard_facts,
    mock_nodes,
    parse_text,
    same_target,
    to_dot,
    to_text,
    verify,
)
from magpy_refgraph._verify import _SHAPES


class Thing:
    """An object that can be held weakly."""


def item(arg: object) -> Key:
    return Key(EdgeKind.ITEM, arg)


def argument(graph: RefGraph, obj: object, position: int = 0) -> Node:
    key = Key(EdgeKind.ARGUMENT, position)
    node = graph.add(obj, graph.root, key)
    graph.read(graph.root, key, node)
    return node


@pytest.fixture
def graph() -> RefGraph:
    graph = RefGraph()
    node = argument(graph, [1])
    graph.read(node, item(0), Atom(1))
    return graph


def test_an_empty_graph_is_sound():
    assert verify(RefGraph()) == []


def test_the_table_of_arguments_is_closed():
    assert set(_SHAPES) == set(EdgeKind)


class TestRules:
    def test_index(self, graph):
        graph.nodes[1].index = 5
        assert verify(graph) == ["#5 list stands at position 1"]

    def test_root(self, graph):
        graph.nodes.reverse()
        assert "the external state is not the first node" in verify(graph)
        graph.nodes.reverse()
        graph.root.parent = graph.nodes[1]
        assert verify(graph)[:2] == [
            "the external state has a parent",
            "#0 external has a parent without a key, or a key without a parent",
        ]

    def test_no_nodes(self, graph):
        graph.nodes.clear()
        assert "the external state is not the first node" in verify(graph)

    def test_no_versions(self, graph):
        graph.nodes[1].versions.clear()
        assert verify(graph) == ["#1 list has no version 0"]

    def test_a_parent_that_was_dropped(self, graph):
        del graph.root.initial[Key(EdgeKind.ARGUMENT, 0)]
        graph.root.reads.clear()
        assert verify(graph) == ["#1 list is not what its parent #0 external refers to by argument 0"]

    def test_a_parent_of_a_later_version(self, graph):
        node = graph.nodes[1]
        effect = Effect(graph.tick(), node, list.append, ())
        version = graph.write(effect, {})
        child = graph.add([], node, item(1))
        version.refs[item(1)] = child
        child.born = version.born  # as if it had been known
        child.versions[0].born = version.born
        assert verify(graph) == []

    def test_a_target_that_gets_its_node_right_after_the_effect(self, graph):
        key = item(1)
        effect = Effect(graph.tick(), graph.nodes[1], list.append, ([],), key=key)
        graph.write(effect, {key: graph.add(effect.args[0])})
        assert verify(graph) == []
        graph.write(Effect(graph.tick(), graph.nodes[1], list.append, ([],)), {key: graph.nodes[2]})
        assert verify(graph) == []
        late = graph.add([])
        graph.nodes[1].versions[1].refs[key] = late
        assert verify(graph) == [f"#1 list v1 item 1 refers to #3 list, born later, at {late.born}"]

    def test_after_the_end(self, graph):
        graph.write(Effect(99, graph.nodes[1], list.clear, ()), {})
        assert verify(graph) == [
            f"#1 list v1 was born at 99, after the graph's time {graph.time}",
            f"effect 0 (list.clear of #1 list) happened at 99, after the graph's time {graph.time}",
        ]

    def test_a_read_that_left_no_fact(self, graph):
        graph.nodes[1].reads[item("gone")] = None
        assert verify(graph) == ["#1 list was read by item 'gone', which version 0 does not have"]

    @pytest.mark.parametrize("target", [None, 3, [], EdgeKind.ITEM])
    def test_a_target_that_is_none(self, graph, target):
        graph.nodes[1].initial[item(1)] = target
        (error,) = verify(graph)
        assert error.startswith("#1 list v0 item 1 refers to a ") and error.endswith("which is no target")

    @pytest.mark.parametrize("key", ["item", ("item", 0), 3])
    def test_a_key_that_is_none(self, graph, key):
        graph.nodes[1].initial[key] = ABSENT
        assert verify(graph) == [f"#1 list v0 {type(key).__name__} is not a key"]

    def test_a_function_that_cannot_be_called(self, graph):
        graph.write(Effect(graph.tick(), graph.nodes[1], 3, ()), {})
        assert verify(graph) == ["effect 0 (int of #1 list) cannot be called"]

    def test_an_effect_on_another_node_s_version(self, graph):
        attributes = argument(graph, {}, 1)
        effect = Effect(graph.tick(), graph.nodes[1], setattr, ("a", 1), key=item("a"))
        graph.write(effect, {item("a"): Atom(1)}, attributes)
        assert verify(graph) == []
        graph.nodes.pop()
        assert "effect 0 (setattr of #1 list) has no version" in verify(graph)

    def test_two_effects_at_one_time(self, graph):
        time = graph.tick()
        for _ in range(2):
            graph.write(Effect(time, graph.nodes[1], list.clear, ()), {})
        assert verify(graph) == [
            f"#1 list v2 was born at {time}, not after {time}",
            f"effect 1 (list.clear of #1 list) happened at {time}, not after {time}",
        ]

    def test_two_nodes_for_one_object(self, graph):
        graph.add(graph.nodes[1].obj())
        assert verify(graph) == ["#1 list and #2 list stand for one object"]

    def test_an_object_that_cannot_be_found(self, graph):
        graph._by_id.clear()
        assert verify(graph) == ["#1 list is alive, and its object does not lead to it"]

    def test_a_dead_id(self, graph):
        thing = Thing()
        node = graph.add(thing, weak=True)
        identity = id(thing)
        del thing
        assert verify(graph) == []
        graph._by_id[identity] = node
        (error,) = verify(graph)
        assert error.endswith("Thing is dead, and its id was not retired")

    def test_an_id_of_another_object(self, graph):
        graph._by_id[id(graph)] = graph.nodes[1]
        assert verify(graph) == ["#1 list is found by the id of another object"]

    def test_an_id_of_a_dropped_node(self, graph):
        new = graph.add([])
        graph.nodes.pop()
        assert verify(graph) == [f"an id leads to #{new.index} list, which is not in this graph"]

    def test_all_errors_are_gathered_and_nothing_changes(self, graph):
        graph.nodes[1].index = 5
        graph.nodes[1].reads[item("gone")] = None
        graph._by_id.clear()
        assert len(verify(graph)) == 3
        assert verify(graph) == verify(graph)

    def test_a_released_graph_is_sound(self, graph):
        graph.write(Effect(graph.tick(), graph.nodes[1], list.clear, ()), {})
        graph.nodes[1].versions.pop()
        graph.release()
        assert verify(graph) == []


class Run:
    """A small monitor: it does random operations on real lists and dicts, and builds their graph."""

    def __init__(self) -> None:
        inner: list[object] = [1, 2.5]
        shared = {"inner": inner, "number": 7}
        self.entry = [[shared, inner, "text", None], shared, inner]
        self.copies = {id(obj): obj.copy() for obj in self.entry}
        self.graph = RefGraph()
        self.fresh: list[object] = []
        self.seen: list[tuple[int, Node, Key, object]] = []
        for position, obj in enumerate(self.entry):
            self.note(self.graph.root, Key(EdgeKind.ARGUMENT, position), obj)

    def target(self, value: object, parent: Node | None = None, key: Key | None = None) -> object:
        if value is ABSENT:
            return ABSENT
        if not isinstance(value, list | dict | Thing):
            return Atom(value)
        return self.graph.find(value) or self.graph.add(value, parent, key, weak=isinstance(value, Thing))

    def note(self, node: Node, key: Key, value: object) -> None:
        target = self.target(value, node, key)
        self.graph.read(node, key, target)
        self.seen.append((self.graph.time, node, key, target))

    def containers(self, kind: type) -> list:
        return [obj for obj in [*self.entry, *self.fresh] if type(obj) is kind]

    def any_of(self, number: int) -> object:
        values = [*self.entry, *self.fresh, 3, "s", None, -0.0]
        return values[number % len(values)]

    def read(self, first: int, second: int, third: int) -> None:
        lists = self.containers(list)
        node = self.graph.find(obj := lists[first % len(lists)])
        self.note(node, Key(EdgeKind.LENGTH), len(obj))
        if obj:
            index = second % len(obj)
            self.note(node, item(index), obj[index])

    def look_up(self, first: int, second: int, third: int) -> None:
        dicts = self.containers(dict)
        obj = dicts[first % len(dicts)]
        key = ("inner", "number", "new", 1)[second % 4]
        self.note(self.graph.find(obj), item(key), obj.get(key, ABSENT))

    def append(self, first: int, second: int, third: int) -> None:
        lists = self.containers(list)
        obj, value = lists[first % len(lists)], self.any_of(second)
        node, key = self.graph.find(obj), item(len(obj))
        self.note(node, Key(EdgeKind.LENGTH), len(obj))
        obj.append(value)
        target = self.target(value)
        effect = Effect(self.graph.tick(), node, list.append, (value,), key=key)
        self.graph.write(effect, {key: target, Key(EdgeKind.LENGTH): Atom(len(obj))})

    def store(self, first: int, second: int, third: int) -> None:
        dicts = self.containers(dict)
        obj, value = dicts[first % len(dicts)], self.any_of(second)
        name = ("inner", "new", 1)[third % 3]
        obj[name] = value
        target = self.target(value)
        effect = Effect(self.graph.tick(), self.graph.find(obj), dict.__setitem__, (name, value), key=item(name))
        self.graph.write(effect, {item(name): target})

    def delete(self, first: int, second: int, third: int) -> None:
        dicts = self.containers(dict)
        obj = dicts[first % len(dicts)]
        if "new" in obj:
            del obj["new"]
            effect = Effect(self.graph.tick(), self.graph.find(obj), dict.__delitem__, ("new",), key=item("new"))
            self.graph.write(effect, {item("new"): ABSENT})

    def make(self, first: int, second: int, third: int) -> None:
        obj = (list, dict, Thing)[first % 3]()
        self.fresh.append(obj)
        self.target(obj)

    def drop(self, first: int, second: int, third: int) -> None:
        things = [obj for obj in self.fresh if isinstance(obj, Thing)]
        if things:
            dropped = things[first % len(things)]
            self.fresh[:] = [obj for obj in self.fresh if obj is not dropped]

    def compare(self, first: int, second: int, third: int) -> None:
        objects = [obj for obj in [*self.entry, *self.fresh] if self.graph.find(obj)]
        one, other = objects[first % len(objects)], objects[second % len(objects)]
        self.note(self.graph.find(one), Key(EdgeKind.SAME, self.graph.find(other).index), one is other)

    def fact_holds(self, node: Node, key: Key, target: object) -> bool:
        """Whether a fact is true of the copies that were taken on entry."""
        if key.kind in (EdgeKind.ARGUMENT, EdgeKind.SAME):
            return True
        copy = self.copies[id(node.obj())]
        if key.kind is EdgeKind.LENGTH:
            return target == Atom(len(copy))
        value = copy[key.arg] if isinstance(copy, list) else copy.get(key.arg, ABSENT)
        return same_target(self.target(value), target)


OPERATIONS = ["read", "look_up", "append", "store", "delete", "make", "drop", "compare"]
steps = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)), max_size=25
)


@settings(
    derandomize=True, database=None, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
@given(steps)
def test_random_runs_are_sound(operations):
    run = Run()
    for name, *numbers in operations:
        getattr(run, name)(*numbers)
        assert verify(run.graph) == [], name
    graph = run.graph

    text = to_text(graph)
    assert "0x" not in text
    assert to_text(graph) == text
    parsed = parse_text(text)
    assert to_text(parsed) == text
    assert verify(parsed) == []
    assert to_dot(parsed).count("->") <= to_dot(graph).count("->") + text.count("->")

    for time, node, key, target in run.seen:
        assert same_target(node.at(key, time), target)
    for fact in guard_facts(graph):
        assert run.fact_holds(fact.node, fact.key, fact.target), fact
    for time in range(0, graph.time + 1, 5):
        made = mock_nodes(graph, [], time)
        assert all(node.born <= time for node in made)
        assert {effect.node.index for effect in graph.effects if effect.time <= time} <= {node.index for node in made}
