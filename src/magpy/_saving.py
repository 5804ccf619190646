"""`magpy.save`: the records of a compiled callable as an archive, which `magpy_runtime.load` serves from."""

from __future__ import annotations

import abc
import ast
import json
import os
import re
import types
from dataclasses import dataclass
from typing import Any, Final

import torch

import magpy_runtime
from magpy_codegen import FactKind, StepKind
from magpy_runtime import AbstractAnswers, FrozenCheck, Hints, Record
from magpy_runtime.archive import HELPERS, environment, example, is_subclass, pack, package, write
from magpy_runtime.segments import BoundarySite, FrameShape, Point

from . import _torch
from ._naming import Names, Unnameable

_LATER: Final = frozenset({"modes_match", "held_facts", "tensors_match"})
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]{5,}")
_TOKEN: Final = re.compile(r"type\(x := mode_abc_cache_token\(\)\) is not int or x != \d+")


@dataclass(frozen=True, slots=True)
class Saved:
    """What `save` wrote.

    Attributes:
        path: the file.
        digest: its SHA-256, for `magpy_runtime.load(..., digest=...)`.
        records: how many records it holds.
        packages: how many graphs were compiled by AOTInductor; the others' operators run one by one.
        unsaved: why the other records are not in it, in words.
    """

    path: str
    digest: str
    records: int
    packages: int
    unsaved: tuple[str, ...]


class UnsavableError(RuntimeError):
    """None of a callable's records can be saved."""


def save(compiled: Any, path: str | os.PathLike[str]) -> Saved:
    """Write the records of a compiled callable to a file, from which another process can serve calls at once.

    Graphs for inference are compiled by AOTInductor; others are written as Python whose operators run one by one. A record
    that rests on an object which nothing leads to from the target cannot be saved: that is said, and the others are.

    Args:
        compiled: what `magpy.compile` returned, after the calls that are to be served.
        path: the file. There is the old one or the new one, whole, whatever happens meanwhile.

    Raises:
        TypeError: `magpy.compile` did not make `compiled`.
        UnsavableError: it has no record that can be saved.
        OSError: the file cannot be written.
    """
    from ._api import states  # it imports this

    archive = Archive(states(compiled)[0])
    archive.collect()
    if not archive.records:
        raise UnsavableError("; ".join(archive.unsaved) or "there is no record; call it first")
    data = archive.data()
    return Saved(os.fspath(path), write(path, data), len(archive.records), archive.packages, tuple(archive.unsaved))


