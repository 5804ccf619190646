"""Programs that come out right: torch."""

import abc
import collections
import functools
import gc
import threading
import weakref

import torch
from soundness import attempt, keep
from torch import nn

from cases.world import XB, Lin, X, state


@keep
def train_steps(c):
    m = Lin()
    f = c(m)
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    for i in range(4):
        torch.manual_seed(i)
        o.zero_grad()
        f(XB()).sum().backward()
        o.step()
        yield state(m), [p.grad for p in m.parameters()]
    m.eval()
    yield f(XB())
    yield f(XB())
    m.train()
    torch.manual_seed(5)
    yield f(XB())
    m.scale = 3.0
    yield f(XB())
    m.load_state_dict(Lin().state_dict())
    m.eval()
    yield f(XB())
    m.l.weight.data = torch.ones(4, 4)
    yield f(XB())
    m.l.weight = nn.Parameter(torch.ones(4, 4) * 3)
    yield f(XB())
    with torch.no_grad():
        yield f(XB())
        m.l.weight.mul_(2)
        yield f(XB())
    m.l.bias = None
    yield f(XB())
    m.double()
    yield attempt(f, XB().double())
    m.requires_grad_(False)
    yield f(XB().double())


@keep
def hooks_added(c):
    m = Lin().eval()
    f = c(m)
    yield f(XB())
    yield f(XB())
    h = m.l.register_forward_hook(lambda mod, i, o: o * 2)
    yield f(XB())
    yield f(XB())
    h.remove()
    yield f(XB())
    h = m.register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    yield f(XB())
    h.remove()
    yield f(XB())
    h = nn.modules.module.register_module_forward_hook(lambda mod, i, o: o * 3)
    yield f(XB())
    h.remove()
    yield f(XB())
    m.l.forward = lambda x: x * 5
    yield f(XB())
    del m.l.forward
    yield f(XB())
    log = []
    h = m.l.weight.register_hook(lambda g: log.append(1) or g * 2)
    f(XB()).sum().backward()
    yield m.l.weight.grad, log
    h.remove()
    h = m.l.register_full_backward_hook(lambda mod, a, b: log.append(2))
    f(XB()).sum().backward()
    yield m.l.weight.grad, log


