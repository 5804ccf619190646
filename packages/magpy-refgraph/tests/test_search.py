"""The two searches, on a program like the paper's figure 9, observed by hand, and on small graphs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from magpy_refgraph import (
    ABSENT,
    Atom,
    EdgeKind,
    Effect,
    Key,
    Location,
    Node,
    RefGraph,
    guard_facts,
    mock_nodes,
    same_value,
    to_text,
    verify,
)


class Tensor:
    """What the program below needs of a tensor."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def mul(self, factor: float) -> Tensor:
        return Tensor(*(value * factor for value in self.values))

    def mul_(self, factor: float) -> None:
        self.values[:] = self.mul(factor).values


for named in (Tensor, Tensor.mul_):
    named.__module__ = "program"  # in golden cases, wherever the tests lie


def program(state: dict, x: list, y: Tensor, *, scale: float) -> Tensor:
    a = x[0].mul(scale)
    x[0].mul_(scale)
    if y is x[0]:
        x.append(a)
    state["z"] = a
    state["z"] = [a, x]
    return a


@dataclass
class Observed:
    graph: RefGraph
    nodes: dict[str, Node]
    times: dict[str, int]
    result: Tensor


def observe() -> Observed:
    """What a monitor sees of `program` when it runs with `y` the first item of `x`."""
    tensor = Tensor(1.0, 2.0)
    state, x, y, scale = {"z": None}, [tensor, tensor], tensor, 2.0
    graph = RefGraph()
    root = graph.root
    times = {"entry": 0}

    def at(line: int) -> Location:
        return Location("/home/user/program.py", line, "program")

    def reach(parent: Node, key: Key, obj: object, line: int, *, weak: bool = False) -> Node:
        node = graph.find(obj) or graph.add(obj, parent, key, weak=weak)
        graph.read(parent, key, node, at(line))
        return node

    nodes = {"state": reach(root, Key(EdgeKind.ARGUMENT, 0), state, 1)}
    nodes["x"] = reach(root, Key(EdgeKind.ARGUMENT, 1), x, 1)
    graph.read(root, Key(EdgeKind.KEYWORD, "scale"), Atom(scale), at(2))
    # a = x[0].mul(scale)
    graph.read(nodes["x"], Key(EdgeKind.TYPE), Atom(list), at(2))
    nodes["t"] = reach(nodes["x"], Key(EdgeKind.ITEM, 0), tensor, 2, weak=True)
    graph.read(nodes["t"], Key(EdgeKind.TYPE), Atom(Tensor), at(2))
    graph.read(nodes["t"], Key(EdgeKind.TENSOR), Atom(("float32", (2,))), at(2))
    a = tensor.mul(scale)
    nodes["a"] = graph.add(a, weak=True)
    # x[0].mul_(scale)
    tensor.mul_(scale)
    graph.write(Effect(graph.tick(), nodes["t"], Tensor.mul_, (scale,), location=at(3)), {})
    times["scaled"] = graph.time
    # if y is x[0]: x.append(a)
    assert reach(root, Key(EdgeKind.ARGUMENT, 2), y, 4) is nodes["t"]
    graph.read(nodes["x"], Key(EdgeKind.LENGTH), Atom(2), at(5))
    x.append(a)
    appended = Effect(graph.tick(), nodes["x"], list.append, (a,), location=at(5), key=Key(EdgeKind.ITEM, 2))
    graph.write(appended, {Key(EdgeKind.ITEM, 2): nodes["a"], Key(EdgeKind.LENGTH): Atom(3)})
    times["appended"] = graph.time
    # state["z"] = a; state["z"] = [a, x]
    z = Key(EdgeKind.ITEM, "z")
    state["z"] = a
    stored = Effect(graph.tick(), nodes["state"], dict.__setitem__, ("z", a), location=at(6), key=z)
    graph.write(stored, {z: nodes["a"]})
    times["stored"] = graph.time
    pair = [a, x]
    nodes["pair"] = graph.add(pair)
    for index, obj in enumerate(pair):
        nodes["pair"].initial[Key(EdgeKind.ITEM, index)] = graph.find(obj)
    state["z"] = pair
    stored = Effect(graph.tick(), nodes["state"], dict.__setitem__, ("z", pair), location=at(7), key=z)
    graph.write(stored, {z: nodes["pair"]})
    return Observed(graph, nodes, times, a)


def follow(obj: object, key: Key, entry: dict[Key, object]) -> object:
    match key.kind:
        case EdgeKind.ARGUMENT | EdgeKind.KEYWORD:
            return entry[key]
        case EdgeKind.TYPE:
            return type(obj)
        case EdgeKind.LENGTH:
            return len(obj)
        case EdgeKind.ITEM:
            return obj[key.arg]
        case EdgeKind.TENSOR:
            return ("float32", (len(obj.values),))
    raise AssertionError(key)


