"""The whole idea of the RefGraph in one module.

A `RefGraph` holds what one monitored run read from and wrote to the state that existed before it.  Its nodes stand for
runtime objects, its edges are references between them *over time*: a node keeps every version of its references, each
with the time at which it was born.

* `Node` #0 is the external state: the compiled callable, its arguments, and whatever is pinned by identity.
* A reference is named by a `Key`, a pair of an `EdgeKind` and an argument ("item 3", "attribute dictionary", "length").
* What a reference leads to is a `Node`, or an `Atom`: a value that has no identity worth keeping (numbers, strings,
  singletons), so that equal small ints never stand for one another's identity.
* Version 0 of a node holds the references that were there on entry and were read.  They are the *facts* of the guard.
* A later version holds what an `Effect`, one primitive in-place operation, changed.

Nodes are made lazily, at the first explicit access of an object (the paper, section 4.1).
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple


class EdgeKind(enum.Enum):
    """The closed set of references that a node can have."""

    __hash__ = object.__hash__  # members are singletons, and keys are hashed at every read

    ARGUMENT = "argument"  # key: position; from #0: a positional argument of the compiled call
    KEYWORD = "keyword"  # key: name; from #0: a keyword argument of the compiled call
    PIN = "pin"  # key: ordinal; from #0: an object that the record holds by identity
    TYPE = "type"  # key: None; type(obj)
    DICT = "dict"  # key: None; the attribute dictionary of an instance or a module
    ITEM = "item"  # key: index or dictionary key; one element (ABSENT when a key is not there)
    LENGTH = "length"  # key: None; the number of elements
    TRUTH = "truth"  # key: None; whether there are any elements
    KEYS = "keys"  # key: None; the keys of a dictionary, or the members of a set, in order
    CLASS = "class"  # key: name; what the lookup of a name along a type's MRO finds
    SUPER = "super"  # key: (class, name); the same, behind a class in the MRO
    PROTOCOL = "protocol"  # key: None; all special methods of a class, as one tuple
    MEMBER = "member"  # key: name; an attribute that C code keeps: __code__, __self__, partial.func, a slot
    CELL = "cell"  # key: None; the content of a closure's cell (ABSENT when empty)
    REFERENT = "referent"  # key: None; what a weak reference refers to (ABSENT when it is dead)
    VALUE = "value"  # key: None; the number or string that an instance of a subclass of one is
    TENSOR = "tensor"  # key: None; metadata of a tensor: never its values
    AHEAD = "ahead"  # key: n; what an iterator gives after n more elements (ABSENT when it has no more)
    PART = "part"  # key: name or ordinal; what an iterator draws from, its count, the function that it calls
    SAME = "same"  # key: other node's index; identity of two objects was compared
    MODE = "mode"  # key: name; from #0: a mode of the process or thread (grad mode, default dtype)


class Key(NamedTuple):
    """The name of one reference of a node."""

    kind: EdgeKind
    arg: Any = None


@dataclass(frozen=True, slots=True)
class Atom:
    """A value without identity: compared by type and value (floats by their bits)."""

    value: Any


class _Absent(enum.Enum):
    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent.ABSENT
"""The target of a reference that is known not to be there: a missing key, an empty cell."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the user's source something happened."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Version:
    """The references of a node from `born` on until the next version; only what differs from the version before."""

    __slots__ = ("born", "refs")

    def __init__(self, born: int) -> None:
        self.born = born
        self.refs: dict[Key, Target] = {}


class Node:
    """The stand-in of one runtime object (the paper's ShadowNode).

    Attributes:
        index: its number; #0 is the external state.
        type: the object's type when the node was made.
        parent: the node through which it was found first, None for #0 and for objects made during the run.
        key: the reference of `parent` by which it was found.
        born: the time of its first access.
        versions: version 0 first; each later one made by an effect.
        reads: for each version-0 reference where it was read first: a `Location`, or anything that leads to one.
        before: a shallow copy of a container, taken right before its first in-place update, None until then.
        tag: free for the one who builds the graph (the monitor keeps a tensor's operator node here).
    """

    __slots__ = (
        "_ref",
        "_settled",
        "_settled_by_key",
        "_strong",
        "before",
        "born",
        "index",
        "key",
        "parent",
        "reads",
        "tag",
        "type",
        "versions",
    )

    def __init__(
        self,
        index: int,
        obj: object,
        parent: Node | None,
        key: Key | None,
        born: int,
        retire: Callable[[weakref.ref[Any]], None] | None = None,
    ) -> None:
        self.index = index
        self.type = type(obj)
        self.parent = parent
        self.key = key
        self.born = born
        self.versions = [Version(born)]
        self._settled = 1  # the versions that `_settled_by_key` has, version 0 aside
        self._settled_by_key: dict[Key, list[Version]] | None = None
        self.reads: dict[Key, Any] = {}
        self.before: Any = None
        self.tag: Any = None
        self._ref: Callable[[], object] | None = weakref.ref(obj, retire) if retire else None
        self._strong = None if retire else obj

    @property
    def external(self) -> bool:
        """Whether the object existed before the run."""
        return self.parent is not None or self.index == 0

    @property
    def mutated(self) -> bool:
        """Whether the run updated the object in place."""
        return len(self.versions) > 1

    @property
    def initial(self) -> dict[Key, Target]:
        """The references of version 0 that were read."""
        return self.versions[0].refs

    def obj(self) -> Any:
        """The runtime object, or None when it is gone."""
        return self._strong if self._ref is None else self._ref()

    def at(self, key: Key, time: int) -> Target | None:
        """The reference `key` as it was at `time`, None when nothing is known of it."""
        for version in self._with(key):
            if version.born <= time:
                return version.refs[key]
        return None

    def current(self, key: Key) -> Target | None:
        """The newest reference `key`, None when nothing is known of it."""
        target = self.versions[-1].refs.get(key)
        if target is None and len(self.versions) > 1:
            newest = next(self._with(key), None)
            return None if newest is None else newest.refs[key]
        return target

    def _with(self, key: Key) -> Iterator[Version]:
        """The versions that have the reference `key`, newest first, found without a walk over those that have not."""
        versions = self.versions
        last = len(versions) - 1
        if last > 0:
            if key in versions[last].refs:
                yield versions[last]
            settled = self._settled_by_key = self._settled_by_key or {}
            # Nobody adds to a version that has a successor, but for version 0.
            for number in range(self._settled, last):
                for each in versions[number].refs:
                    settled.setdefault(each, []).append(versions[number])
            self._settled = last
            yield from reversed(settled.get(key, ()))
        if key in versions[0].refs:
            yield versions[0]

    def lives(self) -> bool:
        """Whether somebody else holds the runtime object, one that can be referred to weakly; else it dies now."""
        if self._strong is None:
            return self.obj() is not None
        reference = weakref.ref(self._strong)
        self._strong = None
        self._strong = reference()
        return self._strong is not None

    def release(self) -> None:
        """Let the runtime object go."""
        self._strong, self._ref, self.before, self.tag = None, None, None, None

    def __repr__(self) -> str:
        return f"<#{self.index} {self.type.__name__}>"


