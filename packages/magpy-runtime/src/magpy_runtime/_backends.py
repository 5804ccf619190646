"""Backends: what turns an operator graph into something to call.

A backend is a name or a callable `(GraphModule, example_inputs) -> callable`, as for torch.compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import torch
import torch.fx

from . import _torch
from ._checking import GraphDiffersError, checked, one_by_one
from ._choosing import copied
from ._double_backward import rerunnable, statistics_of, with_double_backward
from ._gradients import partial_reach, uncounted, with_history
from ._graph_facts import Hints, storage_of, tensors_in, updates, version_of
from ._histories import History, entry_edges, history
from ._late_updates import NotApart, is_data, late_updates, may_be_late, on_copies, written_back
from ._risky import Risk, risk, watched
from ._views_apart import on_one_memory, with_views_apart

Result = TypeVar("Result")
Compiled = Callable[..., Any]
Backend = Callable[..., Compiled]


class UnknownBackendError(ValueError):
    """No backend has this name."""


def resolve(backend: str | Backend, options: dict[str, Any] | None = None, *, freeze: bool = False) -> Backend:
    """The backend to use.

    Args:
        backend: `"inductor"`, `"xla"`, `"eager"`, a name in torch's backend registry, or a callable.
        options: passed on to the backend as the keyword `options`, if there are any.
        freeze: let Inductor take what a record holds, parameters and buffers, for constants.

    Raises:
        UnknownBackendError: no backend has this name; the message lists those that there are.
        ValueError: `freeze` with another backend than Inductor, or an option of MagPy's has no such value.
        TypeError: neither a name nor a callable.
    """
    if freeze and backend != "inductor":
        raise ValueError(f"freeze=True needs the backend 'inductor', not {backend!r}")
    if callable(backend):
        return functools.partial(backend, options=options) if options else backend
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name or a callable, not {type(backend).__qualname__}")
    if backend == "eager":
        return eager
    if backend == "inductor":
        from ._inductor import Inductor

        return Inductor(options or {}, freeze)
    if backend == "xla":
        return functools.partial(xla, options=options)
    if backend not in names():
        raise UnknownBackendError(f"unknown backend {backend!r}; known ones: {', '.join(sorted(names()))}")
    found = functools.partial(registered, backend)
    return functools.partial(found, options=options) if options else found


def names() -> list[str]:
    """All backends that can be asked for by name."""
    return sorted({"eager", "inductor", "xla", *_torch.list_backends()})


def registered(name: str, module: torch.fx.GraphModule, inputs: list[torch.Tensor], **keywords: Any) -> Compiled:
    """A backend of torch's registry, given what torch.compile would give it."""
    found = functools.partial(_torch.lookup_backend(name), **keywords)
    return with_fake_inputs(found, module, inputs, same_random=_is_eager(name))


def compile_with(
    backend: Backend, module: torch.fx.GraphModule, inputs: list[Any], hints: Hints | None = None
) -> Compiled:
    """Give a graph to a backend.

    Raises:
        GraphDiffersError: the backend has got the graph wrong.
    """
    if getattr(backend, "takes_hints", False):
        return backend(module, inputs, hints)
    inner = backend
    while isinstance(inner, functools.partial):
        inner = inner.func
    if inner in (eager, registered, xla):
        return backend(module, inputs)
    original = copied(module)
    grad = torch.is_grad_enabled()
    try:
        run = backend(module, inputs)
    finally:
        torch.set_grad_enabled(grad)
    if run == module.forward:
        return run
    mode = _torch.fake_mode()
    try:
        fakes = [_torch.fake(mode, each) for each in inputs]
        with mode, _torch.unbacked_ignored(mode):
            found = risk(original, runs_examples(original, mode).run(*fakes), share_memory(inputs))
    except Exception:
        found = Risk(at_all=True)
    finally:
        torch.set_grad_enabled(grad)
    return checked(run, original, inputs, found, same_random=False) if found.at_all else run


def draws_as_eager(backend: Backend) -> bool:
    """Whether a backend's code draws the random numbers that the operators draw."""
    if isinstance(backend, functools.partial) and backend.func is registered:
        return _is_eager(str(backend.args[0]))
    return bool(getattr(backend, "settings", {}).get("fallback_random"))


