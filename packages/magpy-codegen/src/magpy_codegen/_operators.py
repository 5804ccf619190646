"""The operator graph: torch's C operators of one segment, in the order in which eager ran them, as torch.fx."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import torch
import torch.fx

from magpy_refgraph import Location, Node

_SLOTS: Final[dict[str, Callable[..., Any]]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


def set_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """The operator behind `tensor.data = data`."""
    tensor.data = data


def nameable(function: Any) -> Any:
    """A C function under a name that torch.fx prints rightly: some are hidden behind a Python function of the same name."""
    if isinstance(function, types.BuiltinFunctionType):
        name = function.__name__
        if getattr(torch._C._VariableFunctions, name, None) is function and getattr(torch, name, None) is not function:
            return getattr(torch.ops.aten, name, function)
    return function


_RAISING: Final = frozenset(
    {
        # indices
        "embedding", "embedding_bag", "embedding_renorm", "index", "index_select", "gather", "scatter", "scatter_add",
        "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put", "index_reduce", "take", "take_along_dim",
        "put", "one_hot", "max_unpool2d", "max_unpool3d", "bucketize", "searchsorted", "where", "nonzero", "masked_scatter",
        "masked_select", "sparse_coo_tensor", "sparse_compressed_tensor", "sparse_csr_tensor",
        # classes and targets
        "nll_loss", "nll_loss2d", "nll_loss_nd", "cross_entropy_loss", "cross_entropy", "multi_margin_loss",
        "multilabel_margin_loss", "binary_cross_entropy", "ctc_loss",
        # parameters of distributions
        "multinomial", "bernoulli", "normal", "poisson", "binomial", "dirichlet_grad", "sample_dirichlet", "standard_gamma",
        "quantile", "nanquantile", "histc", "histogram", "histogramdd", "histogramdd_bin_edges",
        # counts and lengths
        "bincount", "repeat_interleave", "segment_reduce", "tensor_split", "pack_padded_sequence",
        # zero divisors
        "floor_divide", "floordiv", "ifloordiv", "rfloordiv", "remainder", "mod", "imod", "rmod", "fmod", "div", "divide",
        # matrices
        "cholesky", "cholesky_inverse", "inverse", "matrix_power", "svd", "qr", "lu", "lu_with_info", "lu_unpack", "lu_solve",
        "geqrf", "ormqr", "pinverse",
        # others
        "fake_quantize_per_channel_affine", "quantize_per_channel", "assert_async", "assert_scalar", "set_data",
    }
)  # fmt: skip
"""Operators that raise for some values, indices out of range or zero divisors, bare of underscores."""

_NEVER_UNUSED: Final = frozenset({"where", "nonzero", "masked_select", "set_data", "assert_async", "assert_scalar"})
"""Those of them that raise for sizes that depend on values, or that no compiler takes out."""

_DIVISIONS: Final = frozenset(
    {"floor_divide", "floordiv", "ifloordiv", "remainder", "mod", "imod", "fmod", "div", "divide"}
)
"""Those whose second operand is a divisor."""

_VIEWS: Final = frozenset(
    {
        "as_strided", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "mT", "T", "H", "mH", "imag", "real",
        "movedim", "moveaxis", "narrow", "permute", "ravel", "reshape", "reshape_as", "select", "split",
        "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten",
        "unfold", "unsqueeze", "view", "view_as", "contiguous", "data",
    }
)  # fmt: skip
"""Operators whose results may share memory with their first operand."""


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _may_raise(node: torch.fx.Node) -> bool:
    """Whether an operator may raise for some values of its inputs."""
    name = _name(node)
    if name in ("getitem", "setitem"):
        return _holds_node(node.args[1])
    return name.strip("_") in _RAISING or name.startswith("linalg_")


def _is_missed(node: torch.fx.Node) -> bool:
    """Whether an operator may raise for some values, although nothing needs its result."""
    name = _name(node).strip("_")
    if name in _NEVER_UNUSED or node.op not in ("call_function", "call_method") or not _may_raise(node):
        return False
    if name in _DIVISIONS and not _holds_node(node.args[1:2]):
        return False  # a constant, by which it was divided once
    return name not in ("div", "divide") or "rounding_mode" in node.kwargs


def missed(
    graph: torch.fx.Graph, outputs: Iterable[torch.fx.Node], drawing: Collection[torch.fx.Node] = ()
) -> list[torch.fx.Node]:
    """The operators of a graph that its outputs and updates don't need, but that may raise for some values.

    Args:
        graph: the graph.
        outputs: its outputs.
        drawing: operators that draw random numbers, which count, too.
    """
    found = [node for node in graph.nodes if node in drawing or _is_missed(node)]
    if not found:
        return []
    needed = _needed(graph, outputs)
    return [node for node in found if node not in needed]


def _needed(graph: torch.fx.Graph, outputs: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes without which a compiler cannot give the outputs and update the inputs."""
    updates: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    todo = list(outputs)
    for node in graph.nodes:
        if node.op.startswith("call_") and _is_update(node):
            for each in _updated(node):
                updates.setdefault(_memory(each), []).append(node)
                if _memory(each).op == "placeholder":
                    todo.append(node)
    needed: set[torch.fx.Node] = set()
    while todo:
        node = todo.pop()
        if node in needed:
            continue
        needed.add(node)
        todo += node.all_input_nodes
        todo += updates.get(_memory(node), [])
    return needed


