"""Inputs that no used output of a compiled graph reaches have no gradient, as in eager."""

import pytest
import torch

from magpy_runtime import resolve
from magpy_runtime._gradients import partial_reach, with_history
from magpy_runtime._histories import History


def two(x, first, second):
    h = x * first
    return h, (h * second).relu()


def three(x, first, second):
    return x * first, x * second, x + 1


def own_updates(x, first, second):
    h = x * first
    h.relu_()
    k = x * second
    k.view(-1)[1:].mul_(2).add_(h[1:])
    return h, k * 3


def updates_through_a_view(x, first, second):
    h = x * first
    part = h[1:]
    k = x * second
    part.add_(k[1:])
    return h + 1, k


def updated_input(x, first, second):
    x.add_(1)
    return x * first, x.sum() * second


def parts_written(x, first, second):
    h, k = torch.zeros_like(x), torch.zeros_like(x)
    h[0].copy_((x * first).sum())
    k[1:].copy_(x[1:] * second[1:])
    return h.relu(), k.relu()


@pytest.mark.parametrize("function", [two, three, own_updates, updates_through_a_view, updated_input, parts_written])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
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
        for _ in range(3):
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
    for _ in range(3):
        one, other = run(x, first, second)
        one.sum().backward(retain_graph=True)
        assert second.grad is None and first.grad.tolist() == [0, 1, 2]
        other.sum().backward()
        assert second.grad is not None and first.grad.tolist() == [0, 2, 4]
        first.grad = second.grad = None


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_inputs_with_a_history(used):
    made = []
    for run in (
        three,
        resolve("aot_eager")(torch.fx.symbolic_trace(three), [torch.ones(3, requires_grad=True) * 2 for _ in range(3)]),
    ):
        found = []
        for _ in range(3):
            leaves = [torch.full((3,), float(n), requires_grad=True) for n in range(1, 4)]
            outputs = run(*[each * 2 for each in leaves])
            grads = torch.autograd.grad(sum(outputs[place].sum() for place in used), leaves, allow_unused=True)
            found.append([None if each is None else each.tolist() for each in grads])
        made.append(found)
    assert made[0] == made[1]


def test_gradients_that_are_not_those_of_the_inputs_in_order():
    def run(x, first, second):
        return Backwards.apply(second, first, x)

    x = torch.arange(3.0)
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    guarded = with_history(run, History({1: frozenset({0}), 2: frozenset({1})}))
    for _ in range(3):
        guarded(x, first, second)[0].sum().backward()
        assert second.grad is None and first.grad.tolist() == [0, 1, 2]
        first.grad = None


class Backwards(torch.autograd.Function):
    """Products with the first, whose arguments come in another order, and which gives zeros where there is nothing."""

    @staticmethod
    def forward(ctx, second, first, x):
        ctx.save_for_backward(x)
        return x * first, x * second

    @staticmethod
    def backward(ctx, one, other):
        (x,) = ctx.saved_tensors
        return other * x, one * x, None


def test_reach():
    assert partial_reach(torch.fx.symbolic_trace(two)) == {2: frozenset({1})}
    assert partial_reach(torch.fx.symbolic_trace(three)) == {1: frozenset({0}), 2: frozenset({1})}
    assert partial_reach(torch.fx.symbolic_trace(lambda x, y: (x + y, x * y))) == {}
    assert partial_reach(torch.fx.symbolic_trace(own_updates)) == {}, "values are not known"
    assert partial_reach(torch.fx.symbolic_trace(lambda x, y: (x.add_(y), x))) == {}, (
        "updates hide what depends on what"
    )


def view_and_more(x, other):
    return x[0], other.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_view_of_an_input_may_be_updated(backend):
    worlds = []
    for compiled in (False, True):
        leaf = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
        other = torch.nn.Parameter(torch.ones(3))
        run = view_and_more
        if compiled:
            run = resolve(backend)(torch.fx.symbolic_trace(run), [leaf * 1, other])
        found = []
        for _ in range(3):
            x = leaf * 1
            view, total = run(x, other)
            view.mul_(3)
            ((x * 2).sum() + view.sum() + total).backward()
            found += [x.tolist(), leaf.grad.tolist(), other.grad.tolist()]
        worlds.append(found)
    assert worlds[0] == worlds[1]
