"""Biases of linear layers: added where their products' results are used, if that is pointwise code on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from magpy_runtime import Hints, _torch, resolve
from magpy_runtime._bias import biases_apart
from magpy_runtime._inductor import ENTRY_OPTION
from magpy_runtime._packages import PackageCache

X, W, B = (4, 8), (8, 6), (6,)


def operators(function, shapes, dtype=torch.float32):
    """What is left of the operators of a function, by name, after the pass; the graph gives what it gave before."""
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    made = make_fx(function, tracing_mode="fake")(*inputs)
    expected = made(*inputs)
    biases_apart(made.graph)
    made.graph.lint()
    made.recompile()
    torch.testing.assert_close(made(*inputs), expected)
    return [node.target._opname for node in made.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pointwise_code_adds_the_bias(dtype):
    found = operators(lambda x, w, b: torch.addmm(b, x, w).relu(), (X, W, B), dtype)
    assert found == ["mm", "add", "relu"]
    found = operators(lambda x, w, b: (lambda y: (y.tanh(), y * 2))(torch.addmm(b, x, w)), (X, W, B), dtype)
    assert found == ["mm", "add", "tanh", "mul"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: torch.addmm(b, x, w),
        lambda x, w, b: torch.addmm(b, x, w).t(),
        lambda x, w, b: (lambda y: (y.relu(), y.sum()))(torch.addmm(b, x, w)),
        lambda x, w, b: torch.addmm(b, x, w, alpha=2).relu(),
        lambda x, w, b: torch.addmm(b, x, w, beta=0).relu(),
        lambda x, w, b: torch.addmm(b.expand(4, 6), x, w).relu(),
    ],
    ids=["handed out", "viewed", "summed, too", "product scaled", "bias scaled", "a sum of matrices"],
)
def test_other_products_stay(function):
    found = operators(function, (X, W, B))
    assert "addmm" in found
    assert "mm" not in found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_what_would_be_rounded_once_more_stays(dtype):
    assert operators(lambda x, w, b: torch.addmm(b, x, w).tanh(), (X, W, B), dtype) == ["addmm", "tanh"]


@pytest.mark.parametrize("own", [False, True], ids=["ours", "the user's"])
def test_packages_are_built_so(own, monkeypatch, tmp_path):
    monkeypatch.setattr(PackageCache, "__init__", lambda self: self.__dict__.update(folder=tmp_path, enabled=True))
    told = []
    build = _torch.build_package
    monkeypatch.setattr(_torch, "build_package", lambda *args: (told.append(args[2]), build(*args))[1])
    seen = []

    def last(graph):
        seen.append([node.target._opname for node in graph.nodes if node.op == "call_function"])

    layer, x = torch.nn.Linear(8, 6), torch.randn(4, 8)
    module = torch.fx.symbolic_trace(lambda x, w, b: (torch.nn.functional.linear(x, w, b).relu(),))
    name = "post_grad_custom_post_pass"
    options = {ENTRY_OPTION: "aoti", **({name: last} if own else {})}
    with torch.no_grad():
        run = resolve("inductor", options)(module, [x, layer.weight, layer.bias], Hints())
        torch.testing.assert_close(run(x, layer.weight, layer.bias)[0], layer(x).relu())
    assert run.entry == "aoti"
    assert [each[name] for each in told] == [last if own else biases_apart]
    assert all("addmm" in each for each in seen)
    assert bool(seen) is own
