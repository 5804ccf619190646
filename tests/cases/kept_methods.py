"""Programs that come out right: methods."""

import functools

from soundness import keep
from torch import nn

from cases.world import Obj, X


@keep
def method_partial(c):
    o = Obj(1)
    h = functools.partial(o.m)
    f = c(lambda x: h(x))
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())


@keep
def method_star(c):
    o = Obj(1)
    f = c(lambda x, h: h(*(x,)))
    yield f(X(), o.m)
    yield f(X(), o.m)
    o.k = 3
    yield f(X(), o.m)
    yield f(X(), Obj(5).m)


@keep
def method_compiled(c):
    o = Obj(1)
    f = c(o.m)
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())


@keep
def method_property(c):
    o = Obj(1)
    f = c(lambda x, h: h.__self__.k * x)
    yield f(X(), o.m)
    yield f(X(), o.m)
    o.k = 3
    yield f(X(), o.m)
    yield f(X(), Obj(5).m)


@keep
def forward_replaced_by_method(c):
    class M(nn.Module):
        def forward(s, x):
            return x

    m = M()
    o = Obj(2)
    m.forward = o.m
    f = c(m)
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())
    m.forward = Obj(9).m
    yield f(X())


@keep
def raise_after_effects(c):
    log = []

    def g(x, k):
        log.append(k)
        try:
            return x * 2
        finally:
            log.append("fin")

    f = c(g)
    for i in range(3):
        yield f(X(), 1), log
