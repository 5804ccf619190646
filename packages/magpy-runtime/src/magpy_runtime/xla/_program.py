"""From a part of an operator graph to a function of JAX arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from . import (  # noqa: F401  each enters its lowerings into the table
    _convolution,
    _creation,
    _indexing,
    _matmul,
    _norms,
    _pointwise,
    _pooling,
    _reductions,
    _sampling,
    _shapes,
)
from ._jax import DTYPES, jnp
from ._table import STATIC, TABLE, Trace, is_array

Node = torch.fx.Node

_SIZES: dict[Any, Callable[..., int]] = {
    torch.ops.aten.sym_size.int: lambda x, dim: int(x.shape[dim]),
    torch.ops.aten.sym_numel.default: lambda x: int(x.size),
}
"""Operators that give a number that is known once shapes are."""


def results(node: Node) -> list[Any]:
    """The fake results of a node, in order; what stands for no tensor included."""
    value = node.meta.get("val")
    return list(value) if isinstance(value, list | tuple) else [value]


def is_static(node: Node) -> bool:
    """Whether a node's result is a plain number, known while a graph is traced."""
    return isinstance(node.meta.get("val"), int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


def refusal(node: Node, device: torch.device) -> str | None:
    """Why XLA cannot take an operator, in words; None if it can.

    Args:
        node: of an ATen graph, with fake tensors in its `meta`.
        device: where the part would run.
    """
    target = node.target
    if target is operator.getitem:
        source = node.args[0]
        return refusal(source, device) if isinstance(source, Node) and source.op == "call_function" else None
    if target in STATIC or target in _SIZES:
        return None
    entry = TABLE.get(target)
    if entry is None:
        return "it has no lowering"
    for value in (*results(node), *(each for used in node.all_input_nodes for each in results(used))):
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype not in DTYPES:
            return f"XLA has no {value.dtype}"
        if value.is_complex() and not entry.complex:
            return "its lowering is not for complex numbers"
        if value.layout is not torch.strided:
            return f"its tensors are {value.layout}"
        if value.device != device and (value.ndim or value.device.type != "cpu"):
            return f"it has a tensor on {value.device}, and another on {device}"
        if _is_subclass(value):
            return f"it has a {type(value).__name__}"
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
    if entry.accepts is not None and not entry.accepts(*args, **kwargs):
        return "its lowering does not take these arguments"
    others = any(user.args[1] for user in node.users if user.target is operator.getitem)
    if others and entry.ties is not None and entry.ties(*args, **kwargs):
        return "torch orders equal elements in a way of its own"
    if others and entry.only_first:
        return "its lowering gives the first result alone"
    return None


def _is_subclass(value: torch.Tensor) -> bool:
    return type(value).__name__ not in ("FakeTensor", "Tensor", "Parameter")


class LoweringError(RuntimeError):
    """A lowering gave a result of another shape than torch, or failed."""


@dataclass(frozen=True, slots=True)
class Program:
    """Operators of a part, with what comes in and what goes out.

    Attributes:
        nodes: in topological order.
        inputs: nodes outside whose results the part uses.
        outputs: nodes of the part whose results are used outside.
        alive: indices of the results used, for nodes that have several.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    alive: dict[Node, frozenset[int]] = field(init=False)

    def __post_init__(self) -> None:
        alive = {}
        for node in self.nodes:
            if len(results(node)) > 1:
                used = {u.args[1] for u in node.users if u.target is operator.getitem}
                alive[node] = frozenset(n for n in used if isinstance(n, int))
        object.__setattr__(self, "alive", alive)

    def trace(self, values: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """Compute the outputs, arrays or plain numbers, from the inputs; also the conditions under which eager raises."""
        known: dict[Node, Any] = dict(zip(self.inputs, values, strict=True))
        trace = Trace()
        for node in self.nodes:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = self._compute(node, trace, args, kwargs)
        return [known[node] for node in self.outputs], trace.problems

    def _compute(self, node: Node, trace: Trace, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if target in _SIZES:
            return _SIZES[target](*args)
        if target in STATIC:
            return target(*args, **kwargs)
        fakes = results(node)
        trace.dtypes = tuple(DTYPES[f.dtype] if isinstance(f, torch.Tensor) else None for f in fakes)
        trace.used = self.alive.get(node, frozenset({0}))
        try:
            found = TABLE[target].function(trace, *args, **kwargs)
            if not isinstance(node.meta["val"], list | tuple):
                return _checked(found, fakes[0], trace.dtypes[0])
            return [
                None if value is None or fake is None else _checked(value, fake, dtype)
                for value, fake, dtype in zip(found, fakes, trace.dtypes, strict=True)
            ]
        except Exception as error:
            raise LoweringError(f"{target}: {type(error).__name__}: {error}") from error


def _checked(value: Any, fake: Any, dtype: Any) -> Any:
    """A lowering's result in torch's element type, if it has torch's shape."""
    if not is_array(value):
        value = jnp.asarray(value)
    if value.dtype != dtype:
        value = value.astype(dtype)
    wanted: Sequence[Any] = fake.shape
    if len(wanted) != value.ndim or any(type(n) is int and n != m for n, m in zip(wanted, value.shape, strict=True)):
        raise LoweringError(f"shape {value.shape}, where torch has {tuple(wanted)}")
    return value


__all__ = ["LoweringError", "Node", "Program", "is_static", "refusal", "results"]
