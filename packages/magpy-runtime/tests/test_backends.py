"""Backends: how they are named, and that graphs come out of them as eager would have it."""

from __future__ import annotations

import pytest
import torch
import torch.fx

from magpy_runtime import UnknownBackendError, names, resolve
from magpy_runtime._backends import UnsupportedGraphError, eager


def traced(function):
    """The operators of a function as a graph that returns a tuple."""
    return torch.fx.symbolic_trace(function)


def small(x, y):
    added = x.add_(y)
    return added * 2, x[0], y


def test_names():
    found = names()
    assert found == sorted(set(found)) and {"eager", "inductor", "aot_eager"} <= set(found)


@pytest.mark.parametrize("name", ["nonsense", "", "Inductor"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(
        UnknownBackendError, match=f"unknown backend '{name}'; known ones: .*aot_eager.*eager.*inductor"
    ):
        resolve(name)
    assert issubclass(UnknownBackendError, ValueError)


@pytest.mark.parametrize("wrong", [None, 5, ["eager"], b"eager"])
def test_neither_a_name_nor_a_callable(wrong):
    with pytest.raises(TypeError, match="backend must be a name or a callable, not "):
        resolve(wrong)


def test_callables_are_given_the_graph_and_the_inputs():
    calls = []

    def backend(module, inputs, **keywords):
        calls.append((module, inputs, keywords))
        return module.forward

    assert resolve(backend) is backend and resolve(backend, {}) is backend
    module, inputs = traced(lambda x: (x + 1,)), [torch.ones(2)]
    assert resolve(backend, {"a": 1})(module, inputs)(*inputs)[0].tolist() == [2.0, 2.0]
    assert calls == [(module, inputs, {"options": {"a": 1}})]


def test_eager_runs_the_operators():
    module = traced(lambda x: (x + 1,))
    assert resolve("eager") is eager
    assert resolve("eager", {"ignored": 1})(module, []) == module.forward


def check(run, function=small):
    """A graph run gives what eager gives: values, mutation, identity and views of its inputs."""
    x, y = torch.arange(3.0), torch.ones(3)
    other, same = x.clone(), y.clone()
    expected = function(other, same)
    for _ in range(2):
        found = run(x, y)
        assert [torch.equal(one, two) for one, two in zip(found, expected, strict=True)] == [True] * len(expected)
        assert torch.equal(x, other)
        assert found[1]._is_view() and found[1].untyped_storage()._cdata == x.untyped_storage()._cdata
        assert found[2].data_ptr() == y.data_ptr()
        expected = function(other, same)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_mutation_and_outputs_that_alias_inputs(backend):
    x, y = torch.arange(3.0), torch.ones(3)
    module = traced(small)
    run = resolve(backend)(module, [x, y])
    assert x.tolist() == [0.0, 1.0, 2.0], "compiling changes no input"
    check(run)


def test_a_registered_backend_is_given_what_torch_compile_gives():
    seen = []

    @torch._dynamo.register_backend(name="magpy_test_backend")
    def backend(module, inputs, **keywords):
        from torch._guards import TracingContext

        examples = [node.meta["example_value"] for node in module.graph.nodes if node.op != "output"]
        seen.append((inputs, examples, TracingContext.try_get(), keywords))
        return module.forward

    try:
        module = traced(lambda x: (x + 1,))
        run = resolve("magpy_test_backend", {"mode": "fast"})(module, [torch.ones(2)])
        assert run(torch.ones(2))[0].tolist() == [2.0, 2.0]
        [(inputs, examples, context, keywords)] = seen
        assert all(isinstance(each, torch._subclasses.FakeTensor) for each in [*inputs, *examples])
        assert examples[0] is inputs[0] and context is not None and context.fake_mode is inputs[0].fake_mode
        assert keywords == {"options": {"mode": "fast"}}
        assert "magpy_test_backend" in names()
    finally:
        from torch._dynamo.backends import registry

        registry._COMPILER_FNS.pop("magpy_test_backend", None)
        registry._BACKENDS.pop("magpy_test_backend", None)


@pytest.mark.parametrize("name", ["requires_grad_", "detach_"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_operators_on_a_tensors_own_attributes_are_refused(backend, name):
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    graph.call_method(name, (node,))
    graph.output((node,))
    with pytest.raises(UnsupportedGraphError, match=f"{name} inside of the graph"):
        resolve(backend)(torch.fx.GraphModule({}, graph), [torch.ones(1)])


def set_data(tensor, data):
    tensor.data = data


def test_the_setter_of_data_is_refused():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    graph.call_function(set_data, (node, node))
    graph.output((node,))
    with pytest.raises(UnsupportedGraphError, match="set_data inside of the graph"):
        resolve("aot_eager")(torch.fx.GraphModule({}, graph), [torch.ones(1)])


def test_data_is_written_as_detach():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    data = graph.call_function(getattr, (node, "data"))
    graph.output((graph.call_method("mul_", (data, 2)),))
    x = torch.ones(2)
    run = resolve("aot_eager")(torch.fx.GraphModule({}, graph), [x])
    assert run(x)[0].tolist() == x.tolist() == [2.0, 2.0]


def test_updated_inputs_that_share_memory_are_refused():
    x = torch.ones(4)
    with pytest.raises(UnsupportedGraphError, match="share memory"):
        resolve("aot_eager")(traced(small), [x[1:], x[:3]])
    assert resolve("aot_eager")(traced(lambda a, b: (a + b,)), [x[1:], x[:3]])(x[1:], x[:3])[0].tolist() == [2.0] * 3


def test_a_graph_that_fails_leaves_the_grad_mode():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.output((graph.call_method("reshape", (node, 7)),))
    with pytest.raises(RuntimeError):
        resolve("aot_eager")(torch.fx.GraphModule({}, graph), [torch.ones(2)])
    assert torch.is_grad_enabled()


def test_gradients():
    module = traced(lambda x: ((x * x).sum(),))
    x = torch.tensor([3.0], requires_grad=True)
    run = resolve("aot_eager")(module, [x])
    run(x)[0].backward()
    assert x.grad.tolist() == [6.0]
