"""Builtin containers: made empty, named, and then filled, so that cycles and aliases come out right."""

from __future__ import annotations

import collections
import enum
import types
from typing import Any

import torch

from magpy_codegen._mock import Builder, MockWriter, Unbuildable


def hashed(keys: Any) -> Any:
    """The keys or members of what is built, none of which has a hash that is code of the program's."""
    for key in keys:
        for part in (key, *tuple.__iter__(key)) if type(key) is tuple else (key,):
            kind = type(part)
            found = next((vars(cls)["__hash__"] for cls in kind.__mro__ if "__hash__" in vars(cls)), None)
            if type(found) is types.FunctionType and not (
                issubclass(kind, (enum.Enum, torch.Tensor)) or found.__code__.co_filename == "<string>"
            ):
                raise Unbuildable(part, "it is a key or a member, and its __hash__ would run")
    return keys


def _inline(writer: MockWriter, items: Any) -> str:
    return ", ".join([writer.value(item) for item in items])


def build_tuple(writer: MockWriter, obj: tuple[Any, ...]) -> str:
    """A tuple; its items come first."""
    items = _inline(writer, obj)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = tuple([{items}])")  # not a display, which Python would fold into one shared constant
    return name


def build_list(writer: MockWriter, obj: list[Any]) -> str:
    """A list."""
    name = writer.fresh(obj)
    writer.add(f"{name} = []")
    items = _inline(writer, obj)
    if items:
        writer.add(f"{name} += [{items}]")
    return name


def build_dict(writer: MockWriter, obj: dict[Any, Any]) -> str:
    """A dictionary, keys in order."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {{}}")
    fill_dict(writer, name, obj, "")
    return name


def fill_dict(writer: MockWriter, name: str, obj: dict[Any, Any], setter: str) -> None:
    """Add the items of `obj` to the dictionary `name`, with `setter` or by subscript."""
    base = collections.OrderedDict if issubclass(type(obj), collections.OrderedDict) else dict
    for key in hashed(list(base.__iter__(obj))):
        shown, value = writer.value(key), writer.value(dict.__getitem__(obj, key))
        writer.add(f"{setter}({name}, {shown}, {value})" if setter else f"{name}[{shown}] = {value}")


_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


def build_set(writer: MockWriter, obj: set[Any]) -> str:
    """A set. Of plain values a copy, which keeps the table and so the order; of others one that is filled anew."""
    name = writer.fresh(obj)
    if all(type(item) in _PLAIN for item in set.__iter__(obj)):
        writer.add(f"{name} = {writer.namespace.constant(set.copy(obj), 'members')}.copy()")
        return name
    writer.add(f"{name} = set()")
    items = _inline(writer, hashed(obj))
    if items:
        writer.add(f"{name}.update(({items},))")
    return name


def build_frozenset(writer: MockWriter, obj: frozenset[Any]) -> str:
    """A frozen set."""
    items = _inline(writer, hashed(obj))
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = frozenset(({items},))" if items else f"{name} = frozenset()")
    return name


def build_deque(writer: MockWriter, obj: collections.deque[Any]) -> str:
    """A deque with its bound."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(collections.deque, 'deque')}(maxlen={obj.maxlen!r})")
    items = _inline(writer, obj)
    if items:
        writer.add(f"{name}.extend(({items},))")
    return name


def build_ordered_dict(writer: MockWriter, obj: collections.OrderedDict[Any, Any]) -> str:
    """An OrderedDict."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(collections.OrderedDict, 'OrderedDict')}()")
    fill_dict(writer, name, obj, "")
    writer.attributes(name, obj, obj.__dict__, settable=False)
    return name


def build_defaultdict(writer: MockWriter, obj: collections.defaultdict[Any, Any]) -> str:
    """A defaultdict with its factory."""
    factory = writer.value(obj.default_factory)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(collections.defaultdict, 'defaultdict')}({factory})")
    fill_dict(writer, name, obj, "")
    return name


BUILDERS: dict[type, Builder] = {
    tuple: build_tuple,
    list: build_list,
    dict: build_dict,
    set: build_set,
    frozenset: build_frozenset,
    collections.deque: build_deque,
    collections.OrderedDict: build_ordered_dict,
    collections.defaultdict: build_defaultdict,
}
