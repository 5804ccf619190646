"""Python code that C code calls runs once a call, as in eager; what a record asks runs none of it."""

import collections
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import magpy

log: list[str] = []


class Listed(list[Any]):
    def __iter__(self) -> Any:
        log.append("iter")
        return list.__iter__(self)

    def __next__(self) -> int:
        log.append("next")
        return 1

    def __setitem__(self, index: Any, value: Any) -> None:
        log.append("set")

    def __delitem__(self, index: Any) -> None:
        log.append("delete")


class Mapped(dict[Any, Any]):
    def __contains__(self, key: object) -> bool:
        log.append("contains")
        return True

    def __missing__(self, key: Any) -> int:
        log.append("missing")
        return 1


class Ordered(collections.OrderedDict[str, Any]):
    pass


class Number(int):
    def __int__(self) -> int:
        log.append("int")
        return 1

    def __index__(self) -> int:
        log.append("index")
        return 1


class Real(float):
    def __float__(self) -> float:
        log.append("float")
        return 1.0


class World:
    """State that is older than a call."""

    def __init__(self) -> None:
        self.listed = Listed([1, 2])
        self.mapped = Mapped(a=1)
        self.number = Number(1)
        self.real = Real(1.0)
        self.plain = [3, 1]
        self.queue = collections.deque([1, 2, 3])
        self.names = {"a": 1}


CASES: dict[str, Callable[[World], Any]] = {
    "setitem": lambda w: operator.setitem(w.listed, 0, 5),
    "delitem": lambda w: operator.delitem(w.listed, 0),
    "extend": lambda w: w.plain.extend(w.listed),
    "slice": lambda w: operator.setitem(w.plain, slice(0, 1), w.listed),
    "next": lambda w: next(w.listed),  # type: ignore[call-overload]
    "rotate": lambda w: w.queue.rotate(w.number),
    "insert": lambda w: w.plain.insert(w.number, 7),
    "any": lambda w: any(w.listed),
    "sorted": lambda w: sorted(w.listed),
    "map": lambda w: list(map(abs, w.listed)),
    "chain": lambda w: list(itertools.chain(w.listed, w.plain)),
    "missing": lambda w: w.mapped["b"],
    "number": lambda w: isinstance(w.number, str),
    "real": lambda w: (w.real + 1, repr(w.real)),
}


@pytest.mark.parametrize("name", CASES)
def test_code_that_c_code_calls_runs_once(name: str) -> None:
    case = CASES[name]
    worlds = []
    for compiled in (False, True):
        world = World()

        def f(x: torch.Tensor) -> Any:
            return x * 2, case(world)

        function = magpy.compile(f, backend="eager") if compiled else f
        log.clear()
        seen = []
        for _ in range(4):
            result = function(torch.ones(2))[1]
            seen.append(
                (result, [*log], list.__repr__(world.listed), [*world.plain], [*world.queue], dict.copy(world.mapped))
            )
        worlds.append(seen)
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("base", ["defaultdict", "__missing__"])
def test_what_varied_is_asked_without_missing(base: str) -> None:
    """A call that no record serves is compared with the records, and no absent key is made."""

    def missing() -> int:
        log.append("made")
        return 0

    counts: dict[str, int] = collections.defaultdict(missing) if base == "defaultdict" else Mapped()
    counts.update(a=1, b=2)

    def f(x: torch.Tensor) -> Any:
        counts["a"] = 1
        return x * 2, len(counts)

    compiled = magpy.compile(f, backend="eager")
    log.clear()
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    counts.clear()
    assert compiled(torch.ones(2))[1] == 1
    assert dict(counts) == {"a": 1}
    assert log == []


class Added(float):
    def __add__(self, other: Any) -> Any:
        log.append("add")
        return 7.0


def test_what_varied_is_asked_without_operators_of_the_program() -> None:
    def f(x: torch.Tensor) -> Any:
        holder["value"] += 1
        return x * 2

    holder: dict[str, Any] = {"value": 3.5}
    compiled = magpy.compile(f, backend="eager")
    for _ in range(4):
        compiled(torch.ones(2))
    holder["value"] = Added(1.0)
    log.clear()
    compiled(torch.ones(2))
    assert (holder["value"], log) == (7.0, ["add"])


def test_an_operator_that_declines_its_arguments_read_them() -> None:
    size: list[Any] = [[1], 2]
    value = torch.ones(3)

    def zeros(x: torch.Tensor) -> Any:
        return x * 2, torch.zeros(size)

    def full(x: torch.Tensor) -> Any:
        return x * 2, torch.full((2,), value)  # type: ignore[arg-type]

    compiled = magpy.compile(zeros, backend="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="must be tuple of ints"):
            compiled(torch.ones(2))
    size[0] = 3
    assert compiled(torch.ones(2))[1].shape == (3, 2)
    compiled = magpy.compile(full, backend="eager")
    for _ in range(2):
        with pytest.raises(TypeError, match="must be Number"):
            compiled(torch.ones(2))
    value = torch.ones(())
    assert compiled(torch.ones(2))[1].tolist() == [1.0, 1.0]


def test_a_method_that_an_ordered_dictionary_calls_is_a_fact() -> None:
    names = Ordered(a=1)

    def f(x: torch.Tensor) -> Any:
        return x * 2, repr(names)

    compiled = magpy.compile(f, backend="eager")
    before = compiled(torch.ones(2))[1], compiled(torch.ones(2))[1]
    assert before == (repr(names), repr(names))
    Ordered.items = lambda self: ["r"]  # type: ignore[method-assign, assignment, return-value]
    try:
        assert compiled(torch.ones(2))[1] == repr(names)
    finally:
        del Ordered.items


def test_the_hash_of_a_nan_is_the_same_twice() -> None:
    value = 0.5

    def f(x: torch.Tensor) -> Any:
        return x * 2, hash(value) == hash(value)

    compiled = magpy.compile(f, backend="eager")
    for value in (0.5, 0.5, -1.5, float("nan"), float("nan"), 2.5):  # noqa: B007
        assert compiled(torch.ones(2))[1]