def _is_update(node: torch.fx.Node) -> bool:
    name = _name(node)
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    return in_place or name in ("setitem", "set_data") or "out" in node.kwargs


def _updated(node: torch.fx.Node) -> list[torch.fx.Node]:
    target = node.kwargs.get("out", node.args[:1])
    found: list[torch.fx.Node] = []
    torch.fx.map_arg(target, found.append)
    return found


def _memory(node: torch.fx.Node) -> torch.fx.Node:
    """The node in whose result's memory a node's result may lie."""
    while node.args and isinstance(node.args[0], torch.fx.Node):
        name = _name(node)
        view = name in _VIEWS or (name == "getitem" and not _holds_node(node.args[1])) or _is_update(node)
        if not view and node.target is not getattr:
            break
        node = node.args[0]
    return node


def _holds_node(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_holds_node, value))
    return isinstance(value, torch.fx.Node)


class OperatorGraph:
    """Builds the torch.fx graph of one segment.

    Attributes:
        graph: the graph being built; its placeholders stand for tensors that existed before the run.
        inputs: the RefGraph nodes of the placeholders, in order.
        written: placeholders that an operator updates without moving their version counters.
        constants: nodes whose tensors have the same values at every call, since no input reaches them.
        places: by name of a node the instruction that called the operator, where that is known.
        shaped: names of nodes of operators whose result's shape depends on values.
        drawing: nodes of operators that draw random numbers.
        tuples: nodes whose results are several tensors.
        without_result: nodes of operators that give no tensor.
    """

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self.inputs: list[Node] = []
        self.constants: set[torch.fx.Node] = set()
        self.written: set[torch.fx.Node] = set()
        self.places: dict[str, tuple[types.CodeType, int]] = {}
        self.shaped: set[str] = set()
        self.drawing: set[torch.fx.Node] = set()
        self.tuples: set[torch.fx.Node] = set()
        self.without_result: set[torch.fx.Node] = set()
        self._last_input: torch.fx.Node | None = None

    def input(self, node: Node, tensor: torch.Tensor) -> torch.fx.Node:
        """The placeholder of an external tensor; its fx node becomes the tag of `node`."""
        if node.tag is None:
            place = self._last_input.append if self._last_input is not None else self.graph._root.append
            made = self.graph.create_node("placeholder", f"t{len(self.inputs)}")
            place(made)
            made.meta["version"] = -1 if tensor.is_inference() else tensor._version
            self._last_input = made
            self.inputs.append(node)
            node.tag = made
        found: torch.fx.Node = node.tag
        return found

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], where: Any) -> torch.fx.Node:
        """Add one C operator.

        Args:
            function: what torch's function mode reported: a builtin, a method or slot of the tensor class, or the
                `__get__` of one of its getters.
            args: arguments, tensors already as fx nodes.
            kwargs: keyword arguments, likewise.
            where: its place in the source.
        """
        kind = type(function)
        if kind is types.MethodWrapperType:
            name = function.__self__.__name__
            if function.__name__ == "__get__":
                made = self.graph.create_node("call_function", getattr, (args[0], name))
            elif name == "data":
                made = self.graph.create_node("call_function", set_data, args)
            else:
                made = self.graph.create_node("call_method", f"{name}_", args)
        elif kind in (types.MethodDescriptorType, types.WrapperDescriptorType) and args:
            slot = _SLOTS.get(function.__name__)
            overridden = isinstance(getattr(torch.Tensor, function.__name__, None), types.FunctionType)
            if slot is not None:
                made = self.graph.create_node("call_function", slot, args, kwargs)
            elif overridden and hasattr(torch.ops.aten, function.__name__):  # by name it would be Python's
                made = self.graph.create_node("call_function", getattr(torch.ops.aten, function.__name__), args, kwargs)
            else:
                made = self.graph.create_node("call_method", function.__name__, args, kwargs)
        else:
            made = self.graph.create_node("call_function", nameable(function), args, kwargs)
        made.meta["where"] = where
        return made

    def is_constant(self, value: Any) -> bool:
        """Whether an argument depends on no input: all fx nodes in it were made of constants alone."""
        if isinstance(value, torch.fx.Node):
            return value in self.constants
        if isinstance(value, (tuple, list)):
            return all(map(self.is_constant, value))
        if isinstance(value, slice):
            return self.is_constant((value.start, value.stop, value.step))
        if isinstance(value, dict):
            return all(map(self.is_constant, value.values()))
        return True

    def updated(self) -> tuple[int, ...]:
        """Which inputs the segment has updated: numbers of placeholders whose tensors' version counters moved."""
        found = []
        for number, node in enumerate(self.inputs):
            tensor, was = node.obj(), node.tag.meta["version"]
            if node.tag in self.written or was < 0 or tensor._version != was:
                found.append(number)
        return tuple(found)

    def may_raise(self) -> bool:
        """Whether an operator may raise for some values of its inputs."""
        return any(map(_may_raise, self.graph.nodes))

    def unused(self, outputs: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
        """Operators that nothing needs but must run: they may raise for some values, or draw random numbers.

        Compilers take them out of a graph, or never calculate what they would raise for. As outputs they stay.

        Args:
            outputs: fx nodes of the tensors that leave the segment.

        Returns:
            New nodes with their results, without gradients.
        """
        made = []
        for node in missed(self.graph, outputs, self.drawing):
            result: Any = node
            if node in self.without_result:
                result = node.args[0]
            while result in self.tuples:
                result = next(iter(result.users))
            made.append(self.graph.call_method("detach", (result,)))
        return made

    def element(self, node: torch.fx.Node, index: int) -> torch.fx.Node:
        """One element of an operator's tuple of results."""
        made = self.graph.create_node("call_function", operator.getitem, (node, index))
        if node in self.constants:
            self.constants.add(made)
        return made

    def finish(self, outputs: list[torch.fx.Node], locate: Callable[[Any], Location | None]) -> torch.fx.GraphModule:
        """Close the graph with a tuple of outputs.

        Args:
            outputs: fx nodes of the tensors that leave the segment.
            locate: turns a node's place into a `Location`, for stack traces and printing.
        """
        self.graph.output(tuple(outputs))
        for node in self.graph.nodes:
            where = node.meta.pop("where", None)
            node.meta.pop("version", None)
            location = None if where is None else locate(where)
            if location is not None:
                node.stack_trace = f'  File "{location.file}", line {location.line}, in {location.function}\n'
        return torch.fx.GraphModule({}, self.graph, class_name="OperatorGraph")
