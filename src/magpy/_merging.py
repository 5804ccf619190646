"""Merging the two ways of a branch on a tensor into one record, whose graph decides by itself, with `torch.cond`.

The record that leads to the branch and those behind it stay as they are. The merged one stands before them in the cache. Its
guard is made of theirs: what they ask of tensors that the first graph makes is asked of stand-ins with the same metadata.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import torch
import torch.fx

from magpy_codegen import make_function, missed
from magpy_runtime import Record, metadata, resolve
from magpy_runtime.capture import NULL
from magpy_runtime.segments import BoundarySite, enter

from . import _torch

eager: Final = resolve("eager")
_SAME: Final = (operator.truth, bool)
_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, torch.dtype, torch.device})


class CannotMerge(Exception):
    """The tree stays; the message says why."""


class _Spy:
    """Stands for a compiled graph: keeps what it was given and what it gave."""

    def __init__(self, run: Callable[..., Any] | None, given: Any = None) -> None:
        self.run = run
        self.inputs: tuple[Any, ...] = ()
        self.outputs: Any = given

    def __call__(self, *inputs: Any) -> Any:
        self.inputs = inputs
        if self.run is not None:
            self.outputs = self.run(*inputs)
        return self.outputs


@dataclass(slots=True)
class _Way:
    """One way through the branch.

    Attributes:
        record: what comes behind it.
        pushed: what is on the stack there, in addition to the slots.
        bound: what its guard gives in this call.
        spy: its graph in this call.
        sources: for each of its graph's inputs, `(True, number of an output of the first graph)` or `(False, number)` of an
            input of the merged graph.
        leaves: for each tensor of the result, the same for an output of its own graph, which is `(False, number)`.
        shape: the result with numbers in place of tensors.
    """

    record: Record
    pushed: tuple[Any, ...]
    bound: tuple[Any, ...]
    spy: _Spy
    sources: list[tuple[bool, int]] = field(default_factory=list)
    leaves: list[tuple[bool, int]] = field(default_factory=list)
    tensors: list[torch.Tensor] = field(default_factory=list)
    shape: Any = None


def is_due(site: BoundarySite) -> bool:
    """Whether there are records behind a boundary that no attempt has seen."""
    count = sum(len(way.point.cache.records) for way in [*site.ways.values()])
    if count < 2 or count == site.seen:
        return False
    site.seen = count
    return True


def merge(record: Record, bound: tuple[Any, ...], backend: Any) -> tuple[Any, Record | None]:
    """Serve the first part of a call, and make a record of all of it if that can be done.

    Args:
        record: it ends at a boundary.
        bound: what its guard gave.
        backend: what compiles.

    Returns:
        What the record's mock gave, and the new record, None where the tree stays; the boundary says why.
    """
    spy = _Spy(record.run)
    left = record.mock(bound, spy)
    site = record.boundary
    try:
        made = _merged(record, bound, spy, left, backend)
        site.unmerged = ""
        return left, made
    except CannotMerge as why:
        site.unmerged = str(why)
    except Exception as error:
        site.unmerged = f"{type(error).__name__}: {str(error)[:200]}"
    return left, None


def _merged(first: Record, bound: tuple[Any, ...], spy: _Spy, left: Any, backend: Any) -> Record:
    site: BoundarySite = first.boundary
    function, args, keywords, slots = left
    _check_first(first)
    made = _tensors(spy.outputs)
    asked = args[0] if args and not keywords and len(args) == 1 else None
    decides = _index(made, asked)
    if decides is None or asked is None or not _is_decision(function, asked):
        raise CannotMerge("what decides is no tensor that the graph makes, or its value is used otherwise")
    swapped = function is operator.not_
    given = spy.inputs
    ways = [_way(site, outcome is not swapped, args, slots) for outcome in (True, False)]
    inputs: list[Any] = [*dict.fromkeys(given)]
    for way in ways:
        for tensor in way.spy.inputs:
            number = _index(made, tensor)
            if number is not None:
                way.sources.append((True, number))
                continue
            if _index(inputs, tensor) is None:
                inputs.append(tensor)
            way.sources.append((False, _index(inputs, tensor) or 0))
    for way in ways:
        _look_at_result(way, made, [*inputs, *made], len(inputs))
    _compare(*ways)
    guard = _Guard(first, ways, bound, slots, made, inputs, given)
    module = _graph(first, [_index(inputs, tensor) or 0 for tensor in given], len(inputs), decides, asked, ways)
    _check_raising(module)
    _check_sizes(module, inputs)
    if backend is eager:
        _retarget(module, _torch.COND, _choose)
    call = backend(module, inputs)
    trial = call(*inputs)
    if [_looks(tensor) for tensor in trial] != [_looks(tensor) for tensor in ways[0].tensors]:
        raise CannotMerge("the backend gives tensors with other strides than the branches do")
    return _record(first, ways, module, call, guard)


# -- what may be merged ------------------------------------------------------------------------------------------------


def _check_first(record: Record) -> None:
    _check_pure(record)
    if record.graph is None:
        raise CannotMerge("there is no graph before the branch")


def _check_pure(record: Record) -> None:
    if record.effects or record.mutates or record.updated or record.switches:
        raise CannotMerge("a part changes objects, tensors or modes")
    if record.raises:
        raise CannotMerge("a branch raises")
    if record.random:
        raise CannotMerge("a part draws random numbers")
    if record.lifted:
        raise CannotMerge("numbers or sizes vary")
    if record.frozen is not None:
        raise CannotMerge("parameters are constants")


def _check_raising(module: torch.fx.GraphModule) -> None:
    """Compilers would take out operators that nothing needs: those that raise would do so no more."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            [output] = part.graph.find_nodes(op="output")
            if missed(part.graph, output.all_input_nodes):
                raise CannotMerge("an operator may raise whose result nothing needs")


