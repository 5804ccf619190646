"""Records out of an archive: guards, mocks and graphs made from their source again, on the objects of this process."""

from __future__ import annotations

import itertools
import json
import linecache
import os
import tempfile
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from . import _torch
from ._checks import ABSENT, ModeCheck, TensorCheck, fact_table, guard_helpers, metadata, native_guard, same_value
from ._finding import Finder, Missing, ask, is_subclass
from ._record import Record, RecordCache
from ._running import wrap
from .segments import BoundarySite, Entry, FrameShape, Tree

_numbers = itertools.count()
_REST: Final = (12, 14)
_BOUND: Final = 7


class Misfit(Exception):
    """A record cannot serve here, whatever it is called with."""


def make_function(source: str, name: str, namespace: dict[str, Any], title: str) -> types.FunctionType:
    """A function out of source that was written ahead of time; tracebacks show its lines."""
    filename = f"<magpy {title} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    code = compile(source, filename, "exec")
    [inner] = [each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name]
    function = types.FunctionType(inner, namespace, name)
    function.__defaults__ = None
    return function


class Restorer:
    """Makes the records of one archive.

    Attributes:
        finder: has found the objects.
        members: the archive's other files.
        tree: the resume points.
    """

    def __init__(self, finder: Finder, members: dict[str, bytes], tree: Tree) -> None:
        self.finder = finder
        self.members = members
        self.tree = tree
        self._runs: dict[str, Callable[..., Any]] = {}

    # -- a record -----------------------------------------------------------------------------------------------------

    def record(self, document: dict[str, Any]) -> tuple[Record, list[str]]:
        """Make a record.

        Args:
            document: as it stands in the archive.

        Returns:
            The record, and which of the facts that it rests on do not hold now.

        Raises:
            Missing: an object was not found.
            Misfit: what this process has is not what the record takes for granted.
        """
        finder = self.finder
        for fact in document["implied"]:
            if (problem := self._fails(fact)) is not None:
                raise Misfit(problem)
        facts = [self._fact(fact) for fact in document["facts"]]
        modes = ModeCheck(tuple(document["modes"]))
        table = fact_table(facts)
        tensors, differing = self._tensors(document["tensors"])
        namespace: dict[str, Any] = {"__builtins__": __builtins__, **guard_helpers()}
        namespace.update({name: finder.value(each) for name, each in document["constants"].items()})
        namespace.update(modes_match=modes, held_facts=table, tensors_match=tensors)
        guard_source, mock_source = (self.members[document[part]].decode() for part in ("guard", "mock"))
        guard = make_function(guard_source, "guard", namespace, "guard")
        record = Record(
            guard=guard,
            mock=make_function(mock_source, "mock", namespace, "mock"),
            run=None if document["graph"] is None else self._run(document["graph"]),
            guard_source=guard_source,
            held_source=_no_source,
            mock_source=mock_source,
            checks=tuple(document["checks"]),
            check_keys=(None,) * len(document["checks"]),
            held=tuple([(fact[5], None) for fact in document["facts"]]),
            graph=None,
            operators=document["operators"],
            effects=tuple(document["effects"]),
            mutates=document["mutates"],
            random=document["random"],
            updated=tuple(document["updated"]),
            may_raise=document["may_raise"],
            switches=document["switches"],
            steady=document["steady"],
            lifted=tuple(document["lifted"]),
            raises=document["raises"],
            namespace=namespace,
        )
        if document["steps"] is not None:
            steps = [self._step(step, document["rest"], namespace) for step in document["steps"]]
            direct = None if document["direct"] is None else self._direct(document["direct"])
            record.native = native_guard(steps, modes, table, tensors, None, direct, document["handed"])
        wrap(record)
        if document["boundary"] is not None:
            record.boundary = self._site(document["boundary"])
        failing = [problem for fact in document["facts"] if (problem := self._fails(fact)) is not None]
        return record, differing + failing

    def _fact(self, fact: list[Any]) -> tuple[int, Any, Any, Any, bool]:
        kind, obj, key, expected, plain = fact[:5]
        value = self.finder.value
        return kind, self.finder.at(obj), value(key), value(expected), bool(plain)

    def _fails(self, fact: list[Any]) -> str | None:
        """Why a fact does not hold, None where it does."""
        kind, obj, key, expected, plain = self._fact(fact)
        found = ask(kind, obj, key)
        if found is expected or (same_value(found, expected) if plain or kind in (3, 4) else False):
            return None
        if kind in (12, 3, 4) and found == expected:
            return None
        where = self.finder._asked(fact[1], fact[0], fact[2]) if kind not in (3, 4) else self.finder.text(fact[1])
        what = {3: "has length", 4: "is filled:"}.get(kind, "is")
        return f"{where} {what} {_shown(found)}, was {_shown(expected)}"

    def _tensors(self, documents: list[Any]) -> tuple[TensorCheck, list[str]]:
        tensors, entry, free, differing = [], [], [], []
        for held, encoded, dims in documents:
            was = self.finder.value(encoded)
            tensor = example(was) if held is None else self.finder.at(held)
            if held is not None and metadata(tensor) != was:
                differing.append(f"{self.finder.text(held)}: {_compared(metadata(tensor), was)}")
            tensors.append(tensor)
            entry.append(was)
            free.append(frozenset(dims))
        return TensorCheck(tensors, entry, free if any(free) else None), differing

    def _operand(self, encoded: list[Any]) -> tuple[int, Any]:
        return encoded[0], self.finder.value(encoded[1])

    def _step(self, step: list[Any], rest: str, namespace: dict[str, Any]) -> tuple[Any, ...]:
        kind, number, asked, operands, key, expected = step
        value = self.finder.value
        if kind in _REST:
            made: Any = make_function(self.members[rest].decode(), "guard", namespace, "rest of a guard")
        else:
            made = value(key)
        return kind, number, asked, tuple(map(self._operand, operands)), made, value(expected)

    def _direct(self, direct: list[Any]) -> tuple[Any, ...]:
        inputs, count, result, actions = direct
        done = [(self.finder.value(function), tuple(map(self._part, args))) for function, args in actions]
        return tuple(map(self._operand, inputs)), count, self._part(result), tuple(done)

    def _part(self, part: list[Any]) -> tuple[Any, ...]:
        kind = part[0]
        if kind == 0:
            return kind, part[1]
        if kind == 1:
            return kind, self._operand(part[1])
        parts = tuple(map(self._part, part[1]))
        return (kind, parts, tuple(map(self.finder.value, part[2]))) if kind == 4 else (kind, parts)

    # -- boundaries ---------------------------------------------------------------------------------------------------

    def frames(self, shapes: list[Any]) -> tuple[FrameShape, ...]:
        """The frames of a boundary or a resume point."""
        return tuple([FrameShape(self.finder.at(code), at, tuple(live), depth) for code, at, live, depth in shapes])

    def _site(self, document: dict[str, Any]) -> BoundarySite:
        names = ("text", "slug", "file", "line", "pruned", "sees", "steady")
        return BoundarySite(
            self.tree,
            self.frames(document["frames"]),
            Entry(document["entry"]),
            **{name: document[name] for name in names},
        )

    # -- graphs -------------------------------------------------------------------------------------------------------

    def _run(self, graph: dict[str, Any]) -> Callable[..., Any]:
        member = graph["member"]
        run = self._runs.get(member)
        if run is None:
            make = self._package if graph["kind"] == "aoti" else self._exported
            run = self._runs[member] = make(graph)
        return run

    def _package(self, graph: dict[str, Any]) -> Callable[..., Any]:
        """A graph that AOTInductor has compiled. Its loader wants a file, of which it makes a copy of its own."""
        handle, path = tempfile.mkstemp(suffix=".pt2")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.members[graph["member"]])
            call = _torch.load_package(path, single_threaded=False, device=-1)
        finally:
            os.unlink(path)

        def run(*inputs: Any) -> Any:
            return call([*inputs])

        run.boxed = call  # type: ignore[attr-defined]
        run.functional = True  # type: ignore[attr-defined]
        run.entry = "aoti"  # type: ignore[attr-defined]
        return run

    def _exported(self, graph: dict[str, Any]) -> Callable[..., Any]:
        """A graph as Python: its operators run one by one."""
        names = {name: self.finder.value(each) for name, each in graph["names"].items()}
        namespace = {"__builtins__": __builtins__, **names}
        forward = make_function(self.members[graph["member"]].decode(), "forward", namespace, "graph")
        count, floats = graph["inputs"], frozenset(graph["floats"])

        def run(*inputs: Any) -> Any:
            passed = [
                torch.tensor(each, dtype=torch.float64) if number in floats and type(each) is float else each
                for number, each in enumerate(inputs[:count])
            ]
            return forward(None, *passed)

        run.entry = "exported"  # type: ignore[attr-defined]
        return run


