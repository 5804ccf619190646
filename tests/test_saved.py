"""Training with compiled graphs: gradients that are not there, and backward passes that raise, where eager's do so."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served

import magpy

pytestmark = [
    pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning"),
    pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True"),
]

Program = Callable[..., Any]
BACKENDS = ["eager", "aot_eager", "inductor"]
SCALE = torch.nn.Parameter(torch.full((3,), 2.0))


def square() -> torch.Tensor:
    return torch.arange(1.0, 10.0).view(3, 3)


def updated_and_not_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.mul_(2)
    return (x * 3).view(-1), x[0]


def view_beside(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x[0], (y * SCALE).sum(), y.t()


def updated_and_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.add_(x)
    return y[1:], (x * SCALE).t()


def apart(x: torch.Tensor, y: torch.Tensor) -> Any:
    h = x * SCALE
    return h.detach() * y, h


def parts(x: torch.Tensor, y: torch.Tensor) -> Any:
    h = x * 2
    return h[0], h[1:], y * SCALE


@pytest.mark.parametrize("program", [updated_and_not_returned, view_beside, updated_and_views, apart, parts])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_that_are_not_there(program: Program, backend: str) -> None:
    compiled = magpy.compile(program, backend=backend)
    for used in [(0,), (0,), (1,), (-1,), (0, -1)]:
        worlds = []
        for run in (program, compiled):
            leaves = [square().requires_grad_(), square().requires_grad_()]
            SCALE.grad = None
            outputs = run(*[each * 1 for each in leaves])
            torch.stack([outputs[place].sum() for place in used]).sum().backward()
            grads = [each.grad for each in (*leaves, SCALE)]
            worlds.append([None if each is None else each.tolist() for each in grads])
        assert worlds[0] == worlds[1]


def saved_output_updated(x: torch.Tensor) -> Any:
    y = (x * SCALE).sigmoid()
    y.mul_(2)
    return y


def saved_input_updated(x: torch.Tensor) -> Any:
    y = (x * SCALE).exp()
    z = y * y
    y.add_(1)
    return z


def saved_through_data(x: torch.Tensor) -> Any:
    y = (x * SCALE).exp()
    y.data.add_(1)
    return y


@pytest.mark.parametrize("program", [saved_output_updated, saved_input_updated, saved_through_data])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_updates_of_what_was_saved(program: Program, backend: str, dynamic: bool) -> None:
    compiled = magpy.compile(program, backend=backend, dynamic=dynamic)
    for size in (2, 3, 4, 5):
        worlds = []
        for run in (program, compiled):
            x = torch.ones(size, 3, requires_grad=True)
            output = run(x)
            try:
                output.sum().backward()
                worlds.append((output.tolist(), x.grad.tolist()))  # type: ignore[union-attr]
            except RuntimeError as error:
                worlds.append("modified by an inplace operation" in str(error))
        assert worlds[0] == worlds[1]


def exponential(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * 2).exp(), y.sin()


def changes_input(outputs: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    y.add_(1)


def changes_output(outputs: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    outputs[0].add_(1)


def changes_what_is_not_saved(outputs: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(1)
    outputs[1].add_(1)


@pytest.mark.parametrize("change", [changes_input, changes_output, changes_what_is_not_saved])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_caller_updates_what_was_saved(change: Program, backend: str) -> None:
    serve = Served(magpy.compile(exponential, backend=backend))
    used = (0, 1)  # code that is used in part compares all that it has saved
    for how in ("monitored", "hits", "hits"):
        worlds = []
        for run in (exponential, lambda x, y, how=how: serve(how, x, y)):
            x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            outputs = run(x, y)
            with torch.no_grad():
                change(outputs, x, y)
            try:
                sum(outputs[place].sum() for place in used).backward()  # type: ignore[union-attr]
                worlds.append([each.grad is None for each in (x, y)])
            except RuntimeError as error:
                worlds.append("modified by an inplace operation" in str(error))
        assert worlds[0] == worlds[1]


def test_only_what_is_asked_for_is_compared() -> None:
    program = lambda x, y: (x * 2).exp() * 1 + (y * 2).sin()  # noqa: E731
    compiled = magpy.compile(program, backend="aot_eager")
    for _ in range(3):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        compiled(x, y).sum().backward(inputs=[x])
        assert x.grad is not None
        assert y.grad is None


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).tanh()


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_calls_before_a_backward_pass(backend: str) -> None:
    module = Normed()
    compiled = magpy.compile(module, backend=backend)
    for _ in range(3):
        one, other = compiled(square()), compiled(square() * 2)
        (one.sum() + other.sum()).backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_pass_may_keep_its_graph_at_any_time(backend: str, dynamic: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
    compiled = magpy.compile(module, backend=backend, dynamic=dynamic)
    for _ in range(3):
        compiled(square()).sum().backward()
    total = compiled(square()).sum()
    total.backward(retain_graph=True)
    total.backward()
    compiled(square()).sum().backward(create_graph=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_gradients_with_hooks(backend: str) -> None:
    program = lambda x: (x * SCALE).exp()  # noqa: E731
    compiled = magpy.compile(program, backend=backend)
    for _ in range(3):
        worlds = []
        for run in (program, compiled):
            x = square().div(9).requires_grad_()
            x.register_hook(lambda gradient: gradient * 3)
            (first,) = torch.autograd.grad(run(x).sum(), [x], create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), [x])
            worlds.append(torch.stack([first, second]).detach())
        torch.testing.assert_close(worlds[0], worlds[1])


def only_views(x: torch.Tensor) -> Any:
    h = (x * SCALE).exp()
    return h[:2], h[2:]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_gradients_through_views(backend: str) -> None:
    compiled = magpy.compile(only_views, backend=backend)
    for _ in range(3):
        worlds = []
        for run in (only_views, compiled):
            x = square().div(9).requires_grad_()
            (first,) = torch.autograd.grad(run(x)[1].sum(), [x], create_graph=True)
            (second,) = torch.autograd.grad((first * x).sum(), [x])
            worlds.append(second)
        torch.testing.assert_close(worlds[0], worlds[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_and_outputs_go_with_their_last_reference(backend: str) -> None:
    compiled = magpy.compile(exponential, backend=backend)
    for _ in range(2):
        compiled(square().requires_grad_(), square().requires_grad_())[0].sum().backward()
    gc.collect()
    gc.disable()
    try:
        x = square().requires_grad_()
        outputs = compiled(x, square().requires_grad_())
        outputs[0].sum().backward()
        alive = [weakref.ref(each) for each in (x, *outputs)]
        del x, outputs
        assert [each() for each in alive] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint_around_what_is_compiled(backend: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * SCALE).tanh() * x.shape[0]

    compiled = magpy.compile(f, backend=backend)

    def gradient(function: Program, rows: int) -> torch.Tensor:
        x = torch.linspace(-1, 1, 3 * rows).view(rows, 3).requires_grad_()
        torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False).sum().backward()
        assert x.grad is not None
        return x.grad

    for rows in (2, 2, 3, 2):
        assert torch.allclose(gradient(compiled, rows), gradient(f, rows))
    assert {reason.slug for reason in magpy.info(compiled).reasons} == {"function-mode"}
    served = Served(compiled)
    assert torch.allclose(served.monitored(square()), f(square()))
    assert torch.allclose(served.hit(square()), f(square()))
    assert torch.allclose(gradient(compiled, 3), gradient(f, 3))


def test_hooks_for_what_is_saved_get_the_program_s_tensors_alone() -> None:
    packed: list[type] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        packed.append(type(x))
        return x

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * x.shape[0]

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            return f(x)

    compiled, compiled_inside = magpy.compile(f, backend="eager"), magpy.compile(inside, backend="eager")
    for rows in (2, 3, 4, 4):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            compiled(torch.ones(rows, requires_grad=True))
        assert packed == [torch.Tensor]
        packed.clear()
        compiled_inside(torch.ones(rows, requires_grad=True))
        assert packed == [torch.Tensor]
        packed.clear()
