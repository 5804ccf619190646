"""What the choice of a backend's entry rests on: facts about an operator graph, seen on fake inputs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.fx


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """What the maker of a graph knows of it beyond the graph.

    Attributes:
        updated: numbers of the inputs that the graph updates.
        held: numbers of the inputs that are the same objects at each call, parameters and buffers, and may be taken for
            constants as long as their values are guarded.
        random: whether the graph draws random numbers.
    """

    updated: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    random: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphFacts:
    """What running a graph on fake inputs showed.

    Attributes:
        symbolic: whether sizes vary.
        updates: whether an input is updated.
        aliases: whether an output shares its storage with an input or with another output.
        gradients: whether autograd has a part in it.
        switches: whether it leaves another grad mode than it found.
        autocast: whether autocast is on, which the compiled code must not see.
        plain: whether inputs and outputs are dense tensors, at least one of each.
        devices: types of the devices that tensors are on.
    """

    symbolic: bool
    updates: bool
    aliases: bool
    gradients: bool
    switches: bool
    autocast: bool
    plain: bool
    devices: frozenset[str]

    @property
    def functional(self) -> bool:
        """Whether the graph is a function of its inputs' values: AOTAutograd has nothing to do when it runs."""
        return self.plain and not (
            self.symbolic or self.updates or self.aliases or self.gradients or self.switches or self.autocast
        )

    @property
    def repeatable(self) -> bool:
        """Whether running the graph leaves everything as it was, modes included."""
        return not (self.symbolic or self.updates or self.gradients or self.switches or self.autocast)


def graph_facts(
    module: torch.fx.GraphModule, inputs: list[Any], versions: list[int], outputs: Any, hints: Hints | None, grad: bool
) -> GraphFacts:
    """Collect the facts, while the modes are those that the graph has left.

    Args:
        module: the graph.
        inputs: the fake tensors on which it ran.
        versions: their version counters before that.
        outputs: what it returned.
        hints: what else is known; None when nothing is, so that an operator in place counts as an update of an input.
        grad: whether the graph runs with gradients enabled.
    """
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    results = [each for each in outputs if isinstance(each, torch.Tensor)]
    plain = bool(tensors) and bool(results) and len(results) == len(outputs) and len(tensors) == len(inputs)
    plain = plain and all(each.layout is torch.strided and not each.is_nested for each in (*tensors, *results))
    storages = [*map(storage_of, results)] if plain else []
    known = {*map(storage_of, tensors)} if plain else set()
    return GraphFacts(
        symbolic=not all(_is_static(each) for each in (*inputs, *outputs)),
        updates=_moved(tensors, versions) or (_may_update(module) if hints is None else bool(hints.updated)),
        aliases=len(set(storages)) < len(storages) or any(each in known for each in storages),
        gradients=any(each.requires_grad for each in results) or (grad and any(each.requires_grad for each in tensors)),
        switches=torch.is_grad_enabled() is not grad,
        autocast=torch.is_autocast_enabled("cpu")
        or any(torch.is_autocast_enabled(each.device.type) for each in tensors),
        plain=plain,
        devices=frozenset(each.device.type for each in (*tensors, *results)),
    )


def _is_static(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (
        value.layout is not torch.strided
        or all(type(each) is int for each in (*value.shape, *value.stride(), value.storage_offset()))
    )


def _moved(inputs: list[torch.Tensor], versions: list[int]) -> bool:
    return any(version_of(each) != was for each, was in zip(inputs, versions, strict=False))


def _may_update(module: torch.fx.GraphModule) -> bool:
    names = (getattr(node.target, "__name__", node.target) for node in module.graph.nodes if node.op != "output")
    return updates(module) or any("_norm" in str(name) for name in names)  # running statistics


def version_of(tensor: Any) -> int:
    """A tensor's version counter, -1 where it has none."""
    return -1 if not isinstance(tensor, torch.Tensor) or tensor.is_inference() else tensor._version


def updates(module: torch.fx.GraphModule) -> bool:
    """Whether a graph has operators in place."""
    return any(map(is_update, module.graph.nodes))


def is_update(node: torch.fx.Node) -> bool:
    """Whether a node is an operator in place."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
    return node.op != "placeholder" and (in_place or name == "setitem" or "out" in node.kwargs)


def updated_operands(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The operands that a node may update: the first, unless it is one of those that update several, or others."""
    if not is_update(node):
        return []
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    several = "out" in node.kwargs or (name.startswith("_") and not name.startswith("__i"))
    first = node.args[0] if node.args and not several else None
    return [first] if isinstance(first, torch.fx.Node) else node.all_input_nodes


def statistics(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The running statistics that a norm in training updates, which no version counter shows."""
    name = str(getattr(node.target, "__name__", node.target))
    training = [*node.args[5:6], *(node.kwargs.get(each) for each in ("training", "use_input_stats"))]
    if node.op != "call_function" or not _NORMS.search(name) or any(each is False for each in training):
        return []
    first = 1 if getattr(node.target, "__module__", "") == "torch.nn.functional" else 3
    found = [*node.args[first : first + 2], node.kwargs.get("running_mean"), node.kwargs.get("running_var")]
    return [each for each in found if isinstance(each, torch.fx.Node)]


_NORMS: Final = re.compile(r"(batch|instance)_norm")


def memory_of(node: torch.fx.Node) -> set[int]:
    """The storages of the tensors that a node gave in a run, which are kept as its `example_value`."""
    return {*map(storage_of, tensors_in(node.meta["example_value"]))}


def storage_of(tensor: torch.Tensor) -> int:
    """The storage that a tensor lies on, as a number; one that is not strided counts as its own."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [found for each in value for found in tensors_in(each)]
    return [value] if isinstance(value, torch.Tensor) else []


__all__ = [
    "GraphFacts",
    "Hints",
    "graph_facts",
    "is_update",
    "memory_of",
    "statistics",
    "storage_of",
    "tensors_in",
    "updated_operands",
    "updates",
    "version_of",
]