def attach(members: dict[str, bytes], target: Any, cache: RecordCache, tree: Tree, differences: list[str]) -> bool:
    """Make the records of an archive, as far as they fit here.

    Args:
        members: its files, verified.
        target: the callable.
        cache: takes the records of calls.
        tree: takes those of what comes behind boundaries.
        differences: what does not fit is added, in words.

    Returns:
        Whether a call can be served now: all that was found is as it was, and the facts of a record hold.
    """
    document = json.loads(members["records.json"])
    finder = Finder(document["objects"], target)
    before = len(differences)
    differences += finder.differences
    for one, other, answer in document["subclasses"]:
        try:
            if is_subclass(finder.at(one), finder.at(other)) is not answer:
                differences.append(f"issubclass({finder.text(one)}, {finder.text(other)}) is not {answer}")
        except Missing:
            continue
    fits = not differences
    if len(differences) - before > len(finder.differences):
        return False  # any record may rest on what `isinstance` said
    restorer = Restorer(finder, members, tree)
    failing: list[list[str]] = []
    for place, described in document["records"]:
        try:
            record, problems = restorer.record(described)
            if place is None:
                found = cache
            else:
                point = document["points"][place]
                found = tree.point(restorer.frames(point["frames"]), point["start"], point["pruned"]).cache
        except Missing:
            continue
        except Misfit as misfit:
            failing += [[str(misfit)]] * (place is None)
            continue
        found.append(record)
        if place is None:
            failing.append(problems)
    if failing and all(failing):
        differences += [text for text in failing[0] if text not in differences]
        fits = False
    return fits and bool(cache.records)


