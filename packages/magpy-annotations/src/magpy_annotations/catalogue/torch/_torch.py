"""The private names of torch that the catalogue goes by, all in this module.

Imported when somebody else has imported torch. ``tests/test_torch.py`` shows that each of them is there and means what
it is taken for.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

TENSOR: Any = torch._C.TensorBase
"""The type that has the C methods and attributes of tensors."""

OVERLOADS: tuple[Any, ...] = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
"""The types of what ``torch.ops`` holds."""

_NAMESPACES = ("_VariableFunctions", "_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")


def namespaces() -> dict[str, Any]:
    """The holders of torch's C functions, by path."""
    found = {name: getattr(torch._C, name, None) for name in _NAMESPACES}
    return {f"torch._C.{name}": holder for name, holder in found.items() if holder is not None}


@functools.cache
def schemas(name: str) -> tuple[Any, ...]:
    """The schemas of all forms of an operator of ``aten``, those of TorchScript's lists included."""
    return tuple(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


def is_packet(func: Any) -> bool:
    """Whether `func` stands for all overloads of an operator."""
    return isinstance(func, torch._ops.OpOverloadPacket)
