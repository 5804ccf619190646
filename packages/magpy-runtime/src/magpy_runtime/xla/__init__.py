"""XLA as a backend, through JAX: ATen operators of an operator graph are lowered to `jax.numpy` and compiled by `jax.jit`.

Needs the extra `magpy-runtime[xla]`; JAX is imported with this package, and by nothing else.
"""

from ._backend import Options, Report, UnsupportedOperatorError, xla
from ._jax import MissingJaxError
from ._parts import OutOfRangeError
from ._table import TABLE, Lowering, lowers

__all__ = [
    "TABLE",
    "Lowering",
    "MissingJaxError",
    "Options",
    "OutOfRangeError",
    "Report",
    "UnsupportedOperatorError",
    "lowers",
    "xla",
]
