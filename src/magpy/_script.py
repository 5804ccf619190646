"""The operators of a scripted function, read off its graph: a straight line of aten operators, or nothing."""

from __future__ import annotations

from typing import Any

import torch

from . import _torch


class NotInlinedError(Exception):
    """The graph of a scripted function is more than a straight line of operators."""


class Operand:
    """A value of a scripted function's graph."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


Step = tuple[Operand, Any, list[Any]]
"""A value, the operator that makes it (None: it is its first operand), and the operands: values or plain objects."""


def inline(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Step], Any]:
    """The operators of a scripted function for one call.

    Args:
        function: a `torch.jit.ScriptFunction`.
        args: positional arguments.
        keywords: keyword arguments.

    Returns:
        The steps in order, and the operand that is the result.

    Raises:
        NotInlinedError: control flow, state, or operators that may not be in a graph.
    """
    graph = function.inlined_graph
    values: dict[str, Any] = {}
    steps: list[Step] = []
    for place, (value, argument) in enumerate(zip(graph.inputs(), function.schema.arguments, strict=True)):
        if place < len(args):
            given = args[place]
        elif argument.name in keywords:
            given = keywords[argument.name]
        elif argument.has_default_value():
            given = argument.default_value
        else:
            raise NotInlinedError(f"argument {argument.name} is missing")
        operand = Operand(argument.name)
        steps.append((operand, None, [given]))
        values[value.debugName()] = operand
    for node in graph.nodes():
        kind = node.kind()
        operands = [values[each.debugName()] for each in node.inputs()]
        if kind == "prim::Constant":
            values[node.output().debugName()] = node.output().toIValue()
        elif kind == "prim::ListConstruct":
            values[node.output().debugName()] = operands
        elif kind.startswith("aten::") and node.outputsSize() == 1 and not list(node.blocks()):
            operand = Operand(node.output().debugName())
            steps.append((operand, _overload(node), operands))
            values[node.output().debugName()] = operand
        else:
            raise NotInlinedError(kind)
    outputs = [values[each.debugName()] for each in graph.outputs()]
    if len(outputs) != 1 or not isinstance(outputs[0], Operand):
        raise NotInlinedError("its result is not one tensor")
    return steps, outputs[0]


def _overload(node: Any) -> Any:
    schema = _torch.parse_schema(node.schema())
    name = schema.name.partition("::")[2]
    overload = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
    tags = overload.tags
    refused = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded)
    if any(tag in tags for tag in refused) or overload._schema.is_mutable:
        raise NotInlinedError(f"aten::{name}")
    if any(str(each.type) != "Tensor" for each in overload._schema.returns):
        raise NotInlinedError(f"aten::{name}")
    return overload
