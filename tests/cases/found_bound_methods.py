"""Programs that came out wrong: bound methods."""

import functools

import torch
from soundness import keep
from torch import nn

from cases.world import Obj, X


@keep
def functions_made_anew(c):
    f = c(lambda x, h: h(x))
    mk = lambda k: lambda x: x * k
    for k in (1, 1, 2, 3, 1):
        yield f(X(), mk(k))
    for k in (1, 1, 2, 3):
        yield f(X(), functools.partial(torch.mul, k))

    class Obj:
        def __init__(s, k):
            s.k = k

        def m(s, x):
            return x * s.k

    for k in (1, 1, 2, 3):
        yield f(X(), Obj(k).m)


@keep
def method_arg(c):
    f = c(lambda x, h: h(x))
    for k in (1, 1, 2):
        yield f(X(), Obj(k).m)


@keep
def method_global(c):
    o = Obj(1)
    h = o.m
    f = c(lambda x: h(x))
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())


@keep
def method_in_attr(c):
    o = Obj(1)
    p = Obj(2)
    p.cb = o.m
    f = c(lambda x: p.cb(x))
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())


@keep
def method_in_list(c):
    o = Obj(1)
    hs = [o.m, o.m]
    f = c(lambda x: sum(h(x) for h in hs))
    yield f(X())
    yield f(X())
    o.k = 3
    yield f(X())


@keep
def method_effect(c):
    o = Obj(1)
    h = o.w
    f = c(lambda x: h(x))
    yield f(X()), o.n, o.l
    yield f(X() + 1), o.n, o.l
    yield f(X() + 2), o.n, o.l


@keep
def method_map(c):
    o = Obj(1)
    f = c(lambda x, h: sum(map(h, [x, x])))
    yield f(X(), o.m)
    yield f(X(), o.m)
    o.k = 3
    yield f(X(), o.m)
    yield f(X(), Obj(7).m)


@keep
def method_key(c):
    class S:
        def __init__(s, k):
            s.k = k

        def key(s, v):
            return v * s.k

    f = c(lambda x, h: x * sorted([1, 2, 3], key=h)[0])
    yield f(X(), S(1).key)
    yield f(X(), S(1).key)
    yield f(X(), S(-1).key)


@keep
def method_kw(c):
    o = Obj(1)
    f = c(lambda x, h: h(x=x))
    yield f(X(), o.m)
    yield f(X(), o.m)
    o.k = 3
    yield f(X(), o.m)
    yield f(X(), Obj(5).m)


@keep
def hook_is_method(c):
    class H:
        k = 1

        def hook(s, mod, i, out):
            return out * s.k

    h = H()
    m = nn.ReLU()
    m.register_forward_hook(h.hook)
    f = c(m)
    yield f(X())
    yield f(X())
    h.k = 4
    yield f(X())
