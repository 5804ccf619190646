"""Numbers that vary and with which a calculation raises: that is a miss, before anything has been done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, equal, reasons

import magpy


def _int(x: Any, t: torch.Tensor) -> Any:
    return int(x)


def _unused(x: Any, t: torch.Tensor) -> Any:
    t.add_(1)
    int(x)


def _floor(x: Any, t: torch.Tensor) -> Any:
    return math.floor(x), t


def _root(x: Any, t: torch.Tensor) -> Any:
    t.mul_(2)
    return t * math.sqrt(x)


def _halved(x: Any, t: torch.Tensor) -> Any:
    t.add_(1)
    return t + x / 2


def _half(x: Any, t: torch.Tensor) -> Any:
    return x * 0.5


def _asked(x: Any, t: torch.Tensor) -> Any:
    return t.sum() if x / 3 > 1 else t


def _power(x: Any, t: torch.Tensor) -> Any:
    return x**8


def _inverse(x: Any, t: torch.Tensor) -> Any:
    t.add_(1)
    return t + 1 // x


def _handled(x: Any, t: torch.Tensor) -> Any:
    t.add_(1)
    try:
        y = int(x)
    except OverflowError:
        y = 7
    return t + y


def _too_large(x: Any, t: torch.Tensor) -> Any:
    t.add_(1)
    try:
        return t + x * x
    except (OverflowError, RuntimeError):
        return t * 2


def _product(x: Any, t: torch.Tensor) -> Any:
    y = x
    for _ in range(20):
        y = y * x
    return y * 0.5


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """What a call gives or raises."""
    try:
        return function(*args)
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)


FLOATS, INTS = (1.5, 2.5, 3.5), (15, 25, 35)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("function", "usual", "raising"),
    [
        (_int, FLOATS, math.inf),
        (_int, FLOATS, math.nan),
        (_unused, FLOATS, math.inf),
        (_floor, FLOATS, -math.inf),
        (_root, FLOATS, -1.0),
        (_halved, INTS, 10**400),
        (_half, INTS, 10**400),
        (_asked, INTS, 10**400),
        (_power, FLOATS, 1e200),
        (_inverse, INTS, 0),
        (_handled, FLOATS, math.inf),
        (_too_large, INTS, 2**60),
        (_product, (3, 4, 5), 2**61),
    ],
)
def test_a_miss(function: Callable[..., Any], usual: Any, raising: Any, fullgraph: bool) -> None:
    served = Served(magpy.compile(function, backend="eager", fullgraph=fullgraph))
    for call, value in zip((served.monitored, served.monitored, served.hit), usual, strict=True):
        call(value, torch.ones(3))
    mine, others = torch.ones(3), torch.ones(3)
    assert equal(outcome(served.monitored, raising, mine), outcome(function, raising, others))
    assert equal(mine, others)
    assert "internal-error" not in reasons(served.compiled)
    assert equal(served.hit(usual[0], torch.ones(3)), function(usual[0], torch.ones(3)))


def test_behind_a_boundary(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any, t: torch.Tensor) -> Any:
        t.add_(1)
        print("half way")
        return t + int(x), int(x)

    served = Served(magpy.compile(function, backend="eager"))
    for value in FLOATS:
        served.compiled(value, torch.ones(3))
    t = torch.ones(3)
    capsys.readouterr()
    with pytest.raises(OverflowError, match="infinity"):
        served.compiled(math.inf, t)
    assert capsys.readouterr().out == "half way\n"
    assert equal(t, torch.full((3,), 2.0))
    assert reasons(served.compiled) == []
    assert equal(served.hit(1.5, torch.ones(3)), function(1.5, torch.ones(3)))


def test_compiled_code_gets_no_int_that_is_too_large() -> None:
    def function(t: torch.Tensor, n: int) -> Any:
        return t + n * n

    served = Served(magpy.compile(function, backend="aot_eager"))
    served.monitored(torch.ones(3), 3)
    served.monitored(torch.ones(3), 4)
    served.hit(torch.ones(3), 5)
    for large in (2**40, 10**30):
        assert outcome(served.monitored, torch.ones(3), large) == outcome(function, torch.ones(3), large)


def test_nor_one_that_was_a_float() -> None:
    def function(t: torch.Tensor, x: float) -> Any:
        t.add_(1)
        return t + int(x)

    served = Served(magpy.compile(function, backend="aot_eager"))
    served.monitored(torch.ones(3), 1.5)
    served.monitored(torch.ones(3), 2.5)
    served.hit(torch.ones(3), 3.5)
    for large in (1e300, math.inf, math.nan):
        mine, others = torch.ones(3), torch.ones(3)
        assert equal(outcome(served.monitored, mine, large), outcome(function, others, large))
        assert equal(mine, others)
