"""Inputs that a graph updates after it has read them: gradients are those of what was read, and the updates are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, equal

import magpy

Function = Callable[[torch.Tensor, torch.Tensor], Any]


def read_then_counted(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * x.clone()).sin()
    x.add_(1)
    return y


def read_between(x: torch.Tensor, w: torch.Tensor) -> Any:
    x.add_(1)
    y = w * (x * 2)
    x.mul_(0.5)
    return y.sin(), y


def without_gradients(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * (x + 1)).sin()
    with torch.no_grad():
        x.mul_(2)
    return y


def detached(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * x.clone()).sin()
    x.detach().mul_(2)
    return y


def part(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * x.clone()).sin()
    with torch.no_grad():
        x.view(-1)[1:].copy_(x[:-1].clone())
    return y


def through_data(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * x.clone()).sin() + w * x
    x.data.mul_(2)
    return y


def handed_out(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (w * x.clone()).sin()
    with torch.no_grad():
        x.mul_(2)
    return y, x[1:]


def updated_first(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        x.mul_(2)
    return (w * x.clone()).sin()


def _normalized(x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    y = (w * mean.clone()).sin() + w * (spread + 1)
    rows = torch.stack([x, x * 2, x + 1])
    return y + torch.nn.functional.batch_norm(rows, mean, spread, training=True, momentum=0.5).tanh().sum()


FUNCTIONS = [
    read_then_counted,
    read_between,
    without_gradients,
    detached,
    part,
    through_data,
    handed_out,
    updated_first,
]
LEAVES_STAY = (without_gradients, detached, part, through_data, handed_out, updated_first)


def world(run: Function, kind: str) -> Any:
    """What a call and its backward pass give, with an input of a kind: a leaf, one with a history, one without gradients."""
    first = torch.tensor([0.5, 1.5, 2.5], requires_grad=kind != "constant")
    x = first * 1 if kind == "history" else first
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    given = run(x, w)
    outputs = given if isinstance(given, tuple) else (given,)
    total = sum(each.sum() for each in outputs)
    if kind == "history":
        total = total + x.sum()
    total.backward()  # type: ignore[union-attr]
    return [each.detach() for each in outputs], x.detach(), w.grad, first.grad


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("kind", ["constant", "history", "leaf"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_those_of_what_was_read(function: Function, kind: str, backend: str) -> None:
    if kind == "leaf" and function not in LEAVES_STAY:
        pytest.skip("eager does not update leaves")
    expected = world(function, kind)
    compiled = magpy.compile(function, backend=backend)
    for _ in range(3):
        found = world(compiled, kind)
        for one, other in zip(found[0], expected[0], strict=True):
            assert torch.allclose(one, other)
        for one, other in zip(found[1:], expected[1:], strict=True):
            assert (one is None) is (other is None)
            assert one is None or torch.allclose(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_running_statistics_that_were_read(backend: str, dynamic: bool | None) -> None:
    compiled = magpy.compile(_normalized, backend=backend, dynamic=dynamic)
    for _ in range(3):
        found = []
        for run in (_normalized, compiled):
            x, mean, spread = torch.tensor([0.5, 1.5, 2.5]), torch.full((3,), 0.5), torch.ones(3)
            w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
            run(x, w, mean, spread).sum().backward()
            found.append((w.grad, mean, spread))
        for one, other in zip(*found, strict=True):
            assert one is not None and other is not None and torch.allclose(one, other)


def test_they_are_served_by_records() -> None:
    compiled = magpy.compile(read_then_counted)
    served = Served(compiled)
    w = torch.ones(3, requires_grad=True)
    for how in (served.monitored, served.hit, served.hit):
        x = torch.arange(3.0)
        kept = x
        assert torch.allclose(how(x, w), (w * torch.arange(3.0)).sin())
        assert kept is x and equal(x, torch.arange(1.0, 4.0))


def test_sizes_that_vary() -> None:
    compiled = magpy.compile(read_then_counted, dynamic=True)
    for size in (3, 4, 5, 6):
        for run in (read_then_counted, compiled):
            x, w = torch.arange(float(size)), torch.ones(size, requires_grad=True)
            run(x, w).sum().backward()
            assert w.grad is not None and torch.allclose(w.grad, torch.arange(float(size)) * torch.arange(size).cos())
            assert equal(x, torch.arange(1.0, size + 1))


def test_caches_of_inference_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magpy_runtime._backends.written_back", None)

    def cached(cache: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = cache @ w
        cache.copy_(y.relu())
        return y

    compiled = magpy.compile(cached)
    served = Served(compiled)
    with torch.no_grad():
        for how in (served.monitored, served.hit):
            cache, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
            other = cache.clone()
            assert torch.allclose(how(cache, w), cached(other, w)) and torch.allclose(cache, other)
