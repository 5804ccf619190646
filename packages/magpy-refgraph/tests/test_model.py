"""Nodes, versions, reads, writes, and the ids of objects that die."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from magpy_refgraph import (
    ABSENT,
    Atom,
    Disagreement,
    EdgeKind,
    Effect,
    Key,
    Location,
    RefGraph,
    guard_facts,
    same_target,
    same_value,
    verify,
)

HERE = Location("program.py", 3, "model")


class Thing:
    """An object that can be held weakly."""


def item(arg) -> Key:
    return Key(EdgeKind.ITEM, arg)


def argument(graph: RefGraph, obj, position: int = 0, **keywords):
    key = Key(EdgeKind.ARGUMENT, position)
    node = graph.add(obj, graph.root, key, **keywords)
    graph.read(graph.root, key, node, HERE)
    return node


class TestNodes:
    def test_the_root_is_the_external_state(self):
        graph = RefGraph()
        assert graph.nodes == [graph.root]
        assert graph.root.index == 0 and graph.root.born == 0
        assert graph.root.external and not graph.root.mutated

    def test_a_node_is_found_by_identity_not_by_equality(self):
        graph = RefGraph()
        one, other = [1], [1]
        node = argument(graph, one)
        assert graph.find(one) is node
        assert graph.find(other) is None

    def test_objects_made_during_the_run_have_no_parent(self):
        graph = RefGraph()
        old, new = argument(graph, []), graph.add([])
        assert old.external and not new.external
        assert list(graph.external()) == [graph.root, old]

    def test_the_type_is_that_of_the_first_access(self):
        class Other:
            pass

        graph = RefGraph()
        thing = Thing()
        node = argument(graph, thing)
        thing.__class__ = Other
        assert node.type is Thing

    def test_time_grows_with_every_node_and_tick(self):
        graph = RefGraph()
        first = graph.add([])
        tick = graph.tick()
        second = graph.add([])
        assert 0 < first.born < tick < second.born == graph.time

    def test_an_object_that_cannot_be_held_weakly_leaves_no_node(self):
        graph = RefGraph()
        with pytest.raises(TypeError):
            graph.add([], weak=True)
        assert graph.nodes == [graph.root]
        assert verify(graph) == []

    def test_repr_names_the_node_without_its_object(self):
        graph = RefGraph()
        assert repr(argument(graph, {"secret": 1})) == "<#1 dict>"


class TestReads:
    def test_the_first_read_is_a_fact_with_its_location(self):
        graph = RefGraph()
        node = argument(graph, [5])
        assert graph.read(node, item(0), Atom(5), HERE) == Atom(5)
        assert node.initial == {item(0): Atom(5)}
        assert node.reads == {item(0): HERE}

    def test_a_second_read_keeps_the_first_location(self):
        graph = RefGraph()
        node = argument(graph, [5])
        graph.read(node, item(0), Atom(5), HERE)
        graph.read(node, item(0), Atom(5), Location("program.py", 9, "model"))
        assert node.reads[item(0)] == HERE

    @pytest.mark.parametrize(
        ("known", "seen"),
        [
            (Atom(5), Atom(6)),
            (Atom(1), Atom(True)),
            (Atom(0.0), Atom(-0.0)),
            (Atom(1), Atom(1.0)),
            (ABSENT, Atom(None)),
            (Atom("a"), ABSENT),
            (Atom((1, 2)), Atom((1, 2.0))),
        ],
    )
    def test_somebody_unseen_wrote(self, known, seen):
        graph = RefGraph()
        node = argument(graph, [])
        graph.read(node, item(0), known)
        with pytest.raises(Disagreement, match="#1 list.*item 0"):
            graph.read(node, item(0), seen)
        assert node.initial[item(0)] == known

    def test_equal_objects_at_one_reference_disagree(self):
        graph = RefGraph()
        node = argument(graph, [])
        graph.read(node, item(0), graph.add([1]))
        with pytest.raises(Disagreement):
            graph.read(node, item(0), graph.add([1]))

    def test_nan_agrees_with_itself(self):
        graph = RefGraph()
        node = argument(graph, [])
        graph.read(node, item(0), Atom(float("nan")))
        graph.read(node, item(0), Atom(float("nan")))

    def test_a_read_after_a_write_is_no_fact(self):
        graph = RefGraph()
        node = argument(graph, {})
        graph.write(Effect(graph.tick(), node, dict.__setitem__, ("k", 1)), {item("k"): Atom(1)})
        graph.read(node, item("k"), Atom(1))
        assert item("k") not in node.initial
        with pytest.raises(Disagreement):
            graph.read(node, item("k"), Atom(2))


class TestVersions:
    def test_a_write_makes_a_version_at_the_time_of_its_effect(self):
        graph = RefGraph()
        node = argument(graph, {"k": 0})
        graph.read(node, item("k"), Atom(0))
        effect = Effect(graph.tick(), node, dict.__setitem__, ("k", 1), key=item("k"))
        version = graph.write(effect, {item("k"): Atom(1)})
        assert node.versions[1] is version and version.born == effect.time
        assert graph.effects == [effect]
        assert node.mutated
        assert node.initial == {item("k"): Atom(0)}

    def test_each_time_has_its_references(self):
        graph = RefGraph()
        node = argument(graph, {"k": 0, "other": 9})
        graph.read(node, item("k"), Atom(0))
        times = [graph.time]
        for value in (Atom(1), ABSENT, Atom(3)):
            graph.write(Effect(graph.tick(), node, dict.update, ()), {item("k"): value})
            times.append(graph.time)
        graph.read(node, item("other"), Atom(9))
        assert [node.at(item("k"), time) for time in times] == [Atom(0), Atom(1), ABSENT, Atom(3)]
        assert [node.at(item("other"), time) for time in times] == [Atom(9)] * 4
        assert node.current(item("k")) == Atom(3)
        assert node.current(item("never read")) is None
        assert node.at(item("k"), node.born - 1) is None

    def test_versions_of_other_references_do_not_hide_one(self):
        graph = RefGraph()
        node = argument(graph, {})
        graph.read(node, item("old"), Atom(9))
        expected = {}
        for step in range(60):
            name = f"k{step % 7}"
            graph.write(Effect(graph.tick(), node, dict.__setitem__, (name, step)), {item(name): Atom(step)})
            expected[graph.time] = {**expected.get(graph.time - 1, {}), name: step}
            assert {name: node.current(item(name)) for name in expected[graph.time]} == {
                name: Atom(value) for name, value in expected[graph.time].items()
            }
            assert node.current(item("old")) == Atom(9) and node.current(item("new")) is None
        for time, values in expected.items():
            assert [node.at(item(f"k{n}"), time) for n in range(7)] == [
                Atom(values[f"k{n}"]) if f"k{n}" in values else None for n in range(7)
            ]

    def test_a_lookup_does_not_walk_over_the_versions_without_the_reference(self):
        looked = []

        class Probe:
            def __hash__(self):
                looked.append(self)
                return 5

        graph = RefGraph()
        node = argument(graph, {})
        key = item(Probe())
        graph.read(node, key, Atom(9))
        for step in range(500):
            graph.write(Effect(graph.tick(), node, dict.__setitem__, ("k", step)), {item("k"): Atom(step)})
            looked.clear()
            assert graph.read(node, key, Atom(9)) == Atom(9)
            assert len(looked) < 10


class TestLifetime:
    def test_a_strong_node_keeps_its_object(self):
        graph = RefGraph()
        thing = Thing()
        ref = weakref.ref(thing)
        node = graph.add(thing)
        del thing
        gc.collect()
        assert node.obj() is ref() is not None

    def test_a_weak_node_does_not(self):
        graph = RefGraph()
        thing = Thing()
        before = sys.getrefcount(thing)
        node = graph.add(thing, weak=True)
        assert sys.getrefcount(thing) == before
        assert node.obj() is thing
        del thing
        assert node.obj() is None
        assert node.type is Thing
        assert verify(graph) == []

    def test_a_new_object_at_a_dead_id_gets_a_new_node(self):
        graph = RefGraph()
        reused = 0
        for _ in range(100):
            thing = Thing()
            identity = id(thing)
            old = graph.add(thing, weak=True)
            del thing
            thing = Thing()
            reused += id(thing) == identity
            assert graph.find(thing) is None
            new = graph.add(thing, weak=True)
            assert graph.find(thing) is new is not old
            assert verify(graph) == []
            del thing
        assert reused > 0

    def test_an_object_in_a_cycle_retires_when_it_is_collected(self):
        graph = RefGraph()
        thing = Thing()
        thing.self = thing
        node = graph.add(thing, weak=True)
        identity = id(thing)
        del thing
        gc.collect()
        assert node.obj() is None
        assert identity not in graph._by_id

    def test_a_released_graph_holds_nothing(self):
        graph = RefGraph()
        thing, held = Thing(), Thing()
        refs = [weakref.ref(thing), weakref.ref(held)]
        node = argument(graph, thing)
        node.before, node.tag = [held], held
        graph.write(Effect(graph.tick(), node, setattr, ("a", held)), {})
        graph.release()
        del thing, held
        assert [ref() for ref in refs] == [None, None]
        assert graph.effects == [] and node.obj() is None

    def test_an_object_does_not_keep_a_graph_that_holds_it_weakly(self):
        thing = Thing()
        graph = RefGraph()
        graph.add(thing, weak=True)
        ref = weakref.ref(graph)
        del graph
        gc.collect()
        assert ref() is None
        del thing  # its callback finds nobody


class TestValues:
    @pytest.mark.parametrize(
        ("one", "other"),
        [(1, 1), ("a", "a"), (float("nan"), float("nan")), ((1, (2.5, "x")), (1, (2.5, "x"))), (None, None), (2j, 2j)],
    )
    def test_same(self, one, other):
        assert same_value(one, other)
        assert same_target(Atom(one), Atom(other))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, True),
            (1, 1.0),
            (0.0, -0.0),
            (complex(0.0, 0.0), complex(0.0, -0.0)),
            ((1,), (True,)),
            ((), (1,)),
            (0, None),
        ],
    )
    def test_different(self, one, other):
        assert not same_value(one, other)
        assert not same_target(Atom(one), Atom(other))

    def test_nodes_and_absence_are_compared_by_identity(self):
        graph = RefGraph()
        one, other = graph.add([]), graph.add([])
        assert same_target(one, one) and not same_target(one, other)
        assert same_target(ABSENT, ABSENT) and not same_target(ABSENT, Atom(None))
        assert not same_target(one, Atom(one))
        assert repr(ABSENT) == "ABSENT"

    def test_a_location_reads_well(self):
        assert str(HERE) == "program.py:3 in model"


def test_equal_small_ints_are_no_aliases():
    graph = RefGraph()
    for position in range(2):
        graph.read(graph.root, Key(EdgeKind.ARGUMENT, position), Atom(3))
    assert [fact.first for fact in guard_facts(graph)] == [False, False]
    assert graph.find(3) is None
