"""Frames inside of what runs natively: each of the user's functions that is called there has records of its own.

A callable that cannot be compiled, and a boundary operation that is Python code, run under a frame hook. It is asked
about each code object once; functions of the user that were called with tensors or modules a few times get a compiled
callable, which serves their frames as if they had been compiled by hand. Where it has nothing to offer, the frame runs.
"""

from __future__ import annotations

import inspect
import os
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from magpy_runtime import RecordingFlag
from magpy_runtime.capture import NULL, FrameHook, call_below, type_lookup, unhooked

from . import _torch
from ._points import runs
from ._refusals import strip
from ._state import is_library

CALLS: Final = 2
"""How many calls a function gets before it is compiled."""

MOST: Final = 64
"""How many functions are compiled inside of one callable."""

_LOOKS: Final = 16
_SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PLAIN_FRAME: Final = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_MODULES: Final = os.path.dirname(torch.nn.modules.__file__ or "") + os.sep

_recording = RecordingFlag()


class Root:
    """Stands for the functions of one code object: called with such a function and its arguments, it calls it."""

    __slots__ = ("__code__", "__name__", "__qualname__")

    def __init__(self, code: types.CodeType) -> None:
        self.__code__ = code
        self.__name__ = code.co_name
        self.__qualname__ = code.co_qualname

    def __call__(self, function: types.FunctionType, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


class Nested:
    """The compiled callables for what is called inside of another one's native parts.

    Attributes:
        make: makes one, for a code object.
        roots: code objects that are not compiled here.
        sites: what answers, by code object.
        touched: how often such a frame has started.
        hook: the frame hook.
    """

    def __init__(self, make: Callable[[types.CodeType, Nested], Any], roots: set[types.CodeType]) -> None:
        self.make = make
        self.roots = roots
        self.sites: dict[types.CodeType, _Site] = {}
        self.touched = 0
        reference = weakref.ref(self)

        def discover(code: types.CodeType) -> Any:
            living = reference()
            return None if living is None else living.find(code)

        self.hook = FrameHook(discover=discover, silent=True)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a function; frames inside are served by their records."""
        return unhooked(self.hook.run, (function, args), {})

    def tried(self, function: Any) -> None:
        """A function that is called as a boundary operation has been tried as a call of its own."""
        if (called := runs(function)) is not None:
            self.roots.add(called.__code__)

    def call(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A native call of what cannot be compiled; where it gives a generator, that is served likewise."""
        result = self.run(call_below, ((), target, args, kwargs))
        if type(result) is types.GeneratorType and result.gi_code in self.roots:
            driven = drive(result, self)
            driven.__name__, driven.__qualname__ = result.__name__, result.__qualname__
            return driven
        return result

    def find(self, code: types.CodeType) -> _Site | None:
        """What answers for a code object that is seen for the first time, if anything should."""
        if code in self.roots or not is_candidate(code) or len(self.sites) >= MOST:
            return None
        return self.sites.setdefault(code, _Site(code, weakref.ref(self)))

    def compiled(self) -> list[Any]:
        """The compiled callables."""
        return [site.inner for site in [*self.sites.values()] if site.inner is not None]


class _Site:
    """Answers the frames of one code object."""

    __slots__ = ("calls", "code", "inner", "library", "owner")

    def __init__(self, code: types.CodeType, owner: weakref.ref[Nested]) -> None:
        self.code = code
        self.owner = owner
        self.calls = 0
        self.inner: Any = None
        self.library = is_library(code.co_filename)

    def __call__(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        if _recording.active or type(function) is not types.FunctionType or _torch.is_elsewhere():
            return NULL
        owner = self.owner()
        if owner is None:
            return NULL
        if arguments and is_disabled(arguments[0]):
            args, kwargs = bound(self.code, function, arguments)
            return unhooked(call_below, ((), function, args[1:], kwargs), {})
        owner.touched += 1
        if self.inner is None and not self._begin(owner, arguments):
            return NULL
        self.calls += 1
        if self.calls % _LOOKS == 0 and self._is_useless():
            owner.hook.answer(self.code, None)
            return NULL
        args, kwargs = bound(self.code, function, arguments)
        del function, arguments
        try:
            return self.inner.dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del args, kwargs, owner
            raise

    def _begin(self, owner: Nested, arguments: tuple[Any, ...]) -> bool:
        """Whether it is time for a compiled callable; makes it then."""
        if self.library and not (arguments and instance_modules(arguments[0])):
            return False
        if not any(issubclass(type(each), (torch.Tensor, torch.nn.Module)) for each in arguments):
            return False
        if any(issubclass(type(each), torch.autograd.function.FunctionCtx) for each in arguments[:1]):
            return False  # autograd calls it
        self.calls += 1
        if self.calls <= CALLS:
            return False
        self.inner = owner.make(self.code, owner)
        return True

    def _is_useless(self) -> bool:
        """Whether running the frame is never worse: no records after all attempts, or no operators in them."""
        records = self.inner.records()
        if not records:
            return bool(self.inner.gave_up())
        return not any(record.operators for record in records) and not any(record.boundary for record in records)


def drive(generator: types.GeneratorType[Any, Any, Any], nested: Nested) -> types.GeneratorType[Any, Any, Any]:
    """A generator that does what another one does; frames inside are served by their records."""

    def driven() -> Any:
        box: list[Any] = []  # what is yielded or sent is not held meanwhile
        step: Callable[..., Any] = generator.send
        args: tuple[Any, ...] = (None,)
        while True:
            try:
                box.append(nested.run(call_below, ((), step, args, None)))
            except StopIteration as stop:
                return stop.value
            except BaseException as error:
                strip(error)
                raise
            args = ()
            try:
                args = ((yield box.pop()),)
                step = generator.send
            except GeneratorExit:
                generator.close()
                raise
            except BaseException as error:
                strip(error)
                step, args = generator.throw, (error,)

    made: types.GeneratorType[Any, Any, Any] = driven()
    return made


def is_candidate(code: types.CodeType) -> bool:
    """Whether functions of a code object may be compiled: the user's, and `forward` of torch's modules."""
    if code.co_flags & _SUSPENDS or code.co_flags & _PLAIN_FRAME != _PLAIN_FRAME:
        return False
    if not code.co_argcount + code.co_kwonlyargcount + (code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)):
        return False
    name = code.co_name
    if name[:1] == "<" and name != "<lambda>":
        return False
    if name[:2] == "__" and name != "__call__":
        return False
    if code.co_filename.startswith("<eval_with_key>"):  # a graph of torch.fx
        return False
    if is_library(code.co_filename):
        return name == "forward" and code.co_filename.startswith(_MODULES)
    return True


def bound(code: types.CodeType, function: Any, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `Root` for a frame whose argument variables are given."""
    count = code.co_argcount
    args = (function, *arguments[:count])
    names = code.co_varnames[count : count + code.co_kwonlyargcount]
    place = count + len(names)
    kwargs = dict(zip(names, arguments[count:place], strict=True))
    if code.co_flags & inspect.CO_VARARGS:
        args += arguments[place]
        place += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(arguments[place])
    return args, kwargs


def is_disabled(obj: Any) -> bool:
    """Whether an object is a module to which `magpy.disable` was applied."""
    return issubclass(type(obj), torch.nn.Module) and vars(obj).get("__magpy_disable__") is True


def instance_modules(obj: Any) -> bool:
    """Whether an object is a module that has modules of its own."""
    return issubclass(type(obj), torch.nn.Module) and bool(vars(obj).get("_modules"))


def root_codes(target: Any) -> set[types.CodeType]:
    """The code that a callable itself runs."""
    functions = [runs(target)]
    if issubclass(type(target), torch.nn.Module):
        functions.append(type_lookup(type(target), "forward"))
    return {function.__code__ for function in functions if type(function) is types.FunctionType}


__all__ = ["Nested", "Root", "root_codes"]
