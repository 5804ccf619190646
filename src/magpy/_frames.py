"""Update rules for frames: what explains that Python code runs, and what C code does with what it returns."""

from __future__ import annotations

import inspect
import types
from typing import Any, Final

from ._specials import SpecialRules
from ._state import SPECIAL_NAMES, is_library

_SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class FrameRules(SpecialRules):
    """Rules for frames that start and end. They need no torch."""

    def __init__(self) -> None:
        super().__init__()
        self.executions: set[types.CodeType] = set()

    def on_enter(
        self, code: types.CodeType, function: types.FunctionType | None, args: tuple[Any, ...], kind: int
    ) -> None:
        """A monitored frame starts: some observed operation must explain it."""
        if kind != 0:
            if code not in self.executions:
                raise self.boundary("external-iterator", f"{code.co_qualname} was started before the call")
            return
        if code.co_flags & _SUSPENDS:
            self.executions.add(code)
        if self.making and code.co_name in ("__init_subclass__", "__set_name__"):
            self._new_class(args[code.co_name == "__set_name__" :][:1])
        if function is None or id(function) in self.used:
            return
        node = self.find(function)
        if node is not None:
            self.use_function(function)
            return
        if code in self.nested_codes:
            return  # made during the run
        if args:
            self._explain(code, function, args[0])
        if id(function) not in self.used and is_library(code.co_filename) and code.co_name != "__del__":
            # C code of a library calls a function of its own that it keeps out of sight; held by identity.
            self.pin(function)
            self.use_function(function)
        if id(function) not in self.used:
            raise self.boundary("unexplained-frame", f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})")

    def on_exit(self, code: types.CodeType, value: Any, kind: int) -> None:
        """A monitored frame is left: an iterator that a user's `__iter__` hands to C code must be the run's own."""
        if kind == 2:
            return
        if kind == 0 and code.co_name == "__iter__":
            self.own_iterator(value)
        self.gives(code, value, suspended=kind == 1)

    def _new_class(self, owner: tuple[Any, ...]) -> None:
        """A class that is being made is shown to Python code before the instruction that makes it has finished."""
        if owner and issubclass(type(owner[0]), type) and self.find(owner[0]) is None:
            self.graph.add(owner[0])

    def _explain(self, code: types.CodeType, function: types.FunctionType, owner: Any) -> None:
        """C code called a method of `owner`: find the class attribute that holds it."""
        for cls in (type(owner), owner) if issubclass(type(owner), type) else (type(owner),):
            for name in (code.co_name, function.__name__, *SPECIAL_NAMES):
                if code.co_name == "__del__":
                    return
                found = self.lookup(cls, name)
                if getattr(found, "__func__", found) is function:
                    if found is not function:
                        self.bind(found, owner)
                    self.use_function(function)
                    return
