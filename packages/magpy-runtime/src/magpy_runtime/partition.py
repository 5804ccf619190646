"""Cut an operator graph into parts by which backend can take each operator: few, large and without cycles.

Two steps, both on nodes in topological order.

*Sweep.* Take every operator of one kind that is ready, and all those of that kind that become ready by it, as one part;
then go on with another kind. Parts come out in the order in which they run, so no part can close a cycle and nothing is
checked for one. With two kinds (what a backend takes, and the rest) the number of parts is the least that there can be, and
so is that of the parts that a backend takes, if it is named as `fewest`: where k operators that it takes lie on one path with
others in between, no two of them fit into one part.

*Merge.* With three kinds or more the order in which the sweep takes the kinds is a guess, so pairs of parts of one kind
that are left are tried again. This is where a cycle can arise (A and C in one part around a B between them). There is one
check for it, right before the merge takes effect; it visits each part once at most; and it is skipped where structure
rules a cycle out: nothing that the later part takes in runs after the earlier one (so all of it enters where the earlier
one starts), or nothing that uses the earlier one runs before the later one (so all of it leaves where that one ends).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch.fx

Kind = Hashable
KindOf = Callable[[torch.fx.Node], Kind | None]

_WINDOW = 64
"""How far the merge step looks from each part, in parts: keeps its time linear."""

_PATIENCE = 2
"""Cycles after which the merge step leaves a part: the candidates that come later need what these need, nearly always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Operators that run together.

    Attributes:
        kind: what takes them.
        nodes: in topological order.
    """

    kind: Kind
    nodes: tuple[torch.fx.Node, ...]


@dataclass(slots=True)
class Checks:
    """How it was found out whether something closes a cycle.

    Attributes:
        joined: operators that joined a part in the sweep: the order of a sweep rules cycles out.
        by_inputs: merges where nothing that the later part takes in runs after the earlier one.
        by_outputs: merges where nothing that uses the earlier part runs before the later one.
        searched: merges that needed a search.
        visited: parts that these searches visited.
        cycles: searches that found one.
    """

    joined: int = 0
    by_inputs: int = 0
    by_outputs: int = 0
    searched: int = 0
    visited: int = 0
    cycles: int = 0

    @property
    def skipped(self) -> int:
        """Checks that structure made unnecessary."""
        return self.joined + self.by_inputs + self.by_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The parts in an order in which they can run, and how much checking it took."""

    parts: tuple[Part, ...]
    checks: Checks

    def count(self, kind: Kind) -> int:
        """How many parts are of one kind."""
        return sum(part.kind == kind for part in self.parts)


def partition(
    graph: torch.fx.Graph,
    kind_of: KindOf,
    *,
    in_order: Callable[[torch.fx.Node], bool] = lambda node: False,
    merge: bool = True,
    fewest: Kind | None = None,
) -> Partition:
    """Cut a graph into parts.

    Args:
        graph: in topological order, as every torch.fx graph is.
        kind_of: what takes a node; None for nodes that belong to no part (placeholders, attributes, the output).
        in_order: nodes that must run in the order of the graph, such as those that draw random numbers.
        merge: whether to try the merge step.
        fewest: the kind that decides between partitions of equally many parts: the one with the fewest of it.
    """
    kinds: dict[torch.fx.Node, Kind] = {}
    for node in graph.nodes:
        kind = kind_of(node)
        if kind is not None:
            kinds[node] = kind
    after = _followers(kinds, in_order)
    checks = Checks()
    parts = _sweep(kinds, after, checks, fewest)
    if merge and len(set(kinds.values())) > 2:
        parts = _Merger(parts, after, checks).run()
    return Partition(parts=tuple(Part(kind=part.kind, nodes=tuple(part.nodes)) for part in parts), checks=checks)


def _followers(
    kinds: dict[torch.fx.Node, Kind], in_order: Callable[[torch.fx.Node], bool]
) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """For each node those that must run after it: its users, and the next of those that keep their order."""
    after = {node: [user for user in node.users if user in kinds] for node in kinds}
    last = None
    for node in kinds:
        if in_order(node):
            if last is not None and node not in last.users:
                after[last].append(node)
            last = node
    return after


@dataclass(eq=False, slots=True)
class _Growing:
    """A part that may still change; hashed by identity."""

    kind: Kind
    nodes: list[torch.fx.Node]
    before: set[_Growing] = field(default_factory=set)
    after: set[_Growing] = field(default_factory=set)


