"""Instances of classes: made without running `__init__`, then given their contents, attributes and slots."""

from __future__ import annotations

import collections
import types
from typing import Any

from magpy_codegen._mock import Builder, MockWriter, Unbuildable

from .containers import fill_dict

_BASES = (collections.OrderedDict, collections.defaultdict, dict, list, tuple, set, frozenset, collections.deque)


def builder(obj: Any) -> Builder | None:
    """The builder for an instance of a class that Python code defined, or of a struct sequence."""
    cls = type(obj)
    if isinstance(obj, BaseException):
        return build_instance if obj.__traceback__ is None and obj.__cause__ is obj.__context__ is None else None
    if isinstance(obj, tuple) and hasattr(cls, "n_sequence_fields"):
        return build_struct_sequence
    if not cls.__flags__ & (1 << 9) or isinstance(obj, (type, types.ModuleType)):
        return None
    base = next(each for each in cls.__mro__ if not each.__flags__ & (1 << 9))
    if base is object or base in _BASES or base in (int, float, str, complex, bytes) or issubclass(base, BaseException):
        return build_instance
    return None


def build_struct_sequence(writer: MockWriter, obj: Any) -> str:
    """A struct sequence such as the result of `torch.max`."""
    items = ", ".join([writer.value(item) for item in tuple.__iter__(obj)])
    cls = type(obj)
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(cls, cls.__name__)}(({items},))")
    return name


def build_instance(writer: MockWriter, obj: Any) -> str:
    """An instance, by the `__new__` of its C base."""
    cls = type(obj)
    node = writer.graph.find(cls)
    if node is not None and not node.external:
        raise Unbuildable(obj, "its class was made during the run")
    base = next(each for each in cls.__mro__ if not each.__flags__ & (1 << 9))
    constant = writer.namespace.constant
    shown = constant(cls, cls.__name__)
    new = constant(base.__new__, f"new_{base.__name__}")
    if base in (tuple, frozenset):
        items = ", ".join([writer.value(item) for item in base.__iter__(obj)])
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown}, ({items},))" if items else f"{name} = {new}({shown})")
    elif base in (int, float, str, complex, bytes):
        name = writer.fresh(obj)
        plain = base.__str__(obj) if base is str else base(obj)
        writer.add(f"{name} = {new}({shown}, {plain!r})")
    elif issubclass(base, BaseException):
        items = ", ".join([writer.value(item) for item in obj.args])
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown}{', ' + items if items else ''})")
    else:
        name = writer.fresh(obj)
        writer.add(f"{name} = {new}({shown})")
        _fill(writer, name, obj, base)
    attributes = _attributes(obj)
    if attributes:
        parts = ", ".join(f"{writer.value(key)}: {writer.value(value)}" for key, value in attributes.items())
        writer.add(f"instance_dict({name}).update({{{parts}}})")
    for slot, value in _slots(obj):
        writer.add(f"{constant(slot.__set__, 'set_' + slot.__name__)}({name}, {writer.value(value)})")
    return name


def _fill(writer: MockWriter, name: str, obj: Any, base: type) -> None:
    constant = writer.namespace.constant
    if issubclass(base, dict):
        if base is collections.defaultdict:
            factory = constant(collections.defaultdict.__init__, "defaultdict_init")
            writer.add(f"{factory}({name}, {writer.value(obj.default_factory)})")
        owner = collections.OrderedDict if base is collections.OrderedDict else dict
        fill_dict(writer, name, obj, constant(owner.__setitem__, f"{owner.__name__}_setitem"))
    elif base in (list, set, collections.deque):
        items = ", ".join([writer.value(item) for item in base.__iter__(obj)])
        extend = {list: "extend", set: "update", collections.deque: "extend"}[base]
        if base is collections.deque:
            writer.add(f"{constant(collections.deque.__init__, 'deque_init')}({name}, (), {obj.maxlen!r})")
        if items:
            writer.add(f"{constant(getattr(base, extend), f'{base.__name__}_{extend}')}({name}, ({items},))")


def _attributes(obj: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def _slots(obj: Any) -> list[tuple[Any, Any]]:
    found = []
    for cls in type(obj).__mro__:
        for member in vars(cls).values():
            if isinstance(member, types.MemberDescriptorType) and cls.__flags__ & (1 << 9):
                try:
                    found.append((member, member.__get__(obj, type(obj))))
                except AttributeError:
                    continue
    return found
