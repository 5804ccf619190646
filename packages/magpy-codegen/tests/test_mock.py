"""Mocks: effects in order, outputs of the graph, identity."""

from __future__ import annotations

import collections

import pytest
import torch

from magpy_codegen import Unbuildable
from magpy_refgraph import EdgeKind, Key


class Box:
    pass


def test_an_input_that_is_returned_is_the_input(bench):
    items = []
    bench.arg(items)
    again = []
    assert bench.rebuilt(items, again) is again


def test_effects_are_replayed_in_order_on_the_objects_of_the_call(bench):
    items = [1]
    node = bench.arg(items)
    bench.effect(node, list.append, 2)
    bench.effect(node, list.extend, (3, 4))
    bench.effect(node, list.sort, key=None, reverse=True)
    again = [5]
    assert bench.rebuilt(None, again) is None
    assert again == [5, 4, 3, 2] and items == [1]


def test_what_an_effect_stores_is_what_is_returned(bench):
    made, box = [1], Box()
    node = bench.arg(box)
    names = bench.read(node, EdgeKind.DICT, None, box.__dict__)
    stored = bench.made(made)
    bench.effect(names, dict.__setitem__, "made", made, changes={Key(EdgeKind.ITEM, "made"): stored})
    again = Box()
    assert bench.rebuilt(made, again) is again.made


def test_effects_on_held_objects(bench):
    log = []
    bench.effect(bench.pin(log), list.append, (1, [2]))
    bench.rebuilt(None)
    assert log == [(1, [2])]


def test_the_graph_runs_once_before_the_effects(bench):
    x, made = torch.ones(2), torch.zeros(2)
    node = bench.arg(x)
    output = bench.made(made)
    output.tag = "add"
    log = []
    bench.effect(bench.pin(log), list.append, made)
    calls = []

    def run(*inputs):
        assert not log
        calls.append(inputs)
        return (inputs[0] + 1,)

    again = torch.ones(2)
    found = bench.rebuilt([made, made], again, run=run, inputs=(node,))
    assert len(calls) == 1 and calls[0][0] is again
    assert found[0] is found[1] is log[0] and found[0].tolist() == [2.0, 2.0]


def test_outputs_are_listed_once_each(bench):
    one, other = torch.ones(1), torch.ones(1)
    bench.made(one).tag = "first"
    bench.made(other).tag = "second"
    bench.guard()
    writer, source = bench.mock({"a": other, "b": one, "c": other})
    assert writer.outputs == ["second", "first"]
    assert source.count("run(") == 1


def test_a_graph_without_outputs_runs_for_its_effects(bench):
    node = bench.arg(torch.ones(1))
    calls = []
    assert bench.rebuilt(3, run=lambda x: calls.append(x), inputs=(node,)) == 3
    assert len(calls) == 1
    assert bench.writer.names


def test_a_tensor_that_no_operator_made(bench):
    bench.guard()
    with pytest.raises(Unbuildable, match="a Tensor: no observed operator made it"):
        bench.mock(torch.ones(1))


def test_a_tensor_with_attributes_of_its_own(bench):
    made = torch.ones(1)
    made.note = 1
    bench.made(made).tag = "add"
    bench.guard()
    with pytest.raises(Unbuildable, match="it has Python attributes"):
        bench.mock([made])


def test_unbuildable_says_what_and_why():
    error = Unbuildable(iter(()), "because")
    assert str(error) == "a tuple_iterator: because" and error.obj_type is type(iter(()))
    assert str(Unbuildable(1)) == "a int"


VALUES = [None, True, 1, 1 << 20_000, 1.5, float("inf"), "a\n'", "x" * 500, b"b", range(3), 1j]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_plain_values_come_back(bench, value):
    found = bench.rebuilt(value)
    assert found == value and type(found) is type(value)


def test_nan_comes_back(bench):
    found = bench.rebuilt([float("nan"), -0.0])
    assert repr(found) == "[nan, -0.0]"


def test_each_call_gets_its_own_objects(bench):
    from magpy_codegen import make_function

    guard = bench.guard()
    _, source = bench.mock(([1], (), {"k": [2]}))
    mock = make_function(source, "mock", bench.namespace.values, "mock")
    one, other = mock(guard(), None), mock(guard(), None)
    assert one == other == ([1], (), {"k": [2]})
    assert one[0] is not other[0] and one[2]["k"] is not other[2]["k"]


def test_effects_on_what_was_made_find_it_built(bench):
    """An effect on a new object is seen in what the object is at the end; the object is built once."""
    made = collections.deque([1])
    log = bench.pin([])
    bench.effect(log, list.append, made)
    bench.effect(log, list.append, made)
    bench.rebuilt(None)
    held = log.obj()
    assert held[0] is held[1] and list(held[0]) == [1]
