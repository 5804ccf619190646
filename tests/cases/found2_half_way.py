"""Programs that came out wrong: a graph that raises after it has updated an input is run again natively."""

import torch
from soundness import attempt, keep

from cases.world import X


@keep
def half_way_history(c):
    def f(n, x, i):
        n.mul_(3)
        try:
            return x[i] + n[0]
        except IndexError:
            return n * 2

    g = c(f)
    for i in ([0, 1], [0, 1], [0, 9], [0, 1]):
        leaf = X().requires_grad_()
        n = leaf * 1
        r = g(n, X(), torch.tensor(i))
        r.sum().backward()
        yield r, n, leaf.grad


@keep
def half_way_shape(c):
    def f(v, x, i):
        v.unsqueeze_(0)
        try:
            return x[i]
        except IndexError:
            return v * 2

    g = c(f)
    for i in ([0, 1], [0, 1], [0, 9], [0, 1]):
        v = torch.ones(3, 4)
        yield attempt(g, v, X(), torch.tensor(i)), v
