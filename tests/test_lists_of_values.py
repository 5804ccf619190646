"""Numbers in the lists that `tolist` gives: where they only feed tensors and sizes, varying ones need no new records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import equal

import magpy

FOLLOWED: dict[str, Callable[..., Any]] = {}
READ: dict[str, Callable[..., Any]] = {}


def followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Two monitored runs are enough, whatever the values."""
    FOLLOWED[function.__name__] = function
    return function


def read(function: Callable[..., Any]) -> Callable[..., Any]:
    """Looks at values: there may be more records, all of them right."""
    READ[function.__name__] = function
    return function


@followed
def unpacked(x: torch.Tensor) -> Any:
    p, q = x.tolist()
    return torch.zeros(3) * p + q


@followed
def looped(x: torch.Tensor) -> Any:
    t = torch.zeros(2)
    for v in x.tolist():
        t = t + v
    return t


@followed
def comprehended(x: torch.Tensor) -> Any:
    return [torch.ones(2) * v for v in x.tolist()]


@followed
def nested(x: torch.Tensor) -> Any:
    t = torch.zeros(2)
    for row in x.view(2, 1).expand(2, 2).tolist():
        for v in row:
            t = t * 2 + v
    return t


@followed
def two_lists(x: torch.Tensor) -> Any:
    boxes, scores = x.tolist(), (x + 1).tolist()
    t = torch.zeros(2)
    for index, (box, score) in enumerate(zip(boxes, scores)):
        t = t + box * index + score
    return t


@followed
def into_a_tensor(x: torch.Tensor) -> Any:
    return torch.tensor(x.tolist()) * 2, torch.tensor([x.tolist(), [1.0, 2.0]])


@followed
def summed(x: torch.Tensor) -> Any:
    return torch.ones(2) * sum(x.tolist())


@followed
def sizes(x: torch.Tensor) -> Any:
    n = x.long().tolist()
    return torch.zeros(n[0] + 2, n[1] + 2) + 1


@followed
def ragged(x: torch.Tensor) -> Any:
    values = torch.arange(100.0)
    found, start = [], 0
    for n in x.long().tolist():
        found.append(values[start : start + n + 2].sum())
        start += n + 2
    return torch.stack(found)


@followed
def split(x: torch.Tensor) -> Any:
    n = [each + 2 for each in x.long().tolist()]
    return torch.arange(sum(n)).split(n)


@followed
def items_in_a_loop(x: torch.Tensor) -> Any:
    t = torch.zeros(1)
    for index in range(2):
        t = t + torch.ones(int(x[index].item()) + 2).sum() * x[index].item()
    return t


@followed
def kept(x: torch.Tensor) -> Any:
    values = x.tolist()
    return values, torch.ones(2) * values[0]


@followed
def changed(x: torch.Tensor) -> Any:
    values = x.tolist()
    values[0] = values[1] * 2
    values.append(3.0)
    return [torch.ones(1) * v for v in values]


@read
def formatted(x: torch.Tensor) -> Any:
    return f"{x.tolist()}", x + 1


@read
def keys(x: torch.Tensor) -> Any:
    table = {2: 1.0, 3: 2.0, 4: 3.0}
    return [torch.ones(1) * table.get(n, 0.5) for n in x.long().tolist()]


@read
def identical(x: torch.Tensor) -> Any:
    n = x.long().tolist()
    return n[0] is n[0], n[0] is n[1], torch.ones(2) * n[0]


@read
def sorted_values(x: torch.Tensor) -> Any:
    return [torch.ones(1) * v for v in sorted(x.tolist(), reverse=True)]


@read
def branched(x: torch.Tensor) -> Any:
    return [torch.ones(1) * (v if v > 3 else -v) for v in x.tolist()]


@read
def counted(x: torch.Tensor) -> Any:
    n = x.long().tolist()
    return n.count(3), n.index(n[1]), torch.ones(1) * n[0]


@read
def booleans(x: torch.Tensor) -> Any:
    return [x * flag for flag in (x > 3).tolist()]


@read
def shared(x: torch.Tensor) -> Any:
    values = x.tolist()
    holder = {"values": values, "again": (values, values)}
    out = x.sum().item()
    return holder, [torch.ones(1) * v * out for v in values]


def arguments(number: int) -> torch.Tensor:
    return torch.tensor([2.0 + number % 5, 3.0 + number % 7]) + (0.25 if number % 2 else 0.0)


@pytest.mark.parametrize("name", FOLLOWED)
def test_no_new_records(name: str) -> None:
    function = FOLLOWED[name]
    compiled = magpy.compile(function, backend="eager")
    for number in range(16):
        x = arguments(number)
        assert equal(compiled(x), function(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (2, 14, 0), info.reasons


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("dynamic", [None, False, True])
def test_values_that_are_read(name: str, dynamic: bool | None) -> None:
    function = READ[name]
    compiled = magpy.compile(function, backend="eager", dynamic=dynamic)
    for number in range(24):
        x = arguments(number % 8)
        assert equal(compiled(x), function(x)), number
    assert magpy.info(compiled).hits > 0


def test_lists_of_any_length() -> None:
    compiled = magpy.compile(looped, backend="eager")
    for number in range(24):
        x = torch.arange(float(2 + number % 3)) + number
        assert equal(compiled(x), looped(x))
    assert magpy.info(compiled).hits >= 12


def test_long_lists_are_left_alone() -> None:
    compiled = magpy.compile(lambda x: x * len(x.tolist()), backend="eager")
    for _ in range(4):
        x = torch.randn(1000)
        assert equal(compiled(x), x * 1000)
    assert (magpy.info(compiled).monitored, magpy.info(compiled).lifted) == (1, ())


def test_what_a_list_holds_is_the_programs() -> None:
    """A list that somebody else holds is not touched, and one that leaves the call is as natively."""
    held: list[Any] = []

    def program(x: torch.Tensor) -> Any:
        values = x.long().tolist()
        held.append(values)
        y = x.sum().item()
        return [torch.ones(1) * v * y for v in values]

    compiled = magpy.compile(program, backend="eager")
    for number in range(8):
        x = arguments(number)
        compiled(x)
        assert held[-1] == x.long().tolist()
        assert all(each is int(str(each)) for each in held[-1] if number > 3)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_numbers_that_become_constants_after_all(backend: str) -> None:
    """torch cannot make a range of a varying float: the graph then takes no numbers."""

    def program(x: torch.Tensor, n: int, m: int) -> torch.Tensor:
        return torch.arange(float(n + m)) * 2 + x[0]

    compiled = magpy.compile(program, backend=backend)
    x = torch.ones(1)
    for n, m in ((3, 4), (4, 5), (4, 5), (5, 6), (5, 6), (4, 5)):
        torch.testing.assert_close(compiled(x, n, m), program(x, n, m))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (3, 3, 0)


def test_inductor() -> None:
    compiled = magpy.compile(two_lists)
    for number in range(6):
        x = arguments(number)
        torch.testing.assert_close(compiled(x), two_lists(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (2, 4, 0), info.reasons