def _is_decision(function: Any, asked: Any) -> bool:
    """Whether an operation gives the truth of a tensor, or the opposite."""
    if asked.numel() != 1:
        return False
    return function in (*_SAME, operator.not_) or (function is _torch.ITEM and asked.dtype is torch.bool)


def _way(site: BoundarySite, truth: bool, args: tuple[Any, ...], slots: tuple[Any, ...]) -> _Way:
    """The record behind one outcome, run on this call's tensors."""
    innermost = site.frames[-1]
    start, pushed = enter(innermost.code, innermost.at, site.entry, truth, args)
    known = site.ways.get(start)
    for record in () if known is None else known.point.cache.records:
        bound = record.guard((*slots, *pushed), {})
        if type(bound) is tuple:
            break
    else:
        raise CannotMerge("only one way was seen so far")
    if record.boundary is not None:
        raise CannotMerge("there is another boundary behind the branch")
    _check_pure(record)
    spy = _Spy(record.run)
    way = _Way(record, pushed, bound, spy)
    result = record.mock(bound, spy if record.run is not None else None)
    again = record.mock(bound, _Spy(None, spy.outputs) if record.run is not None else None)
    way.shape = _shape(result, again, way.tensors)
    return way


def _shape(value: Any, again: Any, tensors: list[torch.Tensor]) -> Any:
    """A result with numbers in place of tensors.

    Args:
        value: the result.
        again: the same, built anew: what is the same object then is older than the call.
        tensors: takes the tensors.
    """
    kind = type(value)
    if kind in _ATOMS:
        return (kind, value)
    if kind is torch.Tensor:
        number = _index(tensors, value)
        if number is None:
            number = len(tensors)
            tensors.append(value)
        return number
    if kind not in (tuple, list, dict) or value is again:
        raise CannotMerge(f"a branch gives a {kind.__qualname__}, not a new container of tensors and plain values")
    if kind is dict:
        if any(type(key) is not str for key in value):
            raise CannotMerge("a branch gives a dictionary whose keys are no strings")
        return (dict, [(key, _shape(value[key], again[key], tensors)) for key in value])
    return (kind, [_shape(one, other, tensors) for one, other in zip(value, again, strict=True)])


def _look_at_result(way: _Way, made: tuple[Any, ...], others: list[Any], count: int) -> None:
    outputs = _tensors(way.spy.outputs)
    old = {_storage(tensor) for tensor in others[:count]}
    seen: set[int] = set()
    for tensor in way.tensors:
        storage = _storage(tensor)
        before = _index(made, tensor)
        number = _index(outputs, tensor)
        if storage in old or storage in seen or (before is None and any(_storage(each) == storage for each in made)):
            raise CannotMerge("a result shares memory with an input or another tensor")
        if before is None and number is None:
            raise CannotMerge("a branch gives a tensor that no graph makes")
        if tensor.requires_grad:
            raise CannotMerge("gradients are at stake")
        seen.add(storage)
        way.leaves.append((False, number) if before is None else (True, before))  # type: ignore[arg-type]
    if not way.tensors:
        raise CannotMerge("a branch gives no tensor")


def _compare(one: _Way, other: _Way) -> None:
    if _plain(one.shape) != _plain(other.shape):
        raise CannotMerge("the branches give results of another structure")
    if list(map(_looks, one.tensors)) != list(map(_looks, other.tensors)):
        raise CannotMerge("the branches give tensors of another shape, dtype or layout")


def _plain(shape: Any) -> str:
    return repr(shape)