def _sweep(
    kinds: dict[torch.fx.Node, Kind],
    after: dict[torch.fx.Node, list[torch.fx.Node]],
    checks: Checks,
    fewest: Kind | None,
) -> list[_Growing]:
    """The best of the sweeps that start with each of the kinds that can start."""
    waiting = dict.fromkeys(kinds, 0)
    for followers in after.values():
        for node in followers:
            waiting[node] += 1
    starts = dict.fromkeys(kinds[node] for node, count in waiting.items() if not count)
    best: list[_Growing] = []
    least: tuple[int, int] | None = None
    for start in starts:
        parts = _sweep_from(start, kinds, after, dict(waiting))
        count = (len(parts), sum(part.kind == fewest for part in parts))
        if least is None or count < least:
            best, least = parts, count
    order = {node: number for number, node in enumerate(kinds)}
    for part in best:
        part.nodes.sort(key=order.__getitem__)
        checks.joined += len(part.nodes) - 1
    return best


def _sweep_from(
    kind: Kind,
    kinds: dict[torch.fx.Node, Kind],
    after: dict[torch.fx.Node, list[torch.fx.Node]],
    waiting: dict[torch.fx.Node, int],
) -> list[_Growing]:
    ready: dict[Kind, deque[torch.fx.Node]] = {each: deque() for each in dict.fromkeys(kinds.values())}
    for node, count in waiting.items():
        if not count:
            ready[kinds[node]].append(node)
    parts: list[_Growing] = []
    while True:
        nodes: list[torch.fx.Node] = []
        queue = ready[kind]
        while queue:
            node = queue.popleft()
            nodes.append(node)
            for follower in after[node]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready[kinds[follower]].append(follower)
        parts.append(_Growing(kind, nodes))
        left = [each for each, queue in ready.items() if queue]
        if not left:
            return parts
        kind = max(left, key=lambda each: len(ready[each]))


class _Merger:
    """Merges parts of one kind where that closes no cycle."""

    def __init__(self, parts: list[_Growing], after: dict[torch.fx.Node, list[torch.fx.Node]], checks: Checks) -> None:
        self.checks = checks
        self.parts = parts
        self.order = {node: number for number, node in enumerate(after)}
        home = {node: part for part in parts for node in part.nodes}
        for node, followers in after.items():
            for follower in followers:
                if home[node] is not home[follower]:
                    home[node].after.add(home[follower])
                    home[follower].before.add(home[node])

    def run(self) -> list[_Growing]:
        """Every part takes in what it can of the later ones of its kind."""
        number = 0
        while number < len(self.parts):
            part = self.parts[number]
            self._take_in(part, number)
            while self.parts[number] is not part:  # what it needs now has moved before it
                number += 1
            number += 1
        return self.parts

    def _take_in(self, part: _Growing, number: int) -> None:
        """Merge later parts into one, and order what lies between: first what it needs, then what needs it.

        A later part cannot join if it needs something that needs this one (`dependent`). The search for these goes
        through the parts in their order, as far as the candidate, and visits each once, for all candidates together.
        """
        checks = self.checks
        window = self.parts[number : number + 1 + _WINDOW]
        places = {each: place for place, each in enumerate(window)}
        dependent: set[_Growing] = set()
        taken: dict[_Growing, int] = {}
        visited, cycles = 1, 0

        def visit_up_to(end: int) -> None:
            nonlocal visited
            while visited < end:
                each = window[visited]
                visited += 1
                checks.visited += 1
                if part in each.before or not dependent.isdisjoint(each.before):
                    dependent.add(each)

        for place, candidate in enumerate(window):
            if not place or candidate.kind != part.kind:
                continue
            if not any(places.get(each, 0) > 0 for each in candidate.before):
                checks.by_inputs += 1
            elif not any(places.get(each, place) < place for each in part.after):
                checks.by_outputs += 1
            else:
                checks.searched += 1
                visit_up_to(place)
                if not dependent.isdisjoint(candidate.before):
                    checks.cycles += 1
                    cycles += 1
                    if cycles == _PATIENCE:
                        break
                    continue
            self._join(part, candidate)
            taken[candidate] = place
        if taken:
            end = max(taken.values())
            visit_up_to(end)
            between = [each for each in window[1:end] if each not in taken]
            self.parts[number : number + 1 + end] = [
                *(each for each in between if each not in dependent),
                part,
                *(each for each in between if each in dependent),
            ]
            part.nodes.sort(key=self.order.__getitem__)

    def _join(self, part: _Growing, other: _Growing) -> None:
        part.nodes += other.nodes
        for each in other.before:
            each.after.discard(other)
            each.after.add(part)
        for each in other.after:
            each.before.discard(other)
            each.before.add(part)
        part.before = (part.before | other.before) - {part, other}
        part.after = (part.after | other.after) - {part, other}


__all__ = ["Checks", "Kind", "KindOf", "Part", "Partition", "partition"]
