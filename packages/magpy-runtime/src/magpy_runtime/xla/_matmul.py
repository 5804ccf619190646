"""Lowerings of matrix products and distances."""

from __future__ import annotations

from typing import Any

from ._jax import DTYPES, jnp, lax
from ._table import Array, Trace, lowers, wide


def product(x: Array, y: Array) -> Array:
    """A matrix product at full precision; short floating-point types are added up in float32."""
    wider = jnp.float32 if wide(x[:0]).dtype != x.dtype else None
    if x.dtype == bool:
        return jnp.matmul(x, y)
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST, preferred_element_type=wider)


@lowers("mm.default", "bmm.default")
def mm(trace: Trace, x: Array, y: Array) -> Array:
    """Matrix product."""
    return product(x, y)


def _plus(trace: Trace, base: Array, result: Array, beta: Any, alpha: Any) -> Array:
    if alpha != 1:
        result = result * jnp.asarray(alpha, result.dtype)
    if beta == 0:
        return result
    base = base.astype(result.dtype)
    return result + (base if beta == 1 else base * jnp.asarray(beta, result.dtype))


@lowers("addmm.default", "baddbmm.default", "addmv.default")
def addmm(trace: Trace, base: Array, x: Array, y: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """Matrix product added to a tensor."""
    result = _plus(trace, base, product(x, y), beta, alpha)
    return result


@lowers("mv.default", "dot.default")
def mv(trace: Trace, x: Array, y: Array) -> Array:
    """Product with a vector."""
    return product(x, y)


def _norm(difference: Array, p: float) -> Array:
    size = jnp.abs(difference)
    if p == 0:
        return jnp.sum((size != 0).astype(size.dtype), axis=-1)
    if p == float("inf"):
        return jnp.max(size, axis=-1)
    if p == 1:
        return jnp.sum(size, axis=-1)
    if p == 2:
        return jnp.sqrt(jnp.sum(jnp.square(size), axis=-1))
    return jnp.power(jnp.sum(jnp.power(size, p), axis=-1), 1 / p)


@lowers("_cdist_forward.default", accepts=lambda x, y, p, compute_mode=None: x.shape[-1] > 0)
def cdist(trace: Trace, x: Array, y: Array, p: float, compute_mode: int | None = None) -> Array:
    """Distance of each row to each row."""
    return _norm(x[..., :, None, :] - y[..., None, :, :], p)


@lowers("_pdist_forward.default", accepts=lambda x, p=2.0: x.shape[-1] > 0 and x.shape[0] > 1)
def pdist(trace: Trace, x: Array, p: float = 2.0) -> Array:
    """Distance of each two rows."""
    first, second = jnp.triu_indices(x.shape[0], 1)
    return _norm(x[first] - x[second], p)


FLOATS = frozenset(dtype for dtype in DTYPES if dtype.is_floating_point)
"""Element types of torch that products are made of."""