def _looks(tensor: torch.Tensor) -> Any:
    return metadata(tensor)


def _storage(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        raise CannotMerge("a tensor is not dense")
    return int(tensor.untyped_storage()._cdata)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same metadata."""
    if tensor.requires_grad:
        raise CannotMerge("gradients are at stake")
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.storage_offset():
        raise CannotMerge("the graph makes a tensor that is not plain and dense")
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _check_sizes(module: torch.fx.GraphModule, inputs: list[Any]) -> None:
    """Sizes that depend on values would escape the guard."""
    for value in _torch.fake_values(module, inputs):
        if isinstance(value, torch.Tensor) and not all(type(size) is int for size in value.shape):
            raise CannotMerge("the shape of a tensor depends on values")


def _tensors(outputs: Any) -> tuple[Any, ...]:
    return () if outputs is None else tuple(outputs)


def _index(objects: Any, obj: Any) -> int | None:
    return next((number for number, each in enumerate(objects) if each is obj), None)


# -- the graph ---------------------------------------------------------------------------------------------------------


def _graph(
    first: Record, places: list[int], count: int, decides: int, asked: torch.Tensor, ways: list[_Way]
) -> torch.fx.GraphModule:
    """One graph of all.

    Args:
        first: the part before the branch.
        places: for each input of its graph the number of an input of the new one.
        count: how many inputs that has.
        decides: which output of the first graph decides.
        asked: the tensor itself.
        ways: both ways.
    """
    graph = torch.fx.Graph()
    root: dict[str, Any] = {}
    inputs = [graph.placeholder(f"t{number}") for number in range(count)]
    before = _copied(graph, first.graph, [inputs[place] for place in places], root, "before")
    used = sorted(
        {each for way in ways for each in way.sources} | {each for way in ways for each in way.leaves if each[0]}
    )
    operands = tuple([before[number] if is_made else inputs[number] for is_made, number in used])
    decision = before[decides]
    if asked.dtype is not torch.bool:
        decision = graph.call_function(torch.ne, (decision, 0))
    if asked.dim():
        decision = graph.call_method("reshape", (decision, ()))
    branches = []
    for name, way in zip(("taken", "other"), ways, strict=True):
        inner = torch.fx.Graph()
        parts: dict[str, Any] = {}
        here = dict(zip(used, [inner.placeholder(f"a{number}") for number in range(len(used))], strict=True))
        given = _copied(inner, way.record.graph, [here[source] for source in way.sources], parts, name)
        inner.output(
            tuple([inner.call_method("clone", (here[leaf],)) if leaf[0] else given[leaf[1]] for leaf in way.leaves])
        )
        root[name] = torch.fx.GraphModule(parts, inner)
        branches.append(graph.get_attr(name))
    chosen = graph.call_function(_torch.COND, (decision, *branches, operands))
    graph.output(tuple([graph.call_function(operator.getitem, (chosen, n)) for n in range(len(ways[0].leaves))]))
    module = torch.fx.GraphModule(root, graph, class_name="MergedGraph")
    _retarget(module, _choose, _torch.COND)
    return module


def _retarget(module: torch.fx.GraphModule, old: Any, new: Any) -> None:
    """Call another function in a graph and in those inside of it."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.find_nodes(op="call_function", target=old):
                node.target = new
            part.recompile()


def _choose(decision: torch.Tensor, taken: Any, other: Any, operands: tuple[torch.Tensor, ...]) -> Any:
    """What `torch.cond` does, for graphs that run as they are."""
    return (taken if decision else other).forward(*operands)


def _copied(
    graph: torch.fx.Graph, module: torch.fx.GraphModule | None, inputs: list[Any], root: dict[str, Any], name: str
) -> Any:
    """Copy a graph into another one; gives its outputs there."""
    if module is None:
        return ()
    places = dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True))
    outputs = graph.graph_copy(module.graph, places)
    for old, new in places.items():
        if old.op == "get_attr":
            new.target = f"{name}_{old.target}"
            root[new.target] = copy.deepcopy(getattr(module, str(old.target)))
    return outputs


# -- the record --------------------------------------------------------------------------------------------------------