def entry_of(*args: object, **keywords: object) -> dict[Key, object]:
    entry = {Key(EdgeKind.ARGUMENT, position): arg for position, arg in enumerate(args)}
    return entry | {Key(EdgeKind.KEYWORD, name): arg for name, arg in keywords.items()}


def guard(graph: RefGraph, entry: dict[Key, object]) -> dict[int, object] | None:
    """Evaluate the facts on another state: the objects that the nodes stand for there, None when a fact does not hold."""
    objects: dict[int, object] = {0: None}
    for fact in guard_facts(graph):
        value = follow(objects[fact.node.index], fact.key, entry)
        if isinstance(fact.target, Node):
            if fact.first:
                objects[fact.target.index] = value
            elif objects[fact.target.index] is not value:
                return None
        elif not same_value(value, fact.target.value):
            return None
    return objects


def mock(seen: Observed, objects: dict[int, object]) -> object:
    """Make what was made and replay the effects in order; a tensor made is computed before the effects."""
    graph = seen.graph
    nodes = mock_nodes(graph, [seen.result])
    for node in nodes:
        if not node.external and node.type is Tensor:
            objects[node.index] = objects[seen.nodes["t"].index].mul(2.0)
    for node in nodes:
        if not node.external and node.type is list:
            objects[node.index] = [objects[target.index] for target in node.initial.values()]
    for effect in graph.effects:
        args = [objects[found.index] if (found := graph.find(arg)) else arg for arg in effect.args]
        effect.function(objects[effect.node.index], *args, **effect.keywords)
    return objects[graph.find(seen.result).index]


class TestPaperExample:
    def test_the_graph_is_sound_and_golden(self, case):
        seen = observe()
        assert verify(seen.graph) == []
        case("paper").check(seen.graph)

    def test_two_runs_give_one_text(self):
        assert to_text(observe().graph) == to_text(observe().graph)

    def test_the_guard_reaches_what_was_read_from_outside(self):
        seen = observe()
        reached = [fact.target for fact in guard_facts(seen.graph) if fact.first]
        assert reached == [seen.nodes["state"], seen.nodes["x"], seen.nodes["t"]]

    def test_each_fact_once_and_types_first(self):
        facts = [(fact.node.index, fact.key) for fact in guard_facts(observe().graph)]
        assert len(facts) == len(set(facts))
        by_node: dict[int, list[EdgeKind]] = {}
        for index, key in facts:
            by_node.setdefault(index, []).append(key.kind)
        for kinds in by_node.values():
            assert EdgeKind.TYPE not in kinds[1:]

    def test_facts_say_where_they_were_read(self):
        lines = {fact.key.kind: fact.location.line for fact in guard_facts(observe().graph)}
        assert lines[EdgeKind.TENSOR] == 2 and lines[EdgeKind.LENGTH] == 5

    def test_the_mock_makes_new_objects_and_updates_old_ones(self):
        seen = observe()
        nodes = mock_nodes(seen.graph, [seen.result])
        assert {node.index for node in nodes} == {seen.nodes[name].index for name in ("state", "x", "t", "a", "pair")}
        assert [node.index for node in nodes] == sorted(node.index for node in nodes)

    @pytest.mark.parametrize(
        ("time", "names"),
        [
            ("entry", []),
            ("scaled", ["t"]),
            ("appended", ["x", "t", "a"]),
            ("stored", ["state", "x", "t", "a"]),
        ],
    )
    def test_slices(self, time, names):
        seen = observe()
        nodes = mock_nodes(seen.graph, [], seen.times[time])
        assert nodes == [seen.nodes[name] for name in names]

    def test_the_record_does_what_the_program_does(self):
        seen = observe()
        for values in ((1.0, 2.0), (-3.5, 0.25)):
            ours, native = Tensor(*values), Tensor(*values)
            state, x = {"z": None}, [ours, ours]
            objects = guard(seen.graph, entry_of(state, x, ours, scale=2.0))
            result = mock(seen, objects)
            native_state, native_x = {"z": None}, [native, native]
            expected = program(native_state, native_x, native, scale=2.0)
            assert result.values == expected.values
            assert ours.values == native.values
            assert [t.values for t in x] == [t.values for t in native_x]
            assert x[2] is result is state["z"][0]
            assert state["z"][1] is x

    @pytest.mark.parametrize(
        "change",
        [
            lambda state, x, y: (state, [Tensor(1.0, 2.0), y], y, 2.0),  # y is no longer x[0]
            lambda state, x, y: (state, x, y, 3.0),
            lambda state, x, y: (state, x, y, 2),
            lambda state, x, y: (state, (y, y), y, 2.0),
            lambda state, x, y: (state, [y, y, y], y, 2.0),
            lambda state, x, y: (state, [z := Tensor(1.0), z], z, 2.0),  # another shape
        ],
    )
    def test_the_guard_sees(self, change):
        graph = observe().graph
        tensor = Tensor(1.0, 2.0)
        *args, scale = {"z": None}, [tensor, tensor], tensor, 2.0
        assert guard(graph, entry_of(*args, scale=scale)) is not None
        *args, scale = change(*args)
        assert guard(graph, entry_of(*args, scale=scale)) is None

    def test_what_was_not_read_may_differ(self):
        tensor = Tensor(7.0, 7.0)
        assert guard(observe().graph, entry_of({"z": "other", "w": 1}, [tensor, None], tensor, scale=2.0)) is not None


