"""Lowerings of what makes tensors of nothing. Random numbers are not here: they are torch's, drawn outside of XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._jax import jnp
from ._table import Array, Trace, lowers


@lowers("full.default", complex=True)
def full(trace: Trace, size: Sequence[int], value: Any, **ignored: Any) -> Array:
    """One value everywhere."""
    return jnp.full(tuple(size), value, dtype=trace.dtype)


@lowers("empty.memory_format", "empty_strided.default", "empty_permuted.default", complex=True)
def empty(trace: Trace, size: Sequence[int], *rest: Any, **ignored: Any) -> Array:
    """What the program must not look at: zeros."""
    return jnp.zeros(tuple(size), dtype=trace.dtype)


@lowers("new_empty_strided.default", "new_empty.default", complex=True)
def new_empty(trace: Trace, x: Array, size: Sequence[int], *rest: Any, **ignored: Any) -> Array:
    """What the program must not look at: zeros."""
    return jnp.zeros(tuple(size), dtype=trace.dtype)


@lowers("scalar_tensor.default", complex=True)
def scalar_tensor(trace: Trace, value: Any, **ignored: Any) -> Array:
    """A number."""
    return jnp.asarray(value, dtype=trace.dtype)


@lowers("arange.start_step")
def arange(trace: Trace, start: Any, end: Any, step: Any = 1, **ignored: Any) -> Array:
    """Numbers at equal distances, each computed from the first one, in double precision as on the CPU."""
    if all(isinstance(each, int) for each in (start, end, step)):
        count = max(-(-(end - start) // step), 0)
        return (start + jnp.arange(count, dtype="int64") * step).astype(trace.dtype)
    import math

    count = max(math.ceil((end - start) / step), 0)
    return (start + jnp.arange(count, dtype="float64") * step).astype(trace.dtype)


@lowers("prims::iota.default")
def iota(trace: Trace, length: int, *, start: int, step: int, **ignored: Any) -> Array:
    """Integers at equal distances."""
    return start + jnp.arange(length, dtype=trace.dtype) * step


@lowers("eye.m", "eye.default")
def eye(trace: Trace, rows: int, columns: int | None = None, **ignored: Any) -> Array:
    """Ones in the diagonal."""
    return jnp.eye(rows, columns, dtype=trace.dtype)
