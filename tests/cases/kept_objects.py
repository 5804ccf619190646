"""Programs that come out right: objects."""

import copy
import dataclasses
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from soundness import attempt, keep
from torch import nn

from cases.world import MyStr, X


@keep
def numpy_scalar(c):
    f = c(lambda x, s: x * s)
    x = X()
    for s in (2.0, 2.0, 3.0):
        yield f(x, np.float64(s))


@keep
def numpy_scalar32(c):
    f = c(lambda x, s: x * s)
    x = X()
    for s in (2.0, 2.0, 3.0):
        yield attempt(f, x, np.float32(s))


@keep
def str_subclass_key_ext(c):
    d = {"a": 1, "b": 2}
    f = c(lambda x, s: x * d[s])
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))


@keep
def str_subclass_format(c):
    f = c(lambda x, s: (x * 2, f"<{s}>"))
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))


@keep
def constants_out(c):
    def g(x):
        t = torch.zeros(4)
        torch.add(x, 1, out=t)
        return t.sum().item()

    f = c(g)
    yield f(X())
    yield f(X() * 2)
    yield f(X() * 3)


@keep
def constants_index_put(c):
    def g(x):
        t = torch.zeros(4)
        t[1] = x[2]
        return t.sum().item()

    f = c(g)
    yield f(X())
    yield f(X() * 2)
    yield f(X() * 3)


@keep
def constants_foreach(c):
    def g(x):
        t = torch.zeros(4)
        torch._foreach_add_([t], [x])
        return t.sum().item()

    f = c(g)
    yield f(X())
    yield f(X() * 2)
    yield f(X() * 3)


@keep
def constants_view_inplace(c):
    def g(x):
        t = torch.zeros(4)
        v = t.view(2, 2)
        v += x.view(2, 2)
        return t.sum().item()

    f = c(g)
    yield f(X())
    yield f(X() * 2)
    yield f(X() * 3)


@keep
def constants_dropout(c):
    def g(x):
        t = F.dropout(torch.ones(20), 0.5, True)
        return x * 2 if t[0].item() > 0 else x * 3

    f = c(g)
    for s in range(6):
        torch.manual_seed(s)
        yield f(X())


@keep
def constants_rng(c):
    def g(x):
        return x * 2 if torch.rand(1).item() > 0.5 else x * 3

    f = c(g)
    for s in range(6):
        torch.manual_seed(s)
        yield f(X())


@keep
def constants_seeded(c):
    def g(x):
        torch.manual_seed(3)
        return x * torch.rand(4)

    f = c(g)
    for s in range(3):
        torch.manual_seed(s)
        yield f(X())
    yield torch.rand(1)


@keep
def alias_args(c):
    def g(x, a, b):
        a.append(1)
        return x * len(b)

    f = c(g)
    yield f(X(), [], [])
    yield f(X(), [], [])
    l = []
    yield f(X(), l, l)


@keep
def alias_args_nested(c):
    def g(x, a, b):
        a[0].append(1)
        return x * len(b[0])

    f = c(g)
    yield f(X(), [[]], [[]])
    yield f(X(), [[]], [[]])
    l = []
    yield f(X(), [l], [l])


@keep
def alias_tensor_args(c):
    W = torch.ones(4)

    def g(x):
        x.add_(1)
        return W * 2

    f = c(g)
    yield f(X())
    yield f(X())
    yield f(W)


@keep
def alias_tensor_views(c):
    def g(x, y):
        x.add_(1)
        return y * 2

    f = c(g)
    yield f(X(), X())
    yield f(X(), X())
    x = torch.zeros(4)
    yield f(x, x.view(4))
    yield f(x, x)


@keep
def alias_tensor_is(c):
    def g(x, y):
        return (x + y) if x is y else x * 10

    f = c(g)
    a, b = X(), X()
    yield f(a, b)
    yield f(a, b)
    yield f(a, a)
    yield f(b, b)


@keep
def list_index_identity(c):
    class Obj:
        pass

    def g(x, l, o):
        return x * l.index(o)

    f = c(g)
    a, b = Obj(), Obj()
    yield f(X(), [a, b], b)
    yield f(X(), [a, b], b)
    yield f(X(), [a, b], a)