def _is_eager(name: str) -> bool:
    """Whether a backend of torch's registry runs the operators themselves."""
    return name.startswith(("aot_eager", "eager"))


def eager(module: torch.fx.GraphModule, inputs: list[torch.Tensor], **ignored: Any) -> Compiled:
    """Run the operators one by one."""
    return module.forward


def xla(module: torch.fx.GraphModule, inputs: list[torch.Tensor], options: dict[str, Any] | None = None) -> Compiled:
    """XLA, through JAX, which is an extra."""
    from .xla import xla as entry

    return with_fake_inputs(functools.partial(entry, options=options), module, inputs)


class UnsupportedGraphError(RuntimeError):
    """The graph holds operators that the backend would get wrong.

    Attributes:
        nodes: the names of their nodes, where they may run between graphs instead. What a graph has saved for its backward
            is its own: `detach_` and `set_data` would not reach it, as they reach what eager operators have saved.
    """

    def __init__(self, message: str, nodes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.nodes = tuple(nodes)


_UNSEEN = ("requires_grad_", "detach_", "set_data")
"""Operators on a tensor's own attributes: functionalisation drops them without a word."""


_WRONG: Final = ("multilabel_margin_loss",)
"""Operators that AOTAutograd takes apart into others, which give something else."""


def for_functionalization(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Refuse what AOTAutograd would drop, and write `x.data` as `x.detach()`, whose aliases it tracks."""
    called = {node: _name(node) for node in module.graph.nodes if node.op in ("call_method", "call_function")}
    unseen = [node for node, name in called.items() if name in _UNSEEN]
    if unseen:
        names = sorted({called[node] for node in unseen})
        apart = [node.name for node in unseen] if names == ["requires_grad_"] else []
        raise UnsupportedGraphError(f"{', '.join(names)} inside of the graph", apart)
    for node, name in called.items():
        if name in _WRONG:
            raise UnsupportedGraphError(f"{name} inside of the graph", [node.name])
        if name.startswith("_foreach_") and name.endswith("_") and len(set(node.args[0])) != len(node.args[0]):
            raise UnsupportedGraphError(f"{name} on a list that holds a tensor twice", [node.name])
        if node.target is getattr and node.args[1] == "data":
            with module.graph.inserting_before(node):
                alias = module.graph.call_method("detach", (node.args[0],))
            alias.meta["is_data"] = True
            node.replace_all_uses_with(alias)
            module.graph.erase_node(node)
    module.recompile()
    return module


def _name(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def share_memory(inputs: list[torch.Tensor]) -> bool:
    """Whether two tensors lie on one storage."""
    storages = [storage_of(each) for each in inputs if each.layout is torch.strided]
    return len(set(storages)) != len(storages)


class _Examples(torch.fx.Interpreter):
    """Runs a graph on fake inputs and keeps each node's value, and whether it has updated one of its operands."""

    def __init__(self, module: torch.fx.GraphModule, mode: Any) -> None:
        super().__init__(module)
        self.mode = mode

    def run_node(self, n: torch.fx.Node) -> Any:
        operands = watched(self.env[each] for each in n.all_input_nodes) if n.op.startswith("call_") else []
        result = super().run_node(n)
        n.meta["example_value"] = result
        n.meta["updates"] = any(each._version != was for each, was in operands)
        return result

    def fetch_attr(self, target: str) -> Any:
        found = super().fetch_attr(target)
        return _torch.fake(self.mode, found) if isinstance(found, torch.Tensor) else found


def runs_examples(module: torch.fx.GraphModule, mode: Any) -> torch.fx.Interpreter:
    """An interpreter of a graph, to be run on fake inputs; it keeps each node's value as its `example_value`."""
    return _Examples(module, mode)


def unwrapped(backend: Backend) -> Backend:
    """A backend that is given fake inputs as they are: one of torch's registry without what makes them."""
    if isinstance(backend, functools.partial):
        if backend.func is registered:
            return functools.partial(_torch.lookup_backend(backend.args[0]), **backend.keywords)
        return functools.partial(unwrapped(backend.func), *backend.args, **backend.keywords)
    return backend


Note = Callable[[torch.fx.GraphModule, list[Any], list[int], Any], None]


def with_fake_inputs(
    backend: Backend,
    module: torch.fx.GraphModule,
    inputs: list[torch.Tensor],
    note: Note | None = None,
    same_random: bool = False,
) -> Compiled:
    """Call a backend under a tracing context with a shape environment and `example_value`s, as torch.compile does.

    Args:
        backend: given the graph and fake inputs.
        module: the graph.
        inputs: its real inputs.
        note: called before the backend with the graph, the fake tensors on which it ran, their version counters before
            that, and what it returned; the grad mode is what the graph has left.
        same_random: whether the backend draws eager's random numbers.

    Raises:
        UnsupportedGraphError: the backend would get the graph wrong.
        GraphDiffersError: it has got it wrong.
    """
    original = copied(module) if any(map(is_data, module.graph.nodes)) else None
    module = for_functionalization(module)
    if updates(module) and share_memory(inputs):
        raise UnsupportedGraphError("inputs that share memory are updated in place")
    fake_mode = _torch.fake_mode()
    fakes = [_torch.fake(fake_mode, each) for each in inputs]

    grad = torch.is_grad_enabled()
    # Operators that update inputs must not update the examples: they run on copies.
    copies = [_torch.fake(fake_mode, each) for each in inputs]
    versions = [version_of(each) for each in copies]
    histories = [getattr(each, "grad_fn", None) for each in copies]
    shown = History()
    edges = entry_edges(copies) if grad else None
    try:
        with fake_mode, _torch.unbacked_ignored(fake_mode):
            outputs = runs_examples(module, fake_mode).run(*copies)
        found = risk(module, outputs, share_memory(inputs))
        apart = on_one_memory(outputs) if found.at_all else ()
        if found.at_all and original is None:
            original = copied(module)
        if note is not None:
            note(module, copies, versions, outputs)
        updated = tuple([number for number, was in enumerate(versions) if version_of(copies[number]) != was])
        if edges is not None:
            shown = history(edges, copies, outputs)
    finally:
        torch.set_grad_enabled(grad)
    if shown.raises:
        raise GraphDiffersError("what eager saves for its backward pass is updated", one_by_one(original or module))
    if any(map(is_data, module.graph.nodes)):  # such memory has version counters of its own
        shown = History(shown.reach)
    finish = gradients_of_eager(module, inputs, updated, shown)
    late: tuple[int, ...] = ()
    ends = (*tensors_in(outputs), *(copies[each] for each in updated))
    if any(each.requires_grad for each in ends) and may_be_late(module):
        late = _late(module, late_updates)
    for node, fake in zip(module.graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta["example_value"] = fake
    if late:
        _late(module, lambda module: on_copies(module, late, fake_mode))
    with _torch.tracing(fake_mode):
        run = backend(module, fakes)
    if late:
        differentiable = frozenset([each for each in late if copies[each].grad_fn is not histories[each]])
        run = written_back(run, late, differentiable, len(outputs))
    run = finish(run)
    if run is not None:
        run = with_views_apart(run, apart)
    if original is None or run is None or not found.at_all:
        return run
    return checked(run, original, inputs, found, same_random)


def _late(module: torch.fx.GraphModule, ask: Callable[[torch.fx.GraphModule], Result]) -> Result:
    try:
        return ask(module)
    except NotApart as error:
        raise UnsupportedGraphError(str(error)) from error


def gradients_of_eager(
    module: torch.fx.GraphModule,
    inputs: list[Any],
    updated: tuple[int, ...] | None = None,
    shown: History | None = None,
) -> Callable[[Compiled], Compiled]:
    """What makes a graph's gradients those of eager once AOTAutograd has compiled it.

    Args:
        module: the graph, before a backend uses it up.
        inputs: inputs like those of a call.
        updated: numbers of the inputs that it updates, as far as version counters show; None where that is not known.
        shown: eager's history, None where that is not known.
    """
    if shown is None:
        shown = History(partial_reach(module) if torch.is_grad_enabled() else {})
    if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs):
        return lambda run: run
    graph, refused = rerunnable(module, inputs, updated)
    hidden = frozenset(statistics_of(module))
    compared = History(shown.reach, tuple([each for each in shown.saved if each.place not in hidden]))
    return lambda run: with_history(with_double_backward(uncounted(run, hidden), graph, refused), compared)