class Archive:
    """The contents of one archive.

    Args:
        state: the compiled callable.
        built: graphs that were compiled for an earlier archive of it, by the graph; more are added.

    Attributes:
        records: what could be written: the number of a resume point or None, and the record.
        unsaved: why the others could not.
        packages: how many graphs are libraries.
    """

    def __init__(self, state: Any, built: dict[int, tuple[Any, bytes | None]] | None = None) -> None:
        self.state = state
        self.names = Names(state.target)
        self.members: dict[str, bytes] = {}
        self.records: list[tuple[int | None, dict[str, Any]]] = []
        self.points: list[dict[str, Any]] = []
        self.unsaved: list[str] = []
        self.packages = 0
        self._built = {} if built is None else built

    def collect(self) -> None:
        """Write down all records, as far as possible."""
        places: list[tuple[Point | None, Record]] = [(None, record) for record in self.state.cache.records]
        places += [(point, record) for point in [*self.state.tree.points.values()] for record in point.cache.records]
        places = [(point, record) for point, record in places if record.parts is not None]
        for _, record in places:
            self.names.learn(record.parts)
        numbers: dict[int, int] = {}
        for count, (point, record) in enumerate(places):
            try:
                document = self._record(record, f"{count:03}")
                place = None if point is None else self._point(point, numbers)
            except Unnameable as problem:
                where = "" if point is None else f" behind a boundary in {point.frames[-1].code.co_qualname}"
                self.unsaved.append(f"record {count}{where}: {problem}")
            else:
                self.records.append((place, document))

    def data(self) -> bytes:
        """The file."""
        classes = self.names.classes
        abstract = {number: cls for number, cls in classes.items() if isinstance(cls, abc.ABCMeta)}
        document = {
            "objects": self.names.entries,
            "points": self.points,
            "records": self.records,
            "subclasses": [
                [one, other, is_subclass(cls, base)] for other, base in abstract.items() for one, cls in classes.items()
            ],
        }
        entries = self.names.entries
        manifest = {
            "magpy-runtime": magpy_runtime.__version__,
            "target": f"{_qualified(self.state.target)}",
            "environment": _needed(environment(), self.records),
            "code": {self._text(number): entry["code"] for number, entry in enumerate(entries) if "code" in entry},
        }
        return pack(manifest, {"records.json": json.dumps(document, separators=(",", ":")).encode(), **self.members})

    def _text(self, number: int) -> str:
        entry = self.names.entries[number]
        what = entry.get("what")
        return f"{number} {'.'.join(map(str, what)) if isinstance(what, list) and entry['kind'] == 'name' else entry['kind']}"

    # -- one record ---------------------------------------------------------------------------------------------------

    def _record(self, record: Record, name: str) -> dict[str, Any]:
        parts, names = record.parts, self.names
        texts = [record.mock_source, *[each for each in record.namespace.values() if type(each) is str]]
        only_here = parts.only_here or ("an address" if any(map(_ADDRESS.search, texts)) else "")
        if only_here:
            raise Unnameable(f"{only_here} is another one in each process")
        guard_source = record.guard_source
        constants = self._constants(record)
        if _TOKEN.search(guard_source):
            guard_source = _TOKEN.sub("mode_abc_cache_token() != abc_token", guard_source)
            constants["abc_token"] = names.token()
        facts = [self._fact(fact) for fact in parts.facts]
        implied = [self._fact(fact) for fact in parts.implied]
        members: dict[str, bytes] = {
            f"{name}/guard.py": guard_source.encode(),
            f"{name}/mock.py": record.mock_source.encode(),
        }
        document: dict[str, Any] = {
            "guard": f"{name}/guard.py",
            "mock": f"{name}/mock.py",
            "constants": constants,
            "facts": facts,
            "implied": implied,
            "tensors": [
                [None if held is None else names.number(held), names.value(was), sorted(dims)]
                for held, was, dims in parts.tensors
            ],
            "modes": [*parts.modes.modes.state()],
            "checks": record.checks,
            "operators": record.operators,
            "effects": record.effects,
            "mutates": record.mutates,
            "random": record.random,
            "updated": record.updated,
            "may_raise": record.may_raise,
            "switches": record.switches,
            "steady": record.steady,
            "lifted": record.lifted,
            "raises": record.raises,
            "steps": None,
            "rest": None,
            "handed": None,
            "direct": None,
            "graph": None,
            "boundary": None if record.boundary is None else self._site(record.boundary),
        }
        if record.form is not None:
            steps, rest, direct, document["handed"] = record.form
            if rest:
                document["rest"] = f"{name}/rest.py"
                members[document["rest"]] = _TOKEN.sub("mode_abc_cache_token() != abc_token", rest).encode()
            document["steps"] = [self._step(step) for step in steps]
            document["direct"] = None if direct is None else self._direct(direct)
        if record.graph is not None:
            document["graph"] = self._graph(record, name, members)
        self.members.update(members)
        return document

    def _constants(self, record: Record) -> dict[str, Any]:
        used: set[str] = set()
        for source in (record.guard_source, record.mock_source):
            used |= {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        namespace = record.namespace
        return {
            name: self._value(namespace[name])
            for name in sorted(used)
            if name in namespace and name not in _LATER and name not in HELPERS
        }

    def _value(self, value: Any) -> Any:
        if isinstance(value, FrozenCheck):  # the graph that is saved takes all tensors as inputs
            return {"is": "always"}
        if type(value) is frozenset and value and all(type(each) is int and each > 1 << 20 for each in value):
            return {"at": self.names.ids(value)}
        return self.names.value(value)

    def _fact(self, fact: Any) -> list[Any]:
        names = self.names
        key = names.question(fact.kind, fact.key)
        expected = names.answer(fact)
        return [int(fact.kind), names.number(fact.obj), key, expected, int(fact.plain), fact.text]

    def _operand(self, operand: tuple[int, Any]) -> list[Any]:
        register, obj = operand
        return [register, None if register >= 0 else self._value(obj)]

    def _step(self, step: tuple[Any, ...]) -> list[Any]:
        kind, number, asked, operands, key, expected = step
        encoded: Any = None
        asks_token = type(key) is tuple and bool(key) and isinstance(key[0], AbstractAnswers)
        if asks_token:  # of the process that loads it
            key = (abc.get_cache_token, ())
        if kind in (StepKind.IS, StepKind.PLAIN, StepKind.SAME, StepKind.BIND):
            encoded = self.names.question(FactKind(asked), key) if asked <= FactKind.MEMBER else self._value(key)
        elif kind is StepKind.TRUE:
            encoded = self._value(key)
        wanted = self.names.token() if asks_token else self._value(expected)
        return [int(kind), number, asked, [*map(self._operand, operands)], encoded, wanted]

    def _direct(self, direct: tuple[Any, ...]) -> list[Any]:
        inputs, count, result, actions = direct
        done = [[self._value(function), [*map(self._part, args)]] for function, args in actions]
        return [[*map(self._operand, inputs)], count, self._part(result), done]

    def _part(self, part: tuple[Any, ...]) -> list[Any]:
        kind = int(part[0])
        if kind == 0:
            return [kind, part[1]]
        if kind == 1:
            return [kind, self._operand(part[1])]
        parts = [self._part(each) for each in part[1]]
        return [kind, parts, [*map(self._value, part[2])]] if kind == 4 else [kind, parts]

    # -- boundaries ---------------------------------------------------------------------------------------------------

    def _frames(self, frames: tuple[FrameShape, ...]) -> list[Any]:
        return [[self.names.number(each.code), each.at, each.live, each.depth] for each in frames]

    def _site(self, site: BoundarySite) -> dict[str, Any]:
        return {
            "frames": self._frames(site.frames),
            "entry": site.entry.value,
            "text": site.text,
            "slug": site.slug,
            "file": os.path.basename(site.file),
            "line": site.line,
            "pruned": site.pruned,
            "sees": site.sees,
            "steady": site.steady,
        }

    def _point(self, point: Point, numbers: dict[int, int]) -> int:
        number = numbers.get(id(point))
        if number is None:
            described = {
                "frames": self._frames(point.frames),
                "start": None if point.raised else point.start,
                "pruned": point.pruned,
            }
            number = numbers[id(point)] = len(self.points)
            self.points.append(described)
        return number

    # -- graphs -------------------------------------------------------------------------------------------------------

    def _graph(self, record: Record, name: str, members: dict[str, bytes]) -> dict[str, Any]:
        graph: torch.fx.GraphModule = record.graph
        parts = record.parts
        backend = self.state.config.backend
        placeholders = graph.graph.find_nodes(op="placeholder")
        if hasattr(backend, "settings") and not record.lifted and len(placeholders) == len(parts.inputs):
            built = self._package(record, graph, backend)
            if built is not None:
                member = f"{name}/graph.pt2"
                members[member] = built
                self.packages += 1
                return {"kind": "aoti", "member": member}
        return self._exported(graph, placeholders, name, members)

    def _package(self, record: Record, graph: torch.fx.GraphModule, backend: Any) -> bytes | None:
        known = self._built.get(id(graph))
        if known is None:
            parts = record.parts
            before = _torch.modes()
            try:
                with torch.inference_mode(parts.modes.modes.state()[1]):
                    _torch.restore_modes(parts.modes.state)  # they are part of what inference mode sets
                    hints = Hints(updated=record.updated, random=record.random)
                    built = package(graph, [example(each) for each in parts.inputs], hints, backend.settings)
            finally:
                _torch.restore_modes(before)
            known = self._built[id(graph)] = (graph, built)
        return known[1]

    def _exported(
        self, graph: torch.fx.GraphModule, placeholders: list[Any], name: str, members: dict[str, bytes]
    ) -> dict[str, Any]:
        if any(node.op in ("get_attr", "call_module") for node in graph.graph.nodes):
            raise Unnameable("its graph holds tensors of its own")
        made = graph.graph.python_code("self")
        used = {node.id for node in ast.walk(ast.parse(made.src)) if isinstance(node, ast.Name)}
        member = f"{name}/graph.py"
        members[member] = made.src.encode()
        return {
            "kind": "exported",
            "member": member,
            "names": {key: self.names.value(each) for key, each in made.globals.items() if key in used},
            "inputs": len(placeholders),
            "floats": [
                number
                for number, node in enumerate(placeholders)
                if node.users and all(user.op == "call_method" and user.target == "item" for user in node.users)
            ],
        }


def _needed(environment: dict[str, Any], records: list[Any]) -> dict[str, Any]:
    """What of this machine the archive rests on: devices other than the processor only where tensors are there."""
    text = json.dumps([document["tensors"] for _, document in records])
    devices = [each for each in environment["devices"] if f'"device": "{each.partition(" ")[0]}' in text]
    return {**environment, "devices": devices}


def _qualified(target: Any) -> str:
    named = target if isinstance(target, (types.FunctionType, types.MethodType, type)) else type(target)
    return f"{named.__module__}.{named.__qualname__}"


__all__ = ["Archive", "Saved", "UnsavableError", "save"]
