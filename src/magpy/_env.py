"""Facts about the running Python, each with its proof, and switches. Nobody else looks at `sys.version_info`."""

from __future__ import annotations

import dis
import os
import sys
from typing import Final

PYTHON: Final = sys.version_info[:2]

CALL_SELF_ABOVE_CALLABLE: Final = PYTHON >= (3, 13)
"""CALL takes [callable, self or NULL, arguments] (CPython gh-105729); before, [NULL or method, callable or self, ...]."""

HAS_PRECALL: Final = "PRECALL" in dis.opmap
"""Calls are two instructions, of which the first already takes bound methods apart (3.11 only)."""

HAS_TO_BOOL: Final = "TO_BOOL" in dis.opmap
"""Truth is asked by an instruction of its own, and jumps and `not` take exact bools (CPython gh-106008)."""

HAS_METHOD_LOADS: Final = PYTHON >= (3, 12)
"""LOAD_ATTR also loads methods, as its argument says (CPython gh-93429); before, LOAD_METHOD does."""

VERIFY: Final = os.environ.get("MAGPY_VERIFY", "")
"""How many hits of each record are verified where `compile` does not say; see `_verify`."""

CACHE_DIR: Final = os.environ.get("MAGPY_CACHE_DIR", "")
"""Where records are kept for other processes; see `_disk`."""

CACHE_SIZE: Final = int(os.environ.get("MAGPY_CACHE_SIZE", "") or 1 << 30)
"""How many bytes they may take."""

STRICT: Final = os.environ.get("MAGPY_STRICT") == "1"
"""Check MagPy itself at each call, as its tests do; see `_strict`."""
