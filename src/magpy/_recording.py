"""From a monitored run to a record: guard, operator graph and mock."""

from __future__ import annotations

import contextlib
import enum
import functools
import time
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Any

import torch

from magpy_codegen import (
    FactKind,
    GuardWriter,
    HeldFact,
    Leave,
    MockWriter,
    Namespace,
    Raised,
    Step,
    StepKind,
    Unbuildable,
    builder,
    forget_source,
    make_function,
    render,
)
from magpy_refgraph import EdgeKind, Key, Node
from magpy_runtime import (
    AbstractAnswers,
    FrozenCheck,
    GraphDiffersError,
    Hints,
    ModeCheck,
    Record,
    TensorCheck,
    as_on_entry,
    compile_with,
    fact_table,
    guard_helpers,
    memory_places,
    metadata,
)

from . import _torch
from ._blame import Place, operators_to_blame
from ._failures import internal_error, locate
from ._forms import add_native_form
from ._freeze import frozen_inputs
from ._lifting import LiftedPart, lifted_part, make_survey, number_key
from ._observe import tell
from ._reasons import Boundary
from ._state import ByIdentity, is_atom
from ._strict import check_graph, checked

if TYPE_CHECKING:
    from ._splitting import SplitRules

_ALWAYS_PINNED = (type, types.ModuleType, torch.nn.Module, enum.Enum)
_TENSOR = Key(EdgeKind.TENSOR)
_TOKEN = Key(EdgeKind.MODE, "abc_cache_token")


@dataclass(frozen=True, slots=True)
class Entry:
    """What must be known before a segment: the modes, since the segment may change them.

    Attributes:
        modes: the check that they are the same.
        state: the same, to be put back.
    """

    modes: ModeCheck
    state: tuple[Any, ...]

    @classmethod
    def now(cls) -> Entry:
        """The state on entry."""
        return cls(ModeCheck(), _torch.modes())

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Modes are for a while as they were."""
        modes = _torch.modes()
        if not self.modes():
            _torch.restore_modes(self.state)
        try:
            yield
        finally:  # a graph that was traced may have changed them
            _torch.restore_modes(modes)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a record was made of, as far as it is needed to make it again in another process.

    Attributes:
        facts: about objects that the record holds.
        implied: what follows from these objects' identity.
        found: how they were found: each with another one and the question that leads from there.
        pinned: all objects that the record holds.
        tensors: what is checked of tensors: the tensor where the record holds it, else None; its metadata; its dimensions
            whose sizes may be any.
        inputs: metadata of the graph's inputs.
        modes: the modes on entry.
        only_here: what it is that another process would find otherwise, in words; empty where there is no such thing.
    """

    facts: list[HeldFact]
    implied: list[HeldFact]
    found: list[tuple[Any, tuple[Any, FactKind, Any]]]
    pinned: list[Any]
    tensors: list[tuple[Any, tuple[Any, ...], frozenset[int]]]
    inputs: list[tuple[Any, ...]]
    modes: Entry
    only_here: str = ""

    @classmethod
    def of(
        cls,
        guard: GuardWriter,
        entry: Entry,
        known: list[tuple[Any, ...]],
        free: Any,
        inputs: list[Any],
        only_here: str,
    ) -> Parts:
        """Collect them while the RefGraph is there.

        Args:
            guard: the writer of the guard, after it has written it.
            entry: the modes.
            known: metadata of the guard's tensors on entry.
            free: for each of these the dimensions that may vary; None where nothing does.
            inputs: the graph's inputs.
            only_here: what another process would find otherwise.
        """
        pinned = [node for node in guard.graph.external() if node.index and guard.pinned(node)]
        tensors = [
            (node.obj() if guard.pinned(node) else None, was, dims)
            for node, was, dims in zip(guard.tensors, known, free or [frozenset()] * len(known), strict=True)
        ]
        return cls(
            guard.held,
            guard.implied,
            [(node.obj(), origin) for node in pinned if (origin := guard.found_from(node)) is not None],
            [node.obj() for node in pinned],
            tensors,
            [metadata(each) for each in inputs],
            entry,
            only_here,
        )


