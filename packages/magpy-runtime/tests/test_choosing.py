"""Short graphs behind AOTAutograd's wrapper run operator by operator where that takes clearly less."""

import time

import pytest
import torch
import torch.fx

from magpy_runtime import Hints, _choosing, resolve
from magpy_runtime._choosing import choosing, copied
from magpy_runtime._inductor import ENTRY_OPTION


class Way:
    """Takes so long, and counts its calls."""

    def __init__(self, seconds, result):
        self.seconds, self.result, self.calls = seconds, result, 0

    def __call__(self, *inputs):
        self.calls += 1
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return self.result, inputs


@pytest.mark.parametrize(
    ("code_s", "eager_s", "entry"),
    [
        (1e-4, 1e-5, "eager"),
        (1e-5, 1e-4, "compile_fx"),
        (1e-4, 9e-5, "compile_fx"),
        (2e-3, 1e-5, "compile_fx"),
        (1e-2, 1e-5, "compile_fx"),
    ],
)
def test_which_is_taken(code_s, eager_s, entry):
    code, eager = Way(code_s, "code"), Way(eager_s, "eager")
    run = choosing(code, eager)
    assert run.entry == "compile_fx"
    for number in range(30):
        result, inputs = run(number, "x")
        assert inputs == (number, "x") and result in ("code", "eager")
        assert code.calls + eager.calls == number + 1, "each call is made once"
    assert run.entry == entry
    before = code.calls, eager.calls
    for _ in range(5):
        run()
    assert (code.calls - before[0], eager.calls - before[1]) == ((0, 5) if entry == "eager" else (5, 0))
    assert eager.calls < 10 or entry == "eager"
    assert (eager.calls == 0) == (code_s > 5e-3), "what takes long is not tried"


def test_what_raises_does_not_count():
    def fails(*inputs):
        raise ValueError

    run = choosing(Way(0, "code"), fails)
    for number in range(20):
        if number > 2 and number % 2:
            with pytest.raises(ValueError):
                run()
        else:
            assert run() == ("code", ())
    assert run.entry == "compile_fx"


def two(x, w, b):
    h = torch.tanh(x * w)
    return h, (h + b).relu()


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_gradients_are_the_same_either_way(used, monkeypatch):
    monkeypatch.setattr(_choosing, "_CLEARLY", 100.0)  # the operators, whatever they take
    monkeypatch.setattr(_choosing, "_SHORT_S", 100.0)
    monkeypatch.setattr(_choosing, "_LONG_S", 100.0)
    x, w, b = torch.randn(4), torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(4))
    run = resolve("inductor", {})(torch.fx.symbolic_trace(two), [x, w, b], Hints())
    for _ in range(20):
        grads = []
        for function in (two, run):
            outputs = function(x, w, b)
            sum(outputs[place].sum() for place in used).backward()
            grads.append((w.grad, b.grad))
            w.grad = b.grad = None
        for one, other in zip(*grads, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
    assert run.entry == "eager"


@pytest.mark.parametrize(("entry", "hints"), [("compile_fx", Hints()), ("auto", Hints(random=True))])
def test_what_is_not_tried(entry, hints, monkeypatch):
    monkeypatch.setattr(_choosing, "_CLEARLY", 100.0)
    w = torch.nn.Parameter(torch.randn(4))
    run = resolve("inductor", {ENTRY_OPTION: entry})(torch.fx.symbolic_trace(lambda x: (x * 2,)), [w], hints)
    for _ in range(20):
        assert torch.equal(run(w)[0], w * 2)
    assert run.entry == "compile_fx"


def test_a_copy_of_a_graph_is_left_alone():
    module = torch.fx.symbolic_trace(two)
    made = copied(module)
    for node in list(module.graph.nodes):
        if node.target == "relu":
            node.target = "neg"
    module.recompile()
    x = [torch.ones(2), torch.ones(2), torch.ones(2)]
    assert made(*x)[1].tolist() == two(*x)[1].tolist() != module(*x)[1].tolist()
