"""Every private name of torch that the meta-package uses, in one place.

Checked against torch 2.11 to 2.14; `tests/test_torch_names.py` looks each one up.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch._C
import torch.autograd.profiler
import torch.compiler
import torch.fx
from torch.overrides import TorchFunctionMode

from magpy_runtime import modes, restore_modes

push_mode: Final = torch._C._push_on_torch_function_stack
pop_mode: Final = torch._C._pop_torch_function_stack
function_mode_depth: Final = torch._C._len_torch_function_stack
dispatch_mode_depth: Final = torch._C._len_torch_dispatch_stack
functorch_depth: Final = torch._C._functorch.maybe_current_level
_saved_hooks: Final = torch._C._autograd._top_saved_tensors_default_hooks

MODE_QUERIES: Final[tuple[Any, ...]] = tuple(
    getattr(torch._C, name)
    for name in (
        "_has_torch_function",
        "_has_torch_function_unary",
        "_has_torch_function_variadic",
        "_len_torch_function_stack",
        "_is_torch_function_enabled",
        "_is_torch_function_all_disabled",
        "_is_torch_function_mode_enabled",
    )
    if hasattr(torch._C, name)
)
"""C functions whose answer would show that a function mode is active."""

IS_COMPILING_CODE: Final = torch.compiler.is_compiling.__code__
IS_COMPILING_FLAG: Final = "_is_compiling_flag"
COMPILER_GLOBALS: Final = torch.compiler.is_compiling.__globals__

ATOM_TYPES: Final[tuple[type, ...]] = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.finfo,
    torch.iinfo,
)
PLAIN_TENSORS: Final[tuple[type, ...]] = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_numpy: Final = sys.modules.get("numpy")  # torch imports it where it is installed
NUMPY_SCALARS: Final[tuple[type, ...]] = (
    ()
    if _numpy is None
    else tuple(
        {each for each in _numpy.sctypeDict.values() if issubclass(each, (_numpy.number, _numpy.bool_))}
        | {type(_numpy.dtype(each)) for each in _numpy.sctypeDict.values()}
    )
)


def of_numpy_scalars(function: Any) -> bool:
    """Whether a callable is numpy's and calculates with scalars: a universal function, a type, a method."""
    if _numpy is None:
        return False
    owner = getattr(function, "__objclass__", function)
    return type(function) is _numpy.ufunc or (isinstance(owner, type) and issubclass(owner, _numpy.generic))


