"""What `compile` gives for bound methods and callable objects: a copy of it serves a copy of what it was made of."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

from magpy_runtime import strip
from magpy_runtime.capture import NULL, type_lookup

from ._compiled import Compiled, Config
from ._state import MUTABLE_TYPE


class CompiledObject:
    """Serves calls of a bound method or of a callable object. It has its name, documentation and signature.

    As copies of a method or of an object have a state of their own, so have copies of this one, and records of their own.
    """

    __slots__ = ("__dict__", "__weakref__", "_dispatch")

    def __init__(self, target: Callable[..., Any], config: Config) -> None:
        state = Compiled(target, config)
        self._dispatch = state.dispatch
        updated = ("__dict__",) if isinstance(target, types.MethodType) else ()
        functools.update_wrapper(self, target, updated=updated)
        vars(self)["__magpy__"] = state

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del self, args, kwargs
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = state_of_object(self)
        return CompiledObject, (state.target, state.config)

    def __copy__(self) -> CompiledObject:
        state = state_of_object(self)
        return CompiledObject(copy.copy(state.target), state.config)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledObject:
        state = state_of_object(self)
        made = memo[id(self)] = object.__new__(CompiledObject)  # what is copied may lead back to it
        CompiledObject.__init__(made, copy.deepcopy(state.target, memo), state.config)
        return made

    @staticmethod
    def __magpy_target__(compiled: CompiledObject) -> Callable[..., Any]:
        return state_of_object(compiled).target


def state_of_object(compiled: CompiledObject) -> Compiled:
    """What serves the calls."""
    state: Compiled = vars(compiled)["__magpy__"]
    return state


def has_state(target: Any) -> bool:
    """Whether a callable is a bound method or an object, a copy of which is another one, and none that classes bind."""
    kind = type(target)
    if kind in (types.MethodType, functools.partial):
        return True
    return bool(kind.__flags__ & MUTABLE_TYPE) and type_lookup(kind, "__get__") is NULL


__all__ = ["CompiledObject", "has_state", "state_of_object"]
