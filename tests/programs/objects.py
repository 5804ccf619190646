"""Classes: dataclasses, enums, properties, inheritance, protocols, descriptors, slots, metaclasses."""

import abc
import copy
import dataclasses
import enum
import types
import typing
from dataclasses import dataclass, field

import torch
from torch import nn

from .model import Call, Program, calls, program, rand


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"

    @property
    def factor(self):
        return 2.0 if self is Mode.FAST else 0.5


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


@dataclass
class Config:
    width: int = 4
    mode: Mode = Mode.FAST
    names: list = field(default_factory=lambda: ["a", "b"])
    scale: float = field(init=False)

    def __post_init__(self):
        self.scale = self.width / 2


@dataclass(frozen=True)
class Frozen:
    left: object
    right: object = None


@dataclass(slots=True)
class Slotted:
    x: object
    n: int = 0


@program
def dataclass_config():
    config = Config(width=6)

    def f(x):
        other = dataclasses.replace(config, width=2)
        fresh = Config()
        return (
            x * config.scale * other.scale,
            fresh.names,
            config == other,
            [f.name for f in dataclasses.fields(config)],
        )

    return Program(target=f, calls=calls(3))


@program
def dataclass_outputs():
    def f(x):
        a = Frozen(x + 1, [x])
        b = Slotted(a.left * 2)
        b.n += 3
        c = Config(width=2)
        c.extra = x
        return a, b, c, repr(Slotted(1, 2)), Frozen(1) == Frozen(1), hash(Frozen(1)) == hash(Frozen(1))

    return Program(target=f, calls=calls(2))


@program
def dataclass_of_the_caller():
    def f(s, x):
        s.n = 7
        s.x = x * 2
        return s

    return Program(target=f, calls=[Call((Slotted(None), rand(2, seed=s))) for s in (1, 2)])


@program
def enums():
    table = {Mode.FAST: torch.relu, Mode.SLOW: torch.tanh}

    def f(x, mode, flags=Flags.AB, level=Level.HIGH):
        y = table[mode](x) * mode.factor * level
        if Flags.A in flags and level > Level.LOW:
            y = y + 1
        return y, Mode("slow"), mode.name, mode.value, Mode["FAST"] is mode, [m.value for m in Mode], flags & Flags.B

    return Program(target=f, calls=[Call((rand(3, seed=s), Mode.FAST)) for s in (1, 2)])


@program
def properties():
    class Box:
        def __init__(self):
            self._value = 1.0

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self._value = float(new)

        @value.deleter
        def value(self):
            self._value = 0.0

    box = Box()

    def f(x):
        y = x * box.value
        box.value = 5
        z = x + box.value
        del box.value
        box.value = 1
        return y, z

    return Program(target=f, calls=calls(3), observe=lambda: box._value)


@program
def inheritance():
    class Base:
        registry = []

        def __init_subclass__(cls, tag=None, **kw):
            super().__init_subclass__(**kw)
            Base.registry.append(tag)

        def __init__(self, scale):
            self.scale = scale

        def run(self, x):
            return x * self.scale

    class Shift(Base, tag="shift"):
        def run(self, x):
            return super().run(x) + 1

    class Square(Base, tag="square"):
        def run(self, x):
            return super().run(x) ** 2

    class Both(Shift, Square, tag="both"):
        def __init__(self, scale):
            super().__init__(scale + 1)

        def run(self, x):
            return super().run(x) - 1

    both = Both(1.0)

    def f(x):
        fresh = Both(0.5)
        names = [c.__name__ for c in type(both).__mro__[:-1]]
        return both.run(x), fresh.run(x), names, isinstance(both, Square), issubclass(Both, Base), Base.registry

    return Program(target=f, calls=calls(3))


@program
def method_kinds():
    class Tool:
        factor = 3.0

        @staticmethod
        def double(x):
            return x * 2

        @classmethod
        def times(cls, x):
            return x * cls.factor

        def bound(self, x):
            return x + id_of[self]

        __call__ = bound

    tool = Tool()
    id_of = {tool: 1.0}

    def f(x):
        m = tool.bound
        g = Tool.bound
        return (
            Tool.double(x),
            tool.double(x),
            Tool.times(x),
            tool.times(x),
            m(x),
            g(tool, x),
            tool(x),
            m.__self__ is tool,
        )

    return Program(target=f, calls=calls(3))


@program
def operator_overloading():
    class Vec:
        def __init__(self, *parts):
            self.parts = parts

        def __add__(self, other):
            return Vec(*(a + b for a, b in zip(self.parts, other.parts)))

        def __radd__(self, other):
            return self if other == 0 else NotImplemented

        def __mul__(self, k):
            return Vec(*(p * k for p in self.parts))

        __rmul__ = __mul__

        def __neg__(self):
            return self * -1

        def __getitem__(self, i):
            return self.parts[i]

        def __len__(self):
            return len(self.parts)

        def __iter__(self):
            return iter(self.parts)

        def __contains__(self, k):
            return any(k is p for p in self.parts)

        def __bool__(self):
            return len(self) > 1

        def __eq__(self, other):
            return isinstance(other, Vec) and len(self) == len(other)

        def __hash__(self):
            return len(self.parts)

    def f(x, y):
        v, w = Vec(x, y), Vec(y, x)
        total = sum([v, w, 2 * v, -w])
        a, b = total
        return a, total[1], len(total), x in v, bool(v), v == w, {v: 1}[w], list(v), b

    return Program(target=f, calls=calls(2, count=2))


