"""Values that are immutable but hold references: slices, ranges, torch's sizes."""

from __future__ import annotations

from typing import Any

from .._mock import Builder, MockWriter, Unbuildable


def build_slice(writer: MockWriter, obj: slice) -> str:
    """`slice(start, stop, step)`."""
    return f"slice({writer.value(obj.start)}, {writer.value(obj.stop)}, {writer.value(obj.step)})"


def build_bytearray(writer: MockWriter, obj: bytearray) -> str:
    """A copy of the contents."""
    name = writer.fresh(obj)
    writer.add(f"{name} = bytearray({bytes(obj)!r})")
    return name


def refuse(writer: MockWriter, obj: Any) -> str:
    """Objects that hold a live execution or a resource of the system."""
    raise Unbuildable(obj)


BUILDERS: dict[type, Builder] = {slice: build_slice, bytearray: build_bytearray}
