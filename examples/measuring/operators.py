"""Which operators ran, seen from below Python: a dispatch mode reports every aten operator on its way to a kernel.

Run over eager and over a captured graph, it says whether the graph holds what eager ran. It knows nothing of MagPy.
"""

import collections
import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_C_CALLABLES = (
    types.BuiltinFunctionType,  # torch.add, operator.getitem, torch._C._nn.gelu
    types.MethodDescriptorType,  # torch.Tensor.add
    types.WrapperDescriptorType,  # torch.Tensor.__getitem__ and the like
    types.GetSetDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)


class _Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators_run(call: Callable[[], Any]) -> collections.Counter[str]:
    """The aten operators that reach a kernel while `call` runs, with how often each did."""
    listener = _Listener()
    with listener:
        call()
    return listener.seen


@contextlib.contextmanager
def as_compiling() -> Iterator[None]:
    """Lets `torch.compiler.is_compiling()` answer True, as it does during a monitored run.

    Libraries that were written for torch.compile take another way then (`transformers` builds the attention mask always and
    does not look at its values), so eager is compared under the same answer.
    """
    compiler: Any = torch.compiler
    before = compiler._is_compiling_flag
    compiler._is_compiling_flag = True
    try:
        yield
    finally:
        compiler._is_compiling_flag = before


def graph_problems(graph_module: torch.fx.GraphModule) -> list[str]:
    """Nodes that are not C operators: modules, Python functions, and methods that are written in Python."""
    problems = []
    for node in graph_module.graph.nodes:
        if node.op == "call_module":
            problems.append(f"{node.name}: module {node.target}")
        elif node.op == "call_function" and not isinstance(node.target, _C_CALLABLES):
            problems.append(f"{node.name}: {getattr(node.target, '__qualname__', node.target)} is not a C operator")
        elif node.op == "call_method" and isinstance(getattr(torch.Tensor, node.target, None), types.FunctionType):
            problems.append(f"{node.name}: Tensor.{node.target} is written in Python")
    return problems
