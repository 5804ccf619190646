"""Which files are MagPy's own. Needs no torch."""

from __future__ import annotations

import os

from ._native import hide

_own: tuple[str, ...] = ("<magpy ", os.path.dirname(__file__) + os.sep)


def own_files(*prefixes: str) -> None:
    """Files whose frames no program sees: they are left out of tracebacks, and of what looks at its callers."""
    global _own
    _own = tuple(dict.fromkeys((*_own, *prefixes)))
    hide(_own)


def is_own_file(filename: str) -> bool:
    """Whether a file is MagPy's."""
    return filename.startswith(_own)


own_files()
