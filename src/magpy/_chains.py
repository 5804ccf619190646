"""Chains of segments in a copy of the process: what verifies calls that pass boundaries.

A boundary operation is done twice for that, in the copy and by the program itself. The copy has memory of its own, so
whatever only reads and writes memory can be done twice: tensors' values, gradients, optimizers' steps. What prints, asks
the clock, or is the user's code cannot, and the call is not verified.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import torch

from magpy_runtime import Damage, Record, is_in_graph, raise_built, raise_damage
from magpy_runtime.segments import BoundarySite, Point

from ._refusals import strip
from ._verify import not_served

_IN_MEMORY: Final = frozenset(
    {"tensor-value", "dynamic-shape", "array-contents", "update-then-raise", "backend-operator"}
)
"""Reasons of operations that read and write tensors."""

_FORMATS: Final[tuple[Any, ...]] = (format, str, repr, ascii, round, float, int, bool, len)
_LIBRARIES: Final = ("torch._tensor", "torch.autograd", "torch.optim")
_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
_ATTEMPTS: Final = 3


def cannot_repeat(site: BoundarySite, function: Any, args: tuple[Any, ...]) -> str | None:
    """Why a boundary operation cannot be done twice, or None."""
    if site.slug in _IN_MEMORY and not site.sees:
        return None
    if site.slug == "tensor-attribute" and function is setattr and type(args[0]) in _TENSORS and args[1] == "grad":
        return None
    if not site.sees and any(function is each for each in _FORMATS):
        return None
    module = getattr(function, "__module__", None) if type(function) is types.FunctionType else None
    if type(module) is str and any(module == each or module.startswith(f"{each}.") for each in _LIBRARIES):
        return None
    return f"{site.text} would be done twice"


def run_mock(record: Record, bound: tuple[Any, ...]) -> Any:
    """What a record's mock gives, in a copy of the process. Where its graph raises, the program itself would serve the call."""
    try:
        return record.mock(bound, record.run)
    except Damage as damage:
        raise_damage(damage)
    except Exception as error:
        if is_in_graph(record, error):
            raise not_served(f"the graph of the record raises {type(error).__name__}") from None
        raise


def chain(record: Record, bound: tuple[Any, ...], trail: list[int]) -> Callable[[], Any]:
    """What serves a call, or the rest of one, from a segment and those that follow it.

    Args:
        record: the segment.
        bound: what its guard gave.
        trail: the records that are used are added, by `id`.
    """
    threads = torch.get_num_threads()

    def served() -> Any:
        at, given = record, bound
        while True:
            trail.append(id(at))
            result = run_mock(at, given)
            site = at.boundary
            if site is None:
                if at.raises:
                    raise_built(result)
                return result
            at, given = _next(threads, site, *result)

    return served


def _next(
    threads: int,
    site: BoundarySite,
    function: Any,
    args: tuple[Any, ...],
    keywords: dict[str, Any],
    slots: tuple[Any, ...],
) -> tuple[Record, tuple[Any, ...]]:
    """Do a boundary operation in a copy of a process with `threads` threads; gives the next segment and what its guard gives."""
    if (why := cannot_repeat(site, function, args)) is not None:
        raise not_served(why)
    error = outcome = None
    try:
        outcome = site.run(function, args, keywords, slots)
    except Exception as problem:
        error = problem
    if error is None:
        way, slots = site.go_on(outcome, args, slots)
    else:
        if "fork" in str(error):  # a library that does not work in copies of a process
            raise not_served(f"{site.text} does not work in a copy of the process")
        strip(error)
        way, slots = site.go_wrong(error, args, slots)
    point: Point = way.point
    torch.set_num_threads(threads)  # guards ask; the copy computes on one
    found = point.cache.find(slots, {})
    torch.set_num_threads(1)
    if found is None:
        again = not point.cache.full and point.failures < _ATTEMPTS
        raise not_served(f"no record yet for what comes after {site.text}", again=again)
    return found


__all__ = ["cannot_repeat", "chain", "run_mock"]