@dataclass(slots=True)
class Draft:
    """A record whose graph is not compiled yet.

    Attributes:
        record: the record; its guard can be asked.
        inputs: example inputs of its graph, each with its metadata on entry or None.
        entry: the modes under which the graph runs.
        constants: numbers of the inputs that become constants.
        lifted: what differs from call to call and is an input of the graph.
        form: gives the record its native form, again when its guard has changed.
        places: by name of a node of the graph the instruction that called the operator.
        shaped: names of nodes of operators whose result's shape depends on values.
        refused: operators that the backend cannot take, by name their instructions, once it has refused the graph.
        differs: why the operators run one by one although the backend has compiled the graph.
    """

    record: Record
    inputs: list[tuple[Any, Any]]
    entry: Entry
    constants: tuple[int, ...] = ()
    lifted: LiftedPart | None = None
    form: Callable[[], None] = lambda: None
    places: dict[str, Place] = field(default_factory=dict)
    shaped: frozenset[str] = frozenset()
    refused: dict[str, Place] = field(default_factory=dict)
    differs: Boundary | None = None

    def finish(self, backend: Any) -> Record:
        """Compile the graph.

        Args:
            backend: `(GraphModule, example_inputs) -> callable`.

        Raises:
            Boundary: the backend cannot compile it.
        """
        record = self.record
        if record.graph is None:
            return record
        started = time.perf_counter()
        modes = None if self.entry.modes() and not record.switches else _torch.modes()
        try:
            if modes is not None:  # a graph that changes modes changes them here, too, when it is traced
                _torch.restore_modes(self.entry.state)
            tell("backend", record.operators)
            inputs = list(starmap(as_on_entry, self.inputs))  # what comes after a segment may have changed them, too
            if self.lifted is not None:
                self._finish_lifted(self.lifted, backend, inputs)
                return record
            hints = Hints(updated=record.updated, held=self.constants, random=record.random)
            record.run = self._checked(lambda: compile_with(backend, record.graph, inputs, hints))
        except Exception as error:
            self.refused = operators_to_blame(record.graph.graph, self.places, self.shaped, error)
            raise Boundary("backend-failed", f"{type(error).__name__}: {str(error)[:200]}") from error
        finally:
            self.inputs, self.places = [], {}
            if modes is not None:
                _torch.restore_modes(modes)
            record.timings["backend"] = time.perf_counter() - started
        return record

    def _checked(self, compile_it: Callable[[], Any]) -> Any:
        """What runs the graph: the operators one by one where the backend's code does something else."""
        try:
            return compile_it()
        except GraphDiffersError as error:
            self.differs = Boundary("backend-differs", str(error)[:200])
            return error.operators

    def _finish_lifted(self, lifted: LiftedPart, backend: Any, inputs: list[Any]) -> None:
        """Compile a graph of varying numbers and sizes; what the backend assumes of them becomes part of the guard."""
        record = self.record
        run = self._checked(lambda: lifted.compile(backend))
        if run is None:
            if lifted.is_open:  # else that is the graph already
                record.graph = lifted.static_graph()
            run = lifted.without_numbers(self._checked(lambda: compile_with(backend, record.graph, inputs)))
        record.run = run
        source = lifted.guard_source()
        if source != record.guard_source:
            forget_source(record.guard)  # type: ignore[arg-type]
            record.guard_source = source
            record.guard = make_function(source, "guard", record.namespace, "guard")
            self.form()
        record.checks, record.check_keys = lifted.checks(record.check_keys)
        record.lifted = lifted.described()
        self.lifted = None


