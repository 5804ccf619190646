"""The guard: generated Python that checks, on entry, each fact that the monitored run read.

Two regimes (ADR 4). Objects that hang off what a record holds by identity, a model's modules and their dictionaries, are
*pinned*: they are constants of the guard, and their facts are absolute. Objects that come with the arguments are found
anew at each call by *path*, and checked by structure. A guard runs no user code: it compares types first, looks into
dictionaries and classes by C functions, and never evaluates an attribute through its class.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from magpy_refgraph import ABSENT, Atom, EdgeKind, Fact, Key, Node, RefGraph, Target, guard_facts

from ._facts import FactKind, HeldFact, compared_by_value
from ._questions import Keys
from ._references import References
from ._source import Namespace, Source, literal, one_line
from ._steps import ARGUMENT, CALL, KEYWORD, NAMED, Comparison, Operand, Step, StepKind

_READ_ONLY: Final = frozenset(
    {"__globals__", "__closure__", "__func__", "__self__", "fget", "fset", "fdel", "start",
     "stop", "step"}
)  # fmt: skip
"""C members that cannot be set, so that the holder's identity implies theirs."""

_UNKNOWN: Final[Operand] = (-2, None)
"""An object that has no register."""

_IMMUTABLE: Final = (tuple, frozenset)
_NEVER_CHANGED: Final = frozenset(
    {tuple, frozenset, type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType}
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a guard that can fail.

    Attributes:
        fact: what it checks; None for the call's form and the modes.
        text: the same in words.
        where: where the program read it.
    """

    fact: Fact | None
    text: str
    where: Any


class GuardWriter(References):
    """Writes the guard of one record.

    Attributes:
        held: facts about objects that the record holds, for the table; failure number -1 - i means the i-th.
        checks: what each other failure number means.
        bound: path variables that the guard hands on, in order.
        tensors: nodes whose metadata are checked together.
        lifted: gives the variable of a number that is an input of the record, None for one that is a fact.
        origins: by number of a held fact the reference that it is about.
        extra: variables that the guard hands on behind those of `bound`.
        steps: its lines once more, for the native check, as far as they have native counterparts.
        whole: whether all have.
        implied: facts that hold as long as the objects that the record holds are these, which a guard need not ask; another
            process has to.
    """

    def __init__(
        self,
        graph: RefGraph,
        namespace: Namespace,
        pinned: Callable[[Node], bool],
        path: Callable[[Node], Any],
        helpers: dict[str, Any],
        locate: Any,
    ) -> None:
        super().__init__(namespace, pinned, helpers)
        self.graph = graph
        self.held: list[HeldFact] = []
        self.implied: list[HeldFact] = []
        self.checks: list[Check] = []
        self.bound: list[Node] = []
        self.tensors: list[Node] = []
        self._path = path
        self._absent = helpers["ABSENT"]
        self._locate = locate
        self._mutable: list[Node] = []
        self._same: list[Fact] = []
        self.steps: list[Step] = []
        self.whole = True
        self.lifted: Callable[[Node, Key], str | None] | None = None
        self.extra: list[str] = []
        self.origins: dict[int, tuple[Node, Key]] = {}
        self._registers: dict[int, int] = {}
        self._keywords: dict[str, int] = {}
        self.source = Source("def guard(args, kwargs):")

    def write(
        self, positional: int, keywords: tuple[str, ...], mutated: set[int], keys: Collection[int] = frozenset()
    ) -> str:
        """Write the whole guard.

        Args:
            positional: number of positional arguments of the call.
            keywords: names of its keyword arguments, in order.
            mutated: indices of nodes that effects change.
            keys: indices of nodes that were looked up in, or put into, what finds them by identity.

        Returns:
            Source of `guard(args, kwargs)`, which gives the bound objects as a tuple, or the number of the check that failed.
        """
        out = self.source
        step = Step(StepKind.POSITIONAL, expected=positional)
        self._check(None, f"len(args) != {positional}", f"{positional} positional arguments", step=step)
        self._keywords.update((name, number) for number, name in enumerate(keywords))
        step = Step(StepKind.KEYWORDS, expected=keywords)
        if keywords:
            self._check(None, f"tuple(kwargs) != {keywords!r}", f"keyword arguments {', '.join(keywords)}", step=step)
        else:
            self._check(None, "kwargs", "no keyword arguments", step=step)
        self._check(None, "not modes_match()", "modes of torch", step=Step(StepKind.MODES))
        self._add_step(Step(StepKind.HELD))
        out.add("if (failed := held_facts()) is not None: return -1 - failed", "objects that the record holds")
        for fact in guard_facts(self.graph):
            self._fact(fact)
        for fact in self._same:
            other = self.graph.nodes[fact.key.arg]
            if not (self.pinned(fact.node) and self.pinned(other)):
                condition = f"{self.name(fact.node)} is {self.name(other)}"
                step = Step(StepKind.DIFFERENT, operands=(self.operand(fact.node), self.operand(other)))
                self._check(fact, condition, "two objects are distinct", fact.location, step)
        self._distinct(mutated, keys)
        if self.tensors:
            names = ", ".join(self.name(node) for node in self.tensors)
            step = Step(StepKind.TENSORS, operands=tuple(self.operand(node) for node in self.tensors))
            self._check(None, f"not tensors_match({names})", "metadata of tensors", step=step)
        out.add(f"return ({''.join(self.name(node) + ', ' for node in self.bound)})")
        return out.text()

    def _check(self, fact: Fact | None, condition: str, text: str, where: Any = None, step: Step | None = None) -> None:
        number = len(self.checks)
        self._add_step(step)
        self.checks.append(Check(fact, text, where))
        location = self._locate(where) if where is not None else None
        comment = text if location is None else f"{text}: {location.file.rpartition('/')[2]}:{location.line}"
        self.source.add(f"if {condition}: return {number}", comment)

    def add_check(self, text: str, step: Step | None = None) -> None:
        """Give the next failure number to a check that somebody else writes, behind all others."""
        self._add_step(step, aligned=True)
        self.checks.append(Check(None, text, None))

    def add_line(self, text: str) -> None:
        """The same of a check about numbers, whose step is read off its line."""
        self.checks.append(Check(None, text, None))

    def again(self, node: Node, key: Key, name: str) -> str:
        """A line behind all others, which somebody else writes: it reads a reference once more."""
        self._add_step(self._ask(StepKind.BIND, node, key, name), aligned=True)
        return f"{name} = {self._value(node, key)}"

    def same_again(self, node: Node, key: Key, name: str) -> str:
        """The same, where a reference has to lead to an object that another one leads to."""
        number, text = len(self.checks), f"{key.kind.value} {key.arg!r} is the same object"
        self._add_step(self._ask(StepKind.SAME, node, key, name), aligned=True)
        self.checks.append(Check(None, text, None))
        return f"if {self._value(node, key)} is not {name}: return {number}  # {one_line(text)}"

    def varies(self, node: Node, key: Key, target: Target) -> bool:
        """Whether a reference that was read may lead to another object, and can be read once more."""
        if node.index and self.pinned(node):
            return not self._implied(node, key, target)
        return not node.index or node.index in self.names

    # -- the native counterpart ----------------------------------------------------------------------------------------

    def _add_step(self, step: Step | None, *, aligned: bool = False) -> None:
        """Append the step of the next line, which fails with the next number; from a line without one on all is Python."""
        aligned = aligned or len(self.source.lines) == 1 + len(self.steps)
        if step is None or _UNKNOWN in step.operands or not aligned:
            self.whole = False
        elif self.whole:
            step.number = len(self.checks)
            self.steps.append(step)

    def operand(self, node: Node) -> Operand:
        """An object as a step knows it: the number of its register, or the object itself."""
        if self.pinned(node):
            return -1, node.obj()
        register = self._registers.get(node.index)
        return _UNKNOWN if register is None else (register, None)

    def _ask(self, kind: StepKind, node: Node, key: Key, expected: Any) -> Step | None:
        """The step that asks for a reference."""
        arg = key.arg
        match key.kind:
            case EdgeKind.ARGUMENT:
                return Step(kind, question=ARGUMENT, key=arg, expected=expected)
            case EdgeKind.KEYWORD if arg in self._keywords:
                return Step(kind, question=KEYWORD, key=self._keywords[arg], expected=expected)
            case EdgeKind.MODE:
                call = arg if type(arg) is tuple else (self._helpers[f"mode_{arg}"], ())
                return Step(kind, question=CALL, key=call, expected=expected)
            case EdgeKind.VALUE:
                question, argument = FactKind.OTHER, self._helpers["plain_value"]
            case EdgeKind.KEYS:
                match_keys = self._helpers["keys_match"]
                question, argument, expected = FactKind.KEYS, Keys(match_keys, expected), True
            case EdgeKind.ITEM if issubclass(node.type, (list, tuple)) and not (type(arg) is int and arg >= 0):
                return None
            case _:
                question, argument = self._question(node, key)
        if question is FactKind.OTHER and argument is None:
            return None
        return Step(kind, (self.operand(node),), question, argument, expected)

    # -- one fact -----------------------------------------------------------------------------------------------------

    def _fact(self, fact: Fact) -> None:
        node, key, target = fact.node, fact.key, fact.target
        kind = key.kind
        if kind is EdgeKind.PIN:
            return
        if kind is EdgeKind.TYPE:
            self._type(fact)
            return
        if self.lifted is not None and (name := self.lifted(node, key)) is not None:
            self._lift(fact, name)
            return
        if node.index and self.pinned(node) and self._implied(node, key, target):
            self._imply(node, key, target)
            return
        where = fact.location
        if kind is EdgeKind.TENSOR:
            self.tensors.append(node)
            return
        if kind is EdgeKind.SAME:
            self._same.append(fact)
            return
        text = f"{kind.value} {key.arg!r} of {node.type.__name__}" if node.index else f"{kind.value} {key.arg!r}"
        if node.index and self.pinned(node) and (not isinstance(target, Node) or self.pinned(target)):
            self._hold(node, key, target, text, where)
            return
        value = self._value(node, key)
        if kind is EdgeKind.LENGTH:
            assert isinstance(target, Atom)
            self._check(
                fact, f"{value} != {target.value}", text, where, self._ask(StepKind.IS, node, key, target.value)
            )
        elif kind is EdgeKind.TRUTH:
            assert isinstance(target, Atom)
            step = self._ask(StepKind.IS, node, key, target.value)
            self._check(fact, f"not {value}" if target.value else value, text, where, step)
        elif kind is EdgeKind.KEYS:
            assert isinstance(target, Atom)
            keys = self.namespace.constant(target.value, "keys")
            step = self._ask(StepKind.IS, node, key, target.value)
            self._check(fact, f"not keys_match({value}, {keys})", text, where, step)
        else:
            self._reference(fact, value, text)

    def _lift(self, fact: Fact, name: str) -> None:
        """A number is an input: what is checked is its type."""
        assert isinstance(fact.target, Atom)
        number: Operand = (NAMED, name)
        kind = type(fact.target.value).__name__
        self._add_step(self._ask(StepKind.BIND, fact.node, fact.key, name))
        self.source.add(f"{name} = {self._value(fact.node, fact.key)}")
        text = f"{fact.key.kind.value} {fact.key.arg!r} is of type {kind}"
        step = Step(StepKind.IS, (number,), FactKind.TYPE, None, type(fact.target.value))
        self._check(fact, f"type({name}) is not {kind}", text, fact.location, step)
        if fact.key.kind is EdgeKind.LENGTH:
            read = [key.arg for key in fact.node.initial if key.kind is EdgeKind.ITEM and type(key.arg) is int]
            if read and not issubclass(fact.node.type, dict):
                step = Step(StepKind.COMPARE, (number, (-1, max(read))), Comparison.LE, None, False)
                self._check(fact, f"{name} <= {max(read)}", f"the items up to {max(read)}", fact.location, step)

    def _hold(self, node: Node, key: Key, target: Target, text: str, where: Any) -> None:
        """A fact about an object that the record holds, with an answer that it holds too."""
        self.held.append(self._held_fact(node, key, target, text, where))
        self.origins[len(self.held) - 1] = (node, key)

    def _imply(self, node: Node, key: Key, target: Target) -> None:
        if key.kind is EdgeKind.VALUE:
            question: Any = (FactKind.OTHER, self._helpers["plain_value"])
        else:
            question = self._question(node, key)
        if question[0] is not FactKind.OTHER or question[1] is not None or key.kind is EdgeKind.KEYS:
            text = f"{key.kind.value} {key.arg!r} of {node.type.__name__}"
            self.implied.append(self._held_fact(node, key, target, text, None, question))

    def found_from(self, node: Node) -> tuple[Any, FactKind, Any] | None:
        """How an object that the record holds was found: from which other one, and by which question; None if unknown."""
        parent, key = node.parent, node.key
        if parent is None or key is None or not parent.index or not self.pinned(parent):
            return None
        if key.kind in (EdgeKind.LENGTH, EdgeKind.TRUTH, EdgeKind.KEYS, EdgeKind.TYPE, EdgeKind.VALUE):
            return None
        question = self._question(parent, key)
        if question == (FactKind.OTHER, None):
            return None
        return parent.obj(), *question

    def _held_fact(
        self,
        node: Node,
        key: Key,
        target: Target,
        text: str,
        where: Any,
        question: tuple[FactKind, Any] | None = None,
    ) -> HeldFact:
        obj, kind = node.obj(), key.kind
        plain, path = False, None
        if target is ABSENT:
            expected = self._absent
        elif isinstance(target, Atom):
            expected = target.value
            plain = compared_by_value(type(expected))
        else:
            assert isinstance(target, Node)
            expected = target.obj()
            if target.parent is node and target.key == key:
                path = self._path(target)
        ask, argument = question or self._question(node, key)
        if ask is FactKind.OTHER and kind is EdgeKind.KEYS:
            ask, argument, expected = FactKind.KEYS, Keys(self._helpers["keys_match"], expected), True
        return HeldFact(ask, obj, argument, expected, plain, text, where, path)

    def _implied(self, node: Node, key: Key, target: Target) -> bool:
        if key.kind is EdgeKind.VALUE:
            return True
        if key.kind is EdgeKind.MEMBER and key.arg in _READ_ONLY:
            return not isinstance(target, Node) or self.pinned(target)
        if node.type in _IMMUTABLE and key.kind in (EdgeKind.ITEM, EdgeKind.LENGTH, EdgeKind.KEYS, EdgeKind.TRUTH):
            return not isinstance(target, Node) or self.pinned(target)
        return False

    def _type(self, fact: Fact) -> None:
        node, target = fact.node, fact.target
        assert isinstance(target, Atom)
        cls = target.value
        if self.pinned(node):
            held = HeldFact(FactKind.TYPE, node.obj(), None, cls, False, f"type {cls.__name__}", fact.location, None)
            if issubclass(node.type, type) or not cls.__flags__ & (1 << 9):
                self.implied.append(held)  # an instance of an immutable type keeps its class
            else:
                self.held.append(held)
            return
        name = self.namespace.constant(cls, cls.__name__)
        step = Step(StepKind.IS, (self.operand(node),), FactKind.TYPE, None, cls)
        self._check(fact, f"type({self.name(node)}) is not {name}", f"type {cls.__name__}", fact.location, step)

    def _reference(self, fact: Fact, value: str, text: str) -> None:
        node, key, target, where = fact.node, fact.key, fact.target, fact.location
        if target is ABSENT:
            step = self._ask(StepKind.IS, node, key, self._absent)
            self._check(fact, f"{value} is not ABSENT", f"no {text}", where, step)
        elif isinstance(target, Atom):
            self._atom(fact, value, target.value, text)
        elif self.pinned(target):
            step = self._ask(StepKind.IS, node, key, target.obj())
            self._check(fact, f"{value} is not {self.name(target)}", text, where, step)
        elif target.index in self.names:
            step = self._ask(StepKind.SAME, node, key, self.operand(target)[0])
            condition = f"{value} is not {self.names[target.index]}"
            self._check(fact, condition, f"{text} is the same object", where, step)
        else:
            name = self.names[target.index] = f"v{target.index}"
            register = len(self._registers)
            self._add_step(self._ask(StepKind.BIND, node, key, register))
            self._registers[target.index] = register
            self.source.add(f"{name} = {value}")
            self.bound.append(target)
            if not issubclass(target.type, _IMMUTABLE):
                self._mutable.append(target)

    def _atom(self, fact: Fact, value: str, atom: Any, text: str) -> None:
        kind = type(atom)
        plain = compared_by_value(kind)
        where = fact.location
        if atom is None or atom is True or atom is False or atom is ...:
            condition = f"{value} is not {atom!r}" if atom is not ... else f"{value} is not ..."
        elif kind in (int, str, bytes):
            shown = literal(atom) or self.namespace.constant(atom, kind.__name__)
            condition = f"type(x := {value}) is not {kind.__name__} or x != {shown}"
            text = f"{text} is {atom!r}" if literal(atom, 40) else text
        elif kind is float and atom == atom and atom != 0.0 and abs(atom) != float("inf"):
            condition = f"type(x := {value}) is not float or x != {atom!r}"
            text = f"{text} is {atom!r}"
        elif plain:
            condition = f"not same_value({value}, {self.namespace.constant(atom, kind.__name__)})"
        else:
            hint = getattr(atom, "__name__", kind.__name__)
            condition = f"{value} is not {self.namespace.constant(atom, hint)}"
        step = self._ask(StepKind.PLAIN if plain else StepKind.IS, fact.node, fact.key, atom)
        self._check(fact, condition, text, where, step)

    def _distinct(self, mutated: set[int], keys: Collection[int]) -> None:
        """Different paths that led to different objects must do so again: effects and keys would hit the wrong ones."""
        found = [node for node in self.bound if node.index in keys]
        nodes = [node for node in self._mutable if not _is_tensor(node)]
        nodes += [node for node in found if node not in nodes]
        if len(nodes) > 1:
            ids = ", ".join(f"id({self.names[node.index]})" for node in nodes)
            step = Step(StepKind.DIFFERENT, operands=tuple(self.operand(node) for node in nodes))
            self._check(None, f"len({{{ids}}}) != {len(nodes)}", "arguments are distinct objects", step=step)
        any_mutated = any(node.index in mutated or node.mutated for node in self._mutable)
        held = {
            id(node.obj())
            for node in self.graph.external()
            if node.index
            and (any_mutated or node.index in mutated or node.mutated)
            and self.pinned(node)
            and node.type not in _NEVER_CHANGED
        }
        self._outside(nodes, held, "changed_ids", "an argument is none of the changed objects")
        if found:
            others = {id(node.obj()) for node in self.graph.external() if node.index in keys and self.pinned(node)}
            self._outside(found, others, "held_keys", "a key is none of those that the record holds")

    def _outside(self, nodes: list[Node], ids: set[int], hint: str, text: str) -> None:
        if not ids:
            return
        others = frozenset(ids)
        name = self.namespace.constant(others, hint)
        for node in nodes:
            condition = f"id({self.names[node.index]}) in {name}"
            step = Step(StepKind.OUTSIDE, (self.operand(node),), expected=others)
            self._check(None, condition, text, step=step)


def _is_tensor(node: Node) -> bool:
    return any(key.kind is EdgeKind.TENSOR for key in node.initial)
