"""Lowerings of pooling and resampling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ._jax import jax, jnp, lax
from ._table import Array, Trace, lowers

_LARGEST_WINDOW = 128
"""Places of a window up to which max pooling goes through them one by one."""


def _spread(values: Any, rank: int, default: Sequence[int] = ()) -> list[int]:
    numbers: list[int] = [values] if isinstance(values, int) else list(values)
    if not numbers:
        return list(default)
    return numbers if len(numbers) == rank else numbers * rank


class _Windows:
    """Where the windows of a pooling lie: sizes of the result, and padding before and after each dimension."""

    def __init__(
        self, sizes: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, rank: int
    ) -> None:
        self.kernel = _spread(kernel, rank)
        self.stride = _spread(stride, rank, self.kernel)
        self.padding = _spread(padding, rank)
        self.dilation = _spread(dilation, rank)
        self.sizes = list(sizes)
        self.counts: list[int] = []
        for size, length, step, pad, gap in zip(
            sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            room = size + 2 * pad - gap * (length - 1) - 1
            count = room // step + 1
            if ceil_mode:
                count = -(-room // step) + 1
                if (count - 1) * step >= size + pad:
                    count -= 1
            self.counts.append(count)
        self.needed = [
            (n - 1) * step + gap * (length - 1) + 1
            for n, step, gap, length in zip(self.counts, self.stride, self.dilation, self.kernel, strict=True)
        ]

    def pads(self) -> list[tuple[int, int]]:
        """Padding (before, after) so that all windows lie inside; after may be negative."""
        return [(pad, need - size - pad) for pad, need, size in zip(self.padding, self.needed, self.sizes, strict=True)]

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The places of a window, in order."""
        return itertools.product(*(range(length) for length in self.kernel))

    def at(self, offset: Sequence[int]) -> tuple[slice, ...]:
        """The elements of the padded input that stand at one place of all windows."""
        return tuple(
            slice(place * gap, place * gap + (count - 1) * step + 1, step)
            for place, gap, count, step in zip(offset, self.dilation, self.counts, self.stride, strict=True)
        )

    def places(self, offset: Sequence[int]) -> Array:
        """For one place of all windows the index in the flattened input (of padding: a wrong one)."""
        flat = jnp.zeros((), "int64")
        for n, place in enumerate(offset):
            here = jnp.arange(self.counts[n]) * self.stride[n] - self.padding[n] + place * self.dilation[n]
            flat = flat[..., None] * self.sizes[n] + here
        return flat


def _padded(x: Array, windows: _Windows, value: Any) -> Array:
    rank = len(windows.sizes)
    return lax.pad(x, jnp.asarray(value, x.dtype), [(0, 0, 0)] * (x.ndim - rank) + [(*p, 0) for p in windows.pads()])