def make_draft(
    monitor: SplitRules,
    entry: Entry,
    positional: int,
    keywords: tuple[str, ...],
    result: Any,
    unstable: set[Any],
    leave: Leave | None = None,
    freeze: Collection[Any] | None = None,
    raised: Raised | None = None,
) -> Draft:
    """Generate a record from what a monitor saw.

    Args:
        monitor: after its run, or at a boundary.
        entry: the state before the segment.
        positional: number of positional arguments of the call, or of the slots.
        keywords: names of keyword arguments of the call.
        result: what the call returned.
        unstable: paths of objects whose identity changed from call to call.
        leave: the boundary at which the segment ends, None where it ends with the call.
        freeze: whether parameters and buffers become constants: the paths of those that are updated too often; None for no.
        raised: the exception that the call ended with, None where it returned.

    Raises:
        Boundary: there can be no record.
    """
    monitor.settle()
    check_graph(monitor.graph)
    modes = _modes_changed(entry)
    for array, copy in monitor.shared_arrays:
        if not (array == copy).all():
            raise Boundary("array-contents", "an array changed after a tensor was made on its memory")
    started = time.perf_counter()
    policy = Policy(unstable, monitor.held_by_identity)
    namespace = Namespace()
    namespace.values.update(guard_helpers())
    namespace.values["modes_match"] = entry.modes
    helpers = guard_helpers()
    if monitor.abstract:
        token = monitor.graph.root.initial[_TOKEN].value  # type: ignore[union-attr]
        helpers["mode_abc_cache_token"] = AbstractAnswers(monitor.abstract, token)
        namespace.values.update(helpers)
    guard = GuardWriter(monitor.graph, namespace, policy.pinned, policy.path, helpers, locate)
    mutated = {effect.node.index for effect in monitor.graph.effects}
    lifted = lifted_part(monitor, guard)
    guard_source = guard.write(positional, keywords, mutated, monitor.keys_used)
    if monitor.inplace:
        guard_source = _check_storages(guard, monitor, guard_source)
    operators = monitor.operators
    updated = operators.updated()
    constants: tuple[int, ...] = ()
    frozen = None
    if freeze is not None:
        grad = entry.state[0]
        constants, frozen = frozen_inputs(operators.inputs, updated, policy.pinned, policy.path, freeze, grad)
        if frozen is not None:
            guard_source = _check_frozen(guard, frozen, guard_source)
    held = guard.held

    def held_source() -> tuple[str, dict[str, Any]]:
        return render(held, helpers, helpers["ABSENT"], locate)

    namespace.values["held_facts"] = checked(fact_table([fact.entry() for fact in held]), held_source)
    tensors = [node.obj() for node in guard.tensors]
    known = {node.index: node.initial[_TENSOR].value for node in guard.tensors}  # type: ignore[union-attr]
    free = None if lifted is None else [lifted.free(node) for node in guard.tensors]
    with entry.restored():  # torch's check looks at what dispatch does by itself, in autocast for instance
        namespace.values["tensors_match"] = TensorCheck(tensors, list(known.values()), free)
    mock = MockWriter(
        monitor.graph,
        namespace,
        guard,
        is_plain=lambda obj: is_atom(obj) or monitor.is_old(obj),
        is_tensor=lambda obj: issubclass(type(obj), torch.Tensor),
        builder=builder,
        locate=locate,
    )
    mock.unused = operators.unused
    if lifted is not None:
        mock.number, mock.passed = lifted.number, lifted.passed()
    try:
        mock_source = mock.write(result, monitor.operators.inputs, leave, modes, raised)
    except Unbuildable as problem:
        raise Boundary("unbuildable", str(problem)) from problem
    for line in mock.origins.lines:
        guard_source = _with_line(guard_source, f"    {line}\n")
    if lifted is None and guard.extra:
        guard_source = f"{guard_source.rstrip().removesuffix(')')}{', '.join(guard.extra)}, )\n"
    graph = None
    count = monitor.operator_count
    may_raise = bool(updated) and operators.may_raise()
    if may_raise and any(_has_history(operators.inputs[number], known) for number in updated):
        raise Boundary("update-then-raise", "it has gradients or changed its shape")
    if count or (lifted is not None and lifted.needs_graph):
        graph = operators.finish(mock.outputs, locate)
        graph.meta["random"] = monitor.random
    if lifted is not None:
        with entry.restored():
            lifted.settle(monitor.graph, guard_source)
            graph = None if graph is None else lifted.resolve(graph)
        guard_source = lifted.guard_source()
    guard_function = make_function(guard_source, "guard", namespace.values, "guard")
    mock_function = make_function(mock_source, "mock", namespace.values, "mock")
    record = Record(
        guard=guard_function,
        mock=mock_function,
        run=None,
        guard_source=guard_source,
        held_source=held_source,
        mock_source=mock_source,
        checks=tuple(check.text for check in guard.checks),
        check_keys=tuple(_check_key(policy, check.fact) for check in guard.checks),
        held=tuple((fact.text, fact.path) for fact in held),
        graph=graph if count else None,
        operators=count,
        effects=tuple(
            f"{getattr(effect.function, '__qualname__', effect.function)} on a {effect.node.type.__name__}"
            for effect in monitor.graph.effects
        ),
        mutates=monitor.mutates,
        random=monitor.random,
        updated=updated,
        may_raise=may_raise,
        switches=monitor.switches,
        steady=not (monitor.switches or modes),
        frozen=frozen,
        lifted=() if lifted is None else lifted.described(),
        raises=raised is not None,
        timings={"codegen": time.perf_counter() - started},
        namespace=namespace.values,
    )
    record.survey = make_survey(guard, policy.path, guard_source, namespace.values, list(known.values()))
    inputs: list[tuple[Any, Any]] = []
    if record.graph is not None:
        inputs = [(node.obj(), known.get(node.index)) for node in operators.inputs]
    record.parts = Parts.of(
        guard, entry, list(known.values()), free, list(starmap(as_on_entry, inputs)), monitor.only_here
    )
    plain = raised is None and not (updated or monitor.random or monitor.switches)
    form = functools.partial(add_native_form, record, guard, entry.modes, plain=plain)
    form()
    places = operators.places if record.graph is not None else {}
    return Draft(record, inputs, entry, constants, lifted, form, places, frozenset(operators.shaped))


