"""What abstract base classes answered: their caches have one token, which any registration anywhere moves."""

from __future__ import annotations

import _collections_abc
import abc
import contextlib
import os
import types
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from .capture import type_lookup

_LIBRARY: Final = tuple(map(vars, (_collections_abc, contextlib, os)))
"""Namespaces of the standard library's hooks, which look at classes and nothing else."""

_object_class: Final = type_lookup(object, "__class__")
_check: Final = type_lookup(abc.ABCMeta, "__subclasscheck__")


class AbstractAnswers:
    """Gives the token that a record was made with as long as the questions of its run would be answered as they were.

    A registration that is about other classes, such as a compiler that is imported makes, leaves a record as it is.
    What is called with no arguments stands in a guard for `abc.get_cache_token`.

    Args:
        questions: pairs of an abstract class, and the class that it was asked about.
        token: the token when it was asked.
    """

    __slots__ = ("answers", "seen", "token")

    def __init__(self, questions: Iterable[tuple[Any, ...]], token: int) -> None:
        self.token = token
        self.seen = token
        self.answers: list[tuple[Any, Any, bool]] | None = []
        for base, cls in {(id(base), id(cls)): (base, cls) for base, cls in questions}.values():
            if current() != token or not _may_ask(base, cls):
                self.answers = None
                break
            self.answers.append((base, cls, issubclass(cls, base)))

    def __call__(self) -> int:
        now = current()
        if now == self.seen:
            return self.token
        if self.answers is None or not all(issubclass(cls, base) is answer for base, cls, answer in self.answers):
            return now
        self.seen = now
        return self.token


def current() -> int:
    """The token of the caches now."""
    return cast(Callable[[], int], abc.get_cache_token)()


def _may_ask(base: Any, cls: Any) -> bool:
    """Whether a class can be asked by a guard: the answer is the interpreter's, and instances do not hide their class."""
    hook = getattr(type_lookup(base, "__subclasshook__"), "__func__", None)
    return (
        (type(hook) is not types.FunctionType or any(hook.__globals__ is each for each in _LIBRARY))
        and type_lookup(type(base), "__subclasscheck__") is _check
        and type_lookup(cls, "__class__") is _object_class
    )


__all__ = ["AbstractAnswers"]
