"""Update rules for iterators that are older than the run: what they give, and how far the run takes them.

What an iterator gives is a fact relative to where it stands on entry (`EdgeKind.AHEAD`), so that a record serves it at any
place where it gives the same. How far it was taken is measured when the effects are needed, not step by step: C code may
take elements that no instruction shows.
"""

from __future__ import annotations

import itertools
import types
from typing import Any, Final

from magpy_refgraph import EdgeKind, Key, Node
from magpy_runtime import iterators
from magpy_runtime.capture import NULL
from magpy_runtime.iterators import COMBINED_ITERATORS, INDEXED_ITERATORS, ITEM_ITERATORS, PLAIN_ITERATORS

from ._attributes import AttributeRules, Pending

_SOURCE: Final = Key(EdgeKind.PART, "source")
_LONGEST: Final = 4096
"""How many elements of an iterator can be facts at most."""


class _Taken:
    """An external iterator that the run has used.

    Attributes:
        node: its node.
        obj: itself.
        start: elements that it had left when it was seen first.
        held: whether it held its container then.
        drawn: of an `enumerate`, the nodes of the plain iterators from which it draws.
    """

    __slots__ = ("drawn", "held", "node", "obj", "start")

    def __init__(self, node: Node, obj: Any) -> None:
        self.node = node
        self.obj = obj
        self.drawn: list[int] = []
        self.start: int
        if type(obj) is enumerate:
            self.start, self.held = int(iterators.part(obj, "count")), False
        else:
            self.start, self.held = iterators.position(obj)

    def steps(self) -> int:
        """How often it was advanced, the time that exhausted it included."""
        if type(self.obj) is enumerate:
            return int(iterators.part(self.obj, "count")) - self.start
        left, holds = iterators.position(self.obj)
        return self.start - left + (self.held and not holds)