@keep
def in_list_identity(c):
    class Obj:
        pass

    def g(x, l, o):
        return x * (o in l)

    f = c(g)
    a, b = Obj(), Obj()
    yield f(X(), [a, b], b)
    yield f(X(), [a, b], Obj())
    yield f(X(), [a, b], a)
    yield f(X(), [a, b], Obj())


@keep
def in_list_tensors(c):
    def g(x, l):
        return x * any(x is y for y in l)

    f = c(g)
    a, b = X(), X()
    yield f(a, [b])
    yield f(a, [b])
    yield f(a, [a])
    yield f(a, [b, a])


@keep
def version_read(c):
    f = c(lambda x: x * x._version)
    a = torch.ones(4)
    yield f(a)
    yield f(a)
    a.add_(1)
    yield f(a)


@keep
def count_subclass(c):
    class S(itertools.count):
        pass

    s = S(1)
    f = c(lambda x, s: x * next(s))
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def external_generator(c):
    s = (i for i in range(1, 9))
    f = c(lambda x, s: x * next(s))
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def external_generator_send(c):
    def gen():
        t = 1
        while True:
            t += yield t

    s = gen()
    next(s)
    f = c(lambda x, s: x * s.send(2))
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def yield_from_ext(c):
    s = (i for i in range(1, 9))

    def h():
        yield from s

    def g(x):
        for v in h():
            return x * v

    f = c(g)
    yield f(X())
    yield f(X())
    yield f(X())


@keep
def class_attr_list(c):
    class C:
        a = []

    def g(x):
        C.a.append(1)
        return x * len(C.a)

    f = c(g)
    yield f(X())
    yield f(X())
    C.a.clear()
    yield f(X())
    yield C.a


@keep
def class_subclasses(c):
    class C:
        pass

    class D(C):
        pass

    f = c(lambda x: x * len(C.__subclasses__()))
    yield f(X())
    yield f(X())

    class E(C):
        pass

    yield f(X())


@keep
def copy_obj(c):
    class Obj:
        pass

    o = Obj()
    o.lr = 1
    f = c(lambda x, o: x * copy.copy(o).lr)
    yield f(X(), o)
    yield f(X(), o)
    o.lr = 4
    yield f(X(), o)


@keep
def copy_obj_global(c):
    class Obj:
        pass

    o = Obj()
    o.lr = 1
    f = c(lambda x: x * copy.copy(o).lr)
    yield f(X())
    yield f(X())
    o.lr = 4
    yield f(X())


@keep
def deepcopy_obj(c):
    class Obj:
        pass

    o = Obj()
    o.lr = [1]
    f = c(lambda x, o: x * copy.deepcopy(o).lr[0])
    yield f(X(), o)
    yield f(X(), o)
    o.lr[0] = 4
    yield f(X(), o)


@keep
def copy_obj_returned(c):
    class Obj:
        pass

    o = Obj()
    o.lr = [1]
    o.t = X()
    f = c(lambda x, o: (x * 2, copy.copy(o)))
    r = f(X(), o)
    yield r, o
    r = f(X(), o)
    yield r, o
    o.lr = [2]
    o.t = X() + 1
    yield f(X(), o), o


@keep
def dunder_dict_copy(c):
    class Obj:
        pass

    o = Obj()
    o.lr = 1
    f = c(lambda x, o: x * dict(o.__dict__)["lr"])
    yield f(X(), o)
    yield f(X(), o)
    o.lr = 4
    yield f(X(), o)


@keep
def dataclass_replace(c):
    @dataclasses.dataclass
    class D:
        a: int
        b: list

    d = D(1, [2])
    f = c(lambda x, d: x * (dataclasses.replace(d, a=3).b[0] + dataclasses.asdict(d)["a"]))
    yield f(X(), d)
    yield f(X(), d)
    d.a = 7
    yield f(X(), d)
    d.b[0] = 9
    yield f(X(), d)


@keep
def submodule_class_change(c):
    class A(nn.Module):
        def forward(s, x):
            return x * 2

    class B(A):
        def forward(s, x):
            return x * 3

    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.a = A()

        def forward(s, x):
            return s.a(x)

    m = M()
    f = c(m)
    yield f(X())
    yield f(X())
    m.a.__class__ = B
    yield f(X())
