"""Update rules for reading: what C code sees of an object that it looks into, as deep as its annotation says."""

from __future__ import annotations

import collections
import functools
import operator
import types
from typing import Any, Final

from magpy_annotations import Read
from magpy_refgraph import EdgeKind, Key, Node
from magpy_runtime import iterators
from magpy_runtime.capture import NULL, type_lookup
from magpy_runtime.iterators import PLAIN_ITERATORS

from ._iterators import IteratorRules
from ._state import is_atom, is_hashed_alike, is_mutable_type

CONTAINERS: Final[tuple[Any, ...]] = ([], (), {}, {}.values(), {}.items(), set())
ITERATORS: Final[tuple[type, ...]] = (
    *(type(iter(made)) for made in (*CONTAINERS, "", range(0))),
    type(reversed([])), type(reversed({})), enumerate, zip, map, filter, types.GeneratorType,
)  # fmt: skip
PEEKED: Final = frozenset(type(iter(made)) for made in (*CONTAINERS, reversed([])))
VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))
GETTERS: Final = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
NOTHING: Final = (Read.NONE, Read.TYPE)


_OPEN: Final = frozenset(
    {
        object, dict, list, tuple, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
        int, float, complex, str, bytes, property, staticmethod, classmethod, types.SimpleNamespace, functools.partial,
    }
)  # fmt: skip
"""C classes whose instances keep nothing that cannot be seen."""

_TEXTS: Final = (type_lookup(BaseException, "__str__"), type_lookup(KeyError, "__str__"))
_ARGUMENTS: Final = type_lookup(BaseException, "args")


