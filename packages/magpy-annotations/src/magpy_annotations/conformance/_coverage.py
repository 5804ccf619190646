"""Which C callables of a module have no annotation, and why they may go without."""

from __future__ import annotations

import fnmatch
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from magpy_annotations._registry import Registry

C_CALLABLES = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)


def c_callables(module: str) -> Iterator[tuple[str, Any]]:
    """Target and object of each C callable of an imported module: functions, types, and the types' own methods."""
    seen: set[int] = set()
    for name, found in sorted(vars(sys.modules[module]).items()):
        if isinstance(found, type):
            if id(found) in seen or _is_python(found):
                continue
            seen.add(id(found))
            yield f"{module}.{name}", found
            for member, each in vars(found).items():
                each = each.__func__ if isinstance(each, staticmethod) else each
                if isinstance(each, C_CALLABLES):
                    yield f"{module}.{name}.{member}", each
        elif isinstance(found, types.BuiltinFunctionType):
            yield f"{module}.{name}", found


def _is_python(tp: type) -> bool:
    # The interpreter has no mark for it; `class` statements leave at least one of these.
    members = vars(tp)
    return bool({"__weakref__", "__slots__"} & set(members)) or any(
        isinstance(each, types.FunctionType) for each in members.values()
    )


def unannotated(registry: Registry, modules: tuple[str, ...], exempt: Mapping[str, str]) -> list[str]:
    """C callables of the modules that have neither an annotation nor an exemption.

    Args:
        registry: The annotations.
        modules: Imported modules.
        exempt: Reasons, by pattern over targets (as in `fnmatch`).
    """
    missing = []
    for module in modules:
        for target, found in c_callables(module):
            if registry.lookup(found) is None and not any(fnmatch.fnmatchcase(target, each) for each in exempt):
                missing.append(target)
    return missing
