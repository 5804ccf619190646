"""Lowerings of what takes and puts elements by index.

Where eager raises for an index that is out of range, XLA would take another element: each lowering has the trace check it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._jax import jnp
from ._table import Array, Trace, lowers


def _within(trace: Trace, index: Array, length: int, negative: bool = False) -> Array:
    """An index that is known to be in range, from 0."""
    trace.require((index >= (-length if negative else 0)) & (index < length))
    index = index.astype("int64")
    return jnp.where(index < 0, index + length, index) if negative else index


def _integers(x: Any, indices: Sequence[Any], *rest: Any) -> bool:
    """Whether all indices are numbers: the shape of what a mask takes depends on its values."""
    return all(index is None or index.dtype not in (torch.bool, torch.uint8) for index in indices)


@lowers("embedding.default")
def embedding(trace: Trace, weight: Array, index: Array, *ignored: Any) -> Array:
    """Rows by number."""
    return weight.at[_within(trace, index, weight.shape[0])].get(mode="clip")


@lowers("index_select.default", complex=True)
def index_select(trace: Trace, x: Array, dim: int, index: Array) -> Array:
    """Places of a dimension by number."""
    if not x.ndim:
        _within(trace, index, 1)
        return x
    index = _within(trace, index.reshape(-1), x.shape[dim])
    return jnp.take(x, index, axis=dim, mode="clip")


def _where(trace: Trace, x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    return tuple(
        slice(None) if index is None else _within(trace, index, x.shape[n], negative=True)
        for n, index in enumerate(indices)
    )


@lowers("index.Tensor", "_unsafe_index.Tensor", accepts=_integers, complex=True)
def index(trace: Trace, x: Array, indices: Sequence[Array | None]) -> Array:
    """Elements by numbers in several dimensions."""
    return x.at[_where(trace, x, indices)].get(mode="clip")


@lowers("index_put.default", "_unsafe_index_put.default", accepts=_integers)
def index_put(
    trace: Trace, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    """With other elements, set or added, by numbers in several dimensions."""
    at = x.at[_where(trace, x, indices)]
    if accumulate and x.dtype == bool:
        return at.max(values)
    return at.add(values.astype(x.dtype)) if accumulate else at.set(values.astype(x.dtype))


def _grid(trace: Trace, x: Array, dim: int, index: Array) -> tuple[Array, ...]:
    """Indices in all dimensions: the given one in `dim`, the own places in the others."""
    dim %= x.ndim
    found = []
    for axis in range(x.ndim):
        shape = [1] * x.ndim
        shape[axis] = index.shape[axis]
        found.append(jnp.arange(index.shape[axis]).reshape(shape))
    found[dim] = _within(trace, index, x.shape[dim])
    return tuple(found)


def _flat(x: Array, index: Array) -> tuple[Array, Array]:
    """Numbers as vectors of one element."""
    return (x if x.ndim else x[None]), (index if index.ndim else index[None])


@lowers("gather.default", complex=True)
def gather(trace: Trace, x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    """For each place one element along a dimension."""
    shape = index.shape
    if not index.size:
        return jnp.zeros(shape, x.dtype)
    x, index = _flat(x, index)
    return x.at[_grid(trace, x, dim, index)].get(mode="clip").reshape(shape)


def _scatter(trace: Trace, x: Array, dim: int, index: Array, source: Any, method: str) -> Array:
    if not index.size:
        return x
    if x.dtype == bool and method == "add":
        method = "max"
    shape = x.shape
    x, index = _flat(x, index)
    grid = _grid(trace, x, dim, index)
    source = jnp.asarray(source, x.dtype)
    if source.shape != () or index.shape == ():
        source = source.reshape(-1) if not source.ndim else source
        source = source[tuple(slice(length) for length in index.shape)]
    return getattr(x.at[grid], method)(source).reshape(shape)


@lowers("scatter.src", "scatter.value")
def scatter(trace: Trace, x: Array, dim: int, index: Array, source: Any) -> Array:
    """With other elements along a dimension."""
    return _scatter(trace, x, dim, index, source, "set")


@lowers("scatter_add.default")
def scatter_add(trace: Trace, x: Array, dim: int, index: Array, source: Array) -> Array:
    """With other elements added along a dimension."""
    return _scatter(trace, x, dim, index, source, "add")


_START: dict[str, Callable[[Any], Any]] = {
    "sum": lambda dtype: 0,
    "mean": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "amax": lambda dtype: -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min,
    "amin": lambda dtype: jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max,
}
_METHOD = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}


@lowers("scatter_reduce.two", accepts=lambda x, *rest, **named: x.dtype is not torch.bool)
def scatter_reduce(
    trace: Trace, x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Elements that fall on one place, put together."""
    start = x
    touched = _scatter(trace, jnp.zeros(x.shape, "int64"), dim, index, jnp.ones(source.shape, "int64"), "add")
    if not include_self:
        start = jnp.where(touched > 0, jnp.asarray(_START[reduce](x.dtype), x.dtype), x)
    result = _scatter(trace, start, dim, index, source, _METHOD[reduce])
    if reduce == "mean":
        count = jnp.maximum(touched + int(include_self), 1).astype(x.dtype)
        floating = jnp.issubdtype(x.dtype, jnp.floating)
        result = jnp.where(touched > 0, result / count if floating else result // count, result)
    return result


@lowers("masked_scatter.default")
def masked_scatter(trace: Trace, x: Array, mask: Array, source: Array) -> Array:
    """With another tensor's elements, one after the other, where a mask holds."""
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    place = jnp.cumsum(mask.reshape(-1).astype("int64")) - 1
    if not source.size:
        trace.require(~mask)
        return x
    trace.require(jnp.sum(mask) <= source.size)
    taken = source.reshape(-1).at[place].get(mode="clip").reshape(shape)
    return jnp.where(mask, taken.astype(x.dtype), x)


@lowers("masked_fill.Scalar", "masked_fill.Tensor", complex=True)
def masked_fill(trace: Trace, x: Array, mask: Array, value: Any) -> Array:
    """One value where a mask holds."""
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


@lowers("embedding_dense_backward.default")
def embedding_backward(
    trace: Trace, grad: Array, index: Array, count: int, padding: int, scale_by_frequency: bool
) -> Array:
    """Gradients added to the rows that were taken."""
    index = _within(trace, index, count)
    grad = grad.reshape(-1, grad.shape[-1])
    flat = index.reshape(-1)
    if scale_by_frequency:
        times = jnp.zeros((count,), "int64").at[flat].add(1)
        grad = grad / times[flat][:, None].astype(grad.dtype)
    if padding >= 0:
        grad = jnp.where((flat != padding)[:, None], grad, jnp.zeros((), grad.dtype))
    return jnp.zeros((count, grad.shape[-1]), grad.dtype).at[flat].add(grad)


_SUM, _MEAN = 0, 1


@lowers("_embedding_bag.default", "_embedding_bag_forward_only.default", only_first=True)
def embedding_bag(
    trace: Trace,
    weight: Array,
    index: Array,
    offsets: Array,
    scale_by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Array | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> tuple[Array | None, ...]:
    """Rows by number, those of each bag put together. The other results are for the derivative alone."""
    taken = weight.at[_within(trace, index, weight.shape[0])].get(mode="clip")
    bags = offsets.shape[0] - int(include_last)
    if offsets.shape[0]:
        trace.require(jnp.concatenate([offsets[:1] == 0, offsets[1:] >= offsets[:-1], offsets[-1:] <= index.shape[0]]))
    if include_last:
        trace.require(offsets[-1] == index.shape[0])
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(index.shape[0], dtype=offsets.dtype), side="right") - 1
    counts = (index != padding) if padding >= 0 else jnp.ones(index.shape, bool)
    shape = (bags, weight.shape[1])
    size = jnp.zeros((bags,), "int64").at[bag].add(counts.astype("int64"))[:, None]
    if mode in (_SUM, _MEAN):
        factor = counts.astype(weight.dtype) if factors is None else jnp.where(counts, factors, 0)
        rows = jnp.where(counts[:, None], taken, 0) * factor[:, None]
        result = jnp.zeros(shape, weight.dtype).at[bag].add(rows)
        if mode == _MEAN:
            result = result / jnp.maximum(size, 1).astype(weight.dtype)
    else:
        trace.require(~jnp.isnan(taken))
        rows = jnp.where(counts[:, None], taken, -jnp.inf)
        result = jnp.full(shape, -jnp.inf, weight.dtype).at[bag].max(rows)
        result = jnp.where(size > 0, result, jnp.zeros((), weight.dtype))
    return result, None, None, None
