"""Lowerings of convolutions, and of the sums over windows that undo `unfold`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._jax import jax, jnp, lax
from ._table import Array, Trace, lowers


def _spread(values: Sequence[int], rank: int) -> list[int]:
    """One number for each spatial dimension."""
    return list(values) if len(values) == rank else [values[0]] * rank


def _dimensions(rank: int) -> Any:
    letters = "DHW"[-rank:] if rank <= 3 else ""
    return (f"NC{letters}", f"OI{letters}", f"NC{letters}")


def convolve(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    is_transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """A convolution of x [N, C, ...] with weight [O, C/groups, ...], or transposed with weight [C, O/groups, ...]."""
    rank = weight.ndim - 2
    stride, padding, dilation = (_spread(each, rank) for each in (stride, padding, dilation))
    lhs_dilation = [1] * rank
    if not is_transposed:
        if rank and groups == 1 and all(n == 1 for n in weight.shape[2:]) and not any(padding):
            return _pointwise(x, weight, stride)
        pads = [(n, n) for n in padding]
    else:
        extra = _spread(output_padding, rank)
        pads = []
        for length, step, pad, more in zip(weight.shape[2:], dilation, padding, extra, strict=True):
            edge = step * (length - 1)
            pads.append((edge - pad, edge - pad + more))
        weight = jnp.flip(weight, tuple(range(2, 2 + rank)))
        inputs, outputs = weight.shape[:2]
        weight = weight.reshape(groups, inputs // groups, outputs, *weight.shape[2:])
        weight = jnp.swapaxes(weight, 1, 2).reshape(groups * outputs, inputs // groups, *weight.shape[3:])
        lhs_dilation, stride = stride, [1] * rank
    return lax.conv_general_dilated(
        x, weight, stride, pads, lhs_dilation=lhs_dilation, rhs_dilation=dilation,
        dimension_numbers=_dimensions(rank), feature_group_count=groups, precision=lax.Precision.HIGHEST,
    )  # fmt: skip


def _pointwise(x: Array, weight: Array, stride: Sequence[int]) -> Array:
    """A kernel of one place is a matrix product, at which XLA is better."""
    if any(step != 1 for step in stride):
        x = x[(slice(None), slice(None), *(slice(None, None, step) for step in stride))]
    rows = weight.reshape(weight.shape[:2])
    batch, channels, *spatial = x.shape
    result = jnp.matmul(rows, x.reshape(batch, channels, -1), precision=lax.Precision.HIGHEST)
    return result.reshape(batch, rows.shape[0], *spatial)


def _batched(x: Any, weight: Any, *rest: Any) -> bool:
    return bool(x.ndim == weight.ndim and 3 <= x.ndim <= 5 and x.dtype.is_floating_point and x.numel())


def _batched_backward(grad: Any, x: Any, weight: Any, *rest: Any) -> bool:
    return _batched(x, weight)


@lowers("convolution.default", accepts=_batched)
def convolution(
    trace: Trace,
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """Convolution."""
    result = convolve(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    return result if bias is None else result + bias.reshape(-1, *(1,) * (result.ndim - 2))


@lowers("convolution_backward.default", accepts=_batched_backward)
def convolution_backward(
    trace: Trace, grad: Array, x: Array, weight: Array, bias_sizes: Any, *rest: Any
) -> tuple[Array | None, ...]:
    """Gradients of a convolution, by JAX's derivative of the same one."""
    *settings, mask = rest
    result: list[Array | None] = [None, None, None]
    if mask[0] or mask[1]:
        _, derivative = jax.vjp(lambda one, other: convolve(one, other, *settings), x, weight)
        gradients = derivative(grad.astype(x.dtype))
        result[:2] = [each if wanted else None for each, wanted in zip(gradients, mask[:2], strict=True)]
    if mask[2]:
        result[2] = grad.sum((0, *range(2, grad.ndim)))
    return tuple(result)


def _unfold(x: Array, kernel: Sequence[int], dilation: Any, padding: Any, stride: Any) -> Array:
    """Windows of x [N, C, H, W] as columns [N, C * kernel, count]."""
    x = jnp.pad(x, [(0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2])
    counts = [
        (x.shape[2 + n] - dilation[n] * (kernel[n] - 1) - 1) // stride[n] + 1 for n in range(2)
    ]  # windows in each dimension
    columns = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            bottom, right = top + (counts[0] - 1) * stride[0] + 1, left + (counts[1] - 1) * stride[1] + 1
            columns.append(x[:, :, top : bottom : stride[0], left : right : stride[1]])
    batch, channels = x.shape[:2]
    return jnp.stack(columns, 2).reshape(batch, channels * kernel[0] * kernel[1], -1)


@lowers("im2col.default")
def im2col(trace: Trace, x: Array, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """Windows as columns."""
    batched = x if x.ndim == 4 else x[None]
    result = _unfold(batched, kernel, dilation, padding, stride)
    return result if x.ndim == 4 else result[0]


@lowers("col2im.default")
def col2im(trace: Trace, x: Array, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Array:
    """Columns added up where their windows lay: the derivative of `im2col`."""
    batched = x if x.ndim == 3 else x[None]
    shape = (batched.shape[0], batched.shape[1] // (kernel[0] * kernel[1]), *output_size)
    zeros = jnp.zeros(shape, x.dtype)
    _, derivative = jax.vjp(lambda image: _unfold(image, kernel, dilation, padding, stride), zeros)
    (result,) = derivative(batched)
    return result if x.ndim == 3 else result[0]
