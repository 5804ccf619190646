"""Every private name of torch that the runtime uses, in one place. Checked against torch 2.11 to 2.14."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch._C

function_mode_depth: Final = torch._C._len_torch_function_stack
dispatch_mode_depth: Final = torch._C._len_torch_dispatch_stack


def global_state_check() -> Any:
    """A callable that tells whether grad mode, autocast, default dtype and the like are as they are now."""
    from torch._C._dynamo.guards import GlobalStateGuard

    return GlobalStateGuard().check


def tensor_guards(tensors: list[torch.Tensor]) -> Any:
    """A callable that compares tensors' metadata with those of the given ones; it also wants them distinct."""
    from torch._C._dynamo.guards import TensorGuards

    return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def dispatch_keys(tensor: torch.Tensor) -> Any:
    """A tensor's dispatch key set."""
    return torch._C._dispatch_keys(tensor)


def lookup_backend(name: str) -> Any:
    """A backend of torch's registry."""
    from torch._dynamo.backends.registry import lookup_backend as lookup

    return lookup(name)


def list_backends() -> list[str]:
    """The names of all backends in torch's registry."""
    from torch._dynamo.backends.registry import list_backends as listing

    return list(listing(exclude_tags=()))


def compile_fx(module: Any, inputs: list[Any], config_patches: dict[str, Any]) -> Any:
    """Inductor's general entry."""
    from torch._inductor.compile_fx import compile_fx as entry

    return entry(module, inputs, config_patches=config_patches)


def fake_mode() -> Any:
    """A mode that makes fake tensors with a shape environment, without which torch's disk caches are bypassed."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def tracing(mode: Any) -> Any:
    """The tracing context under which backends expect to be called."""
    from torch._guards import TracingContext
    from torch._guards import tracing as enter

    return enter(TracingContext(mode))


__all__ = [
    "compile_fx",
    "dispatch_keys",
    "dispatch_mode_depth",
    "fake_mode",
    "function_mode_depth",
    "global_state_check",
    "list_backends",
    "lookup_backend",
    "tensor_guards",
    "tracing",
]
