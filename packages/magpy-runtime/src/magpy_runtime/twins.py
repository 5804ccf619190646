"""Twins of modules: an instance of a subclass that shares the original's `__dict__`, and is called in its place.

State, parameters, hooks and `training` are therefore one and the same; `isinstance` holds; and methods that call
`self(...)` or `self.forward(...)` are served, too. What runs natively works on the original.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from ._native import Dispatcher, TwinCall, TwinSlots
from ._running import strip
from .capture import type_lookup

_CLASS: Final[Any] = object.__dict__["__class__"]


class TwinState(TwinSlots):
    """What a twin has besides the original's attributes; what its call reads is native.

    Attributes:
        make: gives what serves the calls of a module, or of its `forward`: a `Dispatcher` with an attribute `target`.
        forward: serves direct calls of `forward`.
    """

    __slots__ = ("forward", "make")

    def __init__(self, module: torch.nn.Module, make: Callable[[Any], Any]) -> None:
        self.module = module
        self.base = type(module)
        self.make = make
        self.call: Any = make(module)
        self.forward: Any = None

    def forward_entry(self) -> Dispatcher:
        """The entry of direct calls of `forward`, which run no hooks."""
        entry, target = self.forward, self.module.forward
        if entry is None or entry.target != target:
            entry = self.forward = self.make(target)
        return entry  # type: ignore[no-any-return]

    def entries(self) -> list[Any]:
        """All that served calls."""
        return [self.call] if self.forward is None else [self.call, self.forward]


class _Twin:
    """The methods of twins that differ from the original's; the first base of their classes."""

    __slots__ = ()
    _magpy_state: TwinState

    def __init_subclass__(cls, **keywords: Any) -> None:
        """The original's class is not told of a subclass that its author did not write."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._magpy_state
        if type(state.module) is not state.base:
            _follow_class(self, state)
        try:
            result = state.call.dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del self, state, args, kwargs
            raise
        if type(state.module) is not state.base:
            _follow_class(self, state)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = self._magpy_state
        return twin_of, (state.module, state.make)

    def __copy__(self) -> Any:
        state = self._magpy_state
        return twin_of(copy.copy(state.module), state.make)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        state = self._magpy_state
        return twin_of(copy.deepcopy(state.module, memo), state.make)


class _TwinWithState(_Twin):
    """Usually the first base: with the slot here, the class of an instance can be changed as the original's can."""

    __slots__ = ("_magpy_state",)


def _follow_class(twin: Any, state: TwinState) -> None:
    """The original's class was changed (lazy modules and parametrizations do that): change the twin's accordingly."""
    state.base = type(state.module)
    _CLASS.__set__(twin, twin_class(state.base))


setattr(  # noqa: B010 - it takes the place of a method
    _TwinWithState,
    "__call__",
    TwinCall(_Twin.__call__, _TwinWithState.__dict__["_magpy_state"], _follow_class, strip),
)


def twin_of(module: torch.nn.Module, make: Callable[[Any], Any]) -> torch.nn.Module:
    """A twin of a module. Pickles come here, too.

    Args:
        module: the original, or a twin of it.
        make: see `TwinState`.
    """
    if isinstance(module, _Twin):
        module = module._magpy_state.module
    cls = twin_class(type(module))
    twin: Any = object.__new__(cls)
    object.__setattr__(twin, "__dict__", module.__dict__)
    type.__getattribute__(cls, "_magpy_state").__set__(twin, TwinState(module, make))
    made: torch.nn.Module = twin
    return made


def state_of(twin: Any) -> TwinState | None:
    """What a twin has besides the original's attributes, None for whatever is no twin."""
    return twin._magpy_state if isinstance(twin, _Twin) else None


@contextlib.contextmanager
def plain_calls() -> Iterator[None]:
    """Calls of twins go through Python meanwhile, where a profiler sees them."""
    native = _TwinWithState.__dict__["__call__"]
    type.__setattr__(_TwinWithState, "__call__", _Twin.__call__)
    try:
        yield
    finally:
        type.__setattr__(_TwinWithState, "__call__", native)


def _base(cls: type) -> type:
    """The class of the original of a twin of class `cls`."""
    base: type = cls.__bases__[1]
    return base


def twin_class(cls: type) -> type:
    """The subclass of a module class whose instances are twins. It lives as long as an instance."""
    subclasses: list[type] = type.__subclasses__(cls)
    for known in subclasses:
        if issubclass(known, _Twin) and _base(known) is cls:
            return known

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._magpy_state.forward_entry().dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del self, args, kwargs
            raise

    def read_class(self: Any) -> type:
        return type(self._magpy_state.module)

    def set_class(self: Any, new: type) -> None:
        state = self._magpy_state
        state.module.__class__ = _base(new) if issubclass(new, _Twin) else new
        _follow_class(self, state)

    namespace: dict[str, Any] = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__class__": property(read_class, set_class),
        "__magpy_target__": staticmethod(_target),
    }
    original = type_lookup(cls, "forward")
    if isinstance(original, types.FunctionType):
        namespace["forward"] = functools.wraps(original)(forward)
    if hasattr(cls, "__del__"):
        namespace["__del__"] = _nothing  # the original has its own
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if type(member) is types.MemberDescriptorType and name not in namespace:
                namespace[name] = _slot(name)
    make = type(cls)
    try:
        return make(cls.__name__, (_TwinWithState, cls), namespace)
    except TypeError:  # the original has slots of its own
        namespace["__slots__"] = ("_magpy_state",)
        return make(cls.__name__, (_Twin, cls), namespace)


def _target(twin: Any) -> torch.nn.Module:
    module: torch.nn.Module = twin._magpy_state.module
    return module


def _nothing(self: Any) -> None:
    """Instead of a finalizer."""


def _slot(name: str) -> property:
    """A slot of the original, seen on its twin."""

    def read(self: Any) -> Any:
        return getattr(self._magpy_state.module, name)

    def write(self: Any, value: Any) -> None:
        setattr(self._magpy_state.module, name, value)

    def delete(self: Any) -> None:
        delattr(self._magpy_state.module, name)

    return property(read, write, delete)


__all__ = ["TwinState", "plain_calls", "state_of", "twin_of"]