def meets_error(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a calculation of numpy's meets an error that it warns of, raises or ignores as it is told to.

    It is calculated to see that, aside from what would warn here, too: a complex number that is made a real one.
    """
    if _numpy is None or function is None:
        return False
    complexes = (complex, _numpy.complexfloating)
    if _makes_real(function, complexes) and any(isinstance(each, complexes) for each in args):
        return True
    with _numpy.errstate(all="raise"):
        try:
            function(*args, **keywords)
        except FloatingPointError:
            return True
        except Exception:
            return False
    return False


def _makes_real(function: Any, complexes: tuple[type, ...]) -> bool:
    """Whether a callable makes other numbers of complex ones, as far as its name or type says."""
    if isinstance(function, type):
        return not issubclass(function, complexes)
    return getattr(function, "__name__", "") in ("__float__", "__int__", "astype")


OPERATORS: Final = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
FUNCTION_APPLY: Final = torch._C._FunctionBase.__dict__.get("apply")
LEGACY_VARIABLE: Final = getattr(torch._C, "_LegacyVariableBase", None)

EVAL_FRAME_SETTERS: Final[tuple[Any, ...]] = tuple(
    getattr(torch._C._dynamo.eval_frame, name)
    for name in ("set_eval_frame", "set_eval_frame_isolate_recompiles_id", "set_skip_guard_eval_unsafe")
    if hasattr(torch._C._dynamo.eval_frame, name)
)
"""Switches of TorchDynamo, which its own decorators put back before they return."""

PROFILER_ENABLED: Final = torch._C._autograd._profiler_enabled


PROFILER_MARKS: Final = tuple(
    getattr(torch.autograd.profiler.record_function, name) for name in ("__enter__", "__exit__")
)
"""What marks a part of a program for a profiler; without one that runs, nobody sees it."""


def generation_marks() -> tuple[Any, ...]:
    """What TorchDynamo, where it is loaded, has each new module call to note its age."""
    guard = sys.modules.get("torch._dynamo.mutation_guard")
    mark = getattr(getattr(guard, "GenerationTracker", None), "tag", None)
    return () if mark is None else (mark.__func__,)


def is_profiler_mark(obj: Any) -> bool:
    """Whether an object is the handle of such a mark."""
    return issubclass(type(obj), torch.ScriptObject) and obj._type().qualified_name().endswith(
        "profiler._RecordFunction"
    )


TOLIST: Final = torch.Tensor.tolist
ITEM: Final = torch.Tensor.item
COND: Final = torch.ops.higher_order.cond
TENSOR_BASE: Final = torch._C.TensorBase
set_grad_enabled: Final = torch._C._set_grad_enabled
sym_sqrt: Final = torch._sym_sqrt  # type: ignore[attr-defined]
MARKS: Final = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")
"""Attributes of tensors in which `torch._dynamo` keeps the dimensions that were marked as dynamic."""

STATIC_MARK: Final = "_dynamo_static_indices"
parse_schema: Final = torch._C.parse_schema
LEGACY_TENSOR: Final = type(torch.FloatTensor)


def mode_on_entry() -> str | None:
    """What is active and sees each operator or what it saves, so that calls run natively; None where nothing does."""
    if function_mode_depth() or dispatch_mode_depth():
        return "torch function or dispatch mode"
    return "hooks for what autograd saves" if _saved_hooks(False) is not None else None


def is_elsewhere() -> bool:
    """Whether a backward pass runs on this thread, or torch traces the program: no place to make or use records in."""
    return bool(torch._C._current_graph_task_id() != -1 or torch._C._get_tracing_state() is not None)


def remove_mode(mode: TorchFunctionMode) -> None:
    """Take a mode off the stack wherever it lies; while torch calls a mode's handler it lies nowhere."""
    others = []
    while function_mode_depth():
        top = pop_mode()
        if top is not mode:
            others.append(top)
    for other in reversed(others):
        push_mode(other)


def dismantle(graph: Any) -> None:
    """Cut the cycles of a torch.fx graph that nobody will look at again, so that it needs no garbage collection."""
    nodes = [*graph.nodes]
    for node in nodes:
        node._update_args_kwargs((), {})
    for node in [*nodes, graph._root]:
        node.users.clear()
        node.meta.clear()
        node._prev = node._next = None
        object.__setattr__(node, "graph", None)
    vars(graph).clear()


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """`torch.compiler.is_compiling()` answers True meanwhile."""
    before = COMPILER_GLOBALS[IS_COMPILING_FLAG]
    COMPILER_GLOBALS[IS_COMPILING_FLAG] = True
    try:
        yield
    finally:
        COMPILER_GLOBALS[IS_COMPILING_FLAG] = before


__all__ = [
    "ATOM_TYPES",
    "COMPILER_GLOBALS",
    "EVAL_FRAME_SETTERS",
    "FUNCTION_APPLY",
    "IS_COMPILING_CODE",
    "IS_COMPILING_FLAG",
    "LEGACY_TENSOR",
    "LEGACY_VARIABLE",
    "MARKS",
    "MODE_QUERIES",
    "NUMPY_SCALARS",
    "OPERATORS",
    "PLAIN_TENSORS",
    "PROFILER_ENABLED",
    "PROFILER_MARKS",
    "STATIC_MARK",
    "TENSOR_BASE",
    "TorchFunctionMode",
    "compiling",
    "dismantle",
    "dispatch_mode_depth",
    "function_mode_depth",
    "functorch_depth",
    "generation_marks",
    "is_elsewhere",
    "is_profiler_mark",
    "mode_on_entry",
    "modes",
    "parse_schema",
    "pop_mode",
    "push_mode",
    "remove_mode",
    "restore_modes",
    "set_grad_enabled",
    "sym_sqrt",
]


def fake_values(module: Any, inputs: list[Any]) -> list[Any]:
    """What each node of a graph gives, on fake inputs: sizes that depend on values are symbols."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found: list[Any] = []

    class Values(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            found.append(super().run_node(n))
            return found[-1]

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(each, static_shapes=True) for each in inputs]
    with mode, env.ignore_fresh_unbacked_symbols():
        Values(module).run(*fakes)
    return found
