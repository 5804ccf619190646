"""Operator graphs of varying sizes: run on fake inputs with symbols, under a shape environment of torch's.

The environment says what sizes are in terms of the inputs' sizes, and collects what was assumed of them: by operators, by
the backend, and by the program. All of that becomes lines of the record's guard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from . import _torch
from ._backends import (
    Backend,
    Compiled,
    UnsupportedGraphError,
    draws_as_eager,
    eager,
    for_functionalization,
    gradients_of_eager,
    runs_examples,
    share_memory,
    unwrapped,
)
from ._checking import checked
from ._choosing import choosing, copied
from ._graph_facts import tensors_in, updates
from ._histories import History, entry_edges, history
from ._inductor import Inductor
from ._late_updates import NotApart, late_updates, may_be_late
from ._risky import changes_metadata, risk
from ._value_checks import with_value_checks
from ._views_apart import on_one_memory, with_views_apart


class NotSymbolic(Exception):
    """A graph cannot be run or compiled with symbols."""


@dataclass(frozen=True, slots=True)
class Varying:
    """A graph's input that varies.

    Attributes:
        dims: of a tensor, by number of a dimension that varies the name of its size.
        name: of a number, its name.
    """

    dims: dict[int, str] = field(default_factory=dict)
    name: str = ""


class SymbolicGraph:
    """A graph on fake inputs with symbols.

    Attributes:
        module: the graph.
        fakes: its fake inputs.
    """

    def __init__(self, module: torch.fx.GraphModule, inputs: list[Any], varying: list[Varying]) -> None:
        """Run a graph on fake inputs; each node's value is kept as its `example_value`.

        Args:
            module: the graph.
            inputs: its real inputs: tensors, then numbers.
            varying: for each input what of it varies.

        Raises:
            NotSymbolic: an operator cannot be run with symbols.
        """
        refused = changes_metadata(module)
        if refused is not None and any(
            each.dims or type(real) is int for each, real in zip(varying, inputs, strict=True)
        ):
            raise NotSymbolic(f"{refused} changes the metadata of a tensor in place")
        self.module = module
        self._inputs = inputs
        self._aliases = share_memory([each for each in inputs if isinstance(each, torch.Tensor)])
        self._mode = _torch.fake_mode()
        self._env = self._mode.shape_env
        self._names: dict[Any, str] = {}
        self._strides: list[tuple[int, str]] = []
        grad = torch.is_grad_enabled()
        try:
            pairs = [
                self._fake(number, each, of) for number, (each, of) in enumerate(zip(inputs, varying, strict=True))
            ]
            self.fakes = [fake for fake, _ in pairs]
            copies = [copy for _, copy in pairs]
            edges = entry_edges(copies) if grad else None
            with _torch.hooks_aside(), self._mode, _torch.unbacked_ignored(self._mode), _torch.convolutions_by_hint():
                outputs = runs_examples(module, self._mode).run(*copies)
            self._risk = risk(module, outputs, self._aliases)
            self._apart = on_one_memory(outputs) if self._risk.at_all else ()
            self._history = history(edges, copies, outputs) if edges is not None else History()
        except NotSymbolic:
            raise
        except Exception as error:
            raise NotSymbolic(f"{type(error).__name__}: {str(error)[:200]}") from error
        finally:
            torch.set_grad_enabled(grad)
        self._late = _has_late_updates(module)
        for node, fake in zip(module.graph.find_nodes(op="placeholder"), self.fakes, strict=True):
            node.meta["example_value"] = fake

    def _fake(self, number: int, real: Any, varying: Varying) -> tuple[Any, Any]:
        """A fake input, and a copy on which the graph runs, for it may change it."""
        if not isinstance(real, torch.Tensor):
            fake = _torch.symbolic_number(self._env, real, f"n{number}")
            self._names[fake.node.expr] = varying.name
            return fake, fake
        if not varying.dims:
            return _torch.fake(self._mode, real), _torch.fake(self._mode, real)
        if real.layout is not torch.strided or real.is_quantized:
            raise NotSymbolic(f"a tensor of layout {real.layout}")
        stand_in = torch.empty_strided(real.size(), real.stride(), dtype=real.dtype, device=real.device)
        stand_in.requires_grad_(real.requires_grad)
        fake = _torch.symbolic_tensor(self._mode, stand_in, f"t{number}", set(varying.dims))
        for dim, name in varying.dims.items():
            size = fake.size(dim)
            if isinstance(size, torch.SymInt):
                self._names[size.node.expr] = name
        with self._mode:
            copy = torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device)
            copy.requires_grad_(real.requires_grad)
        return fake, copy

    def size(self, number: int, dim: int) -> str:
        """The size of a dimension of an input, as text."""
        return self.text(self.fakes[number].size(dim))

    def strides(self, number: int) -> str:
        """The strides of an input as a tuple in text."""
        return f"({''.join(self.text(each) + ', ' for each in self.fakes[number].stride())})"

    def text(self, value: Any) -> str:
        """A number in terms of the inputs' names, as Python.

        Raises:
            NotSymbolic: it is not known in these terms.
        """
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return repr(value)
        return self._print(value.node.expr)

    def hint(self, value: Any) -> Any:
        """What a number is now."""
        return value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value

    def specialize(self, value: Any) -> Any:
        """Let a number be what it is now."""
        if isinstance(value, torch.SymInt):
            return int(value)
        if isinstance(value, torch.SymBool):
            return bool(value)
        return float(value) if isinstance(value, torch.SymFloat) else value

    def _print(self, expression: Any) -> str:
        try:
            return _torch.print_expression(expression, self._names)
        except KeyError as unknown:
            raise NotSymbolic(f"a size that depends on {unknown}") from unknown

    def compile(self, backend: Backend) -> Compiled:
        """Give the graph to a backend.

        Raises:
            NotSymbolic: the backend cannot compile it.
            GraphDiffersError: it compiled something else.
        """
        inputs, self._inputs = self._inputs, []
        if backend is eager:
            return self.module.forward
        if self._risk.by_size:
            raise NotSymbolic("memory is updated through views that may leave elements out or overlap")
        operators = copied(self.module)
        try:
            for_functionalization(self.module)
        except UnsupportedGraphError as error:
            raise NotSymbolic(str(error)) from error
        if self._aliases and updates(self.module):
            raise NotSymbolic("inputs that share memory are updated in place")
        if self._late:
            raise NotSymbolic("an input is updated after it was read, and there are gradients")
        if self._history.raises:
            raise NotSymbolic("what eager saves for its backward pass is updated")
        floats = self._floats_as_tensors()
        finish = gradients_of_eager(self.module, self.fakes, shown=self._history)
        try:
            with _torch.tracing(self._mode), _torch.convolutions_by_hint():
                if isinstance(backend, Inductor):
                    with_value_checks(self.module)
                    compiled = finish(_torch.compile_fx(self.module, self.fakes, config_patches=backend.settings))
                elif (inner := unwrapped(backend)) is not backend:
                    compiled = finish(inner(self.module, self.fakes))
                else:
                    compiled = backend(self.module, self.fakes)
        except Exception as error:
            raise NotSymbolic(f"{type(error).__name__}: {str(error)[:200]}") from error
        run = with_views_apart(_with_floats(compiled, floats) if floats else compiled, self._apart)
        if self._risk.at_all:
            checked(run, operators, inputs, self._risk, draws_as_eager(backend))
        if isinstance(backend, Inductor) and backend.may_choose(self.fakes):
            return choosing(run, operators.forward)
        return run

    def _floats_as_tensors(self) -> tuple[int, ...]:
        """Backends take floats as tensors of no dimensions whose item is read in the graph, where it is no tensor's dtype."""
        found = []
        placeholders = self.module.graph.find_nodes(op="placeholder")
        for number, node in enumerate(placeholders):
            if not isinstance(node.meta["example_value"], torch.SymFloat):
                continue
            found.append(number)
            users = list(node.users)
            with self.module.graph.inserting_after(placeholders[-1]):
                item = self.module.graph.call_method("item", (node,))
            for user in users:
                user.replace_input_with(node, item)
            self.fakes[number] = _torch.fake(self._mode, torch.tensor(0.5, dtype=torch.float64))
            node.meta["example_value"] = self.fakes[number]
        if found:
            self.module.recompile()
            _torch.forget_floats(self._env)
        return tuple(found)

    def assumptions(self) -> list[str]:
        """What was assumed of the inputs so far, as Python.

        Raises:
            NotSymbolic: it cannot be said in terms of their names.
        """
        found: dict[str, None] = {}
        for symbol, name in self._names.items():
            lower, upper = _torch.bounds(self._env, symbol)
            if lower is not None:
                found[f"{name} >= {lower}"] = None
            if upper is not None:
                found[f"{name} <= {upper}"] = None
        for expression in _torch.guards(self._env):
            found[self._print(expression)] = None
        found.pop("True", None)
        return list(found)


def _has_late_updates(module: torch.fx.GraphModule) -> bool:
    """Whether a graph that was run has gradients, and updates an input after it has read it. See `late_updates`."""
    ends = [node for node in module.graph.nodes if node.op in ("placeholder", "output")]
    if not may_be_late(module) or not any(each.requires_grad for node in ends for each in _values(node)):
        return False
    try:
        return bool(late_updates(module))
    except NotApart:
        return True


def _values(node: torch.fx.Node) -> list[torch.Tensor]:
    return tensors_in(node.meta["example_value"])


def _with_floats(compiled: Compiled, floats: tuple[int, ...]) -> Compiled:
    """A function that takes some of its inputs as floats, around one that takes them as tensors."""

    def run(*inputs: Any) -> Any:
        passed = [*inputs]
        for number in floats:
            passed[number] = torch.tensor(passed[number], dtype=torch.float64)
        return compiled(*passed)

    return run


__all__ = ["NotSymbolic", "SymbolicGraph", "Varying"]