def argument(graph: RefGraph, position: int, obj: object) -> Node:
    key = Key(EdgeKind.ARGUMENT, position)
    node = graph.find(obj) or graph.add(obj, graph.root, key)
    graph.read(graph.root, key, node)
    return node


def item(arg: object) -> Key:
    return Key(EdgeKind.ITEM, arg)


class TestAliases:
    def test_one_object_given_twice(self):
        graph = RefGraph()
        shared: list[object] = []
        node = argument(graph, 0, shared)
        assert argument(graph, 1, shared) is node
        assert [(fact.target, fact.first) for fact in guard_facts(graph)] == [(node, True), (node, False)]

    def test_an_object_that_holds_itself(self):
        graph = RefGraph()
        own: list[object] = []
        node = argument(graph, 0, own)
        graph.read(node, item(0), node)
        assert [fact.first for fact in guard_facts(graph)] == [True, False]

    def test_the_way_of_discovery_may_be_longer_than_the_search(self):
        graph = RefGraph()
        inner: list[object] = []
        outer = argument(graph, 0, [inner])
        found = graph.add(inner, outer, item(0))
        graph.read(outer, item(0), found)
        argument(graph, 1, inner)
        facts = list(guard_facts(graph))
        assert [(fact.node.index, fact.first) for fact in facts] == [(0, True), (0, True), (1, False)]
        assert facts[2].target is found

    def test_an_alias_written_during_the_run_is_no_fact(self):
        graph = RefGraph()
        one, other = argument(graph, 0, []), argument(graph, 1, {})
        effect = Effect(graph.tick(), one, list.append, (other.obj(),), key=item(0))
        graph.write(effect, {item(0): other})
        assert len(list(guard_facts(graph))) == 2
        assert mock_nodes(graph, []) == [one]

    def test_identity_that_was_compared_is_a_fact(self):
        graph = RefGraph()
        one, other = argument(graph, 0, []), argument(graph, 1, [])
        graph.read(one, Key(EdgeKind.SAME, other.index), Atom(False))
        assert [fact.target for fact in guard_facts(graph)][-1] == Atom(False)


class TestMock:
    def test_an_untouched_run_needs_nothing(self):
        graph = RefGraph()
        node = argument(graph, 0, [])
        graph.read(node, item(0), ABSENT)
        assert mock_nodes(graph, []) == []

    def test_a_returned_argument_is_not_made(self):
        graph = RefGraph()
        node = argument(graph, 0, [])
        assert mock_nodes(graph, [node.obj()]) == []

    def test_garbage_is_not_made(self):
        graph = RefGraph()
        graph.add([])
        kept = graph.add({})
        assert mock_nodes(graph, [kept.obj()]) == [kept]

    def test_what_new_objects_hold_is_made_and_cycles_end(self):
        graph = RefGraph()
        outer, inner = graph.add([]), graph.add([])
        graph.read(outer, item(0), inner)
        graph.read(inner, item(0), outer)
        assert mock_nodes(graph, [outer.obj()]) == [outer, inner]

    def test_a_new_object_that_was_overwritten_is_not_reached(self):
        graph = RefGraph()
        node = argument(graph, 0, {})
        first, second = graph.add([]), graph.add([])
        for new in (first, second):
            effect = Effect(graph.tick(), node, dict.__setitem__, ("k", new.obj()), key=item("k"))
            graph.write(effect, {item("k"): new})
        assert mock_nodes(graph, []) == [node, second]

    def test_what_an_old_unchanged_object_holds_is_not_searched(self):
        graph = RefGraph()
        node = argument(graph, 0, [[]])
        graph.read(node, item(0), graph.add(node.obj()[0], node, item(0)))
        assert mock_nodes(graph, [node.obj()]) == []