class ReadingRules(IteratorRules):
    """Rules for objects that C code reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: set[int] = set()

    transparent: frozenset[type] = frozenset(
        {types.FunctionType, types.MethodType, types.ModuleType, types.BuiltinFunctionType, types.CellType, property}
    )

    def frozen(self, value: Any) -> Any:
        """What an in-place operation takes out of an argument: a copy, for the argument may change after it."""
        node = self.find(value)
        if self.is_external_iterator(value):
            if type(value) not in PLAIN_ITERATORS:
                raise self.boundary(
                    "external-iterator", f"a {type(value).__qualname__} was drained into an older object"
                )
            return self.drain(value)
        if is_atom(value) or (node is not None and node.external):
            return value
        base = self.info(type(value)).base
        if base is dict:
            return {key: dict.__getitem__(value, key) for key in self.elements(value)}
        if base is not None:
            return self.elements(value)
        peeked = self.peek(value)
        if peeked is not None:
            return peeked
        if self.info(type(value)).tensor:
            return value
        raise self.boundary("opaque-object", f"a {type(value).__qualname__} was drained into an older object")

    def item(self, obj: Any, key: Any) -> None:
        """One item of a builtin container was looked up by key or index."""
        node = self.find(obj)
        self.hashed(key)
        if node is None or not node.external:
            return
        base = self.info(type(obj)).base
        if base is dict:
            self.read_item(node, obj, key)
        elif base in (set, frozenset):
            self.read_items(node, obj)
        elif base is not None:
            length = base.__len__(obj)  # type: ignore[attr-defined]
            if node.mutated or type(key) is not int or length < 16:
                self.read_items(node, obj)
            else:
                self.read_length(node, obj)
                if -length <= key < length:
                    key %= length
                    self.follow(node, Key(EdgeKind.ITEM, key), base.__getitem__(obj, key))  # type: ignore[index]
        elif not is_atom(obj):
            self.read(obj, Read.DEEP)

    def read(self, obj: Any, level: Read) -> None:
        """C code reads an object to some depth."""
        if is_atom(obj):
            return
        tp = type(obj)
        info = self.info(tp)
        node = self.find(obj)
        external = node is not None and node.external
        if info.tensor:
            if level is Read.DEEP:
                raise self.boundary("tensor-value", "by C code that reads everything it gets")
            return
        if info.base is not None:
            if external and node is not None:
                if level is Read.LENGTH:
                    self.read_length(node, obj)
                elif level in (Read.ITEMS, Read.DEEP):
                    self.read_items(node, obj)
            if info.mutable and level in (Read.ITEMS, Read.DEEP):
                self.protocol(tp)
            if level is Read.DEEP and id(obj) not in self.reading:
                self.reading.add(id(obj))
                try:
                    for element in self.elements(obj):
                        self.read(element, Read.DEEP)
                    if info.base is dict:
                        for element in info.base.values(obj):
                            self.read(element, Read.DEEP)
                finally:
                    self.reading.discard(id(obj))
            return
        if info.mutable:
            self.protocol(tp)
            if level not in NOTHING:
                self.no_hidden_state(tp)
                if external and node is not None and issubclass(tp, BaseException):
                    self.read_exception(node, obj)
            return
        if level in NOTHING:
            return
        if tp is types.SimpleNamespace:
            if external and node is not None:
                place = self.dictionary(node, obj)
                if place is not None:
                    self.read_items(*place)
            if level is Read.DEEP:
                self.read(vars(obj), level)
            return
        if not external:
            return
        if tp in GETTERS and all(map(is_atom, obj.__reduce__()[1])):
            assert node is not None
            self.held_by_identity.add(node.index)
            return
        if tp in self.transparent or issubclass(type(obj), type):
            return
        if tp is slice:
            assert node is not None
            for name in ("start", "stop", "step"):
                self.follow(node, Key(EdgeKind.MEMBER, name), getattr(obj, name))
            return
        if self.is_external_iterator(obj):
            for element in self.drain(obj):
                if level is Read.DEEP:
                    self.read(element, level)
            return
        if issubclass(type(obj), ITERATORS):
            raise self.boundary("external-iterator", tp.__qualname__)
        if tp.__module__ == "numpy" or tp in (bytearray, memoryview):
            raise self.boundary("array-contents", f"a {tp.__qualname__}")
        if issubclass(tp, BaseException):
            assert node is not None
            self.read_exception(node, obj)
            return
        raise self.boundary("opaque-object", f"the state of a {tp.__qualname__}")

    def read_exception(self, node: Node, error: BaseException) -> None:
        """C code looks into an exception: its text is made of its arguments."""
        text = type_lookup(type(error), "__str__")
        if text not in _TEXTS and type(text) is not types.FunctionType:
            raise self.boundary("opaque-object", f"the state of a {type(error).__qualname__}")
        args = _ARGUMENTS.__get__(error)
        self.follow(node, Key(EdgeKind.MEMBER, "args"), args)
        self.read(args, Read.DEEP)

    def no_hidden_state(self, tp: type) -> None:
        """C code looks into an instance of a user's class: a C base must not keep more there than is known."""
        base = next(base for base in tp.__mro__ if not is_mutable_type(base))
        if base not in _OPEN and not issubclass(base, (BaseException, types.ModuleType, type, *ITERATORS)):
            raise self.boundary("opaque-object", f"the state of a {base.__qualname__}")

    def members(self, obj: Any) -> tuple[Any, ...]:
        """All objects that a builtin container, or an iterator over one, holds: of a dictionary its values too."""
        peeked = self.peek(obj)
        if peeked is not None:
            return peeked
        found = self.elements(obj)
        if self.info(type(obj)).base is dict:
            found += tuple(dict.__getitem__(obj, key) for key in found)
        return found

    def elements(self, obj: Any) -> tuple[Any, ...]:
        """The elements of a builtin container, its keys if it is a dictionary; none of anything else."""
        base = self.info(type(obj)).base
        if base is None:
            return ()
        return tuple(base.__iter__(obj))  # type: ignore[attr-defined]

    def iterated(self, obj: Any) -> None:
        """`iter` is called on an object and the outcome is drained."""
        if is_atom(obj):
            return
        node = self.find(obj)
        tp = type(obj)
        info = self.info(tp)
        if info.tensor:
            self.lookup(tp, "__iter__")
            return
        if node is not None and node.external:
            if info.base is not None:
                self.read_items(node, obj)
            elif self.is_external_iterator(obj):
                self.drain(obj)
            elif issubclass(type(obj), ITERATORS):
                raise self.boundary("external-iterator", tp.__qualname__)
            elif not info.mutable:
                self.read(obj, Read.ITEMS)
        if info.base in (set, frozenset):
            self.order_read(obj)
        if info.mutable:
            for name in ("__iter__", "__next__", "__getitem__", "__len__"):
                self.lookup(tp, name)
            if not any(type(self.lookup(tp, name)) is types.FunctionType for name in ("__iter__", "__next__")):
                self.no_hidden_state(tp)
            self.own_iterator(obj)

    def order_read(self, members: Any) -> None:
        """The order of a set's members, which their addresses decide, is seen: those that are older are held."""
        found = self.elements(members)
        made = self.find(members)
        if len(found) > 1 and (made is None or not made.external) and not all(map(is_hashed_alike, found)):
            self.only_here = "the order of a set"
        for member in found:
            node = self.find(member)
            if node is not None and node.external and self.is_hashed_by_identity(type(member)):
                self.held_by_identity.add(node.index)

    def own_iterator(self, obj: Any) -> None:
        """An iterator will be advanced: C code's own kinds must be the run's own, for nobody sees what they yield."""
        tp = type(obj)
        node = self.find(obj)
        if node is None or not node.external:
            return
        if self.is_external_iterator(obj):
            self.drain(obj)
            return
        native = next(base for base in tp.__mro__ if not is_mutable_type(base))
        if issubclass(native, ITERATORS) or (native is not object and type_lookup(native, "__next__") is not NULL):
            raise self.boundary("external-iterator", tp.__qualname__)

    def hashed(self, obj: Any) -> None:
        """An object is used as a key: its hash and equality matter, and which object it is."""
        if is_atom(obj):
            if obj != obj:
                raise self.boundary("value-identity", "a number that is not equal to itself as a key")
            return
        info = self.info(type(obj))
        if info.base in (tuple, frozenset):
            pass
        elif info.type is types.MethodType:
            self.hashed(obj.__self__)
            self.hashed(obj.__func__)
        else:
            node = self.find(obj)
            if node is not None and node.external:
                self.keys_used.add(node.index)
        if info.mutable:
            self.lookup(info.type, "__hash__")
            self.asked("__eq__", self.lookup(info.type, "__eq__"))
            return
        if info.base in (tuple, frozenset):
            node = self.find(obj)
            if node is not None and node.external:
                self.read_items(node, obj)
            for element in self.elements(obj):
                self.hashed(element)

    def touches_external(self, objects: tuple[Any, ...]) -> bool:
        """Whether any of the objects existed before the run."""
        return any(node is not None and node.external for node in map(self.find, objects))

    def peek(self, obj: Any) -> tuple[Any, ...] | None:
        """What an iterator over, or a view of, a builtin container will yield, without advancing it; else None."""
        if type(obj) in VIEWS:
            return tuple(obj)
        return iterators.remaining(obj) if type(obj) in PEEKED else None

    def asked(self, name: str, found: Any) -> None:
        """C code calls the special method `name`, which is `found`. See `UseRules`."""
        raise NotImplementedError
