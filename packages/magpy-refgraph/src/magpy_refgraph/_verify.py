"""The verifier: what must hold of every RefGraph, whoever built it.

The paper has no such list; these are the assumptions that the searches and the time slices rest on.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterator
from typing import Final

from ._model import ABSENT, Atom, EdgeKind, Key, Node, RefGraph, Version
from ._text import function_name, type_name


class _Shape(enum.Enum):
    """What the argument of a reference's key is."""

    NOTHING = "None"
    INDEX = "an int from 0"
    NAME = "a str"
    CLASS_AND_NAME = "a pair of a class and a str"
    NODE = "the index of a node"
    ANY = "anything"


_SHAPES: Final = {
    EdgeKind.ARGUMENT: _Shape.INDEX,
    EdgeKind.KEYWORD: _Shape.NAME,
    EdgeKind.PIN: _Shape.INDEX,
    EdgeKind.TYPE: _Shape.NOTHING,
    EdgeKind.DICT: _Shape.NOTHING,
    EdgeKind.ITEM: _Shape.ANY,
    EdgeKind.LENGTH: _Shape.NOTHING,
    EdgeKind.TRUTH: _Shape.NOTHING,
    EdgeKind.KEYS: _Shape.NOTHING,
    EdgeKind.CLASS: _Shape.NAME,
    EdgeKind.SUPER: _Shape.CLASS_AND_NAME,
    EdgeKind.PROTOCOL: _Shape.NOTHING,
    EdgeKind.MEMBER: _Shape.NAME,
    EdgeKind.CELL: _Shape.NOTHING,
    EdgeKind.TENSOR: _Shape.NOTHING,
    EdgeKind.AHEAD: _Shape.INDEX,
    EdgeKind.PART: _Shape.ANY,
    EdgeKind.SAME: _Shape.NODE,
    EdgeKind.REFERENT: _Shape.NOTHING,
    EdgeKind.VALUE: _Shape.NOTHING,
    EdgeKind.MODE: _Shape.ANY,
}

_OF_ROOT: Final = frozenset({EdgeKind.ARGUMENT, EdgeKind.KEYWORD, EdgeKind.PIN, EdgeKind.MODE})
"""References that only the external state has."""


def verify(graph: RefGraph) -> list[str]:
    """Check a graph's structure.

    User code does not run, but for `__hash__` and `__eq__` of dictionary keys, and nothing is changed.

    Returns:
        All errors found, in the order of nodes, effects, ids; empty when the graph is sound.
    """
    known = {id(node) for node in graph.nodes}
    changes = sorted(effect.time for effect in graph.effects)
    errors = list(_check_root(graph))
    before = -1
    for position, node in enumerate(graph.nodes):
        name = _name(node)
        if node.index != position:
            errors.append(f"{name} stands at position {position}")
        if node.born <= before:
            errors.append(f"{name} was born at {node.born}, not after the node before it, born at {before}")
        before = max(before, node.born)
        errors += (f"{name} {error}" for error in _check_parent(node, known))
        errors += (f"{name} {error}" for error in _check_versions(graph, node, known, changes))
    errors += _check_effects(graph, known)
    errors += _check_ids(graph, known)
    return errors


def _name(node: Node) -> str:
    external = node.index == 0 and node.type is type(None)
    return "#0 external" if external else f"#{node.index} {type_name(node.type)}"


def _check_root(graph: RefGraph) -> Iterator[str]:
    root = graph.root
    if not graph.nodes or graph.nodes[0] is not root:
        yield "the external state is not the first node"
    if root.parent is not None or root.key is not None:
        yield "the external state has a parent"


def _check_parent(node: Node, known: set[int]) -> Iterator[str]:
    parent, key = node.parent, node.key
    if (parent is None) != (key is None):
        yield "has a parent without a key, or a key without a parent"
    if parent is None or key is None:
        return
    if id(parent) not in known:
        yield f"has the parent {_name(parent)}, which is not in this graph"
    elif parent.index >= node.index:
        yield f"has the parent {_name(parent)}, which was found later"
    elif not any(version.refs.get(key) is node for version in parent.versions):
        yield f"is not what its parent {_name(parent)} refers to by {_written(key)}"


