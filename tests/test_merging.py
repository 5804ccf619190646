"""Branches on tensors as one graph: `options={"merge_branches": True}`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import equal
from torch import nn

import magpy

OPTIONS = {"merge_branches": True}


def two_sided(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    if y.sum() > 0:
        y = torch.relu(y) * 3
    else:
        y = torch.tanh(y) - 1
    return y + 1


def one_sided(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    if y.mean() > 0:
        y = y * 3
    return y


def negated(x: torch.Tensor) -> Any:
    y = x + 1
    low = not (y > 0).any()
    return {"y": y * 2, "z": [y - 1]} if low else {"y": y / 2, "z": [y + 1]}


def number(x: torch.Tensor) -> Any:
    y = x * 2
    total = y.sum()
    return (y + 1, 5) if total else (y - 1, 5)


def nested(x: torch.Tensor) -> Any:
    y = x * 2
    if y.sum() > 0:
        y = y + 1
        if y.max() > 2:
            return y * 3
        return y * 5
    return y * 7


class Gate(nn.Module):
    """Modules in both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gate(x)
        return torch.relu(self.one(y)) if y.mean() > 0 else torch.tanh(self.other(y)) + x


def _gate() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # both branches are taken
        return Gate().eval()


MERGED: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (two_sided, one_sided, negated, number, nested)
} | {"Gate": _gate()}


def inputs(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    signs = [1.0, -1.0, 0.1, -0.1, 3.0]
    found = [torch.rand(3, 4, generator=generator) * signs[n % 5] - (2.0 if n % 7 == 3 else 0.0) for n in range(count)]
    return [*found, torch.zeros(3, 4)]


@pytest.mark.parametrize("name", MERGED)
def test_merged(name: str) -> None:
    target = MERGED[name]
    compiled = magpy.compile(target, backend="eager", options=OPTIONS)
    with torch.no_grad():
        for _ in range(3):
            for x in inputs(30):
                assert equal(compiled(x), target(x))
        before = magpy.info(compiled)
        for x in inputs(30):
            assert equal(compiled(x), target(x))
    after = magpy.info(compiled)
    assert [each.taken for each in after.boundaries] == [each.taken for each in before.boundaries], after.boundaries
    assert after.hits == before.hits + 31
    assert "MergedGraph" in magpy.explain(compiled)


class Effects:
    """What must stay a tree."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def effect(self, x: torch.Tensor) -> Any:
        y = x * 2
        if y.sum() > 0:
            self.seen.append(1)
            return y + 1
        return y - 1

    def update(self, x: torch.Tensor) -> Any:
        y = x * 2
        if y.sum() > 0:
            x.add_(1)
            return y + 1
        return y - 1

    def shapes(self, x: torch.Tensor) -> Any:
        y = x * 2
        return y.sum(0) if y.sum() > 0 else y - 1

    def structure(self, x: torch.Tensor) -> Any:
        y = x * 2
        return (y + 1, y - 1) if y.sum() > 0 else (y - 1, 3)

    def alias(self, x: torch.Tensor) -> Any:
        y = x * 2
        return x if y.sum() > 0 else y - 1

    def view(self, x: torch.Tensor) -> Any:
        y = x * 2
        return x[:] if y.sum() > 0 else y - 1

    def twice(self, x: torch.Tensor) -> Any:
        y = x * 2
        if y.sum() > 0:
            return [y, y]
        return [y + 1, y + 2]

    def raises(self, x: torch.Tensor) -> Any:
        y = x * 2
        if y.sum() > 0:
            raise ValueError("positive")
        return y - 1

    def random(self, x: torch.Tensor) -> Any:
        y = x * 2
        return y + torch.rand(3, 4) if y.sum() > 0 else y - 1

    def boundary(self, x: torch.Tensor) -> Any:
        y = x * 2
        return y * y.max().item() if y.sum() > 0 else y - 1

    def sized(self, x: torch.Tensor) -> Any:
        y = x[x[:, 0] > -1] * 2
        return y + 1 if y.sum() > 0 else y - 1


def outcome(function: Callable[..., Any], x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    x = x.clone()
    try:
        result = function(x)
    except ValueError as error:
        return str(error), x
    same = result is x
    shared = isinstance(result, torch.Tensor) and result.data_ptr() == x.data_ptr()
    twice = isinstance(result, list) and result[0] is result[1]
    return result, x, same, shared, twice


@pytest.mark.parametrize("name", [name for name in vars(Effects) if not name.startswith("_")])
def test_kept_as_a_tree(name: str) -> None:
    eager, mine = Effects(), Effects()
    compiled = magpy.compile(getattr(mine, name), backend="eager", options=OPTIONS)
    for _ in range(2):
        for x in inputs(20):
            assert equal(outcome(compiled, x), outcome(getattr(eager, name), x))
    assert mine.seen == eager.seen
    info = magpy.info(compiled)
    assert any(each.unmerged for each in info.boundaries), info.boundaries
    assert "its ways were not merged" in magpy.explain(compiled)


def test_gradients_keep_the_tree() -> None:
    compiled = magpy.compile(two_sided, backend="eager", options=OPTIONS)
    for x in inputs(10):
        x.requires_grad_()
        compiled(x).sum().backward()
        got, x.grad = x.grad, None
        two_sided(x).sum().backward()
        assert equal(got, x.grad)
    (boundary,) = magpy.info(compiled).boundaries
    assert "gradients" in boundary.unmerged


def test_what_a_branch_reads_is_asked_each_time() -> None:
    """Globals, attributes and arguments that only one branch looks at."""

    class Scaled:
        scale = 2.0

    holder = Scaled()

    def program(x: torch.Tensor, n: int, other: torch.Tensor) -> Any:
        y = x * 2
        return y * holder.scale if y.sum() > 0 else y * n + other, n

    compiled = magpy.compile(program, backend="eager", options=OPTIONS, dynamic=False, record_limit=64)
    for _ in range(2):
        for count, x in enumerate(inputs(24)):
            holder.scale = 2.0 + count // 8
            for other in (x, torch.ones(3, 4), torch.ones(4)):
                assert equal(compiled(x, count // 12, other), program(x, count // 12, other))


def test_off_by_default_and_checked() -> None:
    compiled = magpy.compile(two_sided, backend="eager")
    for x in inputs(10):
        compiled(x)
    (boundary,) = magpy.info(compiled).boundaries
    assert (boundary.taken, boundary.unmerged) == (11, "")
    with pytest.raises(TypeError, match="merge_branches"):
        magpy.compile(two_sided, options={"merge_branches": 1})


@pytest.mark.parametrize("name", ["two_sided", "one_sided", "Gate"])
def test_inductor(name: str) -> None:
    target = MERGED[name]
    compiled = magpy.compile(target, options=OPTIONS)
    with torch.no_grad():
        for x in [*inputs(10), *inputs(10)]:
            torch.testing.assert_close(compiled(x), target(x))
    info = magpy.info(compiled)
    assert info.boundaries[0].taken <= 5, info.boundaries
    assert "higher_order.cond" in magpy.explain(compiled)
