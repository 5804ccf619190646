"""Gradients of gradients through compiled graphs are those of eager, or an error."""

from typing import Any

import pytest
import torch

import magpy


def _penalty(make: Any, *, alone: bool = False) -> torch.Tensor:
    """The gradient of a loss with a gradient penalty, or of the penalty alone."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 3), torch.randn(3, 3, requires_grad=True)
    x = x.requires_grad_()
    loss = make(x, w)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().sum()
    return torch.autograd.grad(penalty if alone else penalty + loss, w)[0]


@pytest.mark.parametrize("alone", [False, True])
def test_a_gradient_penalty_has_its_gradient(alone: bool) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).tanh().sum()

    compiled = magpy.compile(loss)
    expected = _penalty(loss, alone=alone)
    for _ in range(3):
        assert torch.allclose(_penalty(compiled, alone=alone), expected, atol=1e-5)
    assert magpy.info(compiled).hits == 2


def test_a_gradient_penalty_beside_outputs_without_gradient() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * 2, (x @ w).tanh().sum(), (w * torch.tensor([1.0, 2.0, 3.0])).sum()

    compiled = magpy.compile(loss)
    expected = _penalty(lambda x, w: loss(x, w)[1])
    for _ in range(3):
        assert torch.allclose(_penalty(lambda x, w: compiled(x, w)[1]), expected, atol=1e-5)
    assert magpy.info(compiled).hits == 2


def test_create_graph_for_first_gradients() -> None:
    w = torch.randn(3, requires_grad=True)
    compiled = magpy.compile(lambda w: (w * w).sum())
    for _ in range(2):
        (found,) = torch.autograd.grad(compiled(w), w, create_graph=True)
        assert torch.allclose(found, 2 * w)
        (second,) = torch.autograd.grad(found.sum(), w)
        assert torch.allclose(second, torch.full((3,), 2.0))


@pytest.mark.parametrize("draw", [torch.nn.functional.dropout, lambda x: x + torch.randn(4, 3)])
def test_double_backward_of_random_operators(draw: Any) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return draw(x @ w).tanh().sum()  # type: ignore[no-any-return]

    compiled = magpy.compile(loss)
    expected = _penalty(loss)
    after = torch.get_rng_state()
    for _ in range(3):
        assert torch.allclose(_penalty(compiled), expected, atol=1e-5)
        assert torch.equal(torch.get_rng_state(), after), "what is computed again draws nothing"
    assert magpy.info(compiled).hits == 2


def test_double_backward_of_other_random_numbers_is_refused() -> None:
    compiled = magpy.compile(
        lambda x, w: torch.nn.functional.dropout(x @ w, 0.5).tanh().sum(), options={"fallback_random": False}
    )
    compiled(torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True))
    with pytest.raises(RuntimeError, match="draws other random numbers"):
        _penalty(compiled)
    assert magpy.info(compiled).hits == 1


class _Norms(torch.nn.Module):
    """Running statistics, updates in place of what is its own, and of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.relu = torch.nn.LeakyReLU(0.2, inplace=True)
        self.register_buffer("total", torch.ones(3))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.norm(x @ w))
        self.total.mul_(1.5)
        return (y * self.total).tanh().sum()


def test_double_backward_of_what_updates_buffers() -> None:
    torch.manual_seed(0)
    eager, model = _Norms(), _Norms()
    compiled = magpy.compile(model)
    for _ in range(4):
        assert torch.allclose(_penalty(compiled), _penalty(eager), atol=1e-5)
        for one, other in zip(model.buffers(), eager.buffers(), strict=True):
            assert torch.allclose(one, other), "a buffer was updated again, or not at all"
    assert magpy.info(compiled).hits >= 2


def test_double_backward_of_what_updates_much_is_refused() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, queue: torch.Tensor) -> torch.Tensor:
        queue.mul_(0.5)
        return (x @ w).tanh().sum()

    compiled = magpy.compile(loss)
    x, w, queue = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True), torch.ones(1 << 19)
    for _ in range(2):
        found = compiled(x, w, queue)
    with pytest.raises(RuntimeError, match="it updates large inputs"):
        torch.autograd.grad(found, x, create_graph=True)


def test_double_backward_again() -> None:
    model = _Norms()
    compiled = magpy.compile(model)
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    compiled(x, w)
    found = compiled(x, w)
    once, twice = (torch.autograd.grad(found, (x, w), create_graph=True, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, once, twice))


def test_double_backward_after_a_change_of_the_inputs_is_refused() -> None:
    compiled = magpy.compile(lambda x, w: (x @ w).tanh().sum())
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    found = compiled(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified in place|modified by an inplace"):
        torch.autograd.grad(found, x, create_graph=True)


def test_double_backward_under_autocast() -> None:
    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).float().tanh().sum()

    def cast(function: Any) -> Any:
        def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu"):
                return function(x, w)  # type: ignore[no-any-return]

        return call

    compiled = magpy.compile(loss)
    expected = _penalty(cast(loss))
    assert not torch.allclose(expected, _penalty(loss), atol=1e-6)
    for _ in range(3):
        assert torch.allclose(_penalty(cast(compiled)), expected, rtol=2e-2, atol=2e-2)
    assert magpy.info(compiled).hits == 2
