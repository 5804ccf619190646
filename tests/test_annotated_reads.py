"""Each annotated C callable is served right after what it gets was changed in place: its annotation leaves no read out."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import io
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import magpy
from magpy_annotations import Annotation, UnknownTargetError, default_registry, resolve
from magpy_annotations.conformance import samples
from magpy_annotations.conformance._check import operation_of
from magpy_annotations.conformance._snapshot import snapshot

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES, CHANGES = 2, 3

Change = Callable[[Any], object]

NOT_HERE = ("torch", "numpy", "sys.", "gc.", "time.", "_thread", "_warnings", "builtins.input", "builtins.open")
NO_VALUE = frozenset(
    {
        "builtins.object.__hash__",
        "builtins.id",
        "builtins.breakpoint",
        "builtins.memoryview.release",
        "builtins.memoryview.__exit__",
    }
)
"""What gives another answer for each object, or leaves one that cannot be looked at."""

OWN_CODE = frozenset({"magpy_annotations.hidden.method", "magpy_annotations.hidden.generator"})
"""Samples of these run Python code of MagPy's own, which is never monitored."""

SERVED = frozenset(
    {
        "_operator",
        "builtins",
        "builtins.bytearray",
        "builtins.dict",
        "builtins.list",
        "builtins.set",
        "builtins.tuple",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "functools.partial",
        "magpy_annotations.hidden.dict_items",
        "magpy_annotations.hidden.dict_keys",
        "magpy_annotations.hidden.dict_values",
        "magpy_annotations.hidden.mappingproxy",
    }
)
"""Owners that have many hits, without which nothing would have been looked at."""

DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
CONTAINERS = (list, tuple, set, bytearray, collections.deque, *DICTS)


def changes(value: Any, depth: int = 0) -> list[Change]:
    """Ways to change an object in place, or what it holds."""
    found: list[Change] = []
    kind = type(value)
    if kind in (list, collections.deque):
        found.append(lambda v: v.append(7))
        if len(value):
            found += [lambda v: v.__setitem__(0, 99), lambda v: v.pop()]
    elif kind in DICTS:
        found += [lambda v: v.__setitem__("zz", 5), lambda v: v.__setitem__("x", 5)]
        if len(value):
            found += [lambda v: v.__setitem__(next(iter(v)), 98), lambda v: v.pop(next(iter(v)))]
    elif kind is set:
        found += [lambda v: v.add(9), lambda v: v.discard(next(iter(v), None))]
    elif kind is bytearray:
        found.append(lambda v: v.__setitem__(0, 99))
    elif kind in (types.SimpleNamespace, types.ModuleType) or kind.__name__ == "Instance":
        found += [lambda v: setattr(v, "x", [5]), lambda v: setattr(v, "zz", 5)]
    if depth < 3 and not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
        for place, held in enumerate(gc.get_referents(value)):
            if type(held) in CONTAINERS or type(held).__name__ == "Instance" or "iterator" in type(held).__name__:
                found += [functools.partial(inside, place, change) for change in changes(held, depth + 1)[:3]]
    return found


def inside(place: int, change: Change, value: Any) -> None:
    change(gc.get_referents(value)[place])


def seen(run: Callable[..., Any], make: Callable[[], Any], at: int, change: Change, compile_: Any) -> list[str] | None:
    """What calls give and leave, with a change before every other one; None where it cannot be made."""
    world: dict[str, Any] = {}

    def program(x: torch.Tensor) -> Any:
        found = run(*world["args"])
        return x * 2, found

    compiled = compile_(program)
    found = []
    for _ in range(2):
        world["args"] = make()
        for changed in (False, True):
            if changed:
                try:
                    change(world["args"][at])
                except Exception:
                    return None
            try:
                found.append(repr(snapshot(compiled(torch.ones(2))[1])))
            except (Exception, SystemExit) as error:
                found.append(f"{type(error).__name__}: {str(error).partition(' at 0x')[0]}")
            found.append(repr(snapshot(world["args"])))
    return found


def differences(annotation: Annotation) -> tuple[list[str], int]:
    """The samples for which a compiled program differs from eager, and how many calls were hits."""
    run = operation_of(annotation.target)
    wrong, hits = [], 0
    for sample in samples(annotation)[:SAMPLES]:
        for at, value in enumerate(sample.make()):
            for change in changes(value)[:CHANGES]:
                expected = seen(run, sample.make, at, change, lambda program: program)
                if expected is None:
                    continue
                compiled: list[Any] = []

                def compile_(program: Any, compiled: list[Any] = compiled) -> Any:
                    compiled.append(magpy.compile(program, backend="eager"))
                    return compiled[0]

                if seen(run, sample.make, at, change, compile_) != expected and " at 0x" not in str(expected):
                    wrong.append(f"{annotation.target}({sample.text}), argument {at} changed")
                hits += magpy.info(compiled[0]).hits
    return wrong, hits


def by_owner() -> dict[str, list[Annotation]]:
    found: dict[str, list[Annotation]] = collections.defaultdict(list)
    registry = default_registry()
    for target in sorted(registry.targets()):
        if target.startswith(NOT_HERE) or target in NO_VALUE:
            continue
        with contextlib.suppress(UnknownTargetError):
            annotation = registry.lookup(resolve(target))
            if annotation is not None and annotation.target == target:
                found[target.rpartition(".")[0]].append(annotation)
    return found


OWNERS = by_owner()


@pytest.mark.parametrize("owner", sorted(OWNERS.keys() - OWN_CODE))
def test_no_read_is_left_out(owner: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        found = [differences(annotation) for annotation in OWNERS[owner]]
    assert [each for wrong, _ in found for each in wrong] == []
    assert owner not in SERVED or sum(hits for _, hits in found) > 50


def test_the_owners_that_are_served_are_there() -> None:
    assert SERVED <= OWNERS.keys() - OWN_CODE
