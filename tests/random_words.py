"""What random programs are made of: the world that they run in, and the names and statements that may occur in them."""

HEAD = """\
import collections
import copy
import dataclasses
import functools
import random
import magpy
import torch
from torch import nn
from soundness import attempt


class Box:
    scale = 2
    shared = []

    def __init__(self, t):
        self.t = t
        self.n = 1
        self.items = [1, 2]
        self.d = {"a": 1}

    def bump(self, by):
        self.n += by
        return self.n

    def put(self, value):
        self.items.append(value)
        return self

    def scaled(self, t):
        return t * self.scale + self.n

    @property
    def double(self):
        return self.n * 2

    @classmethod
    def grow(cls, by):
        cls.scale += by
        return cls.scale


class Sub(Box):
    def bump(self, by):
        self.extra = by
        return super().bump(by + 1)


class Slotted(Sub):
    __slots__ = ("extra",)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)
        with torch.no_grad():
            self.l.weight.copy_(torch.arange(9.0).view(3, 3) / 8)
            self.l.bias.fill_(0.5)
        self.register_buffer("buf", torch.zeros(3))
        self.n = 1
        self.hist = []
        self.cache = {}
        self.t = torch.ones(3)

    def forward(self, t):
        self.n += 1
        return self.l(t) * self.n

    def remember(self, t):
        self.hist.append(t)
        self.buf.add_(1)
        self.t = t
        return t + self.buf


Point = collections.namedtuple("Point", "a b")
dice = random.Random(1)


@magpy.disable
def opaque(t, log):
    global G_n
    log.append(len(log))
    G_n += 1
    return int(t.detach().double().sum().nan_to_num(7))


@magpy.disable
def touch(obj, t):
    obj.n += 1
    obj.items = [*obj.items, obj.n]
    obj.t = t
    return obj


@magpy.disable
def fussy(t):
    if t.detach().double().sum() > 5:
        raise ValueError(f"{float(t.detach().double().sum()):.1f}")
    return t


@dataclasses.dataclass
class Pair:
    a: object
    b: int = 1


class Scope:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return len(self.log)

    def __exit__(self, kind, error, trace):
        self.log.append(kind)
        return self.swallow > 1


def helper(t, k=1):
    return t * k + G_n


def other(t, k=2):
    G_l.append(k)
    return t - k


G_n = 2
G_t = torch.arange(3.0)
G_l = [1, 2, 3]
G_d = {"a": 1, "b": [1]}
G_s = {1, 2}
G_f = helper
queue = collections.deque([1, 2], maxlen=4)
groups = collections.defaultdict(list)
counts = collections.Counter("ab")
ordered = collections.OrderedDict(a=1, b=2)
net = Net()
x = torch.arange(9.0).view(3, 3)
y = torch.ones(3)
n = 2
xs = [1, 2]
d = {"a": G_l, "c": 3}
box = Box(G_t)
bag = Sub(y)
r = None


def change(text):
    attempt(exec, text, globals())


def seen():
    yield r, x, y, n, xs, d, box, bag, G_n, G_t, G_l, G_d, G_s, Box.scale, Box.shared
    yield queue, groups, counts, ordered, helper.__dict__, helper.__defaults__, vars(Sub).get('scale')
    yield net.n, net.hist, net.cache, net.t, net.buf, net.l.weight, net.l.bias, net.training, cell()


"""

