"""How many records there may be."""

from __future__ import annotations

import random

import torch

import magpy


def test_outcomes_that_are_always_new_do_not_fill_all_records_of_a_point() -> None:
    """Each would cost a compilation for nothing."""
    drawn = random.Random(1)
    table: dict[int, int] = {}

    def program(x: torch.Tensor) -> torch.Tensor:
        return x + table.get(drawn.getrandbits(60), 1)

    fast = magpy.compile(program, backend="eager", record_limit=2)
    for _ in range(20):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))
    info = magpy.info(fast)
    assert info.monitored == 4
    assert [reason.slug for reason in info.reasons] == ["record-limit"]
