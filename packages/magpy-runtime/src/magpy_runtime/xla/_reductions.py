"""Lowerings of what goes over dimensions: sums, extremes, softmax, sorting."""

from __future__ import annotations

from typing import Any

from ._jax import jax, jnp, lax
from ._table import Array, Trace, axes, lowers, wide


def _before_sum(trace: Trace, x: Array) -> Array:
    """An array in the type in which its elements are added up."""
    return wide(x if jnp.issubdtype(x.dtype, jnp.floating) and trace.dtype == x.dtype else x.astype(trace.dtype))


@lowers("sum.dim_IntList", "sum.default")
def total(trace: Trace, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Sum."""
    return jnp.sum(_before_sum(trace, x), axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers("mean.dim", "mean.default")
def mean(trace: Trace, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Mean."""
    return jnp.mean(_before_sum(trace, x), axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers("prod.default")
def product(trace: Trace, x: Array, *, dtype: Any = None) -> Array:
    """Product of all elements."""
    return jnp.prod(_before_sum(trace, x))


@lowers("prod.dim_int")
def product_dim(trace: Trace, x: Array, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Array:
    """Product along a dimension."""
    return jnp.prod(_before_sum(trace, x), axis=axes(dim, x.ndim), keepdims=keepdim)


def _variance(x: Array, dim: Any, correction: Any, keepdim: bool) -> tuple[Array, Array]:
    x, over = wide(x), axes(dim, x.ndim)
    count = 1
    for axis in over:
        count *= x.shape[axis]
    average = jnp.mean(x, axis=over, keepdims=True)
    squares = jnp.sum(jnp.square(x - average), axis=over, keepdims=keepdim)
    free = jnp.asarray(max(0.0, float(count) - float(1 if correction is None else correction)), squares.dtype)
    return squares / free, average if keepdim else jnp.squeeze(average, over)


@lowers("var.correction")
def variance(trace: Trace, x: Array, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    """Variance."""
    return _variance(x, dim, correction, keepdim)[0]


@lowers("var.dim")
def variance_dim(trace: Trace, x: Array, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Array:
    """Variance."""
    return _variance(x, dim, int(unbiased), keepdim)[0]


@lowers("var_mean.correction")
def variance_mean(
    trace: Trace, x: Array, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Variance and mean."""
    return _variance(x, dim, correction, keepdim)


@lowers("amax.default")
def amax(trace: Trace, x: Array, dim: Any = (), keepdim: bool = False) -> Array:
    """Largest element."""
    return jnp.max(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers("max.default")
def maximum_of_all(trace: Trace, x: Array) -> Array:
    """Largest element of all."""
    return jnp.max(x)


@lowers("min.default")
def minimum_of_all(trace: Trace, x: Array) -> Array:
    """Smallest element of all."""
    return jnp.min(x)


@lowers("amin.default")
def amin(trace: Trace, x: Array, dim: Any = (), keepdim: bool = False) -> Array:
    """Smallest element."""
    return jnp.min(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers("any.default", "any.dim", "any.dims")
def any_of(trace: Trace, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Whether any element is not zero."""
    return jnp.any(x != 0, axis=axes(dim, x.ndim) if dim != [] or not x.ndim else (), keepdims=keepdim)


@lowers("all.default", "all.dim", "all.dims")
def all_of(trace: Trace, x: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Whether no element is zero."""
    return jnp.all(x != 0, axis=axes(dim, x.ndim) if dim != [] or not x.ndim else (), keepdims=keepdim)


def _place(x: Array, dim: int | None, keepdim: bool, find: Any) -> Array:
    if not x.ndim:
        return jnp.zeros((), "int64")
    if dim is None:
        found = find(x.reshape(-1))
        return found.reshape((1,) * x.ndim) if keepdim else found
    return find(x, axis=dim, keepdims=keepdim)


@lowers("argmax.default")
def argmax(trace: Trace, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Place of the first of the largest elements."""
    return _place(x, dim, keepdim, jnp.argmax)


@lowers("argmin.default")
def argmin(trace: Trace, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """Place of the first of the smallest elements."""
    return _place(x, dim, keepdim, jnp.argmin)


@lowers("max.dim")
def max_dim(trace: Trace, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """Largest elements and their places."""
    return jnp.max(x, axis=axes(dim, x.ndim), keepdims=keepdim), _place(x, dim, keepdim, jnp.argmax)


@lowers("min.dim")
def min_dim(trace: Trace, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """Smallest elements and their places."""
    return jnp.min(x, axis=axes(dim, x.ndim), keepdims=keepdim), _place(x, dim, keepdim, jnp.argmin)


@lowers("cumsum.default")
def cumsum(trace: Trace, x: Array, dim: int, *, dtype: Any = None) -> Array:
    """Running sum."""
    x = wide(x.astype(trace.dtype))
    return jnp.cumsum(x, axis=dim) if x.ndim else x


@lowers("cumprod.default")
def cumprod(trace: Trace, x: Array, dim: int, *, dtype: Any = None) -> Array:
    """Running product."""
    x = wide(x.astype(trace.dtype))
    return jnp.cumprod(x, axis=dim) if x.ndim else x


def _shifted(x: Array, dim: int) -> Array:
    high = jnp.max(x, axis=dim, keepdims=True)
    return x - lax.stop_gradient(high)


@lowers("_softmax.default")
def softmax(trace: Trace, x: Array, dim: int, half_to_float: bool) -> Array:
    """Softmax."""
    x = wide(x)
    if not x.ndim:
        return jnp.exp(x - x)
    powers = jnp.exp(_shifted(x, dim))
    return powers / jnp.sum(powers, axis=dim, keepdims=True)


@lowers("_log_softmax.default")
def log_softmax(trace: Trace, x: Array, dim: int, half_to_float: bool) -> Array:
    """Logarithm of the softmax."""
    x = wide(x)
    if not x.ndim:
        return x - x
    shifted = _shifted(x, dim)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=dim, keepdims=True))


def _sorted(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    if not x.ndim:
        return x, jnp.zeros((), "int64")
    places = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, places, axis=dim), places


@lowers("sort.default", ties=lambda *args, **kwargs: True)
def sort(trace: Trace, x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """Sorted elements and their places."""
    return _sorted(x, dim, descending)


@lowers("sort.stable", ties=lambda *args, stable=None, **kwargs: stable is not True)
def stable_sort(
    trace: Trace, x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    """Sorted elements and their places; equal ones keep their order."""
    return _sorted(x, dim, descending)


@lowers("topk.default", ties=lambda *args, **kwargs: True)
def topk(
    trace: Trace,
    x: Array,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> tuple[Array, Array]:
    """The largest or smallest elements and their places."""
    values, places = _sorted(x, dim, largest)
    if not x.ndim:
        return values, places
    return lax.slice_in_dim(values, 0, k, axis=dim % x.ndim), lax.slice_in_dim(places, 0, k, axis=dim % x.ndim)


def _fft_scale(x: Array, normalization: int, count: int) -> Array:
    return x / {0: 1.0, 1: float(count) ** 0.5, 2: float(count)}[normalization]


def _count(shape: Any, dims: Any) -> int:
    count = 1
    for dim in dims:
        count *= shape[dim]
    return count


@lowers("_fft_r2c.default", complex=True)
def fft_r2c(trace: Trace, x: Array, dim: Any, normalization: int, onesided: bool) -> Array:
    """Fourier transform of real numbers."""
    dims = axes(dim, x.ndim)
    result = jnp.fft.rfftn(x, axes=dims) if onesided else jnp.fft.fftn(x, axes=dims)
    return _fft_scale(result, normalization, _count(x.shape, dims))


@lowers("_fft_c2r.default", complex=True)
def fft_c2r(trace: Trace, x: Array, dim: Any, normalization: int, last_dim_size: int) -> Array:
    """Fourier transform with real numbers as its result."""
    dims = axes(dim, x.ndim)
    sizes = [x.shape[each] for each in dims[:-1]] + [last_dim_size]
    count = 1
    for size in sizes:
        count *= size
    return _fft_scale(jnp.fft.irfftn(x, s=sizes, axes=dims) * count, normalization, count)


@lowers("_fft_c2c.default", complex=True)
def fft_c2c(trace: Trace, x: Array, dim: Any, normalization: int, forward: bool) -> Array:
    """Fourier transform of complex numbers."""
    dims = axes(dim, x.ndim)
    count = _count(x.shape, dims)
    result = jnp.fft.fftn(x, axes=dims) if forward else jnp.fft.ifftn(x, axes=dims) * count
    return _fft_scale(result, normalization, count)


@lowers("logsumexp.default")
def logsumexp(trace: Trace, x: Array, dim: Any, keepdim: bool = False) -> Array:
    """Logarithm of the sum of the powers."""
    return jax.scipy.special.logsumexp(wide(trace.cast(x)), axis=axes(dim, x.ndim), keepdims=keepdim)
