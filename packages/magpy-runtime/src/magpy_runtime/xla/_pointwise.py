"""Lowerings of what is computed element by element."""

from __future__ import annotations

from typing import Any

from ._jax import jax, jnp, lax
from ._table import Array, Trace, is_array, lowers, together, wide


def _unary(name: str, function: Any, complex: bool = False) -> None:  # noqa: A002
    """An operator of one argument that computes in its result's type."""

    @lowers(f"{name}.default", complex=complex)
    def lowering(trace: Trace, x: Array) -> Array:
        return function(wide(trace.cast(x)))


for _name, _function in {
    "acos": jnp.arccos, "acosh": jnp.arccosh, "asin": jnp.arcsin, "asinh": jnp.arcsinh, "atan": jnp.arctan,
    "atanh": jnp.arctanh, "cos": jnp.cos, "cosh": jnp.cosh, "erf": lax.erf, "erfc": lax.erfc, "exp": jnp.exp,
    "exp2": jnp.exp2, "expm1": jnp.expm1, "log": jnp.log, "log10": jnp.log10, "log1p": jnp.log1p, "log2": jnp.log2,
    "reciprocal": lambda x: 1 / x, "rsqrt": lax.rsqrt, "sigmoid": jax.nn.sigmoid, "sin": jnp.sin, "sinh": jnp.sinh,
    "sqrt": jnp.sqrt, "tan": jnp.tan, "tanh": jnp.tanh,
}.items():  # fmt: skip
    _unary(_name, _function)

_unary("neg", jnp.negative, complex=True)


@lowers("abs.default", complex=True)
def absolute(trace: Trace, x: Array) -> Array:
    """Absolute value; of a complex number, a real one."""
    return jnp.abs(x)


