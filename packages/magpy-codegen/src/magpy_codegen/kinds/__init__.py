"""How objects are built again, one file for each family of kinds. `builder(obj)` finds the one for an object."""

from __future__ import annotations

import types
from typing import Any

from magpy_codegen._mock import Builder
from magpy_codegen._raising import handled

from . import containers, functions, instances, iterators, values
from .iterators import advanced, exhausted

_BY_TYPE: dict[type, Builder] = {
    **values.BUILDERS,
    **containers.BUILDERS,
    **functions.BUILDERS,
    **iterators.BUILDERS,
}


def mock_parts(function: Any) -> tuple[str, tuple[Any, ...]] | None:
    """What a function of this package does for a mock, by name; with frames, for one that throws. None for any other.

    The names are `advanced`, `exhausted`, `handled` and `throw`; a frame is its file, name, qualified name, line and globals.
    """
    for known in (advanced, exhausted, handled):
        if function is known:
            return known.__name__, ()
    frames = getattr(function, "frames", None) if type(function) is types.FunctionType else None
    if frames is None or function.__qualname__ != "stubs.<locals>.throw":
        return None
    return "throw", tuple(
        [
            (each.code.co_filename, each.code.co_name, each.code.co_qualname, each.line, each.namespace)
            for each in frames
        ]
    )


def builder(obj: Any) -> Builder | None:
    """The builder for an object, None when its kind cannot be built."""
    found = _BY_TYPE.get(type(obj))
    return found if found is not None else instances.builder(obj)
