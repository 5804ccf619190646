"""Freezing: parameters and buffers become constants of the compiled graph, and a check tells whether they still are."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, Final, TypeGuard, cast

import torch
import torch.fx

from . import _torch
from ._backends import with_fake_inputs
from ._below_autograd import is_torch_alone
from ._checking import GraphDiffersError, one_by_one
from ._graph_facts import GraphFacts, Hints, graph_facts
from ._inductor import (
    CPP_WRAPPER,
    Inductor,
    Run,
    compile_graph,
    direct,
    inner_code,
    is_inference,
    keeping_random,
    labelled,
)
from ._value_checks import with_value_checks

_pointer: Final[Callable[[torch.Tensor], int]] = torch.Tensor.data_ptr
_version: Final[Callable[[torch.Tensor], int]] = _torch.version_counter


class FrozenCheck:
    """Whether tensors hold the values that they held when they were made constants, as far as torch counts.

    It looks at version counters and addresses. The memory is held, so an address means the same memory. Neither shows
    what is written through `.data`, through a numpy array or from another process; `checksum` does. A norm in training
    updates its running statistics without counting that, but it counts its batches in a buffer of its own.

    Args:
        tensors: the tensors.
        paths: for each of them how it was found, to be remembered when it turns out to vary.
        counters: for each of them the dictionary and name of the tensor that is updated with it, or None.
    """

    __slots__ = ("_counters", "_memory", "_pointers", "_seen", "_sums", "_versions", "counters", "paths", "tensors")

    def __init__(
        self,
        tensors: list[torch.Tensor],
        paths: list[Any],
        counters: list[tuple[dict[str, Any], str] | None] | None = None,
    ) -> None:
        self.tensors = tensors
        self.paths = paths
        self.counters = counters or [None] * len(tensors)
        known = {(id(each[0]), each[1]): each for each in self.counters if each is not None}
        self._counters: list[tuple[dict[str, Any], str, torch.Tensor]] = [
            (container, name, dict.__getitem__(container, name)) for container, name in known.values()
        ]
        self._seen = [*tensors, *[counter for _, _, counter in self._counters]]
        self._memory = [each.detach() for each in tensors]
        self._pointers = [*map(_pointer, tensors)]
        self._versions = [*map(_version, self._seen)]
        self._sums: list[Any] | None = None

    def __call__(self) -> bool:
        """Compare now."""
        if [*map(_version, self._seen)] != self._versions or [*map(_pointer, self.tensors)] != self._pointers:
            return False
        return all(dict.get(container, name) is counter for container, name, counter in self._counters)

    def moved(self) -> list[Any]:
        """The paths of those that differ."""
        counted = {
            (id(container), name)
            for (container, name, counter), version in zip(
                self._counters, self._versions[len(self.tensors) :], strict=True
            )
            if dict.get(container, name) is not counter or _version(counter) != version
        }
        known = zip(self.tensors, self._versions, self._pointers, self.paths, self.counters, strict=False)
        return [
            path
            for each, version, pointer, path, counter in known
            if (_version(each), _pointer(each)) != (version, pointer)
            or (counter is not None and (id(counter[0]), counter[1]) in counted)
        ]

    def checksum(self) -> int | None:
        """The number of the first tensor whose values are not those of the first time this was asked; None if all are."""
        sums = [_checksum(each) for each in self._memory]
        if self._sums is None:
            self._sums = sums
        return next(
            (number for number, pair in enumerate(zip(sums, self._sums, strict=True)) if pair[0] != pair[1]), None
        )


def _checksum(tensor: torch.Tensor) -> Any:
    """A number that changes, but for rare accidents, when a tensor's values do."""
    with torch.no_grad(), torch.inference_mode(False):
        data = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
        if data.numel() == 0:
            return 0
        raw = data.view(torch.uint8).to(torch.int64)
        places = torch.arange(raw.numel(), device=raw.device) % 65_521 + 1
        return int((raw * places).sum()), int(raw.sum())