TENSORS = (
    "x",
    "y",
    "G_t",
    "c_t",
    "box.t",
    "bag.t",
    "net.buf",
    "net.t",
    "t0",
    "t1",
    "net.l.weight",
    "x[0]",
    "x.t()",
    "t0.detach()",
    "y.data",
    "x[:1]",
)
NUMBERS = (
    "n",
    "G_n",
    "c_n",
    "box.n",
    "bag.n",
    "net.n",
    "i0",
    "i1",
    "0",
    "1",
    "2",
    "Box.scale",
    "box.scale",
    "bag.double",
    "x.dim()",
    "y.shape[0]",
)
LISTS = ("xs", "G_l", "c_l", "box.items", "bag.items", "net.hist", "l0", "Box.shared", "d['a']", "G_d['b']", "l1")
DICTS = ("d", "G_d", "box.d", "bag.d", "net.cache", "d0")
MORE = r"""
l0 = [*{L}, *{L}[:1]]
a, *b = {L} or [1]; i1 = len(b); l0.append(a)
i0, i1 = i1, i0
l0 = sorted([v for v in {L} if isinstance(v, int)], key=lambda v: -v * {I})
l0.append([k for k, v in {D}.items() if v])
l0.append({{k: v for k, v in {D}.items() if k != {K}}})
i0 = sum(1 for v in {L} if v is {A0})
l0.append(any(v is {L} for v in {L}))
i0 = min([{I}, {I}, 3])
l0.append(f"{{{I}}} {{len({L})}} {{{K}}}")
l0.append("-".join(map(str, range({I} % 4))))
i0 = next((k for k, v in enumerate({L}) if v == 2), -1)
l0.append(next(iter({D}), None))
l0.append(list(map(type, {L})))
l0.append(list(zip({L}, {D})))
l0.append(dict(zip({D}, {L})))
l0.append(Point({T}, {I}))
p = Point({T}, {L}); t1 = p.a; l0.append(p._replace(b={I})); l1 = p.b
q = Pair({T}, {I}); q.b = q.b + 1; l0.append(q); l0.append(q == Pair(q.a, q.b) if not isinstance(q.a, torch.Tensor) else 0)
queue.append({A}); t1 = queue[0] if isinstance(queue[0], torch.Tensor) else t1
queue.appendleft({I}); queue.rotate({I})
l0.append(queue.popleft() if queue else None)
groups[{I} % 3].append({A})
groups[{K}] += [{I}]
counts[{K}] += 1; counts.update(a={I}, b=1)
l0.append(counts.most_common(1))
counts.subtract({{'a': 1}})
ordered.move_to_end(next(iter(ordered))); ordered[{K}] = {A0}
l0.append(ordered.popitem(last=False) if ordered else ordered.setdefault('a', 1))
h = lambda v, k={I}: v * k + {I}; t0 = h(t0); l0.append(h.__defaults__)
def h(v, acc={L}): acc.append({I}); return v + len(acc)\nt0 = h(t1); t0 = h(t0)
def h(v):\n    nonlocal c_n\n    c_n += 1\n    return v * c_n\nt0 = h(h(t1))
def h(k):\n    yield k\n    {L}.append(k)\n    yield {I}\nl0.extend(h({I}))
i0 = (i1 := {I}) + len({L})
while i1 < 3: i1 += 1; l0.append({A0})
match {A0}:\n    case int(): i1 = 7\n    case [1, *rest]: l0.append(rest)\n    case {{'a': v}}: l0.append(v)\n    case torch.Tensor(): t1 = t1 + 1\n    case Box(n=1): l0.append(8)\n    case _: i1 = 9
assert {B}, {K}
del {L}[-1:]; del l0
l0 = {L}.copy(); l0.append({A0})
d0 = {D}.copy(); d0[{K}] = {A0}
d0 = {D} | {{{K}: {A0}}}
{D}.update({D})
x, y = y, x
{O}, t1 = {O}, {O}.t
t0, t1 = {T}.split([1, 2], -1) if {T}.dim() else (t0, t1)
t0 = torch.cat([{T}.reshape(-1)[:3], {T}.reshape(-1)[:3]])[:3]
t0 = torch.zeros(3).index_add(0, torch.tensor([0, 2]), {T}.reshape(-1)[:2])
t0 = {T}.masked_fill({T} > 1, {I})
t0 = nn.functional.dropout({T}, 0.5, {B} or True)
t0 = nn.functional.layer_norm({T}, (3,), net.l.bias)
t0 = torch.addmm(y, x, net.l.weight) if x.dim() == 2 else t0
torch.add({T}, {I}, out={T})
{T}.data = {T}
{T}.requires_grad_()
t1 = {T}.type_as({T})
net.register_buffer('buf', {T}.detach())
net.buf = net.buf + 1
net.l.bias.data.add_({I})
net.l.weight = nn.Parameter(torch.eye(3))
net.l.bias.grad = None
for p in net.parameters(): l0.append(p.requires_grad); p.data.mul_(0.5)
l0.append([k for k, v in net.named_buffers()])
net.train({B})
net.child = nn.ReLU(); t0 = net.child({T})
vars({O})[{K}] = {A0}
l0.append(getattr({O}, 'new', None)); l0.append(vars({O}).get('a'))
{O}.t, {O}.n = {T}, {I}
{O}.items, {O}.d = {L}, {D}
{O}.put({L}).put({A0})
{O}.me = {O}
l0.append(isinstance({O}, Sub)); l0.append(type({O}).__name__)
{O}.bump = lambda k: k; i0 = {O}.bump({I})
Sub.scale = {I}; i0 = {O}.scale
i0 = Box.grow(1) + Sub.grow({I}) + {O}.scale
Box.shared += [{I}]
{O}.shared.append({A0})
globals()['G_n'] = {I}; i0 = G_n
helper.calls = getattr(helper, 'calls', 0) + 1; i0 = helper.calls
G_f = {F}; t0 = G_f({T})
l0.append({F}); t0 = {F}({T}, {I})
t0 = functools.partial({F}, k={I})({T})
t0 = functools.reduce(lambda a, b: a + b, [v for v in {L} if isinstance(v, int)], {T})
l0.append(copy.copy({O})); l0.append(copy.copy({L}))
l0.append({L} == {L}); l0.append({D} == {D}) if not any(isinstance(v, torch.Tensor) for v in [*{D}.values()]) else None
l0.append(bool({B}) and {I}); l0.append({B} or {A0})
l0 += reversed({L}[:2]); l0 += ({T},)
l0.append(id({L}) == id({L})); l0.append({T} is {T})
l0.append(tuple({T}.shape[-1:])); i0 = {T}.numel(); l0.append({T}.dtype is torch.float32); l0.append({T}.requires_grad)
l0.append(slice({I}, None)); l0.append({L}[{I}:]); l0.append(range({I})); l0.append(divmod({I}, 2))
try: raise ValueError({A0})\nexcept ValueError as e: l0.append(e.args)
try: {L}.append({I}); i0 = {D}[{K}]; {L}.append(i0)\nexcept KeyError: {L}.append('none')\nelse: {L}.append('some')\nfinally: {D}[{K}] = {I}
with Scope({L}, {I}) as v: l0.append(v); t0 = t0 * 2
with Scope({L}, {I}): t0 = t0 * 2; raise KeyError({I})
l0.append({T}.sum().item()); t0 = t0 + l0[-1]
i0 = int({T}.sum()); l0.append(i0 + 1)
if {T}.sum() > {I}: t0 = t0 + 1; l0.append({A0})
l0.append(str({T}.sum().item()) + '!')
while {T}.sum() < {I} and i1 < 3: i1 += 1; t0 = t0 + 1
l0.append([v for v in {L}[:3] if isinstance(v, int) and {T}.sum() > v])
l0.append([v.sum().item() for v in ({T}, {T})])
i0 = opaque({T}, {L}); l0.append({L}[-1])
o0 = touch({O}, {T}); t0 = {O}.t + {O}.n
l0.append(dice.random()); t0 = t0 * l0[-1]
l0.append({T}.tolist()); l0.append(torch.equal({T}, {T}))
t1 = {T}.reshape(-1); t1 = t1[t1 > 1]
with torch.no_grad(): i0 = {T}.sum().item(); t1 = {T} * 2
try: t0 = fussy({T}); {L}.append(1)\nexcept ValueError as e: l0.append(str(e)); l0.append(e)
try: fussy({T})\nfinally: {L}.append({I})
with Scope({L}, {I}): t0 = fussy({T}) * 2
def h(v): return v + opaque(v, {L})\nt0 = h({T}); l0.append(h({T}) is t0)
for v in (fussy({T}), {T}): l0.append(v.sum() > {I}); t1 = v
""".strip().splitlines()

