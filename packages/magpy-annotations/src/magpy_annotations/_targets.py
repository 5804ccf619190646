"""From a target's path to the live object, and from a bound callable to what it is bound to."""

from __future__ import annotations

import sys
import types
from typing import Any

_MISSING = object()


class UnknownTargetError(LookupError):
    """A target that names nothing on the running interpreter."""


def module_of(target: str) -> str | None:
    """The longest prefix of a target that is an imported module; None when not even its first part is one."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        if name in sys.modules:
            return name
    return None


def resolve(target: str) -> Any:
    """The live object that a target names. Nothing is imported, and no descriptor runs on the way through a type.

    Raises:
        UnknownTargetError: When there is none, or its module is not imported.
    """
    module = module_of(target)
    if module is None:
        raise UnknownTargetError(f"{target}: its module is not imported")
    found: Any = sys.modules[module]
    for part in target[len(module) + 1 :].split("."):
        found = _member(found, part)
        if found is _MISSING:
            raise UnknownTargetError(f"{target}: there is no {part!r}")
    return found


def _member(holder: Any, name: str) -> Any:
    found = vars(holder).get(name, _MISSING) if isinstance(holder, type) else getattr(holder, name, _MISSING)
    return found.__func__ if isinstance(found, staticmethod) else found


def type_member(tp: type, name: str) -> Any:
    """What a lookup of `name` along the type's MRO finds, without running descriptors; None when there is nothing."""
    for base in tp.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return found.__func__ if isinstance(found, staticmethod) else found
    return None


def unbind(callable_: Any) -> tuple[Any, tuple[Any, ...]]:
    """Takes a bound callable apart.

    Args:
        callable_: Any callable.

    Returns:
        The unbound callable, which annotations are made out to, and the arguments to put in front: ``list.append`` and
        ``(xs,)`` for ``xs.append``. What is not bound comes back as it is, with no arguments.
    """
    bound: tuple[Any, ...] = ()
    while True:
        kind = type(callable_)
        if kind is types.MethodType:
            bound = (callable_.__self__, *bound)
            callable_ = callable_.__func__
        elif kind is types.MethodWrapperType:
            return type_dict(callable_.__objclass__).get(callable_.__name__, callable_), (callable_.__self__, *bound)
        elif issubclass(kind, types.BuiltinFunctionType):  # its subtype holds methods that know their defining class
            found = _unbound_builtin(callable_)
            return (callable_, bound) if found is None else (found, (callable_.__self__, *bound))
        else:
            return callable_, bound


def type_dict(tp: type) -> types.MappingProxyType[str, Any]:
    """The type's own namespace, whatever its metaclass says."""
    namespace: types.MappingProxyType[str, Any] = type.__dict__["__dict__"].__get__(tp)
    return namespace


def _unbound_builtin(builtin: Any) -> Any:
    """The descriptor that made a bound builtin, or None for a plain function (a module's, or a ``__new__``)."""
    holder = builtin.__self__
    name = builtin.__name__
    if holder is None or issubclass(type(holder), types.ModuleType):
        return None
    if issubclass(type(holder), type):
        for base in holder.__mro__:
            found = type_dict(base).get(name)
            if type(found) is types.ClassMethodDescriptorType and found.__get__(None, holder) == builtin:
                return found
        if name == "__new__":
            return None
    for base in type(holder).__mro__:
        found = type_dict(base).get(name)
        # Bound builtins are equal when they hold the same object and the same C function. Without the type, `__get__`
        # crashes CPython for methods that take their defining class.
        if type(found) is types.MethodDescriptorType and found.__get__(holder, type(holder)) == builtin:
            return found
    return None
