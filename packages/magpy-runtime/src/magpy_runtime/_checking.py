"""Compiled graphs that update memory or share it are compared with their operators before they are used.

What compilers get wrong in such graphs they get wrong without a word. So both ways are run on copies of the inputs of the call
that was watched: outputs, memory afterwards, who shares it, and gradients must be the same. Else the operators run one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
import torch.fx

from ._graph_facts import storage_of
from ._risky import Risk
from ._trying import Run, Untried, World, flat_on, two_worlds

_ROUNDED: Final = 1e-3
"""Of the largest element, for kernels that add up in another order."""

_ROUNDED_ON_CUDA: Final = 1e-2
_ROUNDED_IN_HALVES: Final = 5e-2
_CANCELLED: Final = 0.1
"""Of that, for the largest element of all: gradients that are zero but for rounding."""

_HALVES: Final = (torch.float16, torch.bfloat16)


class GraphDiffersError(RuntimeError):
    """The code of a graph does something else than its operators.

    Attributes:
        operators: runs these one by one.
    """

    def __init__(self, message: str, operators: Run) -> None:
        super().__init__(message)
        self.operators = operators


class _Difference(Exception):
    """Two runs differ."""


def checked(code: Run, original: torch.fx.GraphModule, inputs: list[Any], risk: Risk, same_random: bool) -> Run:
    """Compiled code, if it does what the operators of its graph do.

    Args:
        code: the code.
        original: the graph, as it was before it was compiled.
        inputs: those of a call; they are not touched.
        risk: what the graph may update.
        same_random: whether the code draws eager's random numbers.

    Raises:
        GraphDiffersError: it does not, or that cannot be found out.
    """
    if risk.never:  # it may write where none of its inputs' elements are
        raise GraphDiffersError(risk.never, one_by_one(original))
    constants = [each for name in risk.constants if isinstance(each := getattr(original, name, None), torch.Tensor)]
    before = [each.clone() for each in constants]
    try:
        expected, found = _tried(code, original, inputs, risk.updated)
        _compare(expected, found, same_random)
        for one, other in zip(expected.updatable(), found.updatable(), strict=True):
            if one and not other:
                raise _Difference("an output cannot be updated")
    except (Untried, _Difference) as difference:
        raise GraphDiffersError(str(difference), one_by_one(original)) from None
    finally:
        with torch.no_grad():
            for each, was in zip(constants, before, strict=True):
                if not _same(each, was):
                    each.data.copy_(was)
    return code


def one_by_one(module: torch.fx.GraphModule) -> Run:
    """Runs a graph's operators."""

    def run(*inputs: Any) -> Any:
        return module.forward(*inputs)

    run.entry = "eager"  # type: ignore[attr-defined]
    return run


def _tried(
    code: Run, original: torch.fx.GraphModule, inputs: list[Any], updated: tuple[int, ...]
) -> tuple[World, World]:
    draws = bool(original.meta.get("random", True))
    for noise in (True, False):
        expected, found = two_worlds(inputs, updated, noise)
        if expected.run(original.forward, draws).error is None:
            return expected, found.run(code, draws)
    raise Untried(f"its operators raise on copies of its inputs: {_said(expected.error)}")


def _compare(expected: World, found: World, same_random: bool) -> None:
    if found.error is not None:
        raise _Difference(f"it raises {_said(found.error)}")
    if expected.grad is not found.grad:
        raise _Difference("it leaves another grad mode")
    if len(expected.outputs) != len(found.outputs):
        raise _Difference("it gives another number of outputs")
    _compare_all(_looks(expected), _looks(found))
    if (expected.late is None) is not (found.late is None):
        raise _Difference(f"its backward pass raises {_said(found.late)}, not {_said(expected.late)}")
    if expected.drew and not same_random:
        return
    tolerance = _tolerance(expected)
    outputs = [("an output", *pair) for pair in zip(_plain(expected.outputs), _plain(found.outputs), strict=True)]
    _compare_values(outputs, tolerance, _CANCELLED * tolerance)
    memory = [
        (f"the memory of input {number}", flat_on(one, like), flat_on(other, like))
        for number, (one, other, like) in enumerate(_memories(expected, found))
    ]
    _compare_values(memory, tolerance, 0.0)
    inputs = [("an input", *pair) for pair in zip(_plain(expected.inputs), _plain(found.inputs), strict=True)]
    _compare_values(inputs, tolerance, 0.0)
    if expected.late is not None:
        return
    if expected.present != found.present:
        raise _Difference("an output by itself has other gradients")
    pairs = [*zip(expected.gradients, found.gradients, strict=True)]
    for one, other in pairs:
        if (one is None) is not (other is None):
            raise _Difference(f"a gradient is {'missing' if other is None else 'there that eager does not have'}")
        if one is not None and other is not None and one.shape != other.shape:
            raise _Difference("a gradient has another shape")
    gradients = [("a gradient", one, other) for one, other in pairs if one is not None and other is not None]
    _compare_values(gradients, tolerance, _CANCELLED * tolerance)