OBJECTS = ("box", "bag", "o0")
KEYS = ("'a'", "'b'", "'c'", "1")

CHANGES = (
    (  # numbers, functions that set them, and modes of modules
        "n = 1",
        "n = 3",
        "n += 1",
        "G_n = 1",
        "G_n += 1",
        "box.n = 1",
        "box.n = 5",
        "net.n = 1",
        "Box.scale = 2",
        "Box.scale = 3",
        "set_n(5)",
        "set_n(1)",
        "bag.scale = 4",
        "net.eval()",
        "net.train()",
    ),
    (  # which tensors there are
        "x = torch.arange(9.0).view(3, 3)",
        "x = torch.ones(3)",
        "x = y",
        "y = x",
        "y = x[0]",
        "x = G_t",
        "y = box.t",
        "G_t = y",
        "x = x.double()",
        "y = x.t()[:, 0]",
        "x = torch.ones(3, 3, requires_grad=True)",
        "y = y.clone()",
        "set_t(x)",
        "set_t(G_t)",
        "y = net.buf",
        "box.t = x",
        "x = net.l.weight",
        "net.t = x",
        "x = torch.arange(9.0).view(3, 3).t()",
        "x = x.detach()",
        "y = torch.zeros(3)[:]",
    ),
    (  # tensors' values
        "x.add_(1)",
        "y.data.mul_(2)",
        "G_t.fill_(3)",
        "net.l.weight.data.mul_(2)",
        "net.buf.zero_()",
        "box.t.data.sub_(1)",
        "net.l.weight.requires_grad_(False)",
        "queue.append(1)",
        "groups.clear()",
        "counts.clear()",
        "ordered.clear()",
        "ordered.update(c=1, a=2)",
        "net.l.weight.requires_grad_()",
        "y.requires_grad_()",
        "net.zero_grad()",
    ),
    (  # lists
        "xs.append(3)",
        "xs = list(xs)",
        "xs = G_l",
        "xs = [1, 2]",
        "G_l = xs",
        "box.items = xs",
        "bag.items = box.items",
        "xs.clear()",
        "G_l[:] = [1, 2, 3]",
        "G_l.append(xs)",
        "Box.shared = xs",
        "Box.shared = []",
        "d['a'] = xs",
        "net.hist = []",
        "net.hist = xs",
        "set_l(G_l)",
        "set_l([])",
        "xs[:] = [2, 1]",
        "net.hist.clear()",
    ),
    (  # dictionaries and sets
        "d = {'a': [1], 'b': 2}",
        "d = G_d",
        "G_d = box.d",
        "d['b'] = 1",
        "d.pop('a', None)",
        "d = {'c': 3, 'a': xs}",
        "net.cache = {}",
        "net.cache.clear()",
        "box.d = bag.d",
        "G_s.add(7)",
        "G_s = {1, 2}",
        "G_d = {'a': 1, 'b': [1]}",
    ),
    (  # objects
        "box = Box(x)",
        "box = Sub(y)",
        "bag = box",
        "bag = Slotted(y)",
        "box = bag",
        "bag.extra = 1",
        "box.__class__ = Sub",
        "box.new = 1",
        "box = Box(G_t)",
        "vars(bag).pop('new', None)",
    ),
    (  # functions and classes
        "G_f = other",
        "G_f = helper",
        "helper.__defaults__ = (3,)",
        "Box.bump = lambda self, by: by",
        "Box.scaled = lambda self, t: t * 3",
        "Sub.scaled = Box.scaled",
        "torch.manual_seed(1)",
        "x, y = y, x",
        "helper.__code__ = other.__code__",
        "Sub.scale = 1",
    ),
    (  # what the last call gave
        "attempt(lambda: r.sum().backward())",
        "attempt(lambda: r.add_(1))",
        "attempt(lambda: r.append(9))",
        "x = r if isinstance(r, torch.Tensor) else x",
        "xs = r if isinstance(r, list) else xs",
        "attempt(lambda: r[0].add_(1))",
        "attempt(lambda: r.clear())",
        "d = r if isinstance(r, dict) else d",
        "attempt(lambda: r[0].append(1))",
        "box = r if isinstance(r, Box) else box",
    ),
)
"""What may happen between two calls."""
