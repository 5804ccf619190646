"""What one monitored run knows: the RefGraph, and how references are followed into it.

This is the part of the monitor that all update rules share.  It knows nothing of instructions or annotations.
"""

from __future__ import annotations

import builtins
import collections
import enum
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from magpy_refgraph import ABSENT, Atom, EdgeKind, Key, Node, RefGraph, Target, same_value
from magpy_runtime import own_files
from magpy_runtime.capture import NULL, Recorder, instance_dict, super_lookup, type_lookup
from magpy_runtime.segments import line_of

from ._reasons import Boundary

MUTABLE_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
IMMUTABLE_TYPE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE

ATOMS: set[type] = {
    int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range, types.CodeType,
}  # fmt: skip
"""Types whose values are compared by value and have no identity worth keeping. Torch's are added by the adapter."""

IDENTITY_ATOMS: Final[set[type]] = {
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, object, types.GenericAlias, types.UnionType, re.Pattern,
}  # fmt: skip
"""Types whose instances never change and are compared by identity."""

SPECIAL_NAMES: Final = (
    "__abs__", "__add__", "__and__", "__bool__", "__call__", "__contains__", "__delattr__", "__delitem__", "__divmod__",
    "__enter__", "__eq__", "__exit__", "__float__", "__floordiv__", "__format__", "__ge__", "__getattr__",
    "__getattribute__", "__getitem__", "__gt__", "__hash__", "__iadd__", "__index__", "__init__", "__int__",
    "__invert__", "__iter__", "__le__", "__len__", "__lt__", "__matmul__", "__missing__", "__mod__", "__mul__", "__ne__",
    "__neg__", "__new__", "__next__", "__or__", "__pos__", "__pow__", "__radd__", "__repr__", "__reversed__",
    "__rmul__", "__rsub__", "__rtruediv__", "__setattr__", "__setitem__", "__str__", "__sub__", "__truediv__", "__xor__",
)  # fmt: skip
"""What C code may look up on a class when nothing says which (`EdgeKind.PROTOCOL`)."""

_BASES: Final = (dict, list, tuple, set, frozenset, collections.deque)
_DICT: Final = Key(EdgeKind.DICT)
_LENGTH: Final = Key(EdgeKind.LENGTH)
_TRUTH: Final = Key(EdgeKind.TRUTH)
_KEYS: Final = Key(EdgeKind.KEYS)
_TYPE: Final = Key(EdgeKind.TYPE)
_VALUE: Final = Key(EdgeKind.VALUE)


class TypeInfo:
    """What the rules need to know of a type, found out once a run."""

    __slots__ = ("atom", "base", "getattribute", "has_dict", "mutable", "tensor", "type")

    def __init__(self, tp: type, mutable: bool, tensor: bool, getattribute: str) -> None:
        self.type = tp
        self.mutable = mutable
        self.tensor = tensor
        self.atom = tp in ATOMS
        self.base: type | None = next((base for base in _BASES if issubclass(tp, base)), None)
        self.getattribute = getattribute
        self.has_dict = tp.__dictoffset__ != 0 and not issubclass(tp, type)


def is_mutable_type(tp: type) -> bool:
    """Whether a type's attributes can be set: classes made by Python code."""
    flags = tp.__flags__
    return bool(flags & MUTABLE_TYPE) and not flags & IMMUTABLE_TYPE


def is_atom(value: Any) -> bool:
    """Whether a value has no identity worth keeping, so that it is a constant once it was guarded."""
    kind = type(value)
    if kind in ATOMS or kind in IDENTITY_ATOMS:
        return True
    if kind is types.BuiltinFunctionType:
        owner = value.__self__
        return owner is None or issubclass(type(owner), (types.ModuleType, type))
    return issubclass(kind, type) and not is_mutable_type(value)


def is_nan(value: Any) -> bool:
    """Whether a number is unequal to itself."""
    kind = type(value)
    if issubclass(kind, float):
        return float.__ne__(value, value)
    return issubclass(kind, complex) and bool(complex.__ne__(value, value))


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__pos__,
    float: float.__pos__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    complex: complex.__pos__,
}
"""What gives the plain value of a subclass's instance without running code of the subclass."""


def plain_value(value: Any) -> Any:
    """The number or string that an instance of a subclass of one is; None for other objects."""
    for base, plain in _PLAIN.items():
        if issubclass(type(value), base):
            return plain(value)
    return None


