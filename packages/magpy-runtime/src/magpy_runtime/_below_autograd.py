"""Code for which autograd has nothing to do runs below it.

Each operator goes through autograd's dispatch keys, also where no gradients are wanted: it looks for them, and notes for
views what they are views of. Compiled code that is a function of its inputs' values, whose results nobody can tell from
other tensors, needs neither. A thousand small operators take a fifth less (`benchmarks/run.py tiny`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final

import torch.fx

from . import _torch

Run = Callable[..., Any]

_FEW: Final = 8
"""Dispatched operators that cost autograd as much as leaving it costs."""

_OWN: Final = ("aten", "prims")
_DISPATCHED: Final = re.compile(
    r"\b(?:extern_kernels|aten|torch\.ops\.\w+)\.\w+|\breinterpret_tensor\(|\baoti_torch_\w+\("
)


def is_torch_alone(module: torch.fx.GraphModule) -> bool:
    """Whether all operators are torch's own, also those of branches: others may have code of theirs for autograd only."""
    graphs = [each.graph for each in module.modules() if isinstance(each, torch.fx.GraphModule)]
    return all(_is_node_of_torch(node) for graph in graphs for node in graph.nodes)


def _is_node_of_torch(node: torch.fx.Node) -> bool:
    if node.op in ("placeholder", "output", "get_attr", "call_method"):
        return True
    if isinstance(node.target, _torch.operator_types):
        return str(node.target).split(".")[0] in _OWN
    return node.op == "call_function" and _is_of_torch(node.target)


def _is_of_torch(target: Any) -> bool:
    module = getattr(target, "__module__", None)
    if module is None and isinstance(target, BuiltinFunctionType):  # static methods of torch._C
        owner = target.__self__
        module = getattr(owner, "__module__", None) or getattr(owner, "__name__", None)
    if module is None:  # methods of tensors
        module = getattr(getattr(target, "__objclass__", None), "__module__", None)
    return isinstance(module, str) and module.split(".")[0] in ("torch", "_operator", "math", "builtins")


def dispatched(source: str) -> int:
    """How many operators a module of Inductor's hands to torch's dispatcher."""
    return len(_DISPATCHED.findall(source))


def below_autograd(call: Run, count: int | None = None) -> Run:
    """Code that runs below autograd, where that pays.

    Args:
        call: takes a list of inputs.
        count: how many operators it dispatches; None: many.
    """
    guard = _torch.below_autograd
    if guard is None or (count is not None and count < _FEW):
        return call

    def run(inputs: list[Any]) -> Any:
        with guard():
            return call(inputs)

    return run


__all__ = ["below_autograd", "dispatched", "is_torch_alone"]
