"""numpy's reductions between operators: shapes are multiplied with `np.prod` all over the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from serving import Served, equal

import magpy

TABLE = np.array([1, 2, 3])
NUMBERS = [1, 2]
OUT = np.zeros(())
PYTHON = np.frompyfunc(lambda a, b: a + b + NUMBERS[0], 2, 1)


@pytest.fixture(autouse=True)
def fresh() -> None:
    TABLE[:], NUMBERS[:], OUT[...] = (1, 2, 3), (1, 2), 0


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * int(np.prod(x.shape)) + int(np.max([len(NUMBERS), 2])),
        lambda x: x + int(np.any([True, False])) + int(np.maximum.reduce((1, 5))),
        lambda x: x + torch.from_numpy(np.multiply.outer(np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]))),
        lambda x: x + int(np.add.accumulate([1, 2, 3])[-1]) + int(np.add.reduceat([1, 2, 3], [0, 2])[0]),
    ],
)
def test_reductions_of_what_is_known(program: Callable[[Any], Any]) -> None:
    compiled = magpy.compile(program, backend="eager")
    served = Served(compiled)
    x = torch.ones(2, 3)
    for serve in (served.monitored, served.hit, served.hit):
        assert equal(serve(x), program(x))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * int(np.sum(TABLE)) + int(np.multiply.reduce(NUMBERS)),
        lambda x: x + int(PYTHON.reduce([1, 2, 3])),
        lambda x: x + int(np.add.reduce(TABLE, 0, None, OUT)),
        lambda x: x + int(np.add.reduce(TABLE, out=OUT)),
        lambda x: (np.add.at(TABLE, [0], 1), x * int(TABLE[0]))[1],
    ],
)
def test_reductions_of_what_changes(program: Callable[[Any], Any]) -> None:
    """An array that changes, a function of Python's in a ufunc, arrays that are written to."""
    compiled = magpy.compile(program, backend="eager")
    x = torch.ones(2, 3)
    for turn in range(5):
        if turn == 3:
            TABLE[1] += 1
            NUMBERS[0] += 1
        before = (TABLE.copy(), [*NUMBERS], OUT.copy())
        wanted = program(x), TABLE.copy(), OUT.copy()
        TABLE[:], NUMBERS[:], OUT[...] = before
        found = compiled(x), TABLE.copy(), OUT.copy()
        assert all(np.array_equal(one, two) for one, two in zip(found, wanted, strict=True))