def _lowest(dtype: Any) -> Any:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _max_pool(rank: int, name: str) -> None:
    def accepts(x: Any, kernel: Any, *rest: Any) -> bool:
        return bool(math.prod(_spread(kernel, rank)) <= _LARGEST_WINDOW and x.numel())

    @lowers(name, accepts=accepts)
    def lowering(
        trace: Trace,
        x: Array,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple[Array, Array]:
        """The largest element of each window and its index; of equal ones the first, of what is no number the last."""
        windows = _Windows(x.shape[-rank:], kernel, stride, padding, dilation, ceil_mode, rank)
        padded = _padded(x, windows, _lowest(x.dtype))
        inside = _padded(jnp.ones(x.shape[-rank:], bool), windows, False)
        if 1 not in trace.used:
            dims = [1] * (x.ndim - rank)
            values = lax.reduce_window(
                padded, jnp.asarray(_lowest(x.dtype), x.dtype), lax.max, [*dims, *windows.kernel],
                [*dims, *windows.stride], "VALID", window_dilation=[*dims, *windows.dilation],
            )  # fmt: skip
            return values, jnp.zeros(values.shape, "int64")
        best = place = None
        for offset in windows.offsets():
            value, index = padded[(..., *windows.at(offset))], windows.places(offset)
            if best is None:
                best, place = value, jnp.broadcast_to(_first(windows), value.shape)
            better = ((value > best) | jnp.isnan(value)) & inside[windows.at(offset)]
            if offset == (0,) * rank:
                better = better | inside[windows.at(offset)]
            best, place = jnp.where(better, value, best), jnp.where(better, index, place)
        assert best is not None
        return best, place


def _first(windows: _Windows) -> Array:
    """For each window the index of its first element that is no padding."""
    flat = jnp.zeros((), "int64")
    for n, size in enumerate(windows.sizes):
        start = jnp.arange(windows.counts[n]) * windows.stride[n] - windows.padding[n]
        gap = windows.dilation[n]
        start = jnp.where(start < 0, start + -(start // gap) * gap, start)
        flat = flat[..., None] * size + start
    return flat


_max_pool(2, "max_pool2d_with_indices.default")
_max_pool(3, "max_pool3d_with_indices.default")


def _max_pool_backward(rank: int, name: str) -> None:
    def accepts(grad: Any, x: Any, kernel: Any, *rest: Any) -> bool:
        return bool(math.prod(_spread(kernel, rank)) <= _LARGEST_WINDOW and x.numel())

    @lowers(name, accepts=accepts)
    def lowering(
        trace: Trace, grad: Array, x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
        indices: Array,
    ) -> Array:  # fmt: skip
        """Each gradient added where its window's largest element was."""
        windows = _Windows(x.shape[-rank:], kernel, stride, padding, dilation, ceil_mode, rank)
        lead = [(0, 0, 0)] * (x.ndim - rank)
        result = jnp.zeros((*x.shape[:-rank], *windows.needed), grad.dtype)
        for offset in windows.offsets():
            here = jnp.where(indices == windows.places(offset), grad, jnp.zeros((), grad.dtype))
            edges = [
                (at.start, need - at.stop, step - 1)
                for at, need, step in zip(windows.at(offset), windows.needed, windows.stride, strict=True)
            ]
            result = result + lax.pad(here, jnp.zeros((), grad.dtype), lead + edges)
        back = [(-before, -after, 0) for before, after in windows.pads()]
        return lax.pad(result, jnp.zeros((), grad.dtype), lead + back)


_max_pool_backward(2, "max_pool2d_with_indices_backward.default")
_max_pool_backward(3, "max_pool3d_with_indices_backward.default")


def _average(
    x: Array, rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, whole: bool, divisor: Any
) -> Array:
    windows = _Windows(x.shape[-rank:], kernel, stride, padding, 1, ceil_mode, rank)
    dims = [1] * (x.ndim - rank)
    padded = _padded(x, windows, 0)
    sums = lax.reduce_window(
        padded, x.dtype.type(0), lax.add, [*dims, *windows.kernel], [*dims, *windows.stride], "VALID"
    )
    if divisor is not None:
        return sums / divisor
    count = jnp.ones((), x.dtype)
    for n, size in enumerate(windows.sizes):
        start = jnp.arange(windows.counts[n]) * windows.stride[n] - windows.padding[n]
        end = jnp.minimum(start + windows.kernel[n], size + windows.padding[n])
        if not whole:
            start, end = jnp.maximum(start, 0), jnp.minimum(end, size)
        count = count[..., None] * (end - start).astype(x.dtype)
    return sums / count


def _average_pool(rank: int) -> None:
    def accepts(x: Any, *rest: Any) -> bool:
        return bool(x.dtype.is_floating_point)

    @lowers(f"avg_pool{rank}d.default", accepts=accepts)
    def forward(
        trace: Trace, x: Array, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Array:  # fmt: skip
        """Mean of each window."""
        return _average(x, rank, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)

    @lowers(f"avg_pool{rank}d_backward.default", accepts=accepts)
    def backward(trace: Trace, grad: Array, x: Array, *rest: Any) -> Array:
        """The derivative: the mean is linear."""
        _, derivative = jax.vjp(lambda one: _average(one, rank, *rest), jnp.zeros_like(x))
        return derivative(grad)[0]


for _rank in (1, 2, 3):
    _average_pool(_rank)


def _adaptive(x: Array, sizes: Sequence[int]) -> Array:
    """Means of windows that cover each dimension evenly."""
    rank = len(sizes)
    for n, (size, wanted) in enumerate(zip(x.shape[-rank:], sizes, strict=True)):
        axis = x.ndim - rank + n
        if wanted and size % wanted == 0:
            x = x.reshape(*x.shape[:axis], wanted, size // wanted, *x.shape[axis + 1 :]).mean(axis + 1)
            continue
        starts = [k * size // wanted for k in range(wanted)]
        ends = [-(-(k + 1) * size // wanted) for k in range(wanted)]
        place = jnp.arange(size)
        rows = [((place >= a) & (place < b)).astype(x.dtype) / (b - a) for a, b in zip(starts, ends, strict=True)]
        matrix = jnp.stack(rows) if rows else jnp.zeros((0, size), x.dtype)
        moved = jnp.matmul(jnp.moveaxis(x, axis, -1), matrix.T, precision=lax.Precision.HIGHEST)
        x = jnp.moveaxis(moved, -1, axis)
    return x


@lowers("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default")
def adaptive_average_pool(trace: Trace, x: Array, sizes: Any) -> Array:
    """Mean pooling to a given size."""
    return _adaptive(x, [sizes] if isinstance(sizes, int) else list(sizes))


def _adaptive_backward(rank: int) -> None:
    @lowers(f"_adaptive_avg_pool{rank}d_backward.default")
    def lowering(trace: Trace, grad: Array, x: Array) -> Array:
        """The derivative: the mean is linear."""
        _, derivative = jax.vjp(lambda one: _adaptive(one, grad.shape[-rank:]), jnp.zeros_like(x))
        return derivative(grad)[0]


for _rank in (2, 3):
    _adaptive_backward(_rank)


def _scale(size: int, wanted: int, factor: float | None, corners: bool = False) -> float:
    if corners:
        return (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    return 1.0 / factor if factor else size / wanted


def _wanted(x: Array, output_size: Any, factors: Any) -> list[int]:
    if output_size is not None:
        return list(output_size)
    return [math.floor(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]


@lowers("upsample_nearest2d.vec")
def nearest(trace: Trace, x: Array, output_size: Any, factors: Any) -> Array:
    """Resampled by the nearest element before."""
    return _nearest(x, _wanted(x, output_size, factors), factors)


def _linear(x: Array, sizes: Sequence[int], corners: bool, factors: Any) -> Array:
    kind = "float64" if x.dtype == jnp.float64 else "float32"
    for n, wanted in enumerate(sizes):
        size = x.shape[2 + n]
        scale = _scale(size, wanted, factors[n] if factors else None, corners)
        place = jnp.arange(wanted, dtype=kind)
        place = place * jnp.asarray(scale, kind) if corners else (place + 0.5) * jnp.asarray(scale, kind) - 0.5
        place = jnp.maximum(place, 0)
        low = jnp.minimum(jnp.floor(place).astype("int64"), size - 1)
        high = jnp.minimum(low + 1, size - 1)
        part = jnp.clip(place - low, 0, 1).astype(x.dtype).reshape(-1, *(1,) * (x.ndim - 3 - n))
        x = jnp.take(x, low, axis=2 + n) * (1 - part) + jnp.take(x, high, axis=2 + n) * part
    return x


@lowers("upsample_bilinear2d.vec", accepts=lambda x, *rest: x.dtype.is_floating_point)
def bilinear(trace: Trace, x: Array, output_size: Any, align_corners: bool, factors: Any) -> Array:
    """Resampled by the four elements around."""
    return _linear(x, _wanted(x, output_size, factors), align_corners, factors)


def _nearest(x: Array, sizes: Sequence[int], factors: Any) -> Array:
    for n, wanted in enumerate(sizes):
        size = x.shape[2 + n]
        scale = _scale(size, wanted, factors[n] if factors else None)
        place = jnp.floor(jnp.arange(wanted, dtype="float32") * jnp.float32(scale)).astype("int64")
        x = jnp.take(x, jnp.minimum(place, size - 1), axis=2 + n)
    return x


@lowers("upsample_nearest2d.default")
def nearest_sized(trace: Trace, x: Array, output_size: Any, height: Any = None, width: Any = None) -> Array:
    """Resampled by the nearest element before."""
    return _nearest(x, list(output_size), (height, width))


@lowers("upsample_nearest2d_backward.default")
def nearest_backward(
    trace: Trace, grad: Array, output_size: Any, input_size: Any, height: Any = None, width: Any = None
) -> Array:
    """The derivative: resampling is linear."""
    zeros = jnp.zeros(tuple(input_size), grad.dtype)
    _, derivative = jax.vjp(lambda one: _nearest(one, list(output_size), (height, width)), zeros)
    return derivative(grad)[0]


@lowers("upsample_bilinear2d.default", accepts=lambda x, *rest: x.dtype.is_floating_point)
def bilinear_sized(
    trace: Trace, x: Array, output_size: Any, align_corners: bool, height: Any = None, width: Any = None
) -> Array:
    """Resampled by the four elements around."""
    return _linear(x, list(output_size), align_corners, (height, width))


@lowers("upsample_bilinear2d_backward.default")
def bilinear_backward(
    trace: Trace, grad: Array, output_size: Any, input_size: Any, corners: bool, height: Any = None, width: Any = None
) -> Array:
    """The derivative: resampling is linear."""
    zeros = jnp.zeros(tuple(input_size), grad.dtype)
    _, derivative = jax.vjp(lambda one: _linear(one, list(output_size), corners, (height, width)), zeros)
    return derivative(grad)[0]