def is_hashed_alike(value: Any) -> bool:
    """Whether a value has the same hash in each process."""
    return type(value) in (int, bool, float, complex) or (type(value) is tuple and all(map(is_hashed_alike, value)))


class State:
    """Graph and helpers of one run; the rules are built on top of it."""

    tensor_types: tuple[type, ...] = ()
    recorder: Recorder

    def __init__(self) -> None:
        self.outer: BaseException | None = sys.exc_info()[1]  # what the caller handles
        self.graph = RefGraph()
        self.find = self.graph.find
        self.infos: dict[type, TypeInfo] = {}
        self.found: dict[tuple[type, Any], Any] = {}
        self.scrambled: set[int] = set()
        self.complete: set[int] = set()
        self.held_by_identity: set[int] = set()
        self.keys_used: set[int] = set()
        self.only_here = ""
        self.written_class_names: set[str] = set()
        self.user_frames: list[tuple[types.CodeType, bool]] = []

    # -- reasons and places -------------------------------------------------------------------------------------------

    def boundary(self, slug: str, detail: str = "") -> Boundary:
        """The exception that ends the region here, with the user's line."""
        file, line = self.user_line()
        return Boundary(slug, detail, file, line)

    def where(self) -> tuple[types.CodeType, int] | None:
        """Where the run is: code object and line of the innermost monitored frame."""
        try:
            return (self.recorder.code(), self.recorder.line())
        except RuntimeError:  # the program is C code, and no frame is monitored
            return None

    def user_line(self) -> tuple[str, int]:
        """File and line of the innermost frame that is not a library's."""
        best = ("", 0)
        for code, index in self.recorder.pending():
            if best[1] == 0 or not is_library(code.co_filename):
                best = (code.co_filename, line_of(code, index))
        return best

    def release(self) -> None:
        """Let everything go that the run held."""
        self.graph.release()
        self.found.clear()
        self.infos.clear()
        self.outer = None

    # -- types --------------------------------------------------------------------------------------------------------

    def info(self, tp: type) -> TypeInfo:
        """What is known of a type; a mutable type's way to look up attributes becomes a fact."""
        found = self.infos.get(tp)
        if found is None:
            mutable = is_mutable_type(tp)
            getattribute = type_lookup(tp, "__getattribute__")
            name = _GETATTRIBUTE.get(getattribute)
            if name is None:
                if isinstance(getattribute, types.FunctionType):
                    name = "python"
                else:  # C types that spell out PyObject_GenericGetAttr, aside from the few that do not
                    owner = getattr(getattribute, "__objclass__", object)
                    name = "opaque" if owner in _OPAQUE or is_mutable_type(owner) else "generic"
            found = self.infos[tp] = TypeInfo(tp, mutable, issubclass(tp, self.tensor_types), name)
            if mutable:
                self.lookup(tp, "__getattribute__")
        return found

    def lookup(self, tp: type, name: str) -> Any:
        """Look a name up along a type's MRO as C code does; a fact where the type can change. NULL if not there."""
        key = (tp, name)
        try:
            return self.found[key]
        except KeyError:
            pass
        value = type_lookup(tp, name)
        if is_mutable_type(tp):
            if name in self.written_class_names and self.find(tp) is None:
                raise self.boundary("class-changed", f"{tp.__qualname__}.{name}")
            node = self.pin(tp)
            if not node.external:  # a class made during the run: the facts are about its bases
                for base in tp.__mro__[1:]:
                    self.lookup(base, name)
            self.follow(node, Key(EdgeKind.CLASS, name), value)
        self.found[key] = value
        return value

    def super_lookup(self, tp: type, after: type, name: str) -> Any:
        """The same behind `after` in the MRO."""
        key = (tp, (after, name))
        try:
            return self.found[key]
        except KeyError:
            pass
        value = super_lookup(tp, after, name)
        if is_mutable_type(tp):
            node = self.pin(tp)
            if not node.external and after in tp.__mro__:
                for base in tp.__mro__[tp.__mro__.index(after) + 1 :]:
                    self.lookup(base, name)
            self.follow(node, Key(EdgeKind.SUPER, (after, name)), value)
        self.found[key] = value
        return value

    def protocol(self, tp: type) -> None:
        """All special methods of a class become facts, since C code may look up any of them."""
        if is_mutable_type(tp):
            for name in SPECIAL_NAMES:
                self.lookup(tp, name)

    def mro(self, tp: type) -> None:
        """The bases of a class become a fact."""
        if is_mutable_type(tp):
            node = self.pin(tp)
            self.graph.read(node, Key(EdgeKind.MEMBER, "__mro__"), Atom(tp.__mro__), self.where())
            if not node.external:
                for base in tp.__mro__[1:]:
                    self.mro(base)

    # -- references ---------------------------------------------------------------------------------------------------

    def pin(self, obj: Any) -> Node:
        """The node of an object that the record may hold by identity: a class, a dictionary of globals."""
        node = self.find(obj)
        if node is None:
            root = self.graph.root
            node = self.graph.add(obj, root, Key(EdgeKind.PIN, len(self.graph.nodes)))
            self.graph.read(root, Key(EdgeKind.PIN, node.index), node)
            node.versions[0].refs[_TYPE] = Atom(type(obj))
        return node

    def target(self, parent: Node, key: Key, value: Any) -> Target:
        """What a reference to `value` leads to; a node is made for an object that has none."""
        if value is NULL:
            return ABSENT
        if is_atom(value):
            return Atom(value)
        node = self.find(value)
        if node is None:
            node = self.graph.add(value, parent, key) if parent.external else self.graph.add(value)
            node.versions[0].refs[_TYPE] = Atom(type(value))
            plain = plain_value(value)
            if plain is not None:
                node.versions[0].refs[_VALUE] = Atom(plain)
        return node

    def follow(self, parent: Node, key: Key, value: Any) -> Target:
        """Note that a reference was read. A first read is a fact about the state on entry."""
        known = parent.current(key)
        if known is None:
            target = self.target(parent, key, value)
            parent.versions[0].refs[key] = target
            parent.reads[key] = self.where()
            return target
        if isinstance(known, Node):
            same = self.find(value) is known
        elif known is ABSENT:
            same = value is NULL
        else:
            same = same_value(known.value, value)
        if not same:
            raise self.boundary("foreign-write", f"{key.kind.value} {key.arg!r} of a {parent.type.__name__}")
        return known

    def dictionary(self, node: Node, obj: Any) -> tuple[Node, dict[str, Any]] | None:
        """The attribute dictionary of an external object, None when it has none."""
        attributes = instance_dict(obj)
        if attributes is None:
            return None
        target = self.follow(node, _DICT, attributes)
        assert isinstance(target, Node)
        return target, attributes

    # -- containers ---------------------------------------------------------------------------------------------------

    def read_length(self, node: Node, obj: Any) -> None:
        """The number of elements of an external container was read."""
        if node.mutated:
            self.read_items(node, obj)
        else:
            self.graph.read(node, _LENGTH, Atom(_length(obj, self.info(type(obj)).base)), self.where())

    def read_truth(self, node: Node, obj: Any) -> None:
        """Whether an external container has elements was read."""
        if node.mutated:
            self.read_items(node, obj)
        elif _LENGTH not in node.initial:
            self.graph.read(node, _TRUTH, Atom(_length(obj, self.info(type(obj)).base) > 0), self.where())

    def read_items(self, node: Node, obj: Any) -> None:
        """All references of an external container were read, in order."""
        if node.index in self.complete:
            return
        source = obj if node.before is None else node.before
        base = self.info(type(obj)).base
        where = self.where()
        if base is dict:
            keys = tuple(_dict_keys(source))
            self.graph.note(node, _KEYS, Atom(keys), where)
            for name in keys:
                self.note_item(node, name, dict.__getitem__(source, name), where)
        elif base in (set, frozenset):
            members = tuple(base.__iter__(source))
            self.graph.note(node, _KEYS, Atom(members), where)
            for member in members:
                if not is_atom(member):
                    self.hold_key(member)
        elif base is not None:
            items = tuple(base.__iter__(source))  # type: ignore[attr-defined]
            self.graph.note(node, _LENGTH, Atom(len(items)), where)
            for index, item in enumerate(items):
                self.note_item(node, index, item, where)
        self.complete.add(node.index)

    def note_item(self, node: Node, name: Any, value: Any, where: Any) -> None:
        """One element as it was on entry."""
        key = self.item_key(name)
        if key not in node.initial:
            self.graph.note(node, key, self.target(node, key, value), where)

    def item_key(self, name: Any) -> Key:
        """The key of an element. A dictionary key that is no plain value is known by its identity."""
        if is_atom(name):
            return Key(EdgeKind.ITEM, name)
        return Key(EdgeKind.ITEM, ByIdentity(self.pin_key(name)))

    def pin_key(self, obj: Any) -> Any:
        """Hold an object that is used as a dictionary key; only an identity hash can be guarded."""
        if not self.is_hashed_by_identity(type(obj)):
            if issubclass(type(obj), (tuple, frozenset)) and all(map(is_atom, obj)):
                return obj
            raise self.boundary("opaque-object", f"a {type(obj).__name__} as a dictionary key")
        self.hold_key(obj)
        return obj

    def is_hashed_by_identity(self, tp: type) -> bool:
        """Whether the hash of a type's instances tells which object one is, or as much."""
        return type_lookup(tp, "__hash__") is object.__hash__ or issubclass(
            tp, (type, types.FunctionType, types.BuiltinFunctionType, enum.Enum, *self.tensor_types)
        )

    def hold_key(self, obj: Any) -> None:
        """Hold a key by identity, wherever else it was found."""
        node = self.pin(obj)
        if node.external:
            self.held_by_identity.add(node.index)
            self.keys_used.add(node.index)

    def read_item(self, node: Node, obj: Any, name: Any) -> None:
        """One element of an external dictionary was looked up."""
        if node.index in self.complete:
            return
        if node.index in self.scrambled:
            self.read_items(node, obj)
            return
        key = self.item_key(name)
        self.follow(node, key, dict.get(obj, name, NULL))

    def snapshot(self, node: Node, obj: Any) -> None:
        """Keep a shallow copy of a container before its first in-place update."""
        if obj is vars(builtins):
            raise self.boundary("builtins-changed", "the run goes on unobserved")
        if node.before is None:
            base = self.info(type(obj)).base
            if base is dict:
                node.before = {name: dict.__getitem__(obj, name) for name in _dict_keys(obj)}
            elif base is not None:
                node.before = base(base.__iter__(obj))  # type: ignore[attr-defined]


