"""Operators that raise for some values, in graphs for Inductor on the CPU.

Its code for them checks otherwise than they do, or not at all: where `index_select` raises for -1 it counts from the end, where
`binary_cross_entropy` raises it gives NaN, a zero divisor ends the process, and so does an index out of range in a loop of
several threads. So what the values must be like becomes part of the graph. One operator at its end raises where they are not,
and before that nothing is read that is not there. Who runs the graph then lets the program say what is wrong.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.fx

from . import _torch
from ._env import RUNS_AS_IT_IS


@dataclass(frozen=True, slots=True)
class _Operand:
    """Where an operator gets an operand: number and name."""

    place: int
    name: str


_TEXT: Final = "an operator's values"
_DIM: Final = _Operand(1, "dim")


@dataclass(frozen=True, slots=True)
class _Indexed:
    """An operator that reads or writes where an operand says.

    Attributes:
        index: that operand.
        dim: the operand that says along which dimension of the first one, or that dimension; None for all of them at once.
        from_end: whether negative indices count from the end.
    """

    index: _Operand
    dim: _Operand | int | None = _DIM
    from_end: bool = False


_ALONG: Final = _Indexed(_Operand(2, "index"))
_INDEXED: Final = {
    **dict.fromkeys(
        ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce"),
        _ALONG,
    ),
    "index_fill": _Indexed(_Operand(2, "index"), from_end=True),
    "take": _Indexed(_Operand(1, "index"), None, from_end=True),
    "put": _Indexed(_Operand(1, "index"), None, from_end=True),
    "embedding": _Indexed(_Operand(1, "indices"), 0),
}  # fmt: skip

_CLASSES: Final = {"nll_loss": 4, "nll_loss_nd": 4, "cross_entropy_loss": 4, "multi_margin_loss": None}
"""Losses whose second operand holds numbers of classes, and their operand that says which one is ignored."""

_DIVISIONS: Final = {
    **dict.fromkeys(
        ("floor_divide", "floordiv", "ifloordiv", "remainder", "mod", "imod", "fmod", "div", "divide"), 1
    ),
    "rfloordiv": 0, "rmod": 0,
}  # fmt: skip
"""Divisions, and which operand is the divisor."""


def with_value_checks(module: torch.fx.GraphModule) -> None:
    """Let a graph raise where its operators would.

    Args:
        module: a graph that has run on fake inputs; its nodes have their values as `example_value`. It is changed.
    """
    checks = _Checks(module.graph)
    for node in list(module.graph.nodes):
        if node.op in ("call_function", "call_method") and _is_on_cpu(node):
            checks.of(node)
    if checks.conditions:
        checks.finish()
        module.recompile()


class _Checks:
    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.conditions: list[torch.fx.Node] = []

    def of(self, node: torch.fx.Node) -> None:
        """Add what the values of one operator's operands must be like."""
        name = _name(node)
        with self.graph.inserting_before(node):
            if name in ("getitem", "setitem", "index_put"):
                self._subscripts(node, name != "index_put")
            elif (indexed := _INDEXED.get(name)) is not None:
                self._indexed(node, indexed)
            elif name in _CLASSES:
                self._classes(node, _CLASSES[name])
            elif name in _DIVISIONS:
                self._division(node, _DIVISIONS[name])
            elif (other := _OTHERS.get(name)) is not None:
                other(self, node)

    def finish(self) -> None:
        """Raise where one of the conditions does not hold."""
        [output] = self.graph.find_nodes(op="output")
        with self.graph.inserting_before(output):
            all_hold = self.conditions[0]
            for each in self.conditions[1:]:
                all_hold = self._call(torch.logical_and, all_hold, each)
            if RUNS_AS_IT_IS:
                self._call(_torch.assert_true, all_hold, _TEXT)
                return
            problem = self._call(torch.Tensor.to, self._call(torch.logical_not, all_hold), torch.int32)
            self._call(_torch.check_errors, problem, _TEXT, is_matrix=True)

    def _call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> torch.fx.Node:
        return self.graph.call_function(function, args, keywords)

    def _require(self, condition: torch.fx.Node) -> None:
        self.conditions.append(self._call(torch.all, condition))

    def _between(self, value: torch.fx.Node, lower: Any, upper: Any) -> torch.fx.Node:
        """Whether values are at least one number and less than another."""
        return self._call(torch.logical_and, self._call(torch.ge, value, lower), self._call(torch.lt, value, upper))

    def _within(self, index: torch.fx.Node, size: torch.fx.Node | int, *, from_end: bool = False) -> torch.fx.Node:
        """Require that places are within a size; gives them, or 0 where they are not, which is safe to read and write."""
        right = self._between(index, self._call(operator.neg, size) if from_end else 0, size)
        self._require(right)
        return self._call(torch.where, right, index, 0)

    def _size(self, of: torch.fx.Node, dim: Any) -> torch.fx.Node:
        return self.graph.call_method("size", (of, dim))

    def _indexed(self, node: torch.fx.Node, indexed: _Indexed) -> None:
        of, index = node.args[0], _operand(node, indexed.index)
        if not isinstance(of, torch.fx.Node) or not _is_index(index) or not _example(of).dim():
            return
        dim = _operand(node, indexed.dim) if isinstance(indexed.dim, _Operand) else indexed.dim
        size = self.graph.call_method("numel", (of,)) if dim is None else self._size(of, dim)
        _put(node, indexed.index, self._within(index, size, from_end=indexed.from_end))

    def _subscripts(self, node: torch.fx.Node, none_is_new: bool) -> None:
        """`x[...]`, where a None stands for a new dimension, or `index_put`, where it stands for a whole one."""
        of, given = node.args[0], _operand(node, _Operand(1, "indices"))
        if not isinstance(of, torch.fx.Node) or not isinstance(_example(of), torch.Tensor):
            return
        parts = [*given] if isinstance(given, (tuple, list)) else [given]
        taken = [_dims_of(each, none_is_new) for each in parts]
        dim = 0
        found = False
        for number, (each, count) in enumerate(zip(parts, taken, strict=True)):
            if _is_index(each):
                parts[number] = self._within(each, self._size(of, dim), from_end=True)
                found = True
            dim += _example(of).dim() - sum(taken) if each is Ellipsis else count
        if found:
            made = type(given)(parts) if isinstance(given, (tuple, list)) else parts[0]
            _put(node, _Operand(1, "indices"), made)

    def _classes(self, node: torch.fx.Node, ignored: int | None) -> None:
        of, place = node.args[0], _Operand(1, "target")
        target = _operand(node, place)
        if not isinstance(of, torch.fx.Node) or not _is_index(target):
            return
        classes = self._size(of, 1 if _example(of).dim() > 1 else 0)
        if ignored is None:
            _put(node, place, self._within(target, classes))
            return
        number = _operand(node, _Operand(ignored, "ignore_index"))
        passed = self._call(torch.eq, target, -100 if number is None else number)
        right = self._call(torch.logical_or, self._between(target, 0, classes), passed)
        self._require(right)
        _put(node, place, self._call(torch.where, right, target, 0))

    def _division(self, node: torch.fx.Node, place: int) -> None:
        operand = _Operand(place, "other")
        divisor = _operand(node, operand)
        if _is_integral(_example(node)) and _is_integral(_example(divisor)):  # true division gives floats
            right = self._call(torch.ne, divisor, 0)
            self._require(right)
            _put(node, operand, self._call(torch.where, right, divisor, 1))

    def _one_hot(self, node: torch.fx.Node) -> None:
        index, classes = node.args[0], _operand(node, _Operand(1, "num_classes"))
        if _is_index(index) and type(classes) is int and classes > 0:
            _put(node, _Operand(0, "input"), self._within(index, classes))  # type: ignore[arg-type]

    def _probabilities(self, node: torch.fx.Node) -> None:
        """Probabilities lie between zero and one: the first operand, or the second one where it says how to draw or divide."""
        given = node.args[0]
        if _name(node) in ("quantile", "nanquantile"):
            given = _operand(node, _Operand(1, "q"))
        elif _name(node) == "bernoulli" and (len(node.args) > 1 or "p" in node.kwargs or str(node.target)[-1] == "_"):
            given = _operand(node, _Operand(1, "p"))
        if isinstance(_example(given), torch.Tensor):
            above = self._call(torch.ge, given, 0)
            self._require(self._call(torch.logical_and, above, self._call(torch.le, given, 1)))

    def _unpooled(self, node: torch.fx.Node) -> None:
        """Where elements were in a plane, or a volume, of the result."""
        index, shape = _operand(node, _Operand(1, "indices")), _example(node).shape
        places = shape[-2:] if _name(node) == "max_unpool2d" else shape[-3:]
        if _is_index(index) and all(type(each) is int for each in places):
            _put(node, _Operand(1, "indices"), self._within(index, math.prod(places)))

    def _repeats(self, node: torch.fx.Node) -> None:
        """How often elements are repeated; the total may be given."""
        repeats, total = _operand(node, _Operand(1, "repeats")), node.kwargs.get("output_size")
        if not _is_index(repeats):
            return
        self._require(self._call(torch.ge, repeats, 0))
        if total is not None and _example(repeats).dim():
            self._require(self._call(torch.eq, self._call(torch.sum, repeats), total))


