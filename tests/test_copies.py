"""Copies and pickles of what `compile` gives: independent where those of the original are. Modules: see `test_modules`."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")


class Counter:
    """A callable object with a state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Count."""
        self.calls += 1
        return x + self.calls

    def method(self, x: torch.Tensor) -> torch.Tensor:
        """Count, too."""
        return self(x)


class Holder(torch.nn.Module):
    """A module that has compiled a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.helper: Any = compile_(self._helper)

    def _helper(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.helper(x)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def through_pickle(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj))


@pytest.mark.parametrize("copier", [copy.deepcopy, through_pickle])
@pytest.mark.parametrize("kind", ["object", "method", "partial"])
def test_a_copy_has_a_state_of_its_own(kind: str, copier: Callable[[Any], Any]) -> None:
    made = Counter()
    target: Any = {"object": made, "method": made.method, "partial": functools.partial(made)}[kind]
    served = Served(compile_(target))
    x = torch.zeros(1)
    for expected in (1, 2, 3):
        assert served.compiled(x).item() == expected
    other = Served(copier(served.compiled))
    assert type(other.compiled) is type(served.compiled)
    assert [other.compiled(x).item() for _ in range(3)] == [4, 5, 6]
    assert magpy.info(other.compiled).hits + magpy.info(other.compiled).monitored == 3
    assert served.compiled(x).item() == 4
    assert made.calls == 4


def test_a_shallow_copy() -> None:
    compiled = compile_(Counter())
    other = copy.copy(compiled)
    x = torch.zeros(1)
    assert (compiled(x).item(), compiled(x).item(), other(x).item()) == (1, 2, 1)


@pytest.mark.parametrize("copier", [copy.deepcopy, through_pickle])
def test_a_module_with_a_compiled_method(copier: Callable[[Any], Any]) -> None:
    first = Holder()
    second = copier(first)
    with torch.no_grad():
        second.weight.fill_(5)
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(first(x), torch.ones(2))
        assert torch.equal(second(x), torch.full((2,), 5.0))


def test_a_copy_that_is_reached_through_what_it_copies() -> None:
    helper = copy.deepcopy(Holder().helper)
    assert helper.__wrapped__.__self__.helper is helper


@pytest.mark.parametrize("copier", [copy.deepcopy, copy.copy])
def test_functions_are_shared(copier: Callable[[Any], Any]) -> None:
    compiled = compile_(double)
    holder = {"function": compiled}
    assert copier(compiled) is compiled
    assert copier(holder)["function"] is compiled


def test_a_function_that_has_no_name_to_be_found_by_is_not_pickled() -> None:
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(compile_(double))


def test_the_face_of_an_object() -> None:
    made = Counter()
    for target in (made, made.method):
        compiled: Any = compile_(target)
        assert compiled.__wrapped__ is target
        assert compiled.__doc__ == target.__doc__
    assert compiled.__name__ == "method"
    assert compiled.__qualname__ == "Counter.method"


def test_which_object_is_called_is_a_fact() -> None:
    first, second = compile_(Counter().method), compile_(Counter())
    third = compile_(Counter().method)

    @compile_
    def outer(function: Any, x: torch.Tensor) -> Any:
        return function(x) * 10

    x = torch.zeros(1)
    for expected in (10, 20, 30):
        for function in (first, second, third):
            assert outer(function, x).item() == expected


def test_one_that_is_compiled_during_the_call() -> None:
    made = Counter()

    def function(x: torch.Tensor) -> Any:
        return compile_(made.method)(x) + 1

    compiled = compile_(function)
    x = torch.zeros(1)
    assert [compiled(x).item() for _ in range(3)] == [2, 3, 4]


def test_compile_of_a_compiled_object() -> None:
    made = Counter()
    once = compile_(made)
    twice = compile_(once)
    x = torch.zeros(1)
    assert [twice(x).item(), once(x).item(), twice(x).item()] == [1, 2, 3]
    assert twice.__wrapped__ is made