@keep
def module_list_append(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            torch.manual_seed(0)
            s.ls = nn.ModuleList([nn.Linear(4, 4)])
            s.seq = nn.Sequential(nn.ReLU())

        def forward(s, x):
            for l in s.ls:
                x = l(x)
            return s.seq(x)

    m = M()
    f = c(m)
    yield f(XB())
    yield f(XB())
    m.ls.append(nn.Linear(4, 4))
    yield f(XB())
    m.seq.append(nn.Tanh())
    yield f(XB())
    yield f(XB())
    del m.ls[0]
    yield f(XB())
    m.seq[0] = nn.Sigmoid()
    yield f(XB())


@keep
def module_attr_in_forward(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.last = None
            s.n = 0
            s.hist = []

        def forward(s, x):
            s.last = x * 2
            s.hist.append(s.last)
            return s.last + 1

    m = M()
    f = c(m)
    for i in range(4):
        yield f(X() + i)
        yield m.last, m.hist
        m.last.add_(1)
        yield m.hist
    m.hist.clear()
    yield f(X()), m.hist, m.last


@keep
def rnn_state(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.h = torch.zeros(4)

        def forward(s, x):
            s.h = s.h * 0.5 + x
            return s.h

    m = M()
    f = c(m)
    for i in range(4):
        yield f(X() + i), m.h
    m.h = torch.ones(4)
    yield f(X()), m.h
    m.h.zero_()
    yield f(X()), m.h


@keep
def buffer_registered_in_forward(c):
    class M(nn.Module):
        def forward(s, x):
            if "b" not in s._buffers:
                s.register_buffer("b", x * 2)
            return x + s.b

    m = M()
    f = c(m)
    yield f(X())
    yield f(X() + 1)
    yield f(X() + 2)
    del m.b
    yield f(X() + 3), m.b
    yield f(X() + 4), m.b


@keep
def cache_rope(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.cache = {}

        def forward(s, x):
            k = x.shape[0]
            if k not in s.cache:
                s.cache[k] = torch.arange(k, dtype=torch.float) * 2
            return x + s.cache[k]

    m = M()
    f = c(m)
    yield f(X())
    yield f(X())
    yield f(torch.ones(2))
    yield f(torch.ones(2))
    m.cache[4].mul_(2)
    yield f(X())
    m.cache.clear()
    yield f(X())
    yield m.cache
    m.cache[4] = torch.zeros(4)
    yield f(X())


@keep
def weight_tying(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            torch.manual_seed(0)
            s.a = nn.Linear(4, 4, False)
            s.b = nn.Linear(4, 4, False)

        def forward(s, x):
            return s.b(s.a(x))

    m = M()
    f = c(m)
    yield f(XB())
    yield f(XB())
    m.b.weight = m.a.weight
    yield f(XB())
    f(XB()).sum().backward()
    yield m.a.weight.grad
    yield f(XB())


@keep
def double_backward(c):
    w = torch.ones(4, requires_grad=True)
    f = c(lambda x: (x * w).sin())
    a = f(X())
    b = f(X() + 1)
    cc = f(X() + 2)
    (a.sum() + b.sum() * cc.sum()).backward()
    yield w.grad
    y = f(X()).sum()
    (g,) = torch.autograd.grad(y, w, create_graph=True)
    g.sum().backward()
    yield w.grad


@keep
def no_grad_inside(c):
    w = torch.ones(4, requires_grad=True)

    def g(x):
        with torch.no_grad():
            a = x * w
        return a + w * 2, a

    f = c(g)
    for i in range(3):
        yield f(X() + i)
    with torch.no_grad():
        yield f(X())
    with torch.inference_mode():
        yield f(X())
    yield f(X())


@keep
def set_grad_enabled_leaks(c):
    def g(x):
        torch.set_grad_enabled(False)
        return x * 2

    f = c(g)
    for i in range(3):
        yield f(torch.ones(2, requires_grad=True))
        torch.set_grad_enabled(True)


@keep
def modes_between(c):
    def g(x):
        return x @ x, torch.zeros(2), torch.is_grad_enabled(), torch.get_default_dtype()

    f = c(g)
    x = torch.ones(2, 2, requires_grad=True)
    yield f(x)
    yield f(x)
    with torch.no_grad():
        yield f(x)
    with torch.autocast("cpu", torch.bfloat16):
        yield f(x)
    with torch.autocast("cpu", torch.float16):
        yield f(x)
    torch.set_default_dtype(torch.float64)
    try:
        yield f(x)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        yield attempt(lambda: [t.device for t in f(x)[:2]])
    torch.use_deterministic_algorithms(True)
    try:
        yield f(x)
    finally:
        torch.use_deterministic_algorithms(False)
    yield f(x)


@keep
def mode_getters(c):
    def g(x):
        return (
            x * 2,
            torch.get_float32_matmul_precision(),
            torch.is_anomaly_enabled(),
            torch.is_warn_always_enabled(),
            torch.backends.mkldnn.enabled,
            torch.get_num_threads(),
            torch.backends.cudnn.enabled,
        )

    f = c(g)
    yield f(X())
    yield f(X())
    p = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield f(X())
    torch.set_float32_matmul_precision(p)
    with torch.autograd.set_detect_anomaly(True):
        yield f(X())
    yield f(X())


@keep
def abcreg(c):
    class K:
        pass

    class AB(abc.ABC):
        pass

    class D(list):
        pass

    f = c(lambda x, o: x * 2 if isinstance(o, AB) else x * 3)
    yield f(X(), K())
    yield f(X(), K())
    AB.register(K)
    yield f(X(), K())
    yield f(X(), 3)
    yield f(X(), 3)
    AB.register(int)
    yield f(X(), 3)
    h = c(lambda x, o: x * 2 if issubclass(type(o), AB) else x * 3)
    yield h(X(), "")
    yield h(X(), "")
    AB.register(str)
    yield h(X(), "")


@keep
def bases_changed(c):
    class A0:
        v = 1

    class B0:
        v = 2

    class C0(A0):
        pass

    f = c(lambda x, o: (x * o.v, isinstance(o, A0)))
    o = C0()
    yield f(X(), o)
    yield f(X(), o)
    C0.__bases__ = (B0,)
    yield f(X(), o)


@keep
def singledispatch_register(c):
    @functools.singledispatch
    def sd(o):
        return 1

    f = c(lambda x, o: x * sd(o))
    yield f(X(), 3)
    yield f(X(), 3)
    sd.register(int, lambda o: 5)
    yield f(X(), 3)
    yield f(X(), "")


@keep
def lru_cached(c):
    n = []

    @functools.lru_cache
    def h(i):
        n.append(i)
        return i * 2

    f = c(lambda x, i: x * h(i))
    yield f(X(), 1), n
    yield f(X(), 1), n
    h.cache_clear()
    yield f(X(), 1), n


@keep
def cached_prop(c):
    class Obj:
        @functools.cached_property
        def v(s):
            return s.q * 2

    o = Obj()
    o.q = 1
    f = c(lambda x, o: x * o.v)
    yield f(X(), o)
    yield f(X(), o)
    o.q = 5
    yield f(X(), o)
    del o.v
    yield f(X(), o)
    p = Obj()
    p.q = 7
    yield f(X(), p), p
    yield f(X(), p)


@keep
def code_defaults_closure(c):
    def h(x, k=2, *, j=1):
        return x * k + j

    f = c(lambda x: h(x))
    yield f(X())
    yield f(X())
    h.__defaults__ = (5,)
    yield f(X())
    h.__kwdefaults__ = {"j": 7}
    yield f(X())
    h.__kwdefaults__["j"] = 9
    yield f(X())
    h.__code__ = (lambda x, k, *, j: x * k - j).__code__
    yield f(X())
    g = c(h)
    yield g(X())
    yield g(X())
    h.__defaults__ = (1,)
    yield g(X())
    h.__code__ = (lambda x, k, *, j: x).__code__
    yield g(X())


@keep
def mutable_default(c):
    def h(x, l=[]):
        l.append(1)
        return x * len(l)

    f = c(h)
    for i in range(4):
        yield f(X())
    h.__defaults__[0].clear()
    yield f(X())
    yield h.__defaults__


@keep
def cell_change(c):
    v = 1
    t = torch.ones(4)

    def h(x):
        return x * v + t

    def setv(a, b):
        nonlocal v, t
        v, t = a, b

    f = c(h)
    yield f(X())
    yield f(X())
    setv(2, t)
    yield f(X())
    setv(2, torch.zeros(4))
    yield f(X())
    yield f(X())
    t.add_(1)
    yield f(X())


@keep
def threads(c):
    G = [1.0]
    f = c(lambda x: (x * G[0]).sum())
    out = []

    def work(i):
        for j in range(50):
            out.append((f(torch.full((4,), float(i))).item(), i * 4))

    ts = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    yield len(out), all(a == b for a, b in out)


@keep
def returned_inplace(c):
    f = c(lambda x: (x, x.view(2, 2), x * 2, x[1:]))
    x = X()
    a = f(x)
    a[2].add_(1)
    a[3].add_(5)
    yield a, x
    b = f(x)
    yield a, b, x
    b[1].mul_(2)
    yield a, b, x
    b[2].zero_()
    yield f(x)


@keep
def const_output_mutated(c):
    f = c(lambda x: (torch.zeros(2), [1, 2], {"a": x}))
    a = f(X())
    a[0].add_(1)
    a[1].append(3)
    a[2]["b"] = 1
    yield f(X())
    b = f(X())
    b[0].add_(1)
    b[1].append(3)
    yield f(X())


@keep
def views_inplace_inputs(c):
    def g(x):
        x[1:].mul_(2)
        v = x.view(2, 2)
        v[0] += 1
        x.t_() if x.dim() == 2 else None
        return v, x.sum()

    f = c(g)
    x = X()
    for i in range(3):
        yield f(x), x
    b = torch.arange(8.0)
    yield f(b[:4]), b
    yield f(b[4:]), b
    yield f(b[::2]), b


@keep
def metadata_inplace(c):
    def g(x):
        x.unsqueeze_(0)
        return x * 2

    f = c(g)
    yield f(X())
    x = X()
    yield f(x), x
    yield f(x), x
    yield f(x), x

    def h(x):
        x.requires_grad_(True)
        return x * 2

    k = c(h)
    yield k(X())
    x = X()
    yield k(x), x
    yield k(x), x


@keep
def arg_requires_grad_leaf_inplace(c):
    w = torch.ones(4, requires_grad=True)

    def g(x):
        x.mul_(w)
        return x.sum()

    f = c(g)
    for i in range(3):
        x = X()
        f(x).backward()
        yield x, w.grad
    yield attempt(f, torch.ones(4, requires_grad=True))
    yield attempt(f, torch.ones(4, requires_grad=True))


@keep
def custom_function(c):
    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    f = c(lambda x: Sq.apply(x) + 1)
    for i in range(3):
        x = torch.ones(4, requires_grad=True)
        f(x).sum().backward()
        yield x.grad
    for i in range(3):
        yield f(torch.ones(4))
    Sq.forward = staticmethod(lambda ctx, x: x * 3)
    yield f(torch.ones(4))


@keep
def recursion(c):
    def g(x, n):
        return x if n == 0 else F2(x * 2, n - 1)

    f = c(g)
    F2 = f
    for n in (2, 2, 3, 0):
        yield f(X(), n)


@keep
def call_forms(c):
    def g(x, a=1, *args, k=2, **kw):
        return x * a + k + sum(args) + sum(kw.values()), kw

    f = c(g)
    x = X()
    for i in range(2):
        yield f(x)
        yield f(x, 2)
        yield f(x, 2, 3)
        yield f(x, k=3)
        yield f(x, q=1, k=3)
        yield f(x, k=3, q=1)
        yield f(x=x)
        yield f(a=4, x=x)
        yield f(x, **{"q": 2, "r": 1})
        yield f(x, **{"r": 1, "q": 2})
        yield attempt(f)
        yield attempt(f, x, x=x)


@keep
def dict_iter_mutation(c):
    def g(x, d):
        for k in list(d):
            d[k] = d[k] + 1
            d.pop(k) if d[k] > 3 else None
        return x * len(d)

    f = c(g)
    d = {"a": 1, "b": 2}
    for i in range(4):
        yield attempt(f, X(), d), d

    def h(x, d):
        try:
            for k in d:
                d[k + "x"] = 1
        except RuntimeError:
            return x * len(d)
        return x

    f = c(h)
    for i in range(2):
        d = {"a": 1}
        yield f(X(), d), d


@keep
def list_mutation(c):
    def g(x, l):
        l.sort(key=lambda v: -v)
        l.append(l.pop(0))
        l.insert(0, 7)
        l.remove(7)
        l.reverse()
        l[0] += 1
        del l[-1]
        l *= 2
        return x * sum(l)

    f = c(g)
    for l in ([3, 1, 2], [3, 1, 2], [5, 1, 2]):
        yield f(X(), l), l


@keep
def odict_moves(c):
    def g(x, d):
        d.move_to_end("a")
        d["z"] = 1
        v = d.popitem(last=False)
        return x * 2, v

    f = c(g)
    for i in range(3):
        d = collections.OrderedDict(a=1, b=i // 2, c=3)
        yield f(X(), d), d


@keep
def ext_namespace_effects(c):
    def g(x, o, d, s, q):
        o.a = x * 2
        del o.b
        d["k"] = o.a
        d.setdefault("l", []).append(1)
        s.add(3)
        s.discard(1)
        q.appendleft(o.a)
        q.rotate(1)
        q.pop()
        return o.a

    f = c(g)

    class Obj:
        pass

    for i in range(3):
        o = Obj()
        o.b = i
        d = {}
        s = {1, 2}
        q = collections.deque([1, 2])
        yield f(X() + i, o, d, s, q), o, d, s, q


@keep
def weakref_arg(c):
    class Obj:
        v = 1

    o = Obj()
    r = weakref.ref(o)
    f = c(lambda x, r: x * (r().v if r() is not None else 9))
    yield f(X(), r)
    yield f(X(), r)
    o.v = 3
    yield f(X(), r)
    del o
    gc.collect()
    yield f(X(), r)
    o = Obj()
    p = weakref.proxy(o)
    g = c(lambda x: x * p.v)
    yield g(X())
    yield g(X())
    o.v = 4
    yield g(X())
    d = weakref.WeakKeyDictionary()
    k = Obj()
    d[k] = 2
    h = c(lambda x, k: x * d[k])
    yield h(X(), k)
    yield h(X(), k)
    d[k] = 5
    yield h(X(), k)


@keep
def memory_freed(c):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(4, 4)

        def forward(s, x):
            return s.l(x).relu()

    gc.collect()
    gc.disable()
    try:
        m = M()
        f = c(m)
        x = XB()
        y = f(x)
        f(x)
        rx, ry, rm = weakref.ref(x), weakref.ref(y), weakref.ref(m)
        del x, y
        yield rx() is None, ry() is None
        del m, f
    finally:
        gc.enable()
    gc.collect()
    yield rm


@keep
def del_local(c):
    log = []

    class N:
        def __del__(s):
            log.append(1)

    def g(x):
        n = N()  # noqa: F841
        return x * 2

    f = c(g)
    for i in range(3):
        yield f(X()), log


@keep
def finalize_local(c):
    log = []

    class N:
        pass

    def g(x):
        n = N()
        weakref.finalize(n, log.append, 1)
        return x * 2

    f = c(g)
    for i in range(3):
        yield f(X()), log


@keep
def stored_dies(c):
    log = []

    class N:
        def __del__(s):
            log.append(1)

    class Obj:
        pass

    o = Obj()
    o._n = N()

    def g(x):
        o.n = None
        return x * 2

    f = c(g)
    for i in range(3):
        yield f(X()), log
        o._n = N()