def _modes_changed(entry: Entry) -> tuple[tuple[Any, ...], ...]:
    """What puts the modes of torch to what they are now, where the segment has changed them."""
    if entry.modes():
        return ()
    now = _torch.modes()
    try:
        _torch.restore_modes(entry.state)
        others = entry.modes()
    finally:
        _torch.restore_modes(now)
    if not others:
        raise Boundary("impure-call", "modes of torch are not as they were before")
    return ((_torch.restore_modes, now),)


def _check_key(policy: Policy, fact: Any) -> Any:
    """What to remember when a check fails: the path of an object, or the key of a number."""
    key = policy.unstable_key(fact)
    return key if key is not None or fact is None else number_key(policy.path, fact)


class Policy:
    """Which external objects a record holds by identity, and which are found anew at each call."""

    def __init__(self, unstable: set[Any], held: set[int]) -> None:
        self._unstable = unstable
        self._held = held
        self._paths: dict[int, Any] = {}
        self._known: dict[int, bool] = {}

    def pinned(self, node: Node) -> bool:
        """Whether a record holds the object of a node by identity."""
        found = self._known.get(node.index)
        if found is None:
            found = self._known[node.index] = self._decide(node)
        return found

    def _decide(self, node: Node) -> bool:
        parent, key = node.parent, node.key
        assert parent is not None and key is not None
        if node.index in self._held or issubclass(node.type, _ALWAYS_PINNED) or key.kind is EdgeKind.PIN:
            return True
        if key.kind in (EdgeKind.ARGUMENT, EdgeKind.KEYWORD) or not self.pinned(parent):
            return False
        if key.kind is EdgeKind.REFERENT:
            return False  # it would not die
        if parent.mutated and parent.current(key) is not node:
            return False  # the run itself replaced it
        return not self._unstable or self.path(node) not in self._unstable

    def unstable_key(self, fact: Any) -> Any:
        """What to remember when a check of an object's identity fails."""
        if fact is None or not isinstance(fact.target, Node) or not fact.first:
            return None
        return self.path(fact.target) if self.pinned(fact.target) else None

    def path(self, node: Node) -> Any:
        """How an object was found, in a form that is the same in every run."""
        found = self._paths.get(node.index)
        if found is None:
            parent, key = node.parent, node.key
            if parent is None or key is None:
                return ()
            kind, arg = key
            if kind is EdgeKind.PIN:
                found = (id(node.obj()),)
            else:
                if isinstance(arg, ByIdentity):
                    arg = id(arg.obj)
                found = (self.path(parent), kind.value, arg if type(arg) in (int, str) else repr(arg))
            self._paths[node.index] = found
        return found


def _has_history(node: Node, known: dict[int, tuple[Any, ...]]) -> bool:
    """Whether an updated input has gradients at stake, or another shape than on entry."""
    tensor = node.obj()
    return bool(tensor.requires_grad) or metadata(tensor) != known[node.index]


def _check_storages(guard: GuardWriter, monitor: SplitRules, source: str) -> str:
    """The graph updates tensors in place: whether inputs share memory must be as it was."""
    nodes = list(monitor.operators.inputs)
    if len(nodes) < 2 or not monitor.operators.updated():  # it updates what it has made itself
        return source
    name = guard.namespace.constant(memory_places([node.obj() for node in nodes]), "memory")
    names = ", ".join(guard.name(node) for node in nodes)
    number = len(guard.checks)
    helper = guard.namespace.values["storages_match"]
    operands = ((-1, guard.namespace.values[name]), *map(guard.operand, nodes))
    guard.add_check("inputs share memory as they did", Step(StepKind.TRUE, operands, key=helper))
    line = f"    if not storages_match({name}, {names}): return {number}\n"
    return _with_line(source, line)


def _check_frozen(guard: GuardWriter, check: FrozenCheck, source: str) -> str:
    """The graph takes parameters for constants: whether they are as they were."""
    name = guard.namespace.constant(check, "frozen")
    number = len(guard.checks)
    guard.add_check("frozen parameters are as they were", Step(StepKind.TRUE, key=check))
    return _with_line(source, f"    if not {name}(): return {number}\n")


def _with_line(source: str, line: str) -> str:
    head, _, tail = source.rpartition("    return (")
    return f"{head}{line}    return ({tail}"


__all__ = ["Draft", "Entry", "Parts", "internal_error", "make_draft", "metadata"]
