"""Lowerings of normalisations. Their backward operators are decomposed before they come here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._jax import jnp, lax
from ._table import Array, Trace, lowers, wide


def _channels(value: Array, rank: int) -> Array:
    """Values for each channel, in the shape of [N, C, ...]."""
    return value.reshape(1, -1, *(1,) * (rank - 2))


def _scaled(x: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        x = x * wide(weight)
    return x if bias is None else x + wide(bias)


def _moments(x: Array, dims: tuple[int, ...]) -> tuple[Array, Array]:
    mean = jnp.mean(x, axis=dims, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axis=dims, keepdims=True)


def _batch_norm(
    trace: Trace, x: Array, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Array, Array, Array, Array | None, Array | None]:
    x, rank = wide(x), x.ndim
    weight, bias = (None if each is None else _channels(each, rank) for each in (weight, bias))
    if not training:
        scale = lax.rsqrt(wide(var) + eps)
        result = _scaled((x - _channels(wide(mean), rank)) * _channels(scale, rank), weight, bias)
        empty = jnp.zeros((0,), x.dtype)
        return result, empty, empty, mean, var
    dims = (0, *range(2, rank))
    here, spread = _moments(x, dims)
    scale = lax.rsqrt(spread + eps)
    result = _scaled((x - here) * scale, weight, bias)
    count = math.prod(x.shape[dim] for dim in dims)
    here, spread, scale = (each.reshape(-1) for each in (here, spread, scale))
    if mean is not None:
        mean = (here * momentum + mean * (1 - momentum)).astype(mean.dtype)
    if var is not None:
        free = count / (count - 1) if count > 1 else math.nan
        var = (spread * free * momentum + var * (1 - momentum)).astype(var.dtype)
    return result, here, scale, mean, var


@lowers("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    trace: Trace, x: Array, weight: Any, bias: Any, mean: Array, var: Array, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Batch norm with the new running statistics as results."""
    return _batch_norm(trace, x, weight, bias, mean, var, training, momentum, eps)


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    trace: Trace, x: Array, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Batch norm without running statistics."""
    return _batch_norm(trace, x, weight, bias, None, None, True, momentum, eps)[:3]


@lowers("_native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    trace: Trace, x: Array, weight: Any, bias: Any, mean: Array, var: Array, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Batch norm by running statistics."""
    return _batch_norm(trace, x, weight, bias, mean, var, False, momentum, eps)[:3]


@lowers("native_layer_norm.default")
def layer_norm(
    trace: Trace, x: Array, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Array, Array, Array]:
    """Layer norm, the means and the inverse deviations."""
    x = wide(x)
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    mean, spread = _moments(x, dims)
    scale = lax.rsqrt(spread + eps)
    return _scaled((x - mean) * scale, weight, bias), mean, scale


@lowers("native_group_norm.default")
def group_norm(
    trace: Trace, x: Array, weight: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Array, Array, Array]:
    """Group norm, the means and the inverse deviations [N, groups]."""
    shape = x.shape
    x = wide(x).reshape(n, groups, -1)
    mean, spread = _moments(x, (2,))
    scale = lax.rsqrt(spread + eps)
    result = ((x - mean) * scale).reshape(shape)
    weight, bias = (None if each is None else _channels(each, len(shape)) for each in (weight, bias))
    return _scaled(result, weight, bias), mean.reshape(n, groups), scale.reshape(n, groups)
