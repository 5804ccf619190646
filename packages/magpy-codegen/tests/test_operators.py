"""The operator graph: what torch's function mode reports becomes torch.fx."""

from __future__ import annotations

import operator

import pytest
import torch

from magpy_codegen import OperatorGraph
from magpy_codegen._operators import nameable, set_data
from magpy_refgraph import Location, RefGraph


@pytest.fixture
def graph():
    return OperatorGraph()


def place(graph, tensor):
    return graph.input(RefGraph().add(tensor), tensor)


def run(graph, outputs, *tensors):
    return graph.finish(outputs, lambda where: where)(*tensors)


def test_inputs_stand_first_in_the_order_in_which_they_were_met(graph):
    x, y = torch.ones(2), torch.full((2,), 3.0)
    nodes = RefGraph()
    one, other = nodes.add(x), nodes.add(y)
    first = graph.input(one, x)
    added = graph.call(torch.Tensor.add, (first, 1), {}, None)
    second = graph.input(other, y)
    assert graph.input(one, x) is first and one.tag is first
    product = graph.call(torch.Tensor.mul, (added, second), {}, None)
    assert graph.inputs == [one, other]
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "placeholder", "call_method", "call_method"]
    [found] = run(graph, [product], x, y)
    assert found.tolist() == [6.0, 6.0]


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (torch.add, (1,), {}),
        (torch.Tensor.add, (1,), {"alpha": 2}),
        (torch.nn.functional.softmax, (-1,), {}),
        (torch._C._nn.gelu, (), {}),
        (torch.Tensor.__getitem__, ((0, slice(None)),), {}),
        (torch.Tensor.T.__get__, (), {}),
        (torch.Tensor.__radd__, (1,), {}),
        (torch.sum, (), {"dim": 0, "keepdim": True}),
        (torch.conv1d if False else torch.relu, (), {}),
        (torch.ops.aten.sigmoid.default, (), {}),
    ],
)
def test_each_form_of_an_operator(graph, function, args, kwargs):
    x = torch.arange(6.0).reshape(2, 3)
    made = graph.call(function, (place(graph, x), *args), kwargs, None)
    [found] = run(graph, [made], x)
    assert torch.equal(found, function(x, *args, **kwargs))


def test_item_assignment_and_setters(graph):
    x, y = torch.zeros(3), torch.zeros(3)
    node = place(graph, x)
    graph.call(torch.Tensor.__setitem__, (node, 1, 5.0), {}, None)
    module = graph.finish([node], lambda where: None)
    assert module(y)[0].tolist() == [0.0, 5.0, 0.0]
    other = OperatorGraph()
    node = place(other, x)
    other.call(torch.Tensor.requires_grad.__set__, (node, True), {}, None)
    assert other.finish([node], lambda where: None)(torch.ones(1))[0].requires_grad


def test_the_setter_of_data(graph):
    x = torch.zeros(2)
    node = place(graph, x)
    value = graph.call(torch.ones, (2,), {}, None)
    made = graph.call(torch.Tensor.data.__set__, (node, value), {}, None)
    assert made.target is set_data
    run(graph, [], x)
    assert x.tolist() == [1.0, 1.0]


def test_hidden_functions_get_a_name_that_prints_rightly():
    assert nameable(torch.add) is torch.add and nameable(len) is len
    hidden = torch._C._VariableFunctions.stft
    found = nameable(hidden)
    assert found is torch.ops.aten.stft
    text = torch.fx.Graph()
    text.call_function(found, ())
    assert "torch.ops.aten.stft" in str(text.python_code("self").src)


def test_elements_of_a_tuple(graph):
    x = torch.tensor([[3.0, 1.0]])
    made = graph.call(torch.max, (place(graph, x), 1), {}, None)
    parts = [graph.element(made, 0), graph.element(made, 1)]
    assert parts[0].target is operator.getitem
    assert [found.tolist() for found in run(graph, parts, x)] == [[3.0], [0]]


def test_constants(graph):
    x = place(graph, torch.ones(1))
    made = graph.call(torch.zeros, (2,), {}, None)
    graph.constants.add(made)
    assert graph.element(made, 0) in graph.constants and graph.element(x, 0) not in graph.constants
    for value in (made, 1, None, "a", [made, (made, 2)], slice(made, 1), {"a": [made]}):
        assert graph.is_constant(value)
    for value in (x, [made, x], (1, (x,)), slice(0, x), {"a": x}):
        assert not graph.is_constant(value)


def test_which_inputs_are_updated(graph):
    tensors = [torch.ones(2) for _ in range(3)]
    with torch.inference_mode():
        tensors.append(torch.ones(2))
    tags = [place(graph, tensor) for tensor in tensors]
    assert graph.updated() == (3,), "inference tensors have no version"
    tensors[1].add_(1)
    graph.written.add(tags[2])
    assert graph.updated() == (1, 2, 3)


@pytest.mark.parametrize(
    ("function", "args", "raises"),
    [
        (torch.add, (1,), False),
        (torch.Tensor.mul_, (2,), False),
        (torch.Tensor.__getitem__, (0,), False),
        (torch.Tensor.__getitem__, ("node",), True),
        (torch.Tensor.__getitem__, ((0, ["node"]),), True),
        (torch.embedding, ("node",), True),
        (torch.Tensor.index_add_, (0, "node", "node"), True),
        (torch.Tensor.__rfloordiv__, (1,), True),
        (torch.Tensor.floor_divide_, (1,), True),
        (torch.linalg.inv, (), True),
    ],
)
def test_operators_that_may_raise(graph, function, args, raises):
    node = place(graph, torch.ones(2))

    def fill(value):
        if isinstance(value, (tuple, list)):
            return type(value)(map(fill, value))
        return node if value == "node" else value

    graph.call(function, (node, *map(fill, args)), {}, None)
    assert graph.may_raise() is raises


def test_nodes_know_their_lines(graph):
    where = Location("/src/program.py", 7, "forward")
    made = graph.call(torch.relu, (place(graph, torch.ones(1)),), {}, where)
    module = graph.finish([made], lambda found: found)
    assert made.stack_trace == '  File "/src/program.py", line 7, in forward\n'
    assert "where" not in made.meta and module.graph is graph.graph
    assert all("version" not in node.meta for node in graph.graph.nodes)


@pytest.mark.parametrize(
    ("function", "args", "kept"),
    [
        (torch.Tensor.add, (1,), False),
        (torch.Tensor.floor_divide, (2,), False),
        (torch.Tensor.__rmod__, (7,), True),
        (torch.Tensor.gather, (0, "node"), True),
        (torch.Tensor.index_add_, (0, "node", "node"), True),
        (torch.Tensor.where, ("node", 0), False),
    ],
)
def test_what_stays_though_nothing_needs_it(graph, function, args, kept):
    made = place(graph, torch.ones(2))
    other = graph.call(torch.Tensor.add, (made, 1), {}, None)
    node = graph.call(function, (other, *[made if each == "node" else each for each in args]), {}, None)
    found = graph.unused([made])
    assert [each.args for each in found] == ([(node,)] if kept else [])
    assert graph.unused([node]) == []
