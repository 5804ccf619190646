"""Values that are immutable but hold references: slices, ranges, torch's sizes."""

from __future__ import annotations

import gc
import types
from typing import Any

import torch

from magpy_codegen._mock import Builder, MockWriter


def build_slice(writer: MockWriter, obj: slice) -> str:
    """`slice(start, stop, step)`."""
    return f"slice({writer.value(obj.start)}, {writer.value(obj.stop)}, {writer.value(obj.step)})"


def build_bytearray(writer: MockWriter, obj: bytearray) -> str:
    """A copy of the contents."""
    name = writer.fresh(obj)
    writer.add(f"{name} = bytearray({bytes(obj)!r})")
    return name


def build_size(writer: MockWriter, obj: torch.Size) -> str:
    """A tensor's size."""
    return writer.namespace.constant(torch.Size(obj), "size")


def build_view(writer: MockWriter, obj: Any) -> str:
    """A view of a dictionary's keys, values or items."""
    owner = gc.get_referents(obj)[0]
    method = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}[type(obj)]
    return f"dict.{method}({writer.value(owner)})"


def build_mapping_proxy(writer: MockWriter, obj: types.MappingProxyType[Any, Any]) -> str:
    """A read-only view of a dictionary."""
    return (
        f"{writer.namespace.constant(types.MappingProxyType, 'mappingproxy')}({writer.value(gc.get_referents(obj)[0])})"
    )


def build_namespace(writer: MockWriter, obj: types.SimpleNamespace) -> str:
    """A SimpleNamespace."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(types.SimpleNamespace, 'SimpleNamespace')}()")
    if vars(obj):
        writer.add(f"{name}.__dict__.update({writer.value(vars(obj))})")
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
