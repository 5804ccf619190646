"""Lowerings of what moves elements and changes none: views, slices, joins, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._jax import jax, jnp, lax
from ._table import Array, Trace, axes, lowers


@lowers("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default", complex=True)
def view(trace: Trace, x: Array, size: Sequence[int], *strides: Any) -> Array:
    """Another shape."""
    return x.reshape(tuple(size))


@lowers("permute.default", complex=True)
def permute(trace: Trace, x: Array, dims: Sequence[int]) -> Array:
    """Dimensions in another order."""
    return jnp.transpose(x, [dim % x.ndim for dim in dims])


@lowers("t.default", complex=True)
def transposed(trace: Trace, x: Array) -> Array:
    """The two dimensions in the other order."""
    return x.T


@lowers("transpose.int", complex=True)
def transpose(trace: Trace, x: Array, first: int, second: int) -> Array:
    """Two dimensions exchanged."""
    return jnp.swapaxes(x, first, second) if x.ndim else x


@lowers("expand.default", complex=True)
def expand(trace: Trace, x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    """Dimensions repeated; -1 keeps one."""
    new = len(size) - x.ndim
    shape = [x.shape[n - new] if length == -1 else length for n, length in enumerate(size)]
    return jnp.broadcast_to(x, shape)


@lowers("unsqueeze.default", complex=True)
def unsqueeze(trace: Trace, x: Array, dim: int) -> Array:
    """A new dimension of length 1."""
    return jnp.expand_dims(x, dim)


@lowers("squeeze.dim", "squeeze.dims", "squeeze.default", complex=True)
def squeeze(trace: Trace, x: Array, dim: Any = None) -> Array:
    """Without dimensions of length 1."""
    dims = () if dim == [] else axes(dim, x.ndim)
    return jnp.squeeze(x, tuple(each for each in dims if x.ndim and x.shape[each] == 1))


def _limits(length: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Start and end of a slice, as torch has them: from 0, within the dimension, the end not before the start."""
    start = 0 if start is None else start + length if start < 0 else start
    end = length if end is None else end + length if end < 0 else end
    start = min(max(start, 0), length)
    return start, min(max(end, start), length)


