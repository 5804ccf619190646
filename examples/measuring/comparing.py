"""Compares two results, or two modules' states, however they are nested."""

import collections
import dataclasses
import math
import re
from typing import Any

import torch
from torch import Tensor, nn

_COMPILERS_OWN = re.compile(
    r"_(magpy|dynamo|compiled|torchdynamo)|_is_torch_compile|_backward_hooks$|_forward_hooks$|forward$"
)
_LEAVES = (str, bytes, bool, int, float, complex, type(None), torch.dtype, torch.device, range, slice)


def difference(expected: Any, got: Any, *, tolerance: float = 0.0, where: str = "result") -> str | None:
    """Says where two values differ, or None.

    Args:
        expected: What eager gave.
        got: What is compared with it.
        tolerance: How far numbers of a tensor may be apart, in units of the tensor's largest one; 0 asks for equal bits.
        where: How to call the value in the answer.
    """
    return _Comparison(tolerance).difference(expected, got, where)


def state_difference(expected: nn.Module, got: nn.Module, *, tolerance: float = 0.0) -> str | None:
    """Says where the states of two modules differ (parameters, buffers and all other attributes), or None."""
    compare = _Comparison(tolerance)
    theirs = dict(got.named_modules())
    for name, module in expected.named_modules():
        if name not in theirs:
            return f"submodule {name} is missing"
        left, right = (
            {k: v for k, v in vars(m).items() if k != "_modules" and not _COMPILERS_OWN.match(k)}
            for m in (module, theirs[name])
        )
        where = f"attributes of {name or 'the module'}"
        if odd := left.keys() ^ right.keys():
            return f"{where}: {', '.join(sorted(odd))} only in one of the two"
        for key, value in left.items():
            if found := compare.difference(value, right[key], f"{where}.{key}"):
                return found
    return None


class _Comparison:
    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.seen: set[tuple[int, int]] = set()

    def difference(self, a: Any, b: Any, where: str) -> str | None:
        if a is b or (id(a), id(b)) in self.seen:
            return None
        if type(a) is not type(b):
            return f"{where}: {type(a).__qualname__} became {type(b).__qualname__}"
        if isinstance(a, Tensor):
            return self.tensors(a, b, where)
        if isinstance(a, float):
            return None if a == b or (math.isnan(a) and math.isnan(b)) else f"{where}: {a} became {b}"
        if isinstance(a, _LEAVES):
            return None if a == b else f"{where}: {a!r} became {b!r}"
        self.seen.add((id(a), id(b)))
        if isinstance(a, nn.Module):
            return None  # their states are compared module by module
        if isinstance(a, dict):
            if list(map(str, a)) != list(map(str, b)):
                return f"{where}: keys {list(a)} became {list(b)}"
            return self.first((a[k], v, f"{where}[{k!r}]") for k, v in zip(a, b.values(), strict=True))
        if isinstance(a, (list, tuple, collections.deque)):
            if len(a) != len(b):
                return f"{where}: length {len(a)} became {len(b)}"
            return self.first((x, y, f"{where}[{n}]") for n, (x, y) in enumerate(zip(a, b, strict=True)))
        if isinstance(a, (set, frozenset)):
            return None if a == b else f"{where}: {a} became {b}"
        fields: tuple[Any, Any] | None = None
        if hasattr(a, "__dict__"):
            fields = vars(a), vars(b)
        elif dataclasses.is_dataclass(a):
            fields = tuple({f.name: getattr(x, f.name) for f in dataclasses.fields(a)} for x in (a, b))  # type: ignore[assignment]
        if fields is None or isinstance(a, type) or callable(a):
            return None
        return self.first((fields[0].get(k), fields[1].get(k), f"{where}.{k}") for k in {**fields[0], **fields[1]})

    def first(self, pairs: Any) -> str | None:
        return next((found for pair in pairs if (found := self.difference(*pair))), None)

    def tensors(self, a: Tensor, b: Tensor, where: str) -> str | None:
        one, two = ((type(t), t.dtype, t.shape, t.device, t.layout, t.requires_grad) for t in (a, b))
        if one == two and not self.tolerance and a.layout == torch.strided and a.stride() != b.stride():
            return f"{where}: strides {a.stride()} became {b.stride()}"  # a compiling backend may choose its own
        if one != two:
            return f"{where}: {one} became {two}"
        a, b = a.detach(), b.detach()
        if torch.equal(a, b):
            return None
        if a.is_floating_point() and torch.equal(a.isnan(), b.isnan()):
            a, b = a.nan_to_num(0.0), b.nan_to_num(0.0)
            gap, size = (a - b).abs().max().item(), a.abs().max().item()
            if gap <= self.tolerance * size:
                return None
            return f"{where}: {a.dtype} {list(a.shape)} differs by {gap:.3g} of {size:.3g}"
        return f"{where}: values of {a.dtype} {list(a.shape)} differ"
