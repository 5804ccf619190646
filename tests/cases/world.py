"""What the programs of this folder share: tensors, classes, and tables of programs that differ in one expression."""

import contextvars
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from soundness import Program, attempt, keep
from torch import nn


def X() -> torch.Tensor:
    """A vector."""
    return torch.arange(4.0)


def XB() -> torch.Tensor:
    """A batch."""
    return torch.arange(12.0).view(3, 4)


def add(name: str, prog: Program, found: str | None) -> None:
    """Register a program of a table."""
    prog.__name__ = name
    keep(prog, found=found)


def nested(name: str, op: Callable[..., Any], first: Any, second: Any, found: str | None = None) -> None:
    """`op(x, v)`, where `v` is an argument, and where it is a closure's variable that changes in place."""

    def prog(c: Any) -> Iterator[Any]:
        f = c(lambda x, v: op(x, v))
        x = X()
        for v in (first, first, second, first):
            yield attempt(f, x, copy.deepcopy(v))
        v = copy.deepcopy(first)
        g = c(lambda x: op(x, v))
        yield attempt(g, x)
        yield attempt(g, x)
        if isinstance(v, list):
            v[:] = copy.deepcopy(second)
        elif isinstance(v, (dict, set)):
            v.clear()
            v.update(second)
        else:
            v = copy.deepcopy(second)
        yield attempt(g, x)
        if isinstance(v, list) and v and isinstance(v[-1], list):
            v[-1].append(3)
            yield attempt(g, x)

    add(f"nested_{name}", prog, found)


def dunder(
    name: str, method: str, op: Callable[..., Any], variants: list[Any], base: type = object, found: str | None = None
) -> None:
    """`op(x, o)`, where a special method of the class of `o` is set, replaced or deleted between the calls."""

    def prog(c: Any) -> Iterator[Any]:
        class C(base):  # type: ignore[misc, valid-type]
            pass

        f = c(lambda x, o: op(x, o))
        x = X()
        if variants[0] is not None:
            setattr(C, method, variants[0])
        o = C()
        yield attempt(f, x, o)
        yield attempt(f, x, o)
        for variant in variants[1:]:
            if variant is None:
                delattr(C, method)
            else:
                setattr(C, method, variant)
            yield attempt(f, x, o)

    add(f"dunder_{name}", prog, found)


def getter(
    name: str, get: Callable[[], Any], change: Callable[[], Any], back: Callable[[], Any], found: str | None = None
) -> None:
    """A setting of the process that the compiled function reads, and that changes between the calls."""

    def prog(c: Any) -> Iterator[Any]:
        f = c(lambda x: (x * 2, get()))
        yield f(X())
        yield f(X())
        change()
        try:
            yield f(X())
        finally:
            back()
        yield f(X())

    add(f"mode_{name}", prog, found)


def value(name: str, op: Callable[..., Any], found: str | None = None) -> None:
    """Something that depends on the value of a tensor."""

    def prog(c: Any) -> Iterator[Any]:
        f = c(op)
        for number in (1.0, 1.0, 2.0, 3.0):
            yield (attempt(f, torch.tensor(number)),)

    add(f"value_{name}", prog, found)


class MyInt(int):
    pass


class MyFloat(float):
    pass


class MyStr(str):
    pass


class Lin(nn.Module):
    def __init__(s, p=0.0):
        super().__init__()
        torch.manual_seed(1)
        s.l = nn.Linear(4, 4)
        s.bn = nn.BatchNorm1d(4)
        s.d = nn.Dropout(0.5)
        s.scale = 2.0
        s.extra = []

    def forward(s, x):
        return s.d(s.bn(s.l(x))) * s.scale


def state(m):
    return {k: v.clone() for k, v in m.state_dict().items()}


class Obj:
    def __init__(s, k):
        s.k = k
        s.n = 0
        s.l = []

    def m(s, x):
        return x * s.k

    def w(s, x):
        s.n += 1
        s.l.append(x * 2)
        return x * 2


k = lambda v: lambda s, *a: v
A, B = [[1, 2], [3]], [[1, 2], [4]]
CV = contextvars.ContextVar("cv", default=1)
TL = threading.local()
TL.v = 1
p0 = torch.get_float32_matmul_precision()
