"""Records that rest on what each process finds otherwise, hashes and addresses, are not carried to another one."""

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import Served

import magpy

NAME = "abc"
PLAIN = object()


class Colour(enum.Enum):
    RED = 1


def hashed(x: torch.Tensor) -> Any:
    return x * (hash(NAME) % 7)


def hashed_in_tuple(x: torch.Tensor) -> Any:
    return x, hash((NAME, 1))


def by_method(x: torch.Tensor) -> Any:
    return x, NAME.__hash__()


def as_sort_key(x: torch.Tensor) -> Any:
    return x, sorted(["a", "b", "c"], key=hash)


def of_an_enum(x: torch.Tensor) -> Any:
    return x, hash(Colour.RED)


def of_an_enum_by_method(x: torch.Tensor) -> Any:
    return x, Colour.RED.__hash__()


def order(x: torch.Tensor) -> Any:
    for index, each in enumerate({"a", "bb", "ccc", "dddd"}):
        x = x * 2 + len(each) * index
    return x


def first(x: torch.Tensor) -> Any:
    return x, next(iter(set("qwerty")))


def popped(x: torch.Tensor) -> Any:
    return x, {each for each in ("a", "b", "c")}.pop()  # noqa: C416


def keys(x: torch.Tensor) -> Any:
    return x, dict.fromkeys({"a", "b", "c"})


def address(x: torch.Tensor) -> Any:
    return x, repr(PLAIN)


def identity(x: torch.Tensor) -> Any:
    return x, id(Colour)


ONLY_HERE = [
    hashed, hashed_in_tuple, by_method, as_sort_key, of_an_enum, of_an_enum_by_method,
    order, first, popped, keys, address, identity
]  # fmt: skip


@pytest.mark.parametrize("program", ONLY_HERE)
def test_a_record_that_another_process_must_not_have(program: Callable[..., Any], tmp_path: Path) -> None:
    x = torch.ones(2)
    served = Served(magpy.compile(program, backend="eager"))
    served.monitored(x)
    served.hit(x)
    with pytest.raises(magpy.UnsavableError, match="another one in each process"):
        magpy.save(served.compiled, tmp_path / "records.magpy")


def number(x: torch.Tensor) -> Any:
    return x * hash(3), hash((1, 2.5)), Colour.RED in {Colour.RED: 1}, sum({1, 2, 3}), NAME in {"abc", "d"}


def test_one_that_it_may_have(tmp_path: Path) -> None:
    x = torch.ones(2)
    served = Served(magpy.compile(number, backend="eager"))
    served.monitored(x)
    assert magpy.save(served.compiled, tmp_path / "records.magpy")
