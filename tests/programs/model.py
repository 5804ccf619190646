"""What a test program is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

PROGRAMS: dict[str, Callable[[], "Program"]] = {}
"""All programs by name; calling one makes a fresh world."""

RECORD, SPLIT, NATIVE, ANY = "record", "split", "native", "any"


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A callable, its calls and what is expected.

    Attributes:
        target: The function or module to compile.
        calls: Fresh arguments; the first entry is used for two calls, each further one for one.
        served: `record` (one record answers all calls but the first), `split` (records with boundaries answer them),
            `native` (none is answered by a record) or `any`.
        reason: A slug that `magpy.info` must give where calls are native, or for a boundary.
        misses: How many of the later calls may need a record of their own.
        observe: Gives further state to compare after each call (lists that were appended to, globals, ...).
        between: Called between the calls, with the number of the call to come (a change of the world).
        grad: Run with gradients: the sum of all floating outputs is propagated back after each call, parameters compared.
        train: Leave the module in training mode.
        compiling: Eager, too, is told that it is being compiled (libraries that take another way then).
    """

    target: Callable[..., Any]
    calls: list[Call]
    served: str = RECORD
    reason: str | None = None
    misses: int = 0
    observe: Callable[[], Any] | None = None
    between: Callable[[int], None] | None = None
    grad: bool = False
    train: bool = False
    compiling: bool = False


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    """Registers a program under its file's and its own name."""
    name = f"{make.__module__.rpartition('.')[2]}.{make.__name__}"
    assert name not in PROGRAMS, name
    PROGRAMS[name] = make
    return make


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    """Reproducible normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ints(*shape: int, high: int, seed: int = 0) -> torch.Tensor:
    """Reproducible integers below `high`."""
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def calls(*shape: int, count: int = 1, **kwargs: Any) -> list[Call]:
    """Two calls' worth of `count` random tensors of a shape."""
    return [Call(tuple(rand(*shape, seed=10 * n + k) for k in range(count)), dict(kwargs)) for n in (1, 2)]