@lowers("slice.Tensor", complex=True)
def slice_(
    trace: Trace, x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """Part of a dimension."""
    start, end = _limits(x.shape[dim], start, end)
    return lax.slice_in_dim(x, start, end, step, dim % x.ndim)


@lowers("select.int", complex=True)
def select(trace: Trace, x: Array, dim: int, index: int) -> Array:
    """One place of a dimension."""
    return lax.index_in_dim(x, index % x.shape[dim], dim % x.ndim, keepdims=False)


@lowers("slice_scatter.default", complex=True)
def slice_scatter(
    trace: Trace, x: Array, source: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """With another tensor in part of a dimension."""
    start, end = _limits(x.shape[dim], start, end)
    where = (slice(None),) * (dim % x.ndim) + (slice(start, end, step),)
    return x.at[where].set(source.astype(x.dtype))


@lowers("select_scatter.default", complex=True)
def select_scatter(trace: Trace, x: Array, source: Array, dim: int, index: int) -> Array:
    """With another tensor in one place of a dimension."""
    where = (slice(None),) * (dim % x.ndim) + (index % x.shape[dim],)
    return x.at[where].set(source.astype(x.dtype))


@lowers("diagonal.default", complex=True)
def diagonal(trace: Trace, x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A diagonal, as the last dimension."""
    return jnp.diagonal(x, offset, dim1, dim2)


@lowers("diagonal_scatter.default", complex=True)
def diagonal_scatter(trace: Trace, x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """With another tensor in a diagonal."""
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    count = source.shape[-1]
    steps = jnp.arange(count)
    set_ = moved.at[..., steps + max(-offset, 0), steps + max(offset, 0)].set(source.astype(x.dtype))
    return jnp.moveaxis(set_, (-2, -1), (dim1, dim2))


def whole(tensor: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> bool:
    """Whether a tensor is all of its memory, in its order: only then do strides mean the same to its copy."""
    if not all(type(each) is int for each in (*tensor.shape, *size, *stride, storage_offset or 0)):
        return False
    last = (storage_offset or 0) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return bool(tensor.is_contiguous() and not tensor.storage_offset() and last < max(tensor.numel(), 1))


@lowers("as_strided.default", accepts=whole, complex=True)
def as_strided(
    trace: Trace, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Array:
    """Elements by their distance in memory."""
    places = jnp.asarray(storage_offset or 0)
    for length, step in zip(size, stride, strict=True):
        places = places[..., None] + jnp.arange(length) * step
    return x.reshape(-1)[places]


@lowers("cat.default", complex=True)
def cat(trace: Trace, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joined along a dimension; empty vectors do not count, whatever the others' shapes."""
    kept = [each for each in tensors if each.shape != (0,)] or [tensors[0]]
    return jnp.concatenate([each.astype(trace.dtype) for each in kept], axis=dim)


@lowers("stack.default", complex=True)
def stack(trace: Trace, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Joined along a new dimension."""
    return jnp.stack([each.astype(trace.dtype) for each in tensors], axis=dim)


@lowers("split_with_sizes.default", complex=True)
def split_with_sizes(trace: Trace, x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    """Parts of given lengths."""
    parts, start = [], 0
    for size in sizes:
        parts.append(lax.slice_in_dim(x, start, start + size, axis=dim % x.ndim))
        start += size
    return parts


@lowers("unbind.int", complex=True)
def unbind(trace: Trace, x: Array, dim: int = 0) -> list[Array]:
    """All places of a dimension."""
    return [lax.index_in_dim(x, n, dim % x.ndim, keepdims=False) for n in range(x.shape[dim])]


@lowers("flip.default", complex=True)
def flip(trace: Trace, x: Array, dims: Sequence[int]) -> Array:
    """Dimensions backwards."""
    return jnp.flip(x, tuple(dim % x.ndim for dim in dims)) if x.ndim else x


@lowers("roll.default", complex=True)
def roll(trace: Trace, x: Array, shifts: Any, dims: Any = ()) -> Array:
    """Elements moved around."""
    if isinstance(shifts, int):
        shifts = [shifts]
    return (
        jnp.roll(x, tuple(shifts), axis=tuple([dims] if isinstance(dims, int) else dims))
        if dims
        else jnp.roll(x, shifts[0])
    )


@lowers("repeat.default", complex=True)
def repeat(trace: Trace, x: Array, repeats: Sequence[int]) -> Array:
    """All of it, several times in each dimension."""
    return jnp.tile(x.reshape((1,) * (len(repeats) - x.ndim) + x.shape), tuple(repeats))


def pairs(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Padding as torch has it (last dimension first) as (before, after) for each dimension."""
    found = [(0, 0)] * rank
    for n in range(len(padding) // 2):
        found[rank - 1 - n] = (padding[2 * n], padding[2 * n + 1])
    return found


@lowers("constant_pad_nd.default")
def constant_pad(trace: Trace, x: Array, padding: Sequence[int], value: Any = 0) -> Array:
    """More at the ends of dimensions, or less."""
    return lax.pad(x, jnp.asarray(value, x.dtype), [(*each, 0) for each in pairs(padding, x.ndim)])


def _pad(x: Array, padding: Sequence[int], mode: str) -> Array:
    wanted = pairs(padding, x.ndim)
    cut = tuple(
        slice(max(-before, 0), length - max(-after, 0)) for (before, after), length in zip(wanted, x.shape, strict=True)
    )
    return jnp.pad(x[cut], [(max(before, 0), max(after, 0)) for before, after in wanted], mode=mode)


@lowers("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(trace: Trace, x: Array, padding: Sequence[int]) -> Array:
    """Padded with what lies inside, mirrored."""
    return _pad(x, padding, "reflect")


@lowers("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(trace: Trace, x: Array, padding: Sequence[int]) -> Array:
    """Padded with the elements at the ends."""
    return _pad(x, padding, "edge")


def _replication_backward(rank: int) -> None:
    def accepts(grad: Any, x: Any, padding: Sequence[int]) -> bool:
        return min(padding) >= 0

    @lowers(f"replication_pad{rank}d_backward.default", accepts=accepts)
    def lowering(trace: Trace, grad: Array, x: Array, padding: Sequence[int]) -> Array:
        """The derivative: padding is linear."""
        _, derivative = jax.vjp(lambda one: _pad(one, padding, "edge"), jnp.zeros_like(x))
        return derivative(grad)[0]


for _rank in (1, 2, 3):
    _replication_backward(_rank)
