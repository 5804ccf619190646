"""The table of lowerings: for each overload of a core ATen operator a function of JAX arrays.

A lowering is `lowering(trace, *args, **kwargs)`, with the operator's own arguments: arrays for tensors, plain values for
the rest. What it returns is cast to the element types that torch says the operator has, and its shape is compared with
torch's, so a lowering need only be right about values. It never changes its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from ._jax import DTYPES, jnp

Array = Any
Function = Callable[..., Any]
Accepts = Callable[..., bool]


@dataclass(slots=True)
class Trace:
    """What a lowering may ask for while a graph is traced.

    Attributes:
        dtypes: element types of the operator's results.
        used: which of the operator's results are used.
        problems: conditions [] that hold where an operator would have raised for its values.
    """

    dtypes: tuple[Any, ...] = ()
    used: frozenset[int] = frozenset()
    problems: list[Array] = field(default_factory=list)

    @property
    def dtype(self) -> Any:
        """The element type of the first result."""
        return self.dtypes[0]

    def require(self, condition: Array) -> None:
        """Eager raises where this does not hold everywhere: the call is then made again, by torch."""
        self.problems.append(jnp.logical_not(jnp.all(condition)))

    def cast(self, *values: Any) -> Any:
        """Values as arrays of the result's element type."""
        cast = tuple(jnp.asarray(value, dtype=self.dtype) for value in values)
        return cast if len(cast) > 1 else cast[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    """An entry of the table.

    Attributes:
        function: of a `Trace` and the operator's arguments.
        accepts: whether it can take these arguments; in place of tensors there are fake ones.
        ties: whether, with these arguments, torch orders equal elements in a way of its own; then only the first
            result may be used.
        complex: whether it is right for complex numbers.
        only_first: whether it computes the first result alone; then only this one may be used.
    """

    function: Function
    accepts: Accepts | None = None
    ties: Accepts | None = None
    complex: bool = False
    only_first: bool = False


TABLE: dict[Any, Lowering] = {}
"""All lowerings by operator."""

ABSENT: list[str] = []
"""Names that this version of torch does not have."""


def lowers(
    *names: str,
    accepts: Accepts | None = None,
    ties: Accepts | None = None,
    complex: bool = False,  # noqa: A002
    only_first: bool = False,
) -> Callable[[Function], Function]:
    """Enter a function for operators, `"add.Tensor"` for `torch.ops.aten.add.Tensor`, `"prims::iota.default"` elsewhere."""

    def enter(function: Function) -> Function:
        for name in names:
            found = operator_called(name)
            if found is None:
                ABSENT.append(name)
            elif found in TABLE:
                raise ValueError(f"two lowerings of {name}")
            else:
                TABLE[found] = Lowering(
                    function=function, accepts=accepts, ties=ties, complex=complex, only_first=only_first
                )
        return function

    return enter


def operator_called(name: str) -> Any:
    """An operator by its name, or None."""
    space, _, rest = name.rpartition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, space or "aten"), packet, None)
    return getattr(found, overload, None)


def is_array(value: Any) -> bool:
    """Whether a value stands for a tensor."""
    return hasattr(value, "dtype") and hasattr(value, "ndim")


_SCALARS = {bool: torch.bool, int: torch.int64, complex: torch.complex64}
_RANKS = "biufc"


def _rank(dtype: Any) -> int:
    kind = "f" if jnp.issubdtype(dtype, jnp.floating) else dtype.kind
    return {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[kind]


def common(*values: Any) -> Any:
    """The element type that torch computes in: tensors with dimensions decide, others only by a higher kind of number."""
    groups: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for value in values:
        if not is_array(value):
            number = torch.get_default_dtype() if type(value) is float else _SCALARS[type(value)]
            groups[2].append(DTYPES[number])
        else:
            groups[0 if value.ndim else 1].append(jnp.dtype(value.dtype))
    result = None
    for group in groups:
        if group:
            here = group[0]
            for each in group[1:]:
                here = jnp.promote_types(here, each)
            if result is None or _rank(here) > _rank(result):
                result = here
    return result


def together(*values: Any) -> Any:
    """Values as arrays of their common element type."""
    dtype = common(*values)
    return tuple(jnp.asarray(value, dtype=dtype) for value in values)


def wide(array: Array) -> Array:
    """An array in the type in which torch computes inside of an operator: float32 for shorter floating-point types."""
    return array.astype("float32") if array.dtype in (DTYPES[torch.float16], DTYPES[torch.bfloat16]) else array


def axes(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Dimensions as torch takes them, none or an empty list for all, as numbers from 0."""
    if dims is None:
        return tuple(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return tuple(dim % max(rank, 1) for dim in given)[: rank or 0] if given else tuple(range(rank))


STATIC: frozenset[Any] = frozenset(
    {
        operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod, operator.neg,
        operator.pow, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_,
        operator.or_, operator.not_, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_int, torch.sym_float,
    }
)  # fmt: skip
"""Functions of plain numbers (sizes): computed while a graph is traced."""

__all__ = [
    "ABSENT",
    "STATIC",
    "TABLE",
    "Lowering",
    "Trace",
    "axes",
    "common",
    "is_array",
    "lowers",
    "operator_called",
    "together",
    "wide",
]
