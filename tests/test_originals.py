"""Values that are lifted are objects of their own for a while: identity is that of the program's own objects all the same."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest

import magpy


def text(word: str) -> str:
    """A string of its own."""
    return "".join(list(word))


class Memo:
    """What programs keep from call to call."""

    def __init__(self) -> None:
        self.last: Any = None
        self.count = 0
        self.items: list[Any] = []
        self.by_key: dict[Any, Any] = {}
        self.kept: Any = None


POOLS: dict[str, list[Any]] = {
    "str": [text("mode"), text("mode"), text("auto"), text("other")],
    "float": [float("1.5"), float("1.5"), 2.5, 0.0, -0.0, math.nan, float("nan")],
    "int": [int("1000"), int("1000"), 2000, -5000],
    "small int": [7, int("7"), 8, -3, 300],
}
ORDERS = ([0, 2, 0], [2, 0, 3, 0], [0, 1, 2, 1, 1, 0], [2, 3, 0, 0, 1, 0], [3, 2, 1, 0, 1, 2, 3])


def marks(value: Any, own: Any) -> Any:
    """A value, with a mark wherever it holds the very object `own`."""
    if value is own:
        return "own"
    if isinstance(value, (list, tuple)):
        return [marks(each, own) for each in value]
    if isinstance(value, dict):
        return [(marks(key, own), marks(each, own)) for key, each in value.items()]
    if isinstance(value, Memo):
        return marks(vars(value), own)
    if isinstance(value, BaseException):
        return marks(value.args, own)
    return marks(value(), own) if callable(value) else repr(value)


def agree(function: Callable[..., Any], pool: list[Any], **options: Any) -> None:
    """Compiled and not, over calls that mix the same object, an equal one and others."""
    for order in ORDERS:
        compiled = magpy.compile(function, backend="eager", **options)
        one, other = Memo(), Memo()
        for place in order:
            own = pool[place]
            expected, got = function(other, own, pool[0]), compiled(one, own, pool[0])
            assert marks(got, own) == marks(expected, own), order
            assert marks(one, own) == marks(other, own), order


def sentinel(memo: Memo, value: Any, first: Any) -> Any:
    return (1 if value is first else -1), value is not first


def in_c(memo: Memo, value: Any, first: Any) -> Any:
    return operator.is_(value, first), operator.is_not(value, first)


def by_last(memo: Memo, value: Any, first: Any) -> Any:
    if value is not memo.last:
        memo.last = value
        memo.count += 1
    return memo.count


def computed(memo: Memo, value: Any, first: Any) -> Any:
    other = value[:] if type(value) is str else abs(value)
    return other is value, max(value, first) is first, other is first


def stored(memo: Memo, value: Any, first: Any) -> Any:
    before = memo.last is value
    memo.last = value
    memo.items.append(value)
    memo.by_key["value"] = (value, [value])

    def closed() -> Any:
        return value

    return before, value, [value, {"key": value}], closed, memo.items[-1] is value


def goes_on(memo: Memo, value: Any, first: Any) -> Any:
    kept = [value]
    memo.last = value
    same = memo.last is value  # the run ends here
    memo.kept = kept
    return same, memo.last is value, kept[0] is value, kept, ValueError(value)


PROGRAMS = [sentinel, in_c, by_last, computed, stored, goes_on]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_identity(program: Any, kind: str, dynamic: bool | None) -> None:
    agree(program, POOLS[kind], dynamic=dynamic)


def test_what_the_lifting_call_gives() -> None:
    def function(memo: Memo, value: Any) -> Any:
        memo.last = value
        return value, memo

    compiled, memo = magpy.compile(function, backend="eager"), Memo()
    for value in (text("one"), text("two"), text("three")):
        assert marks(compiled(memo, value)[0], value) == "own"
        assert memo.last is value
    info = magpy.info(compiled)
    assert (info.monitored, info.hits) == (2, 1)


def test_a_boundary_gets_the_own_object() -> None:
    seen = []

    def function(memo: Memo, value: Any) -> Any:
        memo.last = value
        look(memo, value)
        memo.kept = value
        return value

    @magpy.disable
    def look(memo: Memo, value: Any) -> None:
        seen.append((memo.last is value, value))

    compiled, memo = magpy.compile(function, backend="eager"), Memo()
    for value in (text("one"), text("two"), text("three")):
        assert compiled(memo, value) is value
        assert seen[-1][0]
        assert seen[-1][1] is value
        assert memo.last is value
        assert memo.kept is value


NANS = [float("nan"), float("nan"), 1.5, complex("nan"), math.nan]


def nan_in_list(x: Any, y: Any) -> Any:
    return x in [y], x in (y,), x in iter([y])


def nan_equal(x: Any, y: Any) -> Any:
    return [x] == [y], (1, [x]) == (1, [y]), {1: x} == {1: y}


def nan_before(x: Any, y: Any) -> Any:
    return (x, 1) != (y, 1) if type(x) is complex or type(y) is complex else (x, 1) < (y, 2)


def nan_found(x: Any, y: Any) -> Any:
    return [y].count(x), operator.contains([y], x), operator.countOf((y,), x)


def nan_is(x: Any, y: Any) -> Any:
    return x is y, x is math.nan


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [nan_in_list, nan_equal, nan_before, nan_found, nan_is], ids=lambda p: p.__name__)
def test_nans(program: Any, dynamic: bool | None) -> None:
    for order in ([0, 1, 0], [2, 0, 1, 0, 0], [1, 2, 4, 3, 0, 1]):
        compiled = magpy.compile(program, backend="eager", dynamic=dynamic)
        for one in order:
            for other in order:
                x, y = NANS[one], NANS[other]
                assert compiled(x, y) == program(x, y), (order, one, other)


def test_comparisons_of_two_nans_are_no_boundary() -> None:
    def function(x: float, y: float) -> Any:
        return x == y, x < y, x != y

    compiled = magpy.compile(function, backend="eager", fullgraph=True)
    for x in NANS[:3]:
        for y in NANS[:3]:
            assert compiled(x, y) == function(x, y)
