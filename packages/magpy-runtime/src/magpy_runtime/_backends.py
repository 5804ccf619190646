"""Backends: what turns an operator graph into something to call.

A backend is a name or a callable `(GraphModule, example_inputs) -> callable`, as for torch.compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.fx

from . import _torch

Compiled = Callable[..., Any]
Backend = Callable[..., Compiled]


class UnknownBackendError(ValueError):
    """No backend has this name."""


def resolve(backend: str | Backend, options: dict[str, Any] | None = None) -> Backend:
    """The backend to use.

    Args:
        backend: `"inductor"`, `"eager"`, a name in torch's backend registry, or a callable.
        options: passed on to the backend as the keyword `options`, if there are any.

    Raises:
        UnknownBackendError: no backend has this name; the message lists those that there are.
        TypeError: neither a name nor a callable.
    """
    if callable(backend):
        return functools.partial(backend, options=options) if options else backend
    if not isinstance(backend, str):
        raise TypeError(f"backend must be a name or a callable, not {type(backend).__qualname__}")
    if backend == "eager":
        return eager
    if backend == "inductor":
        return functools.partial(inductor, options=options)
    if backend not in names():
        raise UnknownBackendError(f"unknown backend {backend!r}; known ones: {', '.join(sorted(names()))}")
    found = functools.partial(registered, backend)
    return functools.partial(found, options=options) if options else found


def names() -> list[str]:
    """All backends that can be asked for by name."""
    return sorted({"eager", "inductor", *_torch.list_backends()})


def registered(name: str, module: torch.fx.GraphModule, inputs: list[torch.Tensor], **keywords: Any) -> Compiled:
    """A backend of torch's registry, given what torch.compile would give it."""
    return _with_fake_inputs(functools.partial(_torch.lookup_backend(name), **keywords), module, inputs)


def eager(module: torch.fx.GraphModule, inputs: list[torch.Tensor], **ignored: Any) -> Compiled:
    """Run the operators one by one."""
    return module.forward


def inductor(
    module: torch.fx.GraphModule, inputs: list[torch.Tensor], options: dict[str, Any] | None = None
) -> Compiled:
    """Inductor, through AOTAutograd: mutation, aliasing outputs and training come out as in eager."""
    patches: dict[str, Any] = {"fallback_random": True}
    patches.update(options or {})

    def compile_it(gm: torch.fx.GraphModule, fakes: list[torch.Tensor]) -> Compiled:
        compiled: Any = _torch.compile_fx(gm, fakes, config_patches=patches)
        return cast(Compiled, compiled)

    return _with_fake_inputs(compile_it, module, inputs)


class UnsupportedGraphError(RuntimeError):
    """The graph holds an operator that the backend would get wrong."""


_UNSEEN = ("requires_grad_", "detach_", "set_data")
"""Operators on a tensor's own attributes: functionalisation drops them without a word."""


def _for_functionalization(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Refuse what AOTAutograd would drop, and write `x.data` as `x.detach()`, whose aliases it tracks."""
    for node in list(module.graph.nodes):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op in ("call_method", "call_function") and name in _UNSEEN:
            raise UnsupportedGraphError(f"{name} inside of the graph")
        if name.startswith("_foreach_") and name.endswith("_") and len(set(node.args[0])) != len(node.args[0]):
            raise UnsupportedGraphError(f"{name} on a list that holds a tensor twice")
        if node.target is getattr and node.args[1] == "data":
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(module.graph.call_method("detach", (node.args[0],)))
            module.graph.erase_node(node)
    module.recompile()
    return module


def _updates(module: torch.fx.GraphModule) -> bool:
    """Whether a graph has operators in place."""
    for node in module.graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
        if node.op != "placeholder" and (in_place or name == "setitem" or "out" in node.kwargs):
            return True
    return False


def _share_memory(inputs: list[torch.Tensor]) -> bool:
    """Whether two tensors lie on one storage."""
    storages = [each.untyped_storage()._cdata for each in inputs if each.layout is torch.strided]
    return len(set(storages)) != len(storages)


def _with_fake_inputs(backend: Backend, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Compiled:
    """Call a backend under a tracing context with a shape environment and `example_value`s, as torch.compile does."""
    module = _for_functionalization(module)
    if _updates(module) and _share_memory(inputs):
        raise UnsupportedGraphError("inputs that share memory are updated in place")
    fake_mode = _torch.fake_mode()
    fakes = [fake_mode.from_tensor(each, static_shapes=True) for each in inputs]

    class Examples(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            n.meta["example_value"] = result
            return result

    grad = torch.is_grad_enabled()
    # Operators that update inputs must not update the examples: they run on copies.
    copies = [fake_mode.from_tensor(each, static_shapes=True) for each in inputs]
    try:
        with fake_mode:
            Examples(module).run(*copies)
    finally:
        torch.set_grad_enabled(grad)
    for node, fake in zip(module.graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta["example_value"] = fake
    with _torch.tracing(fake_mode):
        return backend(module, fakes)
