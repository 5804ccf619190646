"""Golden cases: a program that builds a graph on a bench, and the guard, the held facts and the mock that come of it."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest
import torch

from magpy_refgraph import ABSENT, Atom, EdgeKind, Key

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))


class Box:
    """A plain instance."""


class Model(torch.nn.Module):
    """A module."""


NAMES = {
    "ABSENT": ABSENT, "Atom": Atom, "Box": Box, "EdgeKind": EdgeKind, "Key": Key, "Model": Model, "torch": torch,
    "collections": collections,
}  # fmt: skip


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, bench, update_cases):
    about, *rest = re.split(r"(?m)^--- (.*)\n", path.read_text(encoding="utf-8"))
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    assert about.strip(), "a case says what it shows"
    space = {**NAMES, "b": bench, "inputs": ()}
    exec(compile(sections["program"], str(path), "exec"), space)
    guard = bench.guard()
    writer, mock = bench.mock(space.get("result"), space["inputs"])
    found = {"program": sections["program"], "guard": bench.source, "held": bench.held_text(), "mock": mock}
    if update_cases and found != sections:
        path.write_text(about + "".join(f"--- {name}\n{text}" for name, text in found.items()), encoding="utf-8")
        sections = found
    assert found == sections
    assert type(guard(*bench.args, **bench.kwargs)) is tuple or bench.graph.effects, (
        "the guard passes on what was recorded"
    )
