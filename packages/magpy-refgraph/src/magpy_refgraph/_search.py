"""Algorithm 1 of the paper: which nodes a guard must check and a mock must make.

Both are searches from #0.  The guard's follows version 0 (the state on entry), the mock's follows the last references
within a slice, and adds every older object that an effect changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._model import EdgeKind, Key, Node, RefGraph, Target


@dataclass(frozen=True, slots=True)
class Fact:
    """One reference of version 0 that was read.

    Attributes:
        node: whose reference it is.
        key: which one.
        target: what it led to.
        first: whether `target` is a node that this fact reaches first; otherwise the fact is an alias check.
        location: where it was read first.
    """

    node: Node
    key: Key
    target: Target
    first: bool
    location: Any


def guard_facts(graph: RefGraph) -> Iterator[Fact]:
    """Search version 0 from #0, breadth first; each fact once, a node's own type before what hangs on it."""
    seen = {graph.root.index}
    queue = [graph.root]
    for node in queue:
        refs = node.initial
        for key in sorted(refs, key=_type_first) if len(refs) > 1 else refs:
            target = refs[key]
            first = isinstance(target, Node) and target.index not in seen
            if first and isinstance(target, Node):
                seen.add(target.index)
                queue.append(target)
            yield Fact(node, key, target, first, node.reads.get(key))


def _type_first(key: Key) -> int:
    if key.kind is EdgeKind.TYPE:
        return 0
    return 1 if key.kind in (EdgeKind.LENGTH, EdgeKind.DICT) else 2


def mock_nodes(graph: RefGraph, outputs: list[object], time: int | None = None) -> list[Node]:
    """The nodes that a mock must bring about: reached from `outputs` or from the last references, or changed.

    Args:
        graph: the graph of the run.
        outputs: runtime objects that leave the region (its result).
        time: the slice, by default the end.

    Returns:
        Nodes that were made during the run and can be reached, and older ones that an effect changed, in order of birth.
    """
    time = graph.time if time is None else time
    found: dict[int, Node] = {}
    queue: list[Node] = [node for node in map(graph.find, outputs) if node is not None]
    queue += [effect.node for effect in graph.effects if effect.time <= time]
    for node in queue:
        if node.index in found:
            continue
        found[node.index] = node
        for key in {key for version in node.versions if version.born <= time for key in version.refs}:
            target = node.at(key, time)
            if isinstance(target, Node) and not target.external:
                queue.append(target)
    return sorted((n for n in found.values() if not n.external or n.mutated), key=lambda n: n.index)