@program
def attribute_hooks():
    class Lazy:
        def __init__(self):
            self.table = {"alpha": 2.0}

        def __getattr__(self, name):
            try:
                return self.table[name]
            except KeyError:
                raise AttributeError(name) from None

        def __setattr__(self, name, value):
            if name == "table":
                super().__setattr__(name, value)
            else:
                self.table[name] = value

    lazy = Lazy()

    def f(x):
        lazy.beta = 3.0
        return x * lazy.alpha + lazy.beta, hasattr(lazy, "gamma"), getattr(lazy, "gamma", 1), getattr(lazy, "alpha")

    # The first call adds a key that later calls find there.
    return Program(target=f, calls=calls(3), observe=lambda: lazy.table, misses=1)


@program
def descriptors():
    class Positive:
        def __set_name__(self, owner, name):
            self.slot = "_" + name

        def __get__(self, instance, owner=None):
            return self if instance is None else getattr(instance, self.slot, 1.0)

        def __set__(self, instance, value):
            if value <= 0:
                raise ValueError(value)
            setattr(instance, self.slot, value)

    class Settings:
        gain = Positive()

    settings = Settings()
    settings.gain = 2.0

    def f(x):
        local = Settings()
        try:
            local.gain = -1
        except ValueError:
            local.gain = 4.0
        return x * settings.gain * local.gain, type(Settings.gain).__name__

    return Program(target=f, calls=calls(3))


@program
def slots_objects():
    class Node:
        __slots__ = ("value", "next", "__weakref__")

        def __init__(self, value, next=None):
            self.value, self.next = value, next

    head = Node(1.0, Node(2.0))

    def f(x):
        node = head
        while node is not None:
            x = x * node.value
            node = node.next
        out = Node(x)
        out.next = Node(2)
        return out.value, hasattr(out, "missing"), out.next.value

    return Program(target=f, calls=calls(3))


@program
def metaclasses():
    class Meta(type):
        known = {}

        def __new__(mcs, name, bases, namespace):
            cls = super().__new__(mcs, name, bases, namespace)
            mcs.known[name] = cls
            return cls

        def __len__(cls):
            return 2

        @property
        def tag(cls):
            return cls.__name__.lower()

    class Layer(metaclass=Meta):
        def run(self, x):
            return x + 1

    class Other(Layer):
        def run(self, x):
            return x * len(type(self))

    def f(x):
        return Meta.known["Other"]().run(x), Other.tag, len(Layer), sorted(Meta.known)

    return Program(target=f, calls=calls(3))


@program
def abstract_and_protocols():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self, x): ...

        def twice(self, x):
            return self.area(x) * 2

    class Square(Shape):
        def area(self, x):
            return x * x

    @typing.runtime_checkable
    class HasArea(typing.Protocol):
        def area(self, x): ...

    shape = Square()

    def f(x):
        if isinstance(shape, Shape) and callable(shape.area):
            x = shape.twice(x)
        return x, isinstance(3, Shape), isinstance([], typing.Sequence), isinstance(shape, HasArea)

    return Program(target=f, calls=calls(3))


@program
def namespaces_and_copies():
    options = types.SimpleNamespace(lr=0.1, inner=types.SimpleNamespace(k=[1, 2]))

    def f(x):
        mine = copy.copy(options)
        mine.lr = 0.5
        inner = copy.deepcopy(options.inner)
        inner.k.append(3)
        return x * mine.lr * options.lr, inner.k, vars(mine)["lr"], options.inner.k

    return Program(target=f, calls=calls(3), observe=lambda: options)


@program
def object_of_the_world_changes():
    class State:
        def __init__(self):
            self.last, self.names = None, []

    state = State()

    def f(x, name="step"):
        state.last = x * 2
        state.names.append(name)
        state.__dict__["direct"] = 1
        setattr(state, "via_setattr", x.shape)
        return state.last + 1

    return Program(target=f, calls=calls(3), observe=lambda: vars(state))


@program
def counter_of_the_world():
    class State:
        step = 0

    state = State()

    def f(x):
        state.step += 1
        return x * 2

    # A step counter varies; a scalar that no tensor needs must not cost a record each call once it is lifted.
    return Program(target=f, calls=calls(3), observe=lambda: state.step, served="any")


@program
def class_attribute_written():
    class Tally:
        last = None

    def f(x):
        Tally.last = x.shape
        return x + 1

    return Program(target=f, calls=calls(3), observe=lambda: Tally.last, served="any")


@program
def type_tricks():
    def f(x):
        Made = type("Made", (), {"k": 2.0, "go": lambda self, t: t * self.k})
        made = Made()
        checks = (type(x) is torch.Tensor, type(3) is int, isinstance(True, int), isinstance(x, (list, torch.Tensor)))
        return made.go(x), checks, type(made).__name__, Made.__module__ is not None

    return Program(target=f, calls=calls(3), served="any")


@program
def module_holding_objects():
    class Schedule:
        def __init__(self):
            self.weights = {"a": 1.0, "b": 2.0}

        def weight(self, name):
            return self.weights.get(name, 0.0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.schedule = Schedule()

        @property
        def total(self):
            return sum(self.schedule.weights.values())

        def forward(self, x):
            losses = {n: self.lin(x).pow(2).mean() * self.schedule.weight(n) for n in ("a", "b", "c")}
            losses["total"] = sum(losses.values()) / self.total
            return losses

    torch.manual_seed(0)
    return Program(target=Net(), calls=calls(2, 3))
