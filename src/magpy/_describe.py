"""Names of callables for messages."""

from __future__ import annotations

from typing import Any

from magpy_runtime.capture import instance_dict

from ._state import is_mutable_type


def describe(function: Any) -> str:
    """A callable's name for messages. None of the program's code runs."""
    kind = type(function)
    names: dict[str, Any] = {}
    if not issubclass(kind, type) and is_mutable_type(kind):  # it may have a `__getattr__`
        names = instance_dict(function) or {}
        holder: Any = kind
    else:
        holder = function
    module = names.get("__module__") or _attribute(holder, "__module__")
    module = module or _attribute(_attribute(holder, "__objclass__"), "__module__")
    name = names.get("__qualname__") or names.get("__name__") or _attribute(holder, "__qualname__")
    name = name or _attribute(holder, "__name__") or _attribute(kind, "__qualname__")
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def _attribute(obj: Any, name: str) -> Any:
    """An attribute of a class, whatever its metaclass says, or of an object of the interpreter's own."""
    if issubclass(type(obj), type):
        descriptor = type.__dict__.get(name)
        return None if descriptor is None else descriptor.__get__(obj)
    return getattr(obj, name, None)