Target = Node | Atom | _Absent


@dataclass(frozen=True, slots=True)
class Effect:
    """One primitive in-place operation on an object that existed before.

    Attributes:
        time: when it happened; effects are replayed in this order.
        node: the object that changed.
        function: the primitive operation, called `function(obj, *args)` to replay it.
        args: the other arguments, as runtime objects: what they are at the end of the slice is what is replayed.
        keywords: keyword arguments of the operation.
        location: the line that did it.
        key: the reference that it sets or removes, when it is only one.
    """

    time: int
    node: Node
    function: Callable[..., object]
    args: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    location: Any = None
    key: Key | None = None


class Disagreement(Exception):
    """A read gave something else than the graph's current version: somebody unseen wrote to the object."""


class RefGraph:
    """Nodes, references and effects of one monitored run.

    `time` is a counter that grows with every node, version and effect, so a slice of the graph (the state on entry, at a
    boundary, at the end) is a number.
    """

    def __init__(self) -> None:
        self.time = 0
        self.nodes: list[Node] = []
        self.effects: list[Effect] = []
        self._by_id: dict[int, Node] = {}
        self.root = Node(0, None, None, None, 0)
        self.nodes.append(self.root)

    def tick(self) -> int:
        """Advance the clock and return the new time."""
        self.time += 1
        return self.time

    def find(self, obj: object) -> Node | None:
        """The node of `obj`, None when it has none."""
        return self._by_id.get(id(obj))

    def add(self, obj: object, parent: Node | None = None, key: Key | None = None, *, weak: bool = False) -> Node:
        """Make a node for `obj`, an object that has none.

        Args:
            obj: the runtime object; held strongly unless `weak`, so that its id stays its own.
            parent: the node that refers to it, None for an object made during the run.
            key: the reference of `parent` to it.
            weak: hold it weakly; its id is retired when it dies.
        """
        self.time += 1
        index = len(self.nodes)
        by_id, identity = self._by_id, id(obj)

        def retire(_: object) -> None:
            found = by_id.get(identity)
            if found is not None and found.index == index:
                del by_id[identity]

        node = Node(index, obj, parent, key, self.time, retire if weak else None)
        self.nodes.append(node)
        by_id[identity] = node
        return node

    def read(self, node: Node, key: Key, target: Target, location: Any = None) -> Target:
        """Note that reference `key` of `node` was read and led to `target`.

        The first read of a reference that no effect wrote is a fact about version 0.

        Returns:
            `target`.

        Raises:
            Disagreement: the graph knows another current target.
        """
        known = node.current(key)
        if known is None:
            node.versions[0].refs[key] = target
            node.reads[key] = location
        elif not same_target(known, target):
            raise Disagreement(f"{node!r} {key.kind.value} {key.arg!r}: {known!r} became {target!r}")
        return target

    def write(self, effect: Effect, changes: dict[Key, Target], node: Node | None = None) -> Version:
        """Add `effect` and the version that has `changes`, of its own node or of another one (its dictionary's)."""
        self.effects.append(effect)
        version = Version(effect.time)
        version.refs.update(changes)
        (node or effect.node).versions.append(version)
        return version

    def note(self, node: Node, key: Key, target: Target, location: Any = None) -> None:
        """Add a fact about version 0 of a node that has changed since, as it was known before the change."""
        if key not in node.versions[0].refs:
            node.versions[0].refs[key] = target
            node.reads[key] = location

    def external(self) -> Iterator[Node]:
        """The nodes of objects that existed before the run, in order of discovery."""
        return (node for node in self.nodes if node.external)

    def release(self) -> None:
        """Let all runtime objects go."""
        self._by_id.clear()
        for node in self.nodes:
            node.release()
        self.effects.clear()


def same_target(one: Target, other: Target) -> bool:
    """Whether two targets are the same: nodes by identity, atoms by type and value."""
    if one is other:
        return True
    if isinstance(one, Atom) and isinstance(other, Atom):
        return same_value(one.value, other.value)
    return False


def same_value(one: object, other: object) -> bool:
    """Whether two plain values are the same: type and value, floats by their bits, tuples element by element."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is float or kind is complex or kind is range:
        return repr(one) == repr(other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(one == other) or bool(one != one and other != other)
