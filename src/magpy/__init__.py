"""MagPy: compile eager PyTorch by watching one native run."""

from ._api import Info, compile, disable, info, reset, wait  # noqa: A004 - the name that users know from torch
from ._compiled import FullGraphError, NotCompiled, NotCompiledWarning
from ._explain import explain
from ._reasons import REASONS, Reason
from ._saving import Saved, UnsavableError, save
from ._verify import VerificationWarning

__version__ = "0.1.0"

__all__ = [
    "REASONS",
    "FullGraphError",
    "Info",
    "NotCompiled",
    "NotCompiledWarning",
    "Reason",
    "Saved",
    "UnsavableError",
    "VerificationWarning",
    "compile",
    "disable",
    "explain",
    "info",
    "reset",
    "save",
    "wait",
]