class ByIdentity:
    """A dictionary key that is compared by identity."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return hash(self.obj) if isinstance(self.obj, (tuple, frozenset)) else id(self.obj)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByIdentity):
            return False
        return self.obj is other.obj or (isinstance(self.obj, (tuple, frozenset)) and self.obj == other.obj)

    def __repr__(self) -> str:
        return f"<the {type(self.obj).__name__} itself>"


_OPAQUE: Final = frozenset({weakref.ProxyType, weakref.CallableProxyType, threading.local, threading.local.__base__})

_GETATTRIBUTE: Final = {
    object.__getattribute__: "generic",
    types.ModuleType.__getattribute__: "module",
    type.__getattribute__: "type",
    super.__getattribute__: "super",
    types.MethodType.__getattribute__: "method",
}


def _dict_keys(obj: dict[Any, Any]) -> Any:
    """The keys of a dictionary in iteration order, whatever the subclass overrides."""
    if issubclass(type(obj), collections.OrderedDict):
        return collections.OrderedDict.__iter__(obj)
    return dict.__iter__(obj)


def _length(obj: Any, base: type | None) -> int:
    assert base is not None
    return int(base.__len__(obj))  # type: ignore[attr-defined]


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, torch or MagPy rather than to the user."""
    if filename.startswith(_LIBRARIES):
        return "site-packages" not in filename or filename.startswith(_LIBRARIES[1:])
    return filename.startswith("<frozen")


def is_own(filename: str) -> bool:
    """Whether a file belongs to MagPy."""
    return filename.startswith(_OWN)


def _folders(*names: str) -> tuple[str, ...]:
    import importlib.util
    import os

    found = [importlib.util.find_spec(name) for name in names]
    return tuple(os.path.dirname(spec.origin) + os.sep for spec in found if spec is not None and spec.origin)


_OWN: Final = ("<magpy ", *_folders("magpy", "magpy_runtime", "magpy_codegen", "magpy_refgraph", "magpy_annotations"))
own_files(*_OWN)


def _libraries() -> tuple[str, ...]:
    import sysconfig

    return (sysconfig.get_paths()["stdlib"], *_folders("torch", "numpy"), *_OWN)


_LIBRARIES: Final = _libraries()