def _check_versions(graph: RefGraph, node: Node, known: set[int], changes: list[int]) -> Iterator[str]:
    if not node.versions:
        yield "has no version 0"
        return
    if node.versions[0].born != node.born:
        yield f"has a version 0 born at {node.versions[0].born}, not with it at {node.born}"
    before = node.born
    for number, version in enumerate(node.versions):
        if number > 0:
            if version.born <= before:
                yield f"v{number} was born at {version.born}, not after {before}"
            at = bisect.bisect_left(changes, version.born)
            if at == len(changes) or changes[at] != version.born:
                yield f"v{number} was born at {version.born}, when there was no effect"
            before = max(before, version.born)
        if version.born > graph.time:
            yield f"v{number} was born at {version.born}, after the graph's time {graph.time}"
        # What an effect stored may get its node right after the effect, but not after the next one.
        following = bisect.bisect(changes, version.born) if number > 0 else len(changes)
        latest = changes[following] - 1 if following < len(changes) else graph.time
        for error in _check_references(graph, node, version, known, latest):
            yield f"v{number} {error}"
    for key in node.reads:
        if key not in node.initial:
            yield f"was read by {_written(key)}, which version 0 does not have"


def _check_references(graph: RefGraph, node: Node, version: Version, known: set[int], latest: int) -> Iterator[str]:
    for key, target in version.refs.items():
        errors = _check_key(graph, node, key), _check_target(target, known, latest)
        yield from (f"{_written(key)} {error}" for error in errors if error is not None)


def _check_target(target: object, known: set[int], latest: int) -> str | None:
    if isinstance(target, Node):
        if id(target) not in known:
            return f"refers to {_name(target)}, which is not in this graph"
        return f"refers to {_name(target)}, born later, at {target.born}" if target.born > latest else None
    if isinstance(target, Atom) or target is ABSENT:
        return None
    return f"refers to a {type_name(type(target))}, which is no target"


def _check_key(graph: RefGraph, node: Node, key: object) -> str | None:
    if not isinstance(key, Key) or key.kind not in _SHAPES:
        return "is not a key"
    if key.kind in _OF_ROOT and node is not graph.root:
        return "is a reference that only the external state has"
    shape = _SHAPES[key.kind]
    arg: object = key.arg
    match shape:
        case _Shape.NOTHING:
            fits = arg is None
        case _Shape.INDEX:
            fits = type(arg) is int and arg >= 0
        case _Shape.NAME:
            fits = isinstance(arg, str)
        case _Shape.CLASS_AND_NAME:
            fits = isinstance(arg, tuple) and len(arg) == 2 and isinstance(arg[1], str)
        case _Shape.NODE:
            fits = type(arg) is int and 0 <= arg < len(graph.nodes)
        case _Shape.ANY:
            fits = True
    return None if fits else f"has a wrong argument: it must be {shape.value}"


def _written(key: object) -> str:
    if not isinstance(key, Key) or not isinstance(key.kind, EdgeKind):
        return type_name(type(key))
    if type(key.arg) in (int, str, bool, float, bytes):
        return f"{key.kind.value} {key.arg!r}"
    return key.kind.value if key.arg is None else f"{key.kind.value} <{type_name(type(key.arg))}>"


def _check_effects(graph: RefGraph, known: set[int]) -> Iterator[str]:
    born: dict[int, list[Version]] = {}
    for node in graph.nodes:
        for version in node.versions[1:]:
            born.setdefault(version.born, []).append(version)
    before = 0
    for number, effect in enumerate(graph.effects):
        name = f"effect {number} ({function_name(effect.function)} of {_name(effect.node)})"
        if effect.time <= before:
            yield f"{name} happened at {effect.time}, not after {before}"
        before = max(before, effect.time)
        if effect.time > graph.time:
            yield f"{name} happened at {effect.time}, after the graph's time {graph.time}"
        function: object = effect.function
        if not callable(function):
            yield f"{name} cannot be called"
        if id(effect.node) not in known:
            yield f"{name} changes a node that is not in this graph"
        elif effect.time <= effect.node.born:
            yield f"{name} happened at {effect.time}, before its node was born at {effect.node.born}"
        versions = born.get(effect.time, ())
        if not versions:
            yield f"{name} has no version"
        elif effect.key is not None and not any(effect.key in version.refs for version in versions):
            yield f"{name} sets {_written(effect.key)}, which its version does not have"


def _check_ids(graph: RefGraph, known: set[int]) -> Iterator[str]:
    for identity, node in graph._by_id.items():
        obj = node.obj()
        if id(node) not in known:
            yield f"an id leads to {_name(node)}, which is not in this graph"
        elif obj is None and node.type is not type(None):
            yield f"{_name(node)} is dead, and its id was not retired"
        elif id(obj) != identity:
            yield f"{_name(node)} is found by the id of another object"
    for node in graph.nodes:
        obj = node.obj()
        if obj is None or node is graph.root:
            continue
        found = graph.find(obj)
        if found is None:
            yield f"{_name(node)} is alive, and its object does not lead to it"
        elif found is not node:
            yield f"{_name(node)} and {_name(found)} stand for one object"
