"""Small realistic programs, each of which is run eagerly and compiled by `tests/test_programs.py`.

A file is a field of Python or of PyTorch; a program is a function with `@program` that makes a fresh world (so that two
calls give two worlds that share nothing but classes and module globals) and says how its calls are expected to be served.
"""

import importlib

from .model import PROGRAMS, Call, Program

for _name in ("containers", "contexts", "functions", "modules", "objects", "outputs", "statements", "tensors"):
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["Call", "PROGRAMS", "Program"]
