"""On a hit no Python of the user's or of a library's runs: counted by a tracer of this test's own, instruction by instruction."""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")
OWN = tuple(
    os.path.dirname(sys.modules[name].__file__ or "") + os.sep
    for name in ("magpy", "magpy_runtime", "magpy_codegen", "magpy_refgraph", "magpy_annotations")
)


def is_ours(filename: str) -> bool:
    """MagPy's files, the code that it generates, and torch.fx's code of the graph that the eager backend runs."""
    return filename.startswith((*OWN, "<magpy ", "<eval_with_key>")) or filename.endswith("contextlib.py")


def instructions(function: Callable[[], Any]) -> Counter[str]:
    """How many instructions ran in each code object that is not MagPy's."""
    counts: Counter[str] = Counter()

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename.startswith("<eval_with_key>"):
            return None
        if frame.f_back is not None and frame.f_back.f_code.co_filename.startswith("<eval_with_key>"):
            return None  # the graph calls a method of torch.Tensor that is written in Python
        frame.f_trace_opcodes = True
        if event == "opcode" and not is_ours(frame.f_code.co_filename) and frame.f_code is not function.__code__:
            counts[f"{frame.f_code.co_qualname} ({frame.f_code.co_filename})"] += 1
        return tracer

    previous = sys.gettrace()
    sys.settrace(tracer)
    try:
        function()
    finally:
        sys.settrace(previous)
    return counts


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm = nn.BatchNorm1d(4)
        self.history: list[torch.Tensor] = []
        self.cache: dict[str, Any] = {}

    def forward(self, x: torch.Tensor, *, names: tuple[str, ...] = ("a", "b")) -> dict[str, Any]:
        for layer in self.layers:
            x = layer(x).relu()
        for name in sorted(names, key=len):
            self.cache[name] = x
        self.history.append(x)
        return {"x": self.norm(x), "names": [name.upper() for name in names]}


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.relu(x) + 1


class Holder:
    @compile_
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return plain(x) * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: compile_(plain),
        lambda: compile_(Block()),
        lambda: compile_(Block().eval()),
        lambda: compile_(Block()).forward,
        lambda: Holder().method,
        lambda: compile_(functools.partial(torch.nn.functional.dropout, p=0.5)),
        lambda: compile_(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_a_hit_runs_no_python_of_others(make: Any, grad: bool) -> None:
    compiled = make()
    x = torch.randn(3, 4)
    if isinstance(compiled, nn.TransformerEncoderLayer):
        x = x[None]
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            compiled(x)
        owner = getattr(compiled, "__self__", None)
        info_of = owner if isinstance(owner, nn.Module) else compiled
        hits = magpy.info(info_of).hits
        counts = instructions(lambda: compiled(x))
        assert magpy.info(info_of).hits == hits + 1
    assert counts == Counter()


def test_the_count_counts() -> None:
    counts = instructions(lambda: plain(torch.ones(2)))
    assert any(name.startswith("plain ") for name in counts) and any(name.startswith("relu ") for name in counts)