def _rounding(name: str, function: Any) -> None:
    @lowers(f"{name}.default")
    def lowering(trace: Trace, x: Array) -> Array:
        return function(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


for _name, _function in {"ceil": jnp.ceil, "floor": jnp.floor, "trunc": jnp.trunc, "round": jnp.round}.items():
    _rounding(_name, _function)


@lowers("sign.default")
def sign(trace: Trace, x: Array) -> Array:
    """-1, 0 or 1; 0 for what is no number."""
    if x.dtype == bool:
        return x
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@lowers("relu.default")
def relu(trace: Trace, x: Array) -> Array:
    """The larger of 0 and each element."""
    return jnp.maximum(x, jnp.zeros((), x.dtype))


@lowers("isnan.default")
def isnan(trace: Trace, x: Array) -> Array:
    """Where there is no number."""
    return jnp.isnan(x)


@lowers("isinf.default")
def isinf(trace: Trace, x: Array) -> Array:
    """Where there is an infinite number."""
    return jnp.isinf(x)


@lowers("add.Tensor", "add.Scalar", complex=True)
def add(trace: Trace, x: Any, y: Any, *, alpha: Any = 1) -> Array:
    """Sum; of booleans, whether either is true."""
    x, y = trace.cast(x, y)
    if x.dtype == bool:
        return x | (y & bool(alpha))
    return x + (y if alpha == 1 else y * jnp.asarray(alpha, x.dtype))


@lowers("sub.Tensor", "sub.Scalar", complex=True)
def sub(trace: Trace, x: Any, y: Any, *, alpha: Any = 1) -> Array:
    """Difference."""
    x, y = trace.cast(x, y)
    return x - (y if alpha == 1 else y * jnp.asarray(alpha, x.dtype))


@lowers("mul.Tensor", "mul.Scalar", complex=True)
def mul(trace: Trace, x: Any, y: Any) -> Array:
    """Product."""
    x, y = trace.cast(x, y)
    return x & y if x.dtype == bool else x * y


@lowers("div.Tensor", "div.Scalar", complex=True)
def div(trace: Trace, x: Any, y: Any) -> Array:
    """Quotient."""
    x, y = trace.cast(x, y)
    return x / y


def _nonzero(trace: Trace, y: Array) -> None:
    """Integers raise on a division by zero."""
    trace.require(y != 0)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(trace: Trace, x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    """Quotient, rounded down or towards zero."""
    x, y = trace.cast(x, y)
    if rounding_mode is None:
        return x / y
    if not jnp.issubdtype(x.dtype, jnp.floating):
        _nonzero(trace, y)
        return lax.div(*jnp.broadcast_arrays(x, y)) if rounding_mode == "trunc" else jnp.floor_divide(x, y)
    if rounding_mode == "trunc":
        return jnp.trunc(x / y)
    rest = jnp.fmod(x, y)
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    down = jnp.floor(quotient)
    down = jnp.where(quotient - down > 0.5, down + 1, down)
    down = jnp.where(quotient == 0, jnp.copysign(jnp.zeros((), x.dtype), x / y), down)
    return jnp.where(y == 0, x / y, down)


@lowers("fmod.Tensor", "fmod.Scalar")
def fmod(trace: Trace, x: Any, y: Any) -> Array:
    """What a division leaves, with the dividend's sign."""
    x, y = trace.cast(x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        _nonzero(trace, y)
    return lax.rem(*jnp.broadcast_arrays(x, y))


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(trace: Trace, x: Any, y: Any) -> Array:
    """What a division leaves, with the divisor's sign."""
    x, y = trace.cast(x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        _nonzero(trace, y)
    return jnp.remainder(x, y)


@lowers("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(trace: Trace, x: Any, y: Any) -> Array:
    """Power; integers to negative powers are 0, except 1 and -1."""
    if not is_array(y) and y == 2:
        return jnp.square(trace.cast(x))
    x, y = trace.cast(x, y)
    if x.dtype == bool:
        return x | ~y
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.power(x, y)
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return jnp.power(x, y)
    odd = jnp.where(y % 2 != 0, jnp.asarray(-1, x.dtype), jnp.asarray(1, x.dtype))
    below = jnp.where(x == 1, 1, jnp.where(x == -1, odd, 0)).astype(x.dtype)
    return jnp.where(y < 0, below, jnp.power(x, jnp.maximum(y, 0)))


@lowers("maximum.default")
def maximum(trace: Trace, x: Array, y: Array) -> Array:
    """The larger of two."""
    return jnp.maximum(*trace.cast(x, y))


@lowers("minimum.default")
def minimum(trace: Trace, x: Array, y: Array) -> Array:
    """The smaller of two."""
    return jnp.minimum(*trace.cast(x, y))


@lowers("atan2.default")
def atan2(trace: Trace, x: Array, y: Array) -> Array:
    """The angle of a point."""
    return jnp.arctan2(*trace.cast(x, y))


@lowers("clamp.default", "clamp.Tensor")
def clamp(trace: Trace, x: Array, low: Any = None, high: Any = None) -> Array:
    """Within limits; the upper one decides where they cross."""
    x = trace.cast(x)
    if low is not None:
        x = jnp.maximum(x, trace.cast(low))
    return x if high is None else jnp.minimum(x, trace.cast(high))


@lowers("hardtanh.default")
def hardtanh(trace: Trace, x: Array, low: Any = -1, high: Any = 1) -> Array:
    """Within limits."""
    return clamp(trace, x, low, high)


@lowers("elu.default")
def elu(trace: Trace, x: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    """Exponential linear unit."""
    x = wide(x)
    return jnp.where(x > 0, x * scale, jnp.expm1(x * input_scale) * (alpha * scale))


@lowers("leaky_relu.default")
def leaky_relu(trace: Trace, x: Array, slope: Any = 0.01) -> Array:
    """Negative elements times a small number."""
    return jnp.where(x > 0, x, x * jnp.asarray(slope, x.dtype))


@lowers("gelu.default")
def gelu(trace: Trace, x: Array, *, approximate: str = "none") -> Array:
    """Gaussian error linear unit, exact or by tanh."""
    x = wide(x)
    if approximate == "none":
        return x * 0.5 * (1 + lax.erf(x * 0.7071067811865476))
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + jnp.tanh(inner))


def _compare(name: str, function: Any) -> None:
    @lowers(f"{name}.Tensor", f"{name}.Scalar", complex=name in ("eq", "ne"))
    def lowering(trace: Trace, x: Any, y: Any) -> Array:
        return function(*together(x, y))


for _name, _function in {
    "eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater, "ge": jnp.greater_equal
}.items():  # fmt: skip
    _compare(_name, _function)


def _bitwise(name: str, function: Any) -> None:
    @lowers(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"bitwise_{name}.Scalar_Tensor")
    def bits(trace: Trace, x: Any, y: Any) -> Array:
        return function(*trace.cast(x, y))

    @lowers(f"logical_{name}.default")
    def truth(trace: Trace, x: Array, y: Array) -> Array:
        return function(x != 0, y != 0)


for _name, _function in {"and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor}.items():
    _bitwise(_name, _function)


@lowers("bitwise_not.default")
def bitwise_not(trace: Trace, x: Array) -> Array:
    """Each bit turned over; of booleans, the other."""
    return jnp.bitwise_not(x)


@lowers("logical_not.default")
def logical_not(trace: Trace, x: Array) -> Array:
    """Whether each element is zero."""
    return x == 0


def _shift(name: str, function: Any) -> None:
    @lowers(f"bitwise_{name}_shift.Tensor", f"bitwise_{name}_shift.Tensor_Scalar", accepts=lambda x, y: type(y) is int)
    def lowering(trace: Trace, x: Array, y: int) -> Array:
        return function(x, jnp.asarray(y, x.dtype))


_shift("left", jnp.left_shift)
_shift("right", jnp.right_shift)


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", complex=True)
def where(trace: Trace, condition: Array, x: Any, y: Any) -> Array:
    """One or the other."""
    return jnp.where(condition != 0, *trace.cast(x, y))


@lowers("fill.Scalar", "full_like.default", complex=True)
def full_like(trace: Trace, x: Array, value: Any, **ignored: Any) -> Array:
    """One value everywhere."""
    return jnp.full(x.shape, value, dtype=trace.dtype)


@lowers("fill.Tensor", complex=True)
def fill_tensor(trace: Trace, x: Array, value: Array) -> Array:
    """One value everywhere."""
    return jnp.broadcast_to(trace.cast(value), x.shape)


@lowers("copy.default", complex=True)
def copy(trace: Trace, x: Array, source: Array, non_blocking: bool = False) -> Array:
    """What another tensor holds, in the shape and type of the first."""
    return jnp.broadcast_to(source.astype(x.dtype), x.shape)


@lowers("_to_copy.default", "prims::convert_element_type.default", complex=True)
def to_copy(trace: Trace, x: Array, dtype: Any = None, **ignored: Any) -> Array:
    """Another element type."""
    return x.astype(trace.dtype)


@lowers(
    "clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default",
    "_conj_physical.default", "positive.default", "view_of.default", "lift.default", complex=False,
)  # fmt: skip
def same(trace: Trace, x: Array, **ignored: Any) -> Array:
    """The same elements; XLA has no aliases."""
    return x