def may_freeze(tensor: object) -> TypeGuard[torch.Tensor]:
    """Whether a tensor can be a constant: dense, of torch's own classes, with a version counter."""
    return (
        isinstance(tensor, torch.Tensor)
        and type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.layout is torch.strided
        and not tensor.is_inference()
        and not tensor.is_nested
        and not tensor.is_quantized
        and tensor.device.type != "meta"
    )


def compile_frozen(
    backend: Inductor, module: torch.fx.GraphModule, inputs: list[Any], frozen: tuple[int, ...], hints: Hints
) -> Run:
    """Compile a graph with some of its inputs as constants.

    Args:
        backend: the backend and its settings.
        module: the graph; it is used up.
        inputs: its inputs in one call.
        frozen: numbers of those that become constants.
        hints: what is known about the graph.

    Returns:
        A function of all of the graph's inputs.
    """
    original = copy.deepcopy(module)
    rest = [number for number in range(len(inputs)) if number not in set(frozen)]
    others = [inputs[number] for number in rest]
    for number, node in enumerate(module.graph.find_nodes(op="placeholder")):
        if number in frozen:
            module.register_buffer(f"frozen_{number}", inputs[number].detach())
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(module.graph.get_attr(f"frozen_{number}"))
            module.graph.erase_node(node)
    module.recompile()
    settings = {**backend.settings, "freezing": True}
    if backend.entry in ("cpp", "aoti"):
        settings.update(CPP_WRAPPER)
    facts: list[GraphFacts] = []
    graphs: list[Any] = []
    grad = torch.is_grad_enabled()

    def note(gm: torch.fx.GraphModule, fakes: list[Any], versions: list[int], outputs: Any) -> None:
        facts.append(graph_facts(gm, fakes, versions, outputs, hints, grad))

    def compile_it(gm: torch.fx.GraphModule, fakes: list[Any]) -> Run | None:
        if facts[0].gradients or facts[0].updates or facts[0].switches:
            return None
        with _torch.graphs_of_inductor() as found, torch.no_grad():
            with_value_checks(gm)
            compiled: Any = _torch.compile_fx(gm, fakes, config_patches=settings)
        graphs.extend(found)
        return cast(Run, compiled)

    try:
        general = cast(Run | None, with_fake_inputs(cast(Any, compile_it), module, others, note))
    except GraphDiffersError as error:
        raise GraphDiffersError(str(error), one_by_one(original)) from None
    if general is None:
        return compile_graph(original, inputs, hints, backend.settings, backend.entry)
    if facts[0].functional and backend.entry != "compile_fx" and len(graphs) == 1 and is_inference(graphs[0]):
        call = inner_code(graphs[0], facts[0], is_torch_alone(original))
        if _same(general, call, others, hints):
            return _without(rest, direct(call, "inner"), call)
    return _without(rest, labelled(general, "compile_fx", facts[0].repeatable), None)


def _same(general: Run, call: Run, inputs: list[Any], hints: Hints) -> bool:
    """Whether code takes the inputs that are left, in their order: it gives what AOTAutograd's wrapper around it gives."""
    results: list[Any] = []
    for run in (lambda: general(*inputs), lambda: call([*inputs])):
        try:
            keeping_random(lambda run=run: results.append(run()), hints)  # type: ignore[misc]
        except Exception:
            return False
    expected, found = results
    pairs = zip(found, expected, strict=False)
    return len(found) == len(expected) and all(one.equal(two) or bool((one != one).any()) for one, two in pairs)


def _without(rest: list[int], run: Run, call: Run | None) -> Run:
    """A function of all inputs around one of those that are left."""
    if not rest:

        def thawed(*inputs: Any) -> Any:
            return run()

    elif len(rest) == 1:
        [only] = rest

        def thawed(*inputs: Any) -> Any:
            return run(inputs[only])

    else:
        pick = operator.itemgetter(*rest)

        def thawed(*inputs: Any) -> Any:
            return run(*pick(inputs))

    thawed.entry = getattr(run, "entry", "compile_fx")  # type: ignore[attr-defined]
    thawed.functional = call is not None  # type: ignore[attr-defined]
    thawed.repeatable = getattr(run, "repeatable", False)  # type: ignore[attr-defined]
    return thawed


__all__ = ["FrozenCheck", "compile_frozen", "may_freeze"]
