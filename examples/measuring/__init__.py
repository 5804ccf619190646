"""Yardsticks for the demo and the benchmarks, none of which asks MagPy about itself."""

from .comparing import difference, state_difference
from .frontends import FrontEnd, MagPy, Served, TorchCompile
from .instructions import InstructionCounter
from .operators import as_compiling, graph_problems, operators_run
from .timing import Timing, interleaved

__all__ = [
    "FrontEnd",
    "InstructionCounter",
    "MagPy",
    "Served",
    "Timing",
    "TorchCompile",
    "as_compiling",
    "difference",
    "graph_problems",
    "interleaved",
    "operators_run",
    "state_difference",
]