class IteratorRules(AttributeRules):
    """Rules for external iterators of C code."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[int, _Taken] = {}
        self.walked: dict[int, list[int]] = {}

    def step(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before the iterator on top of the stack is asked for its next element."""
        iterator = inputs[-1]
        kind = type(iterator)
        if kind in PLAIN_ITERATORS:
            node = self.find(iterator)
            if node is not None and node.external:
                self.draw(node, iterator)
        elif kind in COMBINED_ITERATORS and self.is_external_iterator(iterator):
            seen: dict[int, int] = {}
            for node, plain in self.drawn_from(iterator):
                self.draw(node, plain, seen.get(node.index, 0))
                seen[node.index] = seen.get(node.index, 0) + 1
        elif kind not in COMBINED_ITERATORS:
            node = self.find(iterator)
            if node is not None and node.external and type(self.lookup(kind, "__next__")) is not types.FunctionType:
                raise self.boundary("external-iterator", kind.__qualname__)

    def is_external_iterator(self, obj: Any) -> bool:
        """Whether an object is an iterator of a known kind, older than the run."""
        kind = type(obj)
        if kind not in PLAIN_ITERATORS and kind not in COMBINED_ITERATORS:
            return False
        node = self.find(obj)
        return node is not None and node.external

    def drain(self, iterator: Any) -> tuple[Any, ...]:
        """An external iterator may be taken to its end: all that it has left is a fact, and is given here."""
        node = self.find(iterator)
        assert node is not None
        if type(iterator) in PLAIN_ITERATORS:
            return self._all(node, iterator)
        found = [self._all(*plain) for plain in self.drawn_from(iterator)]
        return tuple(itertools.chain.from_iterable(found))

    def _all(self, node: Node, iterator: Any) -> tuple[Any, ...]:
        taken = self._take(node, iterator)
        if iterators.position(iterator)[0] > _LONGEST:
            raise self.boundary("external-iterator", f"a {node.type.__qualname__} with very much left")
        left = self._remaining(iterator)
        done = taken.start - len(left)
        for number, value in enumerate((*left, NULL)):
            self._comes(node, done + number, value)
        return left

    def _remaining(self, iterator: Any) -> tuple[Any, ...]:
        try:
            left = iterators.remaining(iterator)
        except RuntimeError as error:
            raise self.boundary("external-iterator", str(error)) from error
        if len(left) != iterators.position(iterator)[0]:
            raise self.boundary("external-iterator", f"a {type(iterator).__qualname__} over what has changed")
        return left

    def draw(self, node: Node, iterator: Any, further: int = 0) -> None:
        """One element of an external plain iterator is taken, after `further` others: which one is a fact."""
        taken = self._take(node, iterator)
        done = taken.start - iterators.position(iterator)[0]
        value = iterators.ahead(iterator, further)
        if value is iterators.CHANGED:
            raise self.boundary("external-iterator", f"a {node.type.__qualname__} over what has changed its size")
        self._comes(node, done + further, value)

    def _comes(self, node: Node, number: int, value: Any) -> None:
        """What an iterator gives after `number` elements is a fact."""
        if value is NULL or node.type not in ITEM_ITERATORS:
            self.follow(node, Key(EdgeKind.AHEAD, number), value)
        else:
            for place in (0, 1):
                self.follow(node, Key(EdgeKind.PART, (number, place)), value[place])

    def _take(self, node: Node, iterator: Any) -> _Taken:
        found = self.taken.get(node.index)
        if found is None:
            if node.mutated:
                raise self.boundary("external-iterator", f"a {node.type.__qualname__} whose container has changed")
            target = self.follow(node, _SOURCE, iterators.source(iterator))
            if isinstance(target, Node):
                if target.mutated or target.before is not None:
                    raise self.boundary("external-iterator", f"a {node.type.__qualname__} over what has changed")
                self.walked.setdefault(target.index, []).append(node.index)
            if type(iterator) not in INDEXED_ITERATORS:
                self._remaining(iterator)
            found = self.taken[node.index] = _Taken(node, iterator)
        return found

    def drawn_from(self, iterator: Any, counted: bool = False) -> list[tuple[Node, Any]]:
        """The external plain iterators from which a combined one draws; what else there is of it is a fact, too."""
        node = self.find(iterator)
        external = node is not None and node.external
        found: list[tuple[Node, Any]] = []
        taken = None
        kind = type(iterator)
        for name in iterators.parts(iterator):
            value = iterators.part(iterator, name)
            if external and node is not None:
                if name == "count":
                    if node.index not in self.taken:
                        self.follow(node, Key(EdgeKind.PART, name), value)
                        taken = self.taken[node.index] = _Taken(node, iterator)
                    continue
                self.follow(node, Key(EdgeKind.PART, name), value)
            if name == "function":
                if external:
                    self.mapped(iterator, value)
                if external and counted:
                    raise self.boundary("external-iterator", "enumerate over map")
                continue
            inner = type(value)
            part = self.find(value)
            older = part is not None and part.external
            if inner in COMBINED_ITERATORS:
                if external and kind is enumerate and inner is enumerate:
                    raise self.boundary("external-iterator", "enumerate over enumerate")
                found += self.drawn_from(value, counted or (external and kind is enumerate))
            elif inner in PLAIN_ITERATORS:
                if older and part is not None:
                    found.append((part, value))
            elif older and not isinstance(name, str):
                raise self.boundary("external-iterator", f"{kind.__qualname__} over a {inner.__qualname__}")
        if taken is not None:
            taken.drawn = [plain.index for plain, _ in found]
        return found

    def mapped(self, iterator: Any, function: Any) -> None:
        """An external `map` will call its function. See `CallRules`."""
        raise NotImplementedError

    def settle(self, container: int | None = None) -> None:
        """Add the effects on external iterators to the graph: of all, or of those that walk over one container.

        To be called before the graph is used for a mock, and before the container changes.
        """
        numbers = list(self.taken) if container is None else self.walked.pop(container, [])
        if container is not None and any(type(each.obj) is enumerate for each in self.taken.values()):
            numbers = list(self.taken)
        covered: dict[int, int] = {}
        effects: list[tuple[_Taken, int]] = []
        found = [self.taken.pop(number) for number in numbers if number in self.taken]
        for taken in found:
            if type(taken.obj) is enumerate and (steps := taken.steps()):
                effects.append((taken, steps))
                for number in taken.drawn:
                    covered[number] = covered.get(number, 0) + steps
        for taken in found:
            if type(taken.obj) is not enumerate:
                steps = taken.steps()
                last = Key(EdgeKind.AHEAD, steps - 1), Key(EdgeKind.PART, (steps - 1, 0))
                if steps and not any(key in taken.node.initial for key in last):
                    raise self.boundary(
                        "external-iterator", f"a {taken.node.type.__qualname__} was taken further unseen"
                    )
                if rest := steps - covered.get(taken.node.index, 0):
                    effects.append((taken, rest))
        for taken, steps in effects:
            self.record(Pending(taken.node, iterators.advance, (steps,)))

    def snapshot(self, node: Node, obj: Any) -> None:
        """Keep a shallow copy of a container before its first in-place update; iterators over it go first."""
        if node.index in self.walked:
            self.settle(node.index)
        super().snapshot(node, obj)