_OTHERS: Final[dict[str, Callable[[_Checks, torch.fx.Node], None]]] = {
    "one_hot": _Checks._one_hot,
    "binary_cross_entropy": _Checks._probabilities,
    "bernoulli": _Checks._probabilities,
    "quantile": _Checks._probabilities,
    "nanquantile": _Checks._probabilities,
    "max_unpool2d": _Checks._unpooled,
    "max_unpool3d": _Checks._unpooled,
    "repeat_interleave": _Checks._repeats,
}


def _name(node: torch.fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).partition(".")[0].strip("_")


def _operand(node: torch.fx.Node, operand: _Operand) -> Any:
    return node.args[operand.place] if len(node.args) > operand.place else node.kwargs.get(operand.name)


def _put(node: torch.fx.Node, operand: _Operand, value: Any) -> None:
    if len(node.args) > operand.place:
        node.update_arg(operand.place, value)
    else:
        node.update_kwarg(operand.name, value)


def _example(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, torch.fx.Node) else value


def _is_integral(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())


def _is_index(value: Any) -> bool:
    """Whether an operand holds numbers of places. Bytes may be masks."""
    example = _example(value)
    return isinstance(value, torch.fx.Node) and _is_integral(example) and example.dtype not in (torch.bool, torch.uint8)


def _dims_of(part: Any, none_is_new: bool) -> int:
    """How many dimensions a part of a subscript takes."""
    example = _example(part)
    if isinstance(example, torch.Tensor):
        return example.dim() if example.dtype in (torch.bool, torch.uint8) else 1
    return 0 if part is Ellipsis or isinstance(part, bool) or (part is None and none_is_new) else 1


def _is_on_cpu(node: torch.fx.Node) -> bool:
    """Whether all of an operator's tensors are dense ones on the CPU: elsewhere nobody waits for what it raises."""
    values = [_example(each) for each in node.all_input_nodes]
    return all(_is_plain(each) for each in _flat(values))


def _flat(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for each in values:
        if isinstance(each, (tuple, list)):
            yield from _flat(each)
        elif isinstance(each, torch.Tensor):
            yield each


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided


__all__ = ["with_value_checks"]