def _memories(expected: World, found: World) -> Iterable[tuple[Any, Any, torch.Tensor]]:
    """The storages that copies of inputs lay on before the run."""
    for one, other, like in zip(expected.storages, found.storages, expected.firsts, strict=True):
        if one._cdata != other._cdata:
            yield one, other, like


def _said(error: Exception | None) -> str:
    if error is None:
        return "nothing"
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:120]}"


def _compare_all(expected: list[tuple[str, Any]], found: list[tuple[str, Any]]) -> None:
    for (what, one), (_, other) in zip(expected, found, strict=True):
        if one != other:
            raise _Difference(f"{what} is {other}, not {one}")


def _looks(world: World) -> list[tuple[str, Any]]:
    """All that can be seen of outputs and inputs but their values."""
    found: list[tuple[str, Any]] = []
    places: dict[int, tuple[int, int]] = {}
    objects: dict[int, int] = {}
    values = [("input", each) for each in world.inputs] + [("output", each) for each in world.outputs]
    given = {id(each) for each in world.inputs}
    shared: dict[int, int] = {}
    for _, each in values:
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            shared[storage_of(each)] = shared.get(storage_of(each), 0) + 1
    for number, (kind, each) in enumerate(values):
        what = f"{kind} {number if kind == 'input' else number - len(world.inputs)}"
        if not isinstance(each, torch.Tensor):
            found.append((f"the type of {what}", type(each)))
            continue
        found.append((f"the object that is {what}", objects.setdefault(id(each), number)))
        found.append((f"the type of {what}", (each.dtype, each.device, each.layout, each.is_conj(), each.is_neg())))
        found.append((f"the shape of {what}", tuple(each.shape)))
        found.append((f"requires_grad of {what}", each.requires_grad))
        found.append((f"the history of {what}", each.grad_fn is not None))
        if each.layout is not torch.strided:
            continue
        found.append((f"the strides of {what}", _strides(each)))
        storage, offset = storage_of(each), int(each.storage_offset()) * each.element_size()
        first = places.setdefault(storage, (number, 0 if id(each) in given else offset))
        if shared[storage] > 1 or id(each) in given:
            found.append((f"the place in memory of {what}", (first[0], offset - first[1])))
        else:
            found.append((f"the place in memory of {what}", None))
    return found


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Those that can be told from others."""
    if not tensor.numel():
        return ()
    return tuple([stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)])


def _plain(values: list[Any]) -> list[torch.Tensor]:
    return [each for each in values if isinstance(each, torch.Tensor)]


def _tolerance(world: World) -> float:
    tensors = _plain([*world.inputs, *world.outputs])
    devices = {each.device.type for each in tensors}
    if any(each.dtype in _HALVES for each in tensors) or any(map(torch.is_autocast_enabled, devices | {"cpu"})):
        return _ROUNDED_IN_HALVES
    return _ROUNDED if devices <= {"cpu"} else _ROUNDED_ON_CUDA


def _compare_values(pairs: list[tuple[str, torch.Tensor, torch.Tensor]], tolerance: float, of_all: float) -> None:
    """Compare tensors with each other; each may differ by so much of its largest element, and of the largest of all."""
    with torch.no_grad():
        known = [(what, _number(one), _number(other)) for what, one, other in pairs]
        scales = [_largest(one) for _, one, _ in known]
        allowed = of_all * max(scales, default=0.0)
        for (what, one, other), scale in zip(known, scales, strict=True):
            if not _same(one, other, tolerance * scale + allowed):
                raise _Difference(f"{what} has other values")


def _number(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def _largest(tensor: torch.Tensor) -> float:
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0
    return float(tensor.abs().nan_to_num(0.0, 0.0, 0.0).max())


def _same(one: torch.Tensor, other: torch.Tensor, allowed: float = 0.0) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    alike = one == other
    if one.is_floating_point() or one.is_complex():
        alike |= ((one - other).abs() <= allowed) | ((one != one) & (other != other))
    return bool(alike.all())


__all__ = ["GraphDiffersError", "checked", "one_by_one"]
