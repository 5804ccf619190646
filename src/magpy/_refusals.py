"""How a call that is not compiled is told: the record of a reason, the warning, the exception of `fullgraph=True`."""

from __future__ import annotations

import sys
import traceback
import types
import warnings
from dataclasses import dataclass
from typing import Any

from magpy_runtime import strip

from ._reasons import REASONS, Boundary
from ._state import is_own


class Unsupported(RuntimeError):
    """The base of refusals, by the name under which graph capturers' refusals are known."""


class FullGraphError(Unsupported):
    """`fullgraph=True` was asked for, and the program is not one operator graph.

    Attributes:
        reason: slug of the reason, see `magpy.REASONS`.
        file: the user's file, "" if unknown.
        line: the line in it, 0 if unknown.
    """

    def __init__(self, reason: str, what: str, file: str = "", line: int = 0) -> None:
        super().__init__(reason, what, file, line)
        self.reason = reason
        self.file = file
        self.line = line

    def __str__(self) -> str:
        reason, what, file, line = self.args
        place = f" at {file}:{line}" if file else ""
        return f"[{reason}] {what}{place}. {REASONS[reason].advice}"


class NotCompiledWarning(UserWarning):
    """A compiled callable runs natively; once for each callable."""


@dataclass(slots=True)
class NotCompiled:
    """Why something was not compiled, and how often.

    Attributes:
        slug: the reason, see `magpy.REASONS`.
        message: the reason in words.
        file: the user's file, "" if unknown.
        line: the line in it, 0 if unknown.
        count: number of calls.
        details: for failures of MagPy or of a backend, the traceback as text.
    """

    slug: str
    message: str
    file: str
    line: int
    count: int
    details: str = ""


def settle(boundary: Boundary) -> Boundary:
    """Cut a boundary off from the run that it ended, so that nothing of the run lives longer.

    The exception behind it and its traceback become a note, as text.
    """
    cause = boundary.__cause__
    if cause is not None:
        boundary.add_note("".join(traceback.format_exception(cause)))
        cause.__traceback__ = None
    boundary.__cause__ = boundary.__context__ = boundary.__traceback__ = None
    return boundary


def warn(name: str, boundary: Boundary, category: type[Warning] | None = None) -> None:
    """Say once that a callable runs natively, or what else there is to say, at the line of the user that calls it."""
    level = 1
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    place = f" ({boundary.file}:{boundary.line})" if boundary.file else ""
    try:
        said = f"{name} runs natively: {boundary}{place}" if category is None else f"{name}: {boundary}{place}"
        warnings.warn(said, category or NotCompiledWarning, stacklevel=level)
    except Exception:
        if category is not None:
            raise
        # warnings are errors here, but what the program does must not depend on MagPy


def shown_name(target: Any) -> str:
    """A callable in words."""
    if isinstance(target, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        return target.__qualname__
    return type(target).__qualname__


__all__ = [
    "FullGraphError",
    "NotCompiled",
    "NotCompiledWarning",
    "Unsupported",
    "settle",
    "shown_name",
    "strip",
    "warn",
]
