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


def test_double_backward_of_random_operators_is_refused() -> None:
    compiled = magpy.compile(lambda x, w: torch.nn.functional.dropout(x @ w, 0.5).tanh().sum())
    compiled(torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True))
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="draws random numbers"):
        _penalty(compiled)
    torch.set_rng_state(before)
    assert magpy.info(compiled).hits == 1


def test_double_backward_after_a_change_of_the_inputs_is_refused() -> None:
    compiled = magpy.compile(lambda x, w: (x @ w).tanh().sum())
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    found = compiled(x, w)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified in place|modified by an inplace"):
        torch.autograd.grad(found, x, create_graph=True)


def test_double_backward_under_autocast_is_refused() -> None:
    compiled = magpy.compile(lambda x, w: (x @ w).float().tanh().sum())
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    with torch.autocast("cpu"):
        found = compiled(x, w)
        found = compiled(x, w)
    with pytest.raises(RuntimeError, match="autocast"):
        torch.autograd.grad(found, x, create_graph=True)