def example(was: tuple[Any, ...]) -> torch.Tensor:
    """A tensor with the metadata that `metadata` gave; its values are of no interest."""
    kind, dtype, device, _, shape, strides, offset, requires_grad = was[:8]
    with torch.inference_mode(was[11]), torch.no_grad():
        if strides is None:
            made = torch.empty(shape, dtype=dtype, device=device)
        else:
            made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
        if offset and strides is not None:
            size = made.untyped_storage().nbytes() // made.element_size()
            made = torch.empty(size + offset, dtype=dtype, device=device).as_strided(shape, strides, offset)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad=requires_grad)
    return made.requires_grad_() if requires_grad else made


def _no_source() -> tuple[str, dict[str, Any]]:
    return "def held():\n    return None\n", {}


def _shown(value: Any) -> str:
    if value is ABSENT:
        return "absent"
    if isinstance(value, (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)):
        shown = repr(value)
        return shown if len(shown) < 60 else f"{shown[:57]}..."
    return f"a {type(value).__qualname__}"


_PARTS: Final = (
    "type", "dtype", "device", "layout", "shape", "stride", "storage offset", "requires_grad", "is_leaf", "is_conj",
    "is_neg", "is_inference", "sparse and dense dimensions",
)  # fmt: skip


def _compared(now: tuple[Any, ...], was: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{name} is {one}, was {other}" for name, one, other in zip(_PARTS, now, was, strict=True) if one != other
    )


__all__ = ["Misfit", "Missing", "Restorer", "attach", "example", "make_function"]
