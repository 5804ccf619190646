"""Rules for lifted numbers, their origins: which references lead to one, and which tensors have sizes that vary."""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from magpy_annotations import Registry
from magpy_codegen import Expression, Lifted, NumberNodes
from magpy_refgraph import Atom, EdgeKind, Key, Node, Target
from magpy_runtime.capture import NULL

from . import _torch
from ._monitor import Monitor
from ._numbers import BINARY, LIFTABLE, Numbers, Wish, fact_key, is_liftable, is_number, size_key
from ._originals import Copies
from ._recording import Policy

_LENGTH: Final = Key(EdgeKind.LENGTH)
_TENSOR: Final = Key(EdgeKind.TENSOR)


class LiftedReferences(Monitor):
    """Rules for references that lead to lifted numbers.

    Attributes:
        wish: what is to be lifted.
        numbers: the lifted numbers.
        roots: those that are read on entry, by the reference that leads to them.
        sizes: sizes of external tensors, by node and dimension.
        followed: wanted numbers that the current instruction has followed.
        copies: the objects that carry numbers, in all segments of the run, with the program's own.
    """

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.copies: Copies = {}
        self._start(Wish())

    def _start(self, wish: Wish) -> None:
        """A segment starts; nothing is lifted yet."""
        self.wish = wish
        self.path = Policy(set(), set()).path
        self.numbers = Numbers(self.copies)
        self.roots: dict[tuple[int, Key], Lifted] = {}
        self.sizes: dict[tuple[int, int], Lifted] = {}
        self.followed: list[tuple[Node, Key, Any]] = []
        self.answer: Expression | None = None
        self.handled = False
        self.lengths: Expression | None = None
        self.varying: dict[torch.fx.Node, bool] = {}
        self.measured: dict[tuple[torch.fx.Node, int], Any] = {}
        self.looked_into: set[types.CodeType] = set()
        self.carriers: dict[torch.fx.Node, Expression | int] = {}
        self.calls: dict[int, tuple[Any, frozenset[EdgeKind]]] = {}
        self.outcomes: set[Expression] = set()
        self.has_slots = False
        self.prepared: tuple[list[tuple[Node, Key, Any]], Expression | None] = ([], None)
        self.parents = {key[1] for key in wish.facts if key[0] == "number"}
        self._nodes: NumberNodes | None = None

    @property
    def nodes(self) -> NumberNodes:
        """The numbers in the operator graph of this segment."""
        if self._nodes is None:
            self._nodes = NumberNodes(self.operators.graph)
        return self._nodes

    # -- what is lifted -----------------------------------------------------------------------------------------------

    def is_wanted(self, node: Node, key: Key) -> bool:
        """Whether a number is to be lifted."""
        if key.kind not in LIFTABLE or not node.external:
            return False
        if self.wish.everything and self._comes_with_arguments(node, key):
            return True
        return bool(self.wish.facts) and fact_key(self.path, node, key) in self.wish.facts

    def _comes_with_arguments(self, node: Node, key: Key) -> bool:
        if key.kind is EdgeKind.LENGTH:
            return False
        at: Node | None = node
        while at is not None and at.index:
            if issubclass(at.type, (torch.nn.Module, type, types.FunctionType, types.ModuleType)):
                return False
            if at.key is not None and at.key.kind is EdgeKind.PIN:
                return False
            at = at.parent
        return key.kind in (EdgeKind.ARGUMENT, EdgeKind.KEYWORD) or node.index != 0

    def root(self, node: Node, key: Key, value: Any) -> Lifted:
        """The number that a reference leads to on entry."""
        found = self.roots.get((node.index, key))
        if found is None:
            place = {EdgeKind.LENGTH: f"the length of a {node.type.__name__}"}.get(
                key.kind, f"{key.kind.value} {key.arg!r}"
            )
            why = "dynamic=True" if self.wish.everything else "it varied from call to call"
            found = Lifted(value, f"s{len(self.roots)}", place, why)
            self.roots[node.index, key] = found
            if node.index == 0 and self.has_slots and type(value) is not int:
                self.outcomes.add(found)
        return found

    def marks(self, tensor: torch.Tensor) -> tuple[set[int], set[int]]:
        """Which dimensions a user marked as dynamic, and which as static, with `torch._dynamo`'s functions."""
        attributes = tensor.__dict__
        dynamic: set[int] = set()
        for name in _torch.MARKS:
            dynamic |= set(attributes.get(name, ()))
        return dynamic, set(attributes.get(_torch.STATIC_MARK, ()))

    def lift_sizes(self, node: Node, tensor: torch.Tensor) -> None:
        """Lift the sizes of an external tensor that are to be lifted."""
        dynamic, static = self.marks(tensor)
        whole = self.wish.everything and self._comes_with_arguments(node, Key(EdgeKind.TENSOR))
        for dim, size in enumerate(tensor.shape):
            if size < 2 or dim in static or type(tensor) is torch.nn.Parameter:
                continue
            if dim in dynamic:
                why = "it was marked as dynamic"
            elif size_key(self.path(node), dim) in self.wish.facts:
                why = "it varied from call to call"
            elif whole:
                why = "dynamic=True"
            else:
                continue
            text = f"size {dim} of {node.key.kind.value} {node.key.arg!r}" if node.key else f"size {dim}"
            self.sizes[node.index, dim] = Lifted(size, f"d{len(self.sizes)}", text, why)

    def metadata_fact(self, node: Node, tensor: torch.Tensor) -> None:
        """The metadata of an external tensor is a fact; some of its sizes may be lifted."""
        new = node.external and _TENSOR not in node.initial
        super().metadata_fact(node, tensor)
        if new and tensor.layout is torch.strided:
            self.lift_sizes(node, tensor)

    # -- references ---------------------------------------------------------------------------------------------------

    def lifted_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, with objects of their own for numbers that are lifted."""
        root = self.graph.root

        def lifted(key: Key, value: Any) -> Any:
            if is_liftable(value) and self.is_wanted(root, key):
                return self.numbers.carry(self.root(root, key, value), value)
            return value

        return (
            tuple([lifted(Key(EdgeKind.ARGUMENT, index), value) for index, value in enumerate(args)]),
            {name: lifted(Key(EdgeKind.KEYWORD, name), value) for name, value in kwargs.items()},
        )

    def follow(self, parent: Node, key: Key, value: Any) -> Target:
        """Note that a reference was read; an instruction that loads a wanted number will find it in `followed`."""
        target = super().follow(parent, key, value)
        if is_number(value) and self.numbers.find(value) is None and self.is_wanted(parent, key):
            if parent.current(key) is parent.initial.get(key):
                self.followed.append((parent, key, value))
        return target

    def note_item(self, node: Node, name: Any, value: Any, where: Any) -> None:
        """One element as it was on entry, read by C code."""
        super().note_item(node, name, value, where)
        if is_number(value):
            key = self.item_key(name)
            if self.numbers.find(value) is None and self.is_wanted(node, key):
                self._read_root(node, key)

    def _read_root(self, node: Node, key: Key) -> None:
        target = node.initial.get(key)
        if isinstance(target, Atom) and is_number(target.value):
            self.numbers.read(self.root(node, key, target.value), self.where())

    def read_length(self, node: Node, obj: Any) -> None:
        """The number of elements was read; of a list that has only been appended to, it follows from what it was."""
        if node.mutated and self._only_grown(node):
            self.graph.note(node, _LENGTH, Atom(list.__len__(node.before)), self.where())
            self.followed.append((node, _LENGTH, list.__len__(obj)))
            return
        super().read_length(node, obj)
        target = node.initial.get(_LENGTH)
        if not node.mutated and isinstance(target, Atom) and self.is_wanted(node, _LENGTH):
            self.followed.append((node, _LENGTH, target.value))

    def _only_grown(self, node: Node) -> bool:
        """Whether a list whose length is wanted has been appended to, and not changed otherwise."""
        return (
            node.before is not None
            and issubclass(node.type, list)
            and self.is_wanted(node, _LENGTH)
            and all(effect.function is list.append for effect in self.graph.effects if effect.node is node)
        )

    def read_truth(self, node: Node, obj: Any) -> None:
        """Whether there are elements was read."""
        root = self.roots.get((node.index, _LENGTH))
        super().read_truth(node, obj)
        if root is not None:
            self.numbers.ask("{} > 0", (root,), root.value > 0, self.where())

    def read_items(self, node: Node, obj: Any) -> None:
        """All elements were read."""
        super().read_items(node, obj)
        if _LENGTH in node.initial and self.is_wanted(node, _LENGTH):
            self._read_root(node, _LENGTH)

    def item(self, obj: Any, key: Any) -> None:
        """One item of a builtin container was looked up: of one that holds wanted numbers no other is read."""
        node = self.find(obj)
        if (
            node is not None
            and node.external
            and type(key) is int
            and not node.mutated
            and self.info(type(obj)).base in (list, tuple)
            and (self.path(node) in self.parents or self.wish.everything)
        ):
            base: Any = self.info(type(obj)).base
            length = base.__len__(obj)
            self.read_length(node, obj)
            self.flush()
            if -length <= key < length:
                key %= length
                self.follow(node, Key(EdgeKind.ITEM, key), base.__getitem__(obj, key))
            return
        super().item(obj, key)

    def hashed(self, obj: Any) -> None:
        """An object is used as a key."""
        self.pins(obj)
        super().hashed(obj)

    def iterated(self, obj: Any) -> None:
        """`iter` is called on an object and the outcome is drained."""
        if type(obj) is str:
            self.consume(obj)
        super().iterated(obj)

    # -- values that are read -----------------------------------------------------------------------------------------

    def pins(self, *objects: Any) -> None:
        """The program's way depends on all numbers in some objects: they have to be the same."""
        for expression in self.numbers.reached(*objects):
            self.numbers.read(expression, self.where())

    def consume(self, *objects: Any) -> None:
        """Something that is not followed reads all numbers that it finds in some objects.

        Of what came of a boundary operation, a metric that is printed or the text of it, the value hardly is the same
        twice: what reads it is a boundary, too.
        """
        for expression in self.numbers.reached(*objects):
            if self._is_outcome(expression):
                raise self.boundary("varying-value", f"a {type(expression.value).__name__}")
            self.numbers.read(expression, self.where())

    def _is_outcome(self, expression: Expression) -> bool:
        """Whether a float or a string came of a boundary operation."""
        if self.tree is None or type(expression.value) is int:
            return False
        todo = [expression]
        for _ in range(64):
            if not todo:
                return False
            each = todo.pop()
            if each in self.outcomes:
                return True
            todo += [operand for operand in getattr(each, "operands", ()) if isinstance(operand, Expression)]
        return False

    def _settle(
        self, followed: list[tuple[Node, Key, Any]], loaded: Any, kinds: frozenset[EdgeKind] = LIFTABLE
    ) -> Expression | None:
        """Of the wanted numbers that an operation followed, the one that it has loaded; all others are read by it."""
        found: Expression | None = None
        for node, key, value in reversed(followed):
            same = key.kind in kinds and (value is loaded or (key.kind is EdgeKind.LENGTH and value == loaded))
            if found is None and same:
                target = node.initial[key]
                assert isinstance(target, Atom)
                root = found = self.root(node, key, target.value)
                if value != root.value and key.kind is EdgeKind.LENGTH:
                    operands = (root, value - root.value)
                    found = self.numbers.compute(value, "{} + {}", BINARY["__add__"], operands)
            else:
                self._read_root(node, key)
        if followed is self.followed:
            self.followed = []
        return found

    def flush(self) -> None:
        """Wanted numbers that were followed, and that no instruction has loaded, were read."""
        if self.followed:
            self._settle(self.followed, NULL)
