"""How calls were served: a helper that says before each call how it must be, so that no test passes by running natively."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch

import magpy


class Served:
    """A compiled object whose calls are asserted: `monitored(...)`, `hit(...)` and `native(...)` call it and check."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled

    def __call__(self, how: str, *args: Any, **kwargs: Any) -> Any:
        before = magpy.info(self.compiled)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", magpy.NotCompiledWarning)
                return self.compiled(*args, **kwargs)
        finally:
            after = magpy.info(self.compiled)
            changes = {name: getattr(after, name) - getattr(before, name) for name in ("monitored", "hits", "native")}
            expected = {name: int(name == how) for name in changes}
            assert changes == expected, f"expected {how}, was {changes}; reasons {after.reasons}"

    def monitored(self, *args: Any, **kwargs: Any) -> Any:
        """This call must run natively under observation."""
        return self("monitored", *args, **kwargs)

    def hit(self, *args: Any, **kwargs: Any) -> Any:
        """This call must be served from a record."""
        return self("hits", *args, **kwargs)

    def native(self, *args: Any, **kwargs: Any) -> Any:
        """This call must run natively, unobserved."""
        return self("native", *args, **kwargs)


def reasons(compiled: Any) -> list[str]:
    """The slugs of the reasons of a compiled object."""
    return [reason.slug for reason in magpy.info(compiled).reasons]


def equal(one: Any, other: Any) -> bool:
    """Bit for bit: tensors in all that can be seen of them, containers recursively."""
    if isinstance(one, torch.Tensor):
        return (
            type(one) is type(other)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and one.requires_grad == other.requires_grad
            and torch.equal(one.nan_to_num(), other.nan_to_num())
            and torch.equal(one.isnan(), other.isnan())
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(equal(one[k], other[k]) for k in one)
    return type(one) is type(other) and bool(one == other)


def agree(make: Callable[[], Any], *args: Any, calls: int = 3, hits: int | None = None, seed: int = 0) -> Any:
    """Call what `make` makes eagerly and compiled: results, gradients and state must be the same bits.

    Args:
        make: makes the callable, the same one every time.
        args: arguments; copied for each world.
        calls: number of calls.
        hits: how many of them must be served from a record; all but the first by default.
        seed: of the random numbers.

    Returns:
        The compiled object.
    """
    eager, target = make(), make()
    compiled = magpy.compile(target, backend="eager")
    worlds = []
    for function, module in ((eager, eager), (compiled, target)):
        mine = copy.deepcopy(args)
        torch.manual_seed(seed)
        results = [function(*mine) for _ in range(calls)]
        gradients: list[Any] = []
        if isinstance(module, torch.nn.Module):
            losses = [part.sum() for part in _tensors(results) if part.requires_grad]
            if losses:
                sum(losses).backward()  # type: ignore[union-attr]
            gradients = [parameter.grad for parameter in module.parameters()]
            gradients += list(module.state_dict().values())
        worlds.append((results, mine, gradients, torch.get_rng_state()))
    for one, other in zip(*worlds, strict=True):
        assert equal(one, other)
    info = magpy.info(compiled)
    assert info.hits == (calls - 1 if hits is None else hits), info
    return compiled


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in _tensors(part)]
    return []
