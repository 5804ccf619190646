"""MagPy's own failures as reasons, and places in the source."""

from __future__ import annotations

import traceback
from typing import Any

from magpy_refgraph import Location
from magpy_runtime.segments import line_of

from ._reasons import Boundary
from ._strict import StrictError


def internal_error(error: BaseException) -> Boundary:
    """A failure of MagPy's own, as a reason. What strict mode found is raised."""
    if isinstance(error, StrictError):
        raise error

    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, RecursionError):
        boundary = Boundary("recursion-limit", f"{error}{place}")
    else:
        boundary = Boundary("internal-error", f"{type(error).__name__}: {error}{place}")
    boundary.__cause__ = error
    return boundary


def locate(where: Any) -> Location | None:
    """A place in the source from what the rules keep of it: a code object and a line, or minus an instruction - 1."""
    if where is None or isinstance(where, Location):
        return where
    code, number = where
    line = line_of(code, -number - 1) if number < 0 else number
    return Location(code.co_filename, line, code.co_qualname)
