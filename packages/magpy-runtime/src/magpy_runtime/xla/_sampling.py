"""Lowerings of sampling at places that are computed: `grid_sample`."""

from __future__ import annotations

import itertools
from typing import Any

from ._jax import jax, jnp
from ._table import Array, Trace, lowers, wide

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1
_FARTHEST = 2.0**24
"""A coordinate beyond which a place is no longer an exact number, or that is no number at all: eager decides."""


def _unnormalized(place: Array, size: int, corners: bool) -> Array:
    """From -1 to 1 across the image, to a number of elements."""
    return (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2


def _clipped(place: Array, size: int) -> Array:
    """Within the image; the derivative at its borders is that of outside, as torch has it."""
    inner = jnp.where(place >= size - 1, jnp.asarray(size - 1, place.dtype), place)
    return jnp.where(place <= 0, jnp.zeros((), place.dtype), inner)


def _reflected(place: Array, size: int, corners: bool) -> Array:
    """Mirrored at the borders (or half an element outside of them) until it is within."""
    low, span = (0.0, float(size - 1)) if corners else (-0.5, float(size))
    if not span:
        return jnp.zeros_like(place)
    place = place - low
    place = jnp.where(place < 0, -place, place)
    times = jnp.floor(place / span)
    rest = place - times * span
    return jnp.where(times % 2 == 0, rest, span - rest) + low


def _padded(place: Array, size: int, padding: int, corners: bool) -> Array:
    if padding == _ZEROS:
        return place
    return _clipped(place if padding == _BORDER else _reflected(place, size, corners), size)


def _taken(x: Array, rows: Array, columns: Array) -> Array:
    """Elements [N, C, ...] at places [N, ...] that are whole numbers; 0 outside."""
    height, width = x.shape[2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    row = jnp.clip(rows, 0, height - 1).astype("int64")
    column = jnp.clip(columns, 0, width - 1).astype("int64")
    found = jax.vmap(lambda image, i, j: image[:, i, j])(x, row, column)
    return jnp.where(inside[:, None], found, jnp.zeros((), x.dtype))


def _cubic(part: Array) -> list[Array]:
    """The weights of four neighbours for a place `part` of the way from the second to the third."""

    def near(t: Array) -> Array:
        return (1.25 * t - 2.25) * t * t + 1

    def far(t: Array) -> Array:
        return ((-0.75 * t + 3.75) * t - 6) * t + 3

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _sample(x: Array, grid: Array, mode: int, padding: int, corners: bool) -> Array:
    height, width = x.shape[2:]
    columns = _unnormalized(grid[..., 0], width, corners)
    rows = _unnormalized(grid[..., 1], height, corners)
    if mode in (_BILINEAR, _NEAREST):
        columns, rows = _padded(columns, width, padding, corners), _padded(rows, height, padding, corners)
    if mode == _NEAREST:
        return _taken(x, jnp.round(rows), jnp.round(columns))
    left, top = jnp.floor(columns), jnp.floor(rows)
    right, below = columns - left, rows - top
    if mode == _BILINEAR:
        across, down, first = [1 - right, right], [1 - below, below], 0
    else:
        across, down, first = _cubic(right), _cubic(below), -1
    total = jnp.zeros((), x.dtype)
    for (i, by_row), (j, by_column) in itertools.product(enumerate(down, first), enumerate(across, first)):
        row, column = top + i, left + j
        if mode not in (_BILINEAR, _NEAREST):
            row, column = _padded(row, height, padding, corners), _padded(column, width, padding, corners)
        total = total + _taken(x, row, column) * (by_row * by_column)[:, None]
    return total


def _accepts(*args: Any) -> bool:
    """Whether the image and the places are of one floating-point type, and there is an image."""
    tensors = [each for each in args if hasattr(each, "dtype")]
    sizes = tensors[-2].shape
    return (
        all(each.dtype == tensors[0].dtype and each.dtype.is_floating_point for each in tensors)
        and all(type(each) is int for each in sizes)
        and 0 not in sizes
    )


@lowers("grid_sampler_2d.default", accepts=_accepts)
def grid_sampler(trace: Trace, x: Array, grid: Array, mode: int, padding: int, corners: bool) -> Array:
    """An image at places: by the four neighbours, the nearest, or the sixteen."""
    trace.require(jnp.abs(grid) < _FARTHEST)
    return _sample(wide(x), wide(grid), mode, padding, corners)


@lowers("grid_sampler_2d_backward.default", accepts=_accepts)
def grid_sampler_backward(
    trace: Trace, grad: Array, x: Array, grid: Array, mode: int, padding: int, corners: bool, wanted: Any
) -> tuple[Array | None, Array]:
    """The derivatives by the image and by the places."""
    trace.require(jnp.abs(grid) < _FARTHEST)
    _, derivative = jax.vjp(lambda image, places: _sample(image, places, mode, padding, corners), wide(x), wide(grid))
    by_image, by_places = derivative(wide(grad))
    return (by_image if wanted[0] else None), by_places
