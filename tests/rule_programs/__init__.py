"""Programs without tensors that use every instruction, run under the rules on each Python version.

A program is a function with the arguments that it is called with, made anew for each call. The golden files in
`tests/cases/rules` say what is recorded of it, on every version the same.
"""

import sys

from . import calls, classes, control, operators, single, suspending, variables  # noqa: F401 - they register their programs
from ._programs import PROGRAMS, Program

if sys.version_info >= (3, 12):
    from . import generic  # noqa: F401

__all__ = ["PROGRAMS", "Program"]
