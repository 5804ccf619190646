"""Instances of classes: made without running `__init__`, then given their contents, attributes and slots."""

from __future__ import annotations

import collections
import types
from typing import Any

from magpy_codegen._mock import Builder, MockWriter, Unbuildable

from .containers import fill_dict, hashed
from .exceptions import build_exception

_BASES = (collections.OrderedDict, collections.defaultdict, dict, list, tuple, set, frozenset, collections.deque)
_SCALARS: dict[type, Any] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda obj: bytes.__getitem__(obj, slice(None)),
}
"""How the plain value of a subclass's instance is got without running code of the subclass."""

# Flags of a class.
_NOT_INSTANTIABLE = 1 << 7
_IMMUTABLE = 1 << 8
_HEAP = 1 << 9

_MAXLEN = vars(collections.deque)["maxlen"].__get__
_FACTORY = vars(collections.defaultdict)["default_factory"].__get__
_POINTER = tuple.__itemsize__


def builder(obj: Any) -> Builder | None:
    """The builder for an instance of a class that Python code defined, or of a struct sequence."""
    cls = type(obj)
    if issubclass(cls, BaseException):
        return build_exception
    base = _c_base(cls)
    if base is None:
        return None
    fields = vars(cls)
    if issubclass(cls, tuple) and "n_sequence_fields" in fields:
        return build_struct_sequence if fields["n_fields"] == fields["n_sequence_fields"] else None
    if cls is base or issubclass(cls, (type, types.ModuleType)):
        return None
    return build_instance if base is object or base in _BASES or base in _SCALARS else None


def _c_base(cls: type) -> Any:
    """The C class that lays out the instances of a class, None when C code keeps more in them than can be seen."""
    slots = 0
    for base in cls.__mro__:
        new = vars(base).get("__new__")
        if not base.__flags__ & _HEAP or (type(new) is types.BuiltinFunctionType and new.__self__ is base):
            hidden = cls.__basicsize__ - base.__basicsize__ - _POINTER * (slots + 2)  # attributes, weak references
            return base if hidden <= 0 else None
        if base.__flags__ & (_NOT_INSTANTIABLE | _IMMUTABLE):
            return None
        slots += sum(type(member) is types.MemberDescriptorType for member in vars(base).values())
    return None


def build_struct_sequence(writer: MockWriter, obj: Any) -> str:
    """A struct sequence such as the result of `torch.max`."""
    items = ", ".join([writer.value(item) for item in tuple.__iter__(obj)])
    cls = type(obj)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(cls, cls.__name__)}(({items},))")
    return name


def build_instance(writer: MockWriter, obj: Any) -> str:
    """An instance, by the `__new__` of its C base."""
    cls = type(obj)
    node = writer.graph.find(cls)
    if node is not None and not node.external:
        raise Unbuildable(obj, "its class was made during the run")
    base = _c_base(cls)
    constant = writer.namespace.constant
    shown = constant(cls, cls.__name__)
    new = constant(base.__new__, f"new_{base.__name__}")
    if base in (tuple, frozenset):
        parts = base.__iter__(obj)
        items = ", ".join([writer.value(item) for item in (parts if base is tuple else hashed(list(parts)))])
        if (found := writer.known(obj)) is not None:
            return found
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown}, ({items},))" if items else f"{name} = {new}({shown})")
    elif base in _SCALARS:
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown}, {writer.value(_SCALARS[base](obj))})")
    else:
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown})")
        _fill(writer, name, obj, base)
    attributes = attributes_of(obj)
    if attributes is not None:
        writer.attributes(name, obj, attributes, settable=True)
    for slot, value in slots_of(obj):
        writer.add(f"{constant(slot.__set__, 'set_' + slot.__name__)}({name}, {writer.value(value)})")
    return name


def _fill(writer: MockWriter, name: str, obj: Any, base: type) -> None:
    constant = writer.namespace.constant
    if issubclass(base, dict):
        if base is collections.defaultdict:
            factory = constant(collections.defaultdict.__init__, "defaultdict_init")
            writer.add(f"{factory}({name}, {writer.value(_FACTORY(obj))})")
        owner = collections.OrderedDict if base is collections.OrderedDict else dict
        fill_dict(writer, name, obj, constant(owner.__setitem__, f"{owner.__name__}_setitem"))
    elif base in (list, set, collections.deque):
        parts = list(base.__iter__(obj))
        items = ", ".join([writer.value(item) for item in (hashed(parts) if base is set else parts)])
        extend = {list: "extend", set: "update", collections.deque: "extend"}[base]
        if base is collections.deque:
            writer.add(f"{constant(collections.deque.__init__, 'deque_init')}({name}, (), {_MAXLEN(obj)!r})")
        if items:
            writer.add(f"{constant(getattr(base, extend), f'{base.__name__}_{extend}')}({name}, ({items},))")


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """The attribute dictionary of an object, None when it has none."""
    for cls in type(obj).__mro__:
        found = vars(cls).get("__dict__")
        if type(found) is types.GetSetDescriptorType:
            attributes = found.__get__(obj, type(obj))
            if type(attributes) is dict:
                return attributes
            raise Unbuildable(obj, "its attribute dictionary is of a class of its own")
    return None


def slots_of(obj: Any) -> list[tuple[Any, Any]]:
    """The slots of an object that are set, with their values."""
    found = []
    for cls in type(obj).__mro__:
        for member in vars(cls).values():
            if type(member) is types.MemberDescriptorType and cls.__flags__ & _HEAP:
                try:
                    found.append((member, member.__get__(obj, type(obj))))
                except AttributeError:
                    continue
    return found
