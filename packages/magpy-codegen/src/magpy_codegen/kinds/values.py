"""Values that are immutable but hold references: slices, ranges, torch's sizes."""

from __future__ import annotations

import gc
import types
from typing import Any

import torch

from magpy_codegen._mock import Builder, MockWriter, Unbuildable


def build_slice(writer: MockWriter, obj: slice) -> str:
    """`slice(start, stop, step)`."""
    parts = f"{writer.value(obj.start)}, {writer.value(obj.stop)}, {writer.value(obj.step)}"
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = slice({parts})")
    return name


def build_bytearray(writer: MockWriter, obj: bytearray) -> str:
    """A copy of the contents."""
    name = writer.fresh(obj)
    writer.add(f"{name} = bytearray({bytes(obj)!r})")
    return name


def build_size(writer: MockWriter, obj: torch.Size) -> str:
    """A tensor's size."""
    name = writer.fresh(obj)
    sizes = ", ".join([writer.value(size) for size in obj])
    writer.add(f"{name} = {writer.namespace.constant(torch.Size, 'Size')}([{sizes}])")
    return name


def build_view(writer: MockWriter, obj: Any) -> str:
    """A view of a dictionary's keys, values or items."""
    owner = _shown_by(writer, obj)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    method = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}[type(obj)]
    writer.add(f"{name} = dict.{method}({owner})")
    return name


def _shown_by(writer: MockWriter, obj: Any) -> str:
    """The dictionary behind a view."""
    owner = gc.get_referents(obj)[0]
    if writer.graph.find(owner) is None and "__doc__" in owner:
        raise Unbuildable(obj, "it may show the attributes of a class")
    return writer.value(owner)


def build_mapping_proxy(writer: MockWriter, obj: types.MappingProxyType[Any, Any]) -> str:
    """A read-only view of a dictionary."""
    owner = _shown_by(writer, obj)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(types.MappingProxyType, 'mappingproxy')}({owner})")
    return name


def build_namespace(writer: MockWriter, obj: types.SimpleNamespace) -> str:
    """A SimpleNamespace."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(types.SimpleNamespace, 'SimpleNamespace')}()")
    writer.attributes(name, obj, vars(obj), settable=False)
    return name


BUILDERS: dict[type, Builder] = {
    slice: build_slice,
    bytearray: build_bytearray,
    torch.Size: build_size,
    type({}.keys()): build_view,
    type({}.values()): build_view,
    type({}.items()): build_view,
    types.SimpleNamespace: build_namespace,
    types.MappingProxyType: build_mapping_proxy,
}
