"""How objects are built again, one file for each family of kinds. `builder(obj)` finds the one for an object."""

from __future__ import annotations

from typing import Any

from magpy_codegen._mock import Builder

from . import containers, functions, instances, iterators, values

_BY_TYPE: dict[type, Builder] = {
    **values.BUILDERS,
    **containers.BUILDERS,
    **functions.BUILDERS,
    **iterators.BUILDERS,
}


def builder(obj: Any) -> Builder | None:
    """The builder for an object, None when its kind cannot be built."""
    found = _BY_TYPE.get(type(obj))
    return found if found is not None else instances.builder(obj)
