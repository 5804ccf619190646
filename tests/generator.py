"""Random programs, run eager and compiled: see `soundness`. Failing programs shrink.

A program is a small module: a world (globals, a class, a torch module, a closure, arguments) that shares objects freely, a
function of random statements, and some calls of it with changes of the world in between. After each step everything that can
be reached is looked at.

`python tests/generator.py --seed 1 --programs 500` looks for failures and prints the smallest programs that it finds.
"""

from __future__ import annotations

import argparse
import ast
import collections
import itertools
import linecache
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import soundness
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

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


class Writer:
    """Draws the statements of one program."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.loops = 0

    def upto(self, least: int, most: int) -> int:
        """A number from `least` to `most`, made of bits: what hypothesis draws as a number depends on loaded modules."""
        bits = (most - least).bit_length()
        value = sum(self.draw(st.booleans()) << position for position in range(bits + 2))
        return least + value % (most - least + 1)

    def pick(self, *choices: Any) -> Any:
        return choices[self.upto(0, len(choices) - 1)]

    # -- expressions --------------------------------------------------------------------------------------------------

    def tensor(self, depth: int = 2) -> str:
        kind = self.upto(0, 20) if depth else 0
        t = lambda: self.tensor(depth - 1)  # noqa: E731
        if kind <= 4:
            return self.pick(*TENSORS)
        if kind <= 7:
            return f"({t()} {self.pick('+', '*', '-')} {self.pick(t, self.number)()})"
        if kind == 8:
            return f"{t()}.{self.pick('relu()', 'sum()', 'sum(0)', 'clone()', 'mean()', 'contiguous()', 'float()', 'abs()', 'detach()')}"
        if kind == 9:
            return f"{self.pick('G_f', 'helper')}({t()})"
        if kind == 10:
            return f"{self.obj()}.scaled({t()})"
        if kind == 11:
            return f"net({self.pick('x', 'y', t())})"
        if kind == 12:
            return f"net.remember({t()})"
        if kind == 13:
            return f"torch.stack([{t()}, {t()}]).sum(0)"
        if kind == 14:
            return f"torch.where({t()} > 0, {t()}, 0.0)"
        if kind == 15:
            return f"torch.max({t()}, 0)[0]"
        if kind == 16:
            return f"sum([v for v in {self.list()} if isinstance(v, int)], {t()})"
        if kind == 17:
            return f"torch.rand_like({self.pick('x', 'y')})"
        if kind == 18:
            return f"({t()} if {self.test()} else {t()})"
        if kind == 19:
            return f"(lambda v: v + {self.number()})({t()})"
        return f"{t()}.{self.pick('view(-1)[:3]', 't()', 'unsqueeze(0)', 'flatten()[:3]', 'expand(3, 3)', 'chunk(3, -1)[0]')}"

    def number(self, depth: int = 1) -> str:
        kind = self.upto(0, 11) if depth else 0
        if kind <= 3:
            return self.pick(*NUMBERS)
        if kind == 11:
            t = self.tensor(0)
            return self.pick(
                f"int({t}.sum())",
                f"{t}.sum().item()",
                f"opaque({t}, {self.list()})",
                f"{t}.tolist().count(1.0)",
                f"int({t}.argmax())",
                "dice.randint(0, 3)",
            )
        if kind == 4:
            return f"({self.number(0)} {self.pick('+', '-', '%')} {self.pick('2', '3', self.number(0))})"
        if kind == 5:
            return f"len({self.pick(self.list, self.dict)()})"
        if kind == 6:
            return f"{self.dict()}.get({self.key()}, {self.number(0)})"
        if kind == 7:
            return f"{self.list()}[{self.pick('0', '-1', self.number(0))}]"
        if kind == 8:
            return f"{self.obj()}.bump({self.number(0)})"
        if kind == 9:
            return f"sum(v for v in {self.list()} if isinstance(v, int))"
        return self.pick(
            "Box.grow(1)", "len(G_s)", "max(G_s, default=0)", f"{self.list()}.count(1)", f"{self.list()}.index(1)"
        )

    def list(self) -> str:
        return self.pick(*LISTS)

    def dict(self) -> str:
        return self.pick(*DICTS)

    def obj(self) -> str:
        return self.pick(*OBJECTS)

    def key(self) -> str:
        return self.pick(*KEYS)

    def any(self, depth: int = 1) -> str:
        kind = self.upto(0, 11) if depth else self.upto(0, 5)
        if kind <= 1:
            return self.tensor()
        if kind <= 3:
            return self.number()
        if kind == 4:
            return self.list()
        if kind == 5:
            return self.pick(self.dict, self.obj)()
        if kind == 6:
            return f"({self.any(0)}, {self.any(0)})"
        if kind == 7:
            return f"[{self.any(0)}, {self.any(0)}]"
        if kind == 8:
            return f"{{{self.key()}: {self.any(0)}}}"
        if kind == 9:
            return f"[(v, {self.any(0)}) for v in {self.list()}[:2]]"
        if kind == 10:
            return self.pick(f"Box({self.tensor()})", f"Sub({self.tensor()})", f"Slotted({self.tensor()})")
        return self.pick(
            f"list({self.list()})",
            f"tuple({self.list()})",
            f"dict({self.dict()})",
            f"list({self.dict()}.items())",
            f"{self.list()}[1:]",
            f"{self.list()}[::-1]",
            f"[*{self.list()}]",
            f"{{**{self.dict()}}}",
            "sorted(G_s)",
            f"{self.list()} + [1]",
        )

    def test(self) -> str:
        kind = self.upto(0, 10)
        if kind == 10:
            return (
                f"{self.tensor(1)}.{self.pick('sum() > 3', 'any()', 'sum().item() < 8', 'mean() == 1', 'max().item()')}"
            )
        if kind <= 1:
            return f"{self.number()} {self.pick('>', '<', '==')} {self.number()}"
        if kind == 2:
            return f"{self.pick(self.list, self.dict)()}"
        if kind == 3:
            return f"{self.tensor(1)} is {self.tensor(0)}"
        if kind == 4:
            return f"{self.list()} is {self.list()}"
        if kind == 5:
            return f"{self.key()} in {self.dict()}"
        if kind == 6:
            return f"{self.pick('1', '2')} in {self.pick(self.list(), 'G_s')}"
        if kind == 7:
            return f"{self.tensor()}.shape == {self.pick('x', 'y')}.shape"
        if kind == 8:
            return f"{self.obj()} is {self.obj()}"
        return f"hasattr({self.obj()}, {self.pick('extra', 'n', 'items')!r})"

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, depth: int, most: int = 3) -> list[str]:
        lines: list[str] = []
        for _ in range(self.upto(1, most)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        kind = self.upto(0, 19 if depth else 11)
        if kind > 15:
            return self.more()
        if kind <= 1:
            return [f"{self.pick('t0', 't1')} = {self.tensor()}"]
        if kind == 2:
            return [f"{self.pick('i0', 'i1')} = {self.number()}"]
        if kind == 3:
            return [
                self.pick(
                    f"l0 = {self.list()}",
                    f"l1 = {self.list()}",
                    f"d0 = {self.dict()}",
                    f"o0 = {self.obj()}",
                    f"l0 = [{self.any()}]",
                )
            ]
        if kind <= 5:
            return [self.list_effect()]
        if kind == 6:
            return [self.dict_effect()]
        if kind == 7:
            return [self.tensor_effect()]
        if kind == 8:
            return [self.object_effect()]
        if kind == 9:
            name, value = self.pick(
                ("G_n", self.number),
                ("G_t", self.tensor),
                ("G_l", self.list),
                ("c_n", self.number),
                ("c_t", self.tensor),
                ("c_l", self.list),
                ("G_d", self.dict),
            )
            return [f"{name} = {value()}"]
        if kind == 10:
            return [
                self.pick(
                    f"G_s.add({self.number()})",
                    f"G_s.discard({self.number()})",
                    f"G_s.update({self.pick('[5, 6]', 'G_s', '{2, 9}')})",
                    "G_s.clear()",
                    "G_s and G_s.pop()",
                )
            ]
        if kind == 11:
            return [f"return {self.any()}"] if self.upto(0, 3) == 3 else [f"{self.pick('t0', 't1')} = {self.tensor()}"]
        if kind == 12:
            lines = [f"if {self.test()}:", *indent(self.block(depth - 1))]
            if self.upto(0, 1):
                lines += ["else:", *indent(self.block(depth - 1))]
            return lines
        if kind == 13:
            self.loops += 1
            v = f"v{self.loops}"
            head = self.pick(
                f"for {v} in range({self.number()} % 3):",
                f"for {v} in {self.list()}[:2]:",
                f"for {v} in list({self.dict()}.values())[:2]:",
                f"for {v}, w in zip({self.list()}, [1, 2]):",
                f"for {v} in {self.dict()}:",
            )
            tail = self.pick(
                [f"i1 = {v}"], [f"l0.append({v})"], [f"if {v} == 2:", "    break"], [f"if {v} == 1:", "    continue"]
            )
            return [head, *indent(tail + self.block(depth - 1, 2))]
        if kind == 14:
            lines = ["try:", *indent(self.block(depth - 1))]
            if self.upto(0, 1):
                lines += [f"    if {self.test()}:", f"        raise KeyError({self.number()})"]
            lines += [
                "except Exception as e:",
                *indent(
                    self.pick(["l0.append(str(e))"], ["l0.append(e.args)"], ["pass"], ["l0.append(type(e))"])
                    + self.block(depth - 1, 1)
                ),
            ]
            if self.upto(0, 1):
                lines += ["finally:", *indent(self.block(0, 1))]
            return lines
        return [self.pick("with torch.no_grad():", "with torch.enable_grad():"), *indent(self.block(depth - 1))]

    def more(self) -> list[str]:
        """A statement of the table, its holes filled."""
        text = self.pick(*MORE)
        makers = {"T": lambda: self.tensor(1), "I": self.number, "L": self.list, "D": self.dict, "O": self.obj}
        makers |= {"K": self.key, "B": self.test, "A0": lambda: self.any(0), "A": self.any}
        makers |= {"F": lambda: self.pick("helper", "other", "G_f")}
        text = text.replace("{{", "\0").replace("}}", "\1")
        for name, make in makers.items():
            hole = f"{{{name}}}"
            while hole in text:
                text = text.replace(hole, make(), 1)
        return text.replace("\0", "{").replace("\1", "}").replace("\\n", "\n").splitlines()

    def list_effect(self) -> str:
        name = self.list()
        kind = self.upto(0, 11)
        if kind <= 3:
            return f"{name}.append({self.any()})"
        return (
            f"{name}.extend({self.pick(f'({self.any(0)}, {self.any(0)})', f'{self.list()}[:2]', f'(v for v in {self.list()}[:2])', f'[{self.any(0)}]')})",
            f"{name}.insert(0, {self.any()})",
            f"{name} and {name}.pop({self.pick('', '0')})",
            f"{name}[{self.pick('0', '-1')}] = {self.any()}",
            self.pick(f"{name}.clear()", f"{name}.reverse()", f"del {name}[:1]", f"1 in {name} and {name}.remove(1)"),
            f"{name}[{self.pick('0:1', '1:', ':', '::2')}] = {self.pick('[7]', f'{self.list()}[:2]')}",
            f"{self.pick('xs', 'box.items', 'l0', 'G_l', 'c_l')} += [{self.any(0)}]",
            f"l0.append({name}.pop() if {name} else 0)",
        )[kind - 4]

    def dict_effect(self) -> str:
        name = self.dict()
        kind = self.upto(0, 7)
        if kind <= 1:
            return f"{name}[{self.key()}] = {self.any()}"
        return (
            f"l0.append({name}.pop({self.key()}, None))",
            f"{name}.setdefault({self.key()}, [])",
            f"{name}.setdefault({self.key()}, {self.any()})",
            f"{name}.update({self.pick(self.dict(), f'{{{self.key()}: {self.any(0)}}}', f'b={self.any(0)}')})",
            self.pick(f"del {name}[{self.key()}]", f"{name}.clear()", f"{name} and {name}.popitem()"),
            f"{name}[{self.key()}] += {self.number()}",
        )[kind - 2]

    def tensor_effect(self) -> str:
        name = self.pick(*TENSORS)
        kind = self.upto(0, 7)
        if kind <= 2:
            return f"{name}.{self.pick('add_', 'mul_', 'copy_', 'sub_')}({self.pick(self.tensor, self.number)()})"
        return (
            f"{name}.{self.pick('zero_()', 'relu_()', 'fill_(2)', 'neg_()', 'add_(1).mul_(2)')}",
            f"{name}[{self.pick('0', '...', ':1')}] = {self.tensor(1)}",
            f"{self.pick('x', 'y', 'G_t', 't0', 'box.t', 'c_t')} {self.pick('+=', '*=', '-=')} {self.pick(self.tensor, self.number)()}",
            f"t0 = {name}.{self.pick('add_', 'mul_')}({self.number()})",
            f"t1 = {name}.{self.pick('view(-1)', 'detach()', 'unsqueeze(0)', 't()')}",
        )[kind - 3]

    def object_effect(self) -> str:
        name = self.obj()
        kind = self.upto(0, 10)
        return (
            f"{name}.n = {self.number()}",
            f"{name}.t = {self.tensor()}",
            f"{name}.items = {self.pick(self.list(), f'[{self.any(0)}]')}",
            f"{name}.bump({self.number()})",
            f"{name}.put({self.any()})",
            f"{name}.n += {self.number()}",
            self.pick(f"{name}.{self.pick('new', 'extra')} = {self.any()}", f"del {name}.extra", f"del {name}.new"),
            f"setattr({name}, 'd', {self.dict()})",
            self.pick(
                f"Box.scale = {self.number()}",
                f"type({name}).scale += 1",
                f"{name}.scale = {self.number()}",
                "Box.grow(1)",
                f"Box.shared = {self.list()}",
            ),
            self.pick(
                f"net.n = {self.number()}",
                f"net.t = {self.tensor()}",
                f"net.hist = {self.list()}",
                f"net.buf = {self.tensor()}",
                f"net.cache = {self.dict()}",
            ),
            f"{name}.__dict__[{self.pick('n', 'new')!r}] = {self.number()}",
        )[kind]

    # -- what happens between the calls --------------------------------------------------------------------------------

    def change(self) -> str:
        kind = self.upto(0, 8)
        if kind <= 1:
            return self.pick(
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
            )
        if kind == 2:
            return self.pick(
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
            )
        if kind == 3:
            return self.pick(
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
            )
        if kind == 4:
            return self.pick(
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
            )
        if kind == 5:
            return self.pick(
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
            )
        if kind == 6:
            return self.pick(
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
            )
        if kind == 7:
            return self.pick(
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
            )
        return self.pick(
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
        )


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def programs(draw: Callable[..., Any]) -> str:
    """The text of a program, aside from its head."""
    writer = Writer(draw)
    body = [line for _ in range(writer.upto(1, 5)) for line in writer.block(2, 3)]
    result = writer.pick("t0", "(t0, t1)", "[t0, l0]", "t1, o0, i0", "{'t': t0, 'l': l1, 'd': d0}", "i0", "t0.sum()")
    calls = []
    for _ in range(writer.upto(3, 5)):
        calls.append("call")
        for _ in range(writer.pick(0, 0, 1, 1, 2)):
            calls.append(writer.change())
    calls.append("call")
    lines = [
        "def make():",
        "    c_n, c_l, c_t = 1, [1], torch.ones(3)",
        "    def f(x, y, n, xs, d, box, bag):",
        "        global G_n, G_t, G_l, G_d",
        "        nonlocal c_n, c_l, c_t",
        "        t0, t1, i0, i1, l0, l1, d0, o0 = x, y, n, 0, [], xs, d, box",
        *indent(indent(body)),
        f"        return {result}",
        "    def set_n(v):",
        "        nonlocal c_n",
        "        c_n = v",
        "    def set_l(v):",
        "        nonlocal c_l",
        "        c_l = v",
        "    def set_t(v):",
        "        nonlocal c_t",
        "        c_t = v",
        "    return f, set_n, set_l, set_t, lambda: (c_n, c_l, c_t)",
        "",
        "",
        "f, set_n, set_l, set_t, cell = make()",
        "",
        "",
        "def program(c):",
        "    global r",
        "    g = c(f)",
    ]
    for step in calls:
        if step == "call":
            lines.append("    r = attempt(g, x, y, n, xs, d, box, bag)")
            lines.append("    yield list(seen())")
        else:
            lines.append(f"    change({step!r})")
    return "\n".join(lines) + "\n"


_names: Iterator[int] = iter(range(1 << 60))


def load(text: str) -> soundness.Program:
    """A program that makes its world anew in each run."""
    source = HEAD + text
    name = f"<program {next(_names)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    code = compile(source, name, "exec")

    def program(c: Callable[[Any], Any]) -> Iterator[Any]:
        module = types.ModuleType("generated")
        sys.modules["generated"] = module
        exec(code, vars(module))
        yield from vars(module)["program"](c)

    return program


class Tally:
    """How the calls of the programs were served."""

    def __init__(self) -> None:
        self.programs = self.monitored = self.hits = self.native = 0
        self.reasons: collections.Counter[str] = collections.Counter()
        self.features: collections.Counter[str] = collections.Counter()
        self.missed: list[str] = []
        self.agreed: set[str] = set()
        self.unchanged = self.unchanged_hits = self.operators = self.in_graphs = 0

    def add_calls(self, text: str, calls: soundness.Calls) -> None:
        """Count the calls before which nothing has changed since the call before them began, and their operators."""
        steps = [line.strip() for line in text.partition("def program(c):")[2].splitlines()]
        steps = [line for line in steps if line.startswith(("r = attempt(", "change("))]
        number = 0
        for before, step in zip(["", *steps], steps, strict=False):
            if not step.startswith("r = "):
                continue
            same = 1 < number <= len(calls.pictures) and calls.pictures[number - 1] == calls.pictures[number - 2]
            if same and before.startswith("r = ") and number < min(len(calls.served), len(calls.operators)):
                self.unchanged += 1
                self.unchanged_hits += calls.served[number] == "hits"
                self.operators += calls.operators[number]
                self.in_graphs += calls.in_graphs[number]
                if calls.served[number] != "hits":
                    self.missed.append(text)
            number += 1
        for node in ast.walk(ast.parse(text)):
            self.features[type(node).__name__] += 1
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                self.features[f"{name}()"] += 1

    def add(self, served: soundness.Served) -> None:
        self.programs += 1
        self.monitored += served.monitored
        self.hits += served.hits
        self.native += served.native
        self.reasons.update({reason[:60] for reason in served.reasons})


def differs(text: str, tally: Tally | None = None) -> str | None:
    """The first difference between the eager and the compiled run of a program; with a tally each program runs once."""
    if tally is not None and text in tally.agreed:
        return None
    program = load(text)
    calls = soundness.Calls() if tally is not None else None
    try:
        found, served = soundness.difference(program, calls=calls)
    except Exception as error:  # the eager run: not a program
        if tally is not None:
            tally.agreed.add(text)
            print(f"no program: {error!r}\n{text}")
        return None
    if tally is not None:
        tally.add(served)
    if tally is not None and calls is not None:
        tally.add_calls(text, calls)
        if found is None:
            tally.agreed.add(text)
    return found


def search(start: int, wanted: int, tally: Tally, chunk: int = 50) -> Iterator[str]:
    """Run different programs until there are as many as wanted; yields what differs, shrunk.

    What is drawn depends on `start` alone.
    """
    for number in itertools.count():
        if tally.programs >= wanted:
            return

        @seed(start * 1_000_000 + number)
        @settings(
            max_examples=chunk,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
        )
        @given(programs())
        def agrees(text: str) -> None:
            found = differs(text, tally)
            assert found is None, f"{text}\n{found}"

        try:
            agrees()
        except (AssertionError, Flaky) as error:
            yield f"seed {start * 1_000_000 + number}\n{error}"


def main() -> None:
    """Look for failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--chunk", type=int, default=50)
    options = parser.parse_args()
    tally = Tally()
    started = time.perf_counter()
    for failure in search(options.seed, options.programs, tally, options.chunk):
        print(f"=== {failure[:6000]}", flush=True)
    print(
        f"{tally.programs} different programs, {time.perf_counter() - started:.0f} s, monitored {tally.monitored}, hits {tally.hits}, native {tally.native}"
    )
    print(
        f"seed {options.seed}; later calls with nothing changed: {tally.unchanged},"
        f" of which hits {tally.unchanged_hits / max(tally.unchanged, 1):.1%};"
        f" operators of these calls: {tally.operators}, in graphs {tally.in_graphs / max(tally.operators, 1):.1%}"
    )
    print("features: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.features.items())))
    for reason, count in tally.reasons.most_common(25):
        print(f"{count:6} {reason}")


if __name__ == "__main__":
    sys.exit(main())
