"""Strict mode (MAGPY_STRICT=1): what MagPy says twice must agree, and what it holds for true is verified.

The native table of held facts and the native guard are run together with the generated Python, and each run's
RefGraph is verified before a record is made of it. What is found is a fault of MagPy's and is the one thing that it
raises into the program, so that tests see it.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any, Final

from magpy_codegen import forget_source, make_function
from magpy_refgraph import RefGraph, verify
from magpy_runtime import NativeGuard

from ._env import STRICT

_ROUNDS: Final = 3

Held = Callable[[], int | None]


class StrictError(AssertionError):
    """MagPy contradicts itself."""


class StrictTable:
    """The native check of held facts and the generated Python, which must name the same first failing fact.

    The Python is written and compiled at the first check. Other threads may change what is checked between the two, so
    only a difference that stays counts.
    """

    def __init__(self, table: Held, source: Callable[[], tuple[str, dict[str, Any]]]) -> None:
        self._table = table
        self._source = source
        self._python: types.FunctionType | None = None

    def __call__(self) -> int | None:
        """None when all facts hold, else the number of the first that does not."""
        if self._python is None:
            self._python = make_function(*self._named())
        for _ in range(_ROUNDS):
            native = self._table()
            try:
                python = self._python()
            except Exception as error:
                raise StrictError(f"the generated check of held facts raises; the table says {native}") from error
            if native == python:
                return native
        raise StrictError(f"the table of held facts says {native}, the generated Python {python}:\n{self._source()[0]}")

    def _named(self) -> tuple[str, str, dict[str, Any], str]:
        text, namespace = self._source()
        return text, "held", namespace, "held facts"

    def __del__(self) -> None:
        if self._python is not None:
            with contextlib.suppress(Exception):  # while the interpreter ends
                forget_source(self._python)


class StrictGuard:
    """Holds what a native guard found against the generated guard, which must bind the same or fail at the same check."""

    def __init__(self, python: Callable[..., Any]) -> None:
        self._python = python

    def __call__(self, native: NativeGuard, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> None:
        """Compare.

        Raises:
            StrictError: they differ.
        """
        for _ in range(_ROUNDS):
            try:
                wanted = self._python(args, kwargs)
            except Exception as error:
                raise StrictError(f"the generated guard raises; the native one says {found!r}") from error
            if type(wanted) is type(found) is tuple:
                if len(wanted) == len(found) and all(map(_same, wanted, found)):
                    return
            elif type(wanted) is type(found) and wanted == found:
                return
            found = native.check(args, kwargs)
        raise StrictError(f"the native guard says {_shown(found)}, the generated one {_shown(wanted)}")


def _same(one: Any, other: Any) -> bool:
    """Whether two bound objects are the same; numbers that a guard computes are made anew each time."""
    return one is other or (type(one) is type(other) and type(one) in (int, float) and repr(one) == repr(other))


def _shown(found: Any) -> str:
    return f"check {found}" if type(found) is int else f"that it passes with {len(found)} objects"


def strict_guard(python: Callable[..., Any]) -> StrictGuard | None:
    """What holds the native guard against the generated one, in strict mode."""
    return StrictGuard(python) if STRICT else None


def checked(table: Held, source: Callable[[], tuple[str, dict[str, Any]]]) -> Held:
    """The check of held facts: the table itself, in strict mode together with the generated Python."""
    return StrictTable(table, source) if STRICT else table


def check_graph(graph: RefGraph) -> None:
    """Verify the graph of a run, in strict mode.

    Raises:
        StrictError: it breaks what the searches rest on.
    """
    if STRICT and (errors := verify(graph)):
        raise StrictError("the RefGraph is broken: " + "; ".join(errors[:10]))
