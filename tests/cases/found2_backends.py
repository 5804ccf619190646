"""Programs that came out wrong with a backend that works by functionalisation; the eager one has no such trouble."""

import torch
from soundness import attempt, keep

import magpy
from cases.world import X


def through(c, function, backend="aot_eager"):
    """`function`, compiled with another backend if `c` compiles."""
    return function if c(function) is function else magpy.compile(function, backend=backend)


@keep
def backend_overlap(c):
    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    g = through(c, f)
    for offset in (0, 0, 2, 1, 4, 0):
        base = torch.arange(8.0)
        yield attempt(g, base[:4], base[offset : offset + 4]), base


@keep
def backend_disjoint_then_overlap(c):
    def f(x, y):
        z = x * 2
        x.add_(1)
        return z + y * 3

    g = through(c, f)
    for offset in (4, 4, 1, 0, 4):
        base = torch.arange(8.0)
        yield attempt(g, base[:4], base[offset : offset + 4]), base


@keep
def backend_base_size(c):
    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    g = through(c, f, "inductor")
    for size in (8, 8, 6, 10):
        base = torch.arange(float(size))
        yield attempt(g, base[:4], base[2:6]), base


@keep
def backend_as_strided(c):
    def f(x):
        return x.as_strided((2,), (1,), 1) * 1

    g = through(c, f, "inductor")
    for offset in (0, 0, 2, 1):
        yield g(torch.arange(8.0)[offset : offset + 4])


@keep
def backend_foreach_twice(c):
    one, two = torch.ones(2), torch.ones(2)
    tensors = [one, two]

    def f(k):
        torch._foreach_mul_(tensors, k)
        return tensors[0] + 1

    g = through(c, f)
    yield g(0.5), tensors
    yield g(0.5), tensors
    tensors[1] = one
    for _ in range(3):
        yield g(0.5), tensors


@keep
def backend_gradient_none(c):
    first, second = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))

    def f(x):
        h = x * first
        return h, h * second

    g = through(c, f)
    for _ in range(3):
        h, _z = g(X())
        h.sum().backward()
        yield first.grad, second.grad
        first.grad = None
