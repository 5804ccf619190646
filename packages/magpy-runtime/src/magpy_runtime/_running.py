"""What runs around a record's graph and mock: states that are put back when they raise, and tracebacks without MagPy's frames."""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from . import _torch
from ._own import is_own_file
from ._record import Record

RUN: Final = re.compile(r"\brun\(")
"""Where a mock runs the graph."""


class Damage(Exception):
    """A graph raised after it had updated one of its inputs, so that the call cannot be made again."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.context = error.__context__


class Updating:
    """A compiled graph that updates its inputs: tells whether it had done so when it raises.

    Args:
        run: the graph.
        kept: numbers of the inputs that are put back then.
    """

    __slots__ = ("kept", "run")

    def __init__(self, run: Callable[..., Any], kept: tuple[int, ...]) -> None:
        self.run = run
        self.kept = kept

    def __call__(self, *inputs: Any) -> Any:
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        before = [-1 if each.is_inference() else each._version for each in tensors]
        copies = [inputs[number].detach().clone() for number in self.kept]
        try:
            return self.run(*inputs)
        except Exception as error:
            if self.kept:
                with torch.no_grad():
                    for number, copy in zip(self.kept, copies, strict=True):
                        inputs[number].detach().copy_(copy)
                raise
            for each, version in zip(tensors, before, strict=True):
                if version < 0 or each._version != version:
                    raise Damage(error) from None
            raise


class Switching:
    """A compiled graph that changes modes of torch on its way: puts them back when it raises."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run

    def __call__(self, *inputs: Any) -> Any:
        modes = _torch.modes()
        try:
            return self.run(*inputs)
        except BaseException:
            _torch.restore_modes(modes)
            raise


def wrap(record: Record) -> None:
    """A record's graph was compiled: put around it what its updates and modes need. Native code may run its mock now."""
    record.plain = not record.random and not record.raises
    harmless = getattr(record.run, "functional", False) or getattr(record.run, "repeatable", False)
    if record.mutates and record.run is not None and not harmless:
        record.run = Updating(record.run, record.updated if record.may_raise else ())
        if record.native is not None:
            record.native.by_mock()
    if record.switches and record.run is not None:
        record.run = Switching(record.run)


def is_in_graph(record: Record, error: Exception) -> bool:
    """Whether what a mock has raised came out of the graph; else out of what comes after it."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code is not record.mock.__code__:
        entry = entry.tb_next
    lines = record.mock_source.splitlines()
    graph_line = next((number for number, line in enumerate(lines, 1) if RUN.search(line)), 0)
    return entry is not None and entry.tb_lineno <= graph_line


def raise_damage(damage: Damage) -> NoReturn:
    """Raise what a graph has raised after it had updated an input."""
    original = damage.error
    try:
        raise original
    except Exception:
        original.__context__ = damage.context
        raise


def raise_built(error: BaseException) -> NoReturn:
    """Raise the exception that a mock has built. The frames in its traceback lead to the mock's, which is emptied."""
    entry = error.__traceback__
    frame = None if entry is None else entry.tb_frame.f_back
    while frame is not None and is_own_file(frame.f_code.co_filename):
        with contextlib.suppress(RuntimeError):  # it is running
            frame.clear()
        frame = frame.f_back
    del entry, frame
    raise_again(error)


def raise_again(error: BaseException) -> NoReturn:
    """Raise the program's exception; its context stays, where `raise` puts what the caller handles."""
    context = error.__context__
    try:
        raise error
    except BaseException:
        error.__context__ = context
        raise


def strip(error: BaseException) -> None:
    """Take MagPy's own frames out of the tracebacks of an exception and those that it is linked to.

    Natively they would not be there, nor hold anything. The program's frames still lead to them (`f_back`), so they are
    emptied, too. The frame that calls this is running: it empties itself.
    """
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    for each in todo:
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            _strip(each)
            todo += [each.__cause__, each.__context__]


def _strip(error: BaseException) -> None:
    kept: list[types.TracebackType] = []
    found = False
    entry = error.__traceback__
    while entry is not None:
        if not is_own_file(entry.tb_frame.f_code.co_filename):
            kept.append(entry)
        else:
            found = True
            with contextlib.suppress(RuntimeError):  # it is running
                entry.tb_frame.clear()
        entry = entry.tb_next
    if not found:
        return
    following = None
    for entry in reversed(kept):
        entry.tb_next = following
        following = entry
    error.__traceback__ = following


__all__ = [
    "Damage",
    "Switching",
    "Updating",
    "is_in_graph",
    "raise_again",
    "raise_built",
    "raise_damage",
    "strip",
    "wrap",
]