class _Guard:
    """Asks what the guards before and behind the branch ask.

    Objects are taken from where they are found in what a guard gives, so that no mock has to run.
    """

    def __init__(
        self,
        first: Record,
        ways: list[_Way],
        bound: Any,
        slots: tuple[Any, ...],
        made: Any,
        inputs: list[Any],
        given: Any,
    ) -> None:
        self._first = first
        stand_ins = tuple(map(_stand_in, made))
        self._stand_ins = stand_ins
        places = [_place(each, made, stand_ins, bound, first) for each in slots]
        self._slots = None if None in places else cast("list[tuple[int | None, Any]]", places)
        self._ways: list[Any] = []
        self._takes = [_where(tensor, _index(inputs, tensor), bound, first) for tensor in given]
        for way in ways:
            pushed = tuple([stand_ins[n] if (n := _index(made, each)) is not None else each for each in way.pushed])
            held = way.bound
            takes = [
                _where(tensor, None if is_made else number, held, way.record)
                for tensor, (is_made, number) in zip(way.spy.inputs, way.sources, strict=True)
            ]
            expected = [stand_ins[number] if is_made else None for is_made, number in way.sources]
            self._ways.append((way.record, pushed, takes, expected))
        self._count = len(inputs)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The inputs of the merged graph; the number of the check of the first guard that failed; None for the others'."""
        first = self._first
        bound = (first.native or first.guard)(args, kwargs)
        if type(bound) is not tuple:
            return bound
        found: list[Any] = [None] * self._count
        if self._slots is None:  # something is built anew for the frames
            slots = first.mock(bound, _Spy(None, self._stand_ins))[3]
        else:
            slots = tuple([constant if place is None else bound[place] for place, constant in self._slots])
        for place, constant, number in self._takes:
            tensor = constant if place is None else bound[place]
            if found[number] is not None and found[number] is not tensor:
                return None
            found[number] = tensor
        for record, pushed, takes, expected in self._ways:
            bound = (record.native or record.guard)((*slots, *pushed), {})
            if type(bound) is not tuple:
                return None
            for (place, constant, number), made in zip(takes, expected, strict=True):
                tensor = constant if place is None else bound[place]
                if made is not None:
                    if tensor is not made:
                        return None
                elif found[number] is not None and found[number] is not tensor:
                    return None
                else:
                    found[number] = tensor
        return tuple(found)


def _place(slot: Any, made: Any, stand_ins: Any, bound: Any, record: Record) -> tuple[int | None, Any] | None:
    """Where a slot is found at a later call: its place in what the guard gives, or what it always is; None: it is built."""
    number = _index(made, slot)
    if number is not None:
        return None, stand_ins[number]
    if type(slot) in _ATOMS:
        return None, slot
    place = _only(bound, slot, record)
    if place is not None:
        return place, None
    if slot is NULL or _index(record.namespace.values(), slot) is not None:
        return None, slot
    return None


def _only(bound: Any, obj: Any, record: Record) -> int | None:
    """Where an object is found in what a guard gives. In two places it may be another one in each at a later call."""
    found = [number for number, each in enumerate(bound) if each is obj]
    if len(found) > 1 or (found and _index(record.namespace.values(), obj) is not None):
        raise CannotMerge("an object is found in two places")
    return found[0] if found else None


def _where(tensor: Any, number: int | None, bound: Any, record: Record) -> tuple[int | None, Any, int]:
    """Where an input of a graph is found at a later call, and which input of the merged graph it is."""
    place = _only(bound, tensor, record)
    if place is None and _index(record.namespace.values(), tensor) is None:
        raise CannotMerge("an input of a graph is not found in what its guard gives")
    return place, tensor if place is None else None, -1 if number is None else number


def _build(shape: Any, outputs: Any) -> Any:
    if type(shape) is int:
        return outputs[shape]
    kind, parts = shape
    if kind is dict:
        return {key: _build(part, outputs) for key, part in parts}
    return kind([_build(part, outputs) for part in parts]) if kind in (tuple, list) else parts


_GUARD: Final = """def guard(args, kwargs):
    bound = ask(args, kwargs)  # what the records before and behind the branch ask
    return {0} if bound is None else bound
"""
_MOCK: Final = """def mock(bound, run):
    outputs = run(*bound)
    return build(shape, outputs)
"""


def _record(first: Record, ways: list[_Way], module: torch.fx.GraphModule, call: Any, guard: _Guard) -> Record:
    source = _GUARD.format(len(first.checks))
    names: dict[str, Any] = {"ask": guard, "build": _build, "shape": ways[0].shape}
    return Record(
        guard=make_function(source, "guard", names, "guard"),
        mock=make_function(_MOCK, "mock", names, "mock"),
        run=call,
        guard_source=source,
        held_source=first.held_source,
        mock_source=_MOCK,
        checks=(*first.checks, "what the records behind the branch ask"),
        check_keys=(*first.check_keys, None),
        held=first.held,
        graph=module,
        operators=first.operators + sum(way.record.operators for way in ways),
        effects=(),
        may_raise=first.may_raise or any(way.record.may_raise for way in ways),
        survey=first.survey,
        namespace=names,
    )


__all__ = ["CannotMerge", "is_due", "merge"]
