"""Inputs that no used output of a compiled graph reaches have no gradient, as in eager."""

import pytest
import torch

from magpy_runtime import resolve
from magpy_runtime._gradients import partial_reach


def two(x, first, second):
    h = x * first
    return h, (h * second).relu()


def three(x, first, second):
    return x * first, x * second, x + 1


@pytest.mark.parametrize("function", [two, three])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), ()])
def test_gradients_are_those_of_eager(function, backend, used):
    worlds = []
    for compiled in (False, True):
        x = torch.arange(3.0)
        parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.full((3,), 2.0))]
        run = function
        if compiled:
            run = resolve(backend)(torch.fx.symbolic_trace(function), [x, *parameters])
        found = []
        for _ in range(2):
            outputs = run(x, *parameters)
            losses = [outputs[place].sum() for place in used]
            if losses:
                sum(losses).backward()
            found.append([None if each.grad is None else each.grad.tolist() for each in parameters])
            outputs[0].add_(1)  # outputs can be updated
            for each in parameters:
                each.grad = None
        worlds.append(found)
    assert worlds[0] == worlds[1]


def test_several_passes_through_one_call():
    x = torch.arange(3.0)
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    run = resolve("aot_eager")(torch.fx.symbolic_trace(two), [x, first, second])
    one, other = run(x, first, second)
    one.sum().backward(retain_graph=True)
    assert second.grad is None and first.grad.tolist() == [0, 1, 2]
    other.sum().backward()
    assert second.grad is not None and first.grad.tolist() == [0, 2, 4]


def test_reach():
    assert partial_reach(torch.fx.symbolic_trace(two)) == {2: frozenset({1})}
    assert partial_reach(torch.fx.symbolic_trace(three)) == {1: frozenset({0}), 2: frozenset({1})}
    assert partial_reach(torch.fx.symbolic_trace(lambda x, y: (x + y, x * y))) == {}
    assert partial_reach(torch.fx.symbolic_trace(lambda x, y: (x.add_(y), x))) == {}, (
        "updates hide what depends on what"
    )
