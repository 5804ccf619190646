"""Programs that came out wrong: graph failures."""

import torch
from soundness import attempt, keep
from torch import nn

from cases.world import X


@keep
def nomode_leak(c):
    E = torch.arange(12.0).view(6, 2)

    def g(idx):
        with torch.no_grad():
            return E[idx] * 2

    f = c(g)
    yield f(torch.tensor([0, 1]))
    yield f(torch.tensor([0, 2]))
    yield attempt(f, torch.tensor([0, 9]))
    yield f(torch.tensor([0, 1]))


@keep
def autocast_leak(c):
    E = torch.arange(12.0).view(6, 2)

    def g(idx):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return E[idx] @ E.T

    f = c(g)
    yield f(torch.tensor([0, 1]))
    yield f(torch.tensor([0, 2]))
    yield attempt(f, torch.tensor([0, 9]))
    yield f(torch.tensor([0, 1]))


@keep
def mutates_then_raises(c):
    E = torch.arange(12.0).view(6, 2)
    log = []

    def g(x, idx):
        log.append(1)
        x.add_(1)
        try:
            return E[idx] * 2
        except IndexError:
            return x * 0

    f = c(g)
    x = X()
    yield f(x, torch.tensor([0, 1]))
    yield f(x, torch.tensor([0, 2])), x, log
    yield attempt(f, x, torch.tensor([0, 9])), x, log


@keep
def mutates_then_raises2(c):
    E = torch.arange(12.0).view(6, 2)
    log = []

    def g(x, idx):
        log.append(1)
        x.add_(1)
        return E[idx] * 2

    f = c(g)
    x = X()
    yield f(x, torch.tensor([0, 1]))
    yield f(x, torch.tensor([0, 2])), x, log
    yield attempt(f, x, torch.tensor([0, 9])), x, log


@keep
def buffer_then_raises(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("n", torch.zeros(()))
            s.e = nn.Embedding(4, 2)
            s.k = []

        def forward(s, i):
            s.n += 1
            s.k.append(1)
            try:
                return s.e(i).detach()
            except IndexError:
                return s.n * 1

    torch.manual_seed(0)
    m = M()
    f = c(m)
    yield f(torch.tensor([0]))
    yield f(torch.tensor([1])), m.n, m.k
    yield attempt(f, torch.tensor([7])), m.n, m.k
