"""Programs that come out right: a graph that raises after it has updated an input."""

import torch
from soundness import attempt, keep

from cases.world import X


@keep
def half_way_caught(c):
    t = torch.zeros(4)

    def f(x, i):
        t.add_(1)
        try:
            return x[i]
        except IndexError:
            return x * 0

    g = c(f)
    for i in ([0, 1], [0, 1], [0, 9], [0, 1]):
        yield attempt(g, X(), torch.tensor(i)), t


@keep
def half_way_effects(c):
    t, log = torch.zeros(4), []

    def f(x, i):
        log.append(1)
        t.add_(1)
        return x[i]

    g = c(f)
    for i in ([0, 1], [0, 1], [0, 9], [0, 1]):
        yield attempt(g, X(), torch.tensor(i)), t, log


@keep
def half_way_finally(c):
    t, log = torch.zeros(4), []

    def f(x, i):
        t.add_(1)
        try:
            return x[i]
        finally:
            log.append(1)
            t.mul_(2)

    g = c(f)
    for i in ([0, 1], [0, 1], [0, 9], [0, 1]):
        yield attempt(g, X(), torch.tensor(i)), t, log
