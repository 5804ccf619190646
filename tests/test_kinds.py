"""Each kind of object that programs hold: guarded, built and changed; the table in docs/reference/kinds.md is this file's.

For each kind there is one small program for each column. *Guarded*: it is an argument that the call reads; an equal one is
served by the record, another one is not. *Built*: a call makes it and returns it, a new one at each hit. *Effect*: the call
changes one that existed before, and a hit changes it in the same way. Run with `--update-cases` to write the table.
"""

import collections
import dataclasses
import enum
import functools
import itertools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from soundness import attempt, freeze

import magpy

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kinds.md"


class Plain:
    shared: list[Any] = []

    def __init__(self, value: Any) -> None:
        self.value = value

    def method(self) -> Any:
        return self.value

    @classmethod
    def of_class(cls, value: Any) -> Any:
        return cls(value)

    @property
    def prop(self) -> Any:
        return self.value

    @prop.setter
    def prop(self, value: Any) -> None:
        self.value = value


class Child(Plain):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Meta(type):
    def __call__(cls, value: Any) -> Any:
        made = super().__call__()
        made.value = value
        return made


class OfMeta(metaclass=Meta):
    value: Any


class Descriptor:
    def __get__(self, obj: Any, owner: Any) -> Any:
        return obj.__dict__["hidden"]

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__["hidden"] = value


class Described:
    value = Descriptor()

    def __init__(self, value: Any) -> None:
        self.value = value


Pair = collections.namedtuple("Pair", "a b")


class Named(NamedTuple):
    a: Any
    b: Any = 2


class PairPlus(Pair):
    def total(self) -> Any:
        return self.a


@dataclasses.dataclass
class Data:
    value: Any
    other: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class FrozenData:
    value: Any


@dataclasses.dataclass(slots=True)
class SlottedData:
    value: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Bits(enum.Flag):
    A = 1
    B = 2


class MyList(list[Any]):
    pass


class MyDict(dict[Any, Any]):
    pass


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyTensor(torch.Tensor):
    pass


def half(iterable: Any) -> Any:
    iterator = iter(iterable)
    next(iterator)
    return iterator


def adder(value: Any) -> Any:
    def add(x: Any) -> Any:
        return x + value

    return add


def attribute(obj: Any) -> Any:
    return obj.value


@dataclass(frozen=True)
class Kind:
    """One row.

    Attributes:
        make: makes one of a small int; called outside of the call for arguments, inside of it for outputs.
        read: what the call reads of an argument, as something that can be multiplied with a tensor or None.
        change: what the call does to one that existed before, None where the kind cannot change.
        built: whether it can be built; if not, why.
        guarded: whether it can be read.
    """

    make: Callable[[Any], Any]
    read: Callable[[Any], Any]
    change: Callable[[Any], Any] | None = None
    built: str = ""
    guarded: str = ""
    effect: str = ""


def put(name: str) -> Callable[[Any], Any]:
    return lambda obj: setattr(obj, name, 7)


KINDS: dict[str, Kind] = {
    "int": Kind(int, lambda o: o),
    "float": Kind(float, lambda o: o),
    "complex": Kind(complex, lambda o: o.real),
    "bool": Kind(lambda n: bool(n - 1), lambda o: int(o)),
    "str": Kind(str, lambda o: int(o)),
    "bytes": Kind(lambda n: b"a" * n, lambda o: len(o)),
    "None": Kind(lambda n: None if n == 1 else n, lambda o: 1 if o is None else o),
    "Ellipsis": Kind(lambda n: ... if n == 1 else n, lambda o: 1 if o is ... else o),
    "range": Kind(range, lambda o: len(o)),
    "slice": Kind(lambda n: slice(n, None), lambda o: o.start),
    "tuple": Kind(lambda n: (n, [n]), lambda o: o[0]),
    "list": Kind(lambda n: [n, [n]], lambda o: o[0], lambda o: o.append(7)),
    "dict": Kind(lambda n: {"a": n, 2: [n]}, lambda o: o["a"], lambda o: o.update(b=7)),
    "dict keys": Kind(lambda n: {n: 1}.keys(), lambda o: sum(o)),
    "dict values": Kind(lambda n: {1: n}.values(), lambda o: sum(o)),
    "dict items": Kind(lambda n: {1: n}.items(), lambda o: sum(v for _, v in o)),
    "set": Kind(lambda n: {n, n + 10}, lambda o: sum(o), lambda o: o.add(7)),
    "frozenset": Kind(lambda n: frozenset((n, n + 10)), lambda o: sum(o)),
    "deque": Kind(lambda n: collections.deque([n, 2], 3), lambda o: o[0], lambda o: o.appendleft(7)),
    "OrderedDict": Kind(
        lambda n: collections.OrderedDict(a=n, b=2), lambda o: o["a"], lambda o: o.move_to_end("a")
    ),
    "defaultdict": Kind(
        lambda n: collections.defaultdict(list, a=n), lambda o: o["a"], lambda o: o["new"].append(7)
    ),
    "Counter": Kind(lambda n: collections.Counter(a=n), lambda o: o["a"], lambda o: o.update("ab")),
    "ChainMap": Kind(lambda n: collections.ChainMap({"a": n}, {"b": 2}), lambda o: o["a"], lambda o: o.update(c=7)),
    "UserDict": Kind(lambda n: collections.UserDict(a=n), lambda o: o["a"], lambda o: o.update(c=7)),
    "namedtuple": Kind(lambda n: Pair(n, [n]), lambda o: o.a),
    "NamedTuple": Kind(Named, lambda o: o.a),
    "subclass of a namedtuple": Kind(lambda n: PairPlus(n, 2), lambda o: o.total(), put("extra")),
    "dataclass": Kind(Data, attribute, put("value")),
    "frozen dataclass": Kind(FrozenData, attribute),
    "dataclass with slots": Kind(SlottedData, attribute, put("value")),
    "Enum member": Kind(Colour, lambda o: o.value),
    "Flag": Kind(Bits, lambda o: o.value),
    "plain instance": Kind(Plain, attribute, put("value")),
    "property": Kind(Plain, lambda o: o.prop, put("prop")),
    "subclass with `__getattr__`": Kind(Child, lambda o: o.value * o.abc, put("value")),
    "instance with slots": Kind(Slotted, attribute, put("value")),
    "instance of a metaclass's class": Kind(OfMeta, attribute, put("value")),
    "user descriptor": Kind(Described, attribute, put("value")),
    "subclass of list": Kind(lambda n: MyList([n]), lambda o: o[0], lambda o: o.append(7)),
    "subclass of dict": Kind(lambda n: MyDict(a=n), lambda o: o["a"], lambda o: o.update(b=7)),
    "subclass of int": Kind(MyInt, lambda o: o + 0),
    "subclass of str": Kind(lambda n: MyStr(n), lambda o: len(o) + int(o)),
    "function": Kind(adder, lambda o: o(1), put("note")),
    "lambda": Kind(lambda n: lambda x: x * n, lambda o: o(1)),
    "bound method": Kind(lambda n: Plain(n).method, lambda o: o()),
    "class method": Kind(lambda n: (Plain, Child)[n - 1].of_class, lambda o: len(type(o(2)).__mro__)),
    "static function": Kind(lambda n: len, lambda o: o("ab")),
    "partial": Kind(lambda n: functools.partial(max, n), lambda o: o(0)),
    "class": Kind(lambda n: Plain, lambda o: o(2).value, lambda o: o.shared.append(7)),
    "list iterator": Kind(lambda n: half([1, n, n]), next, next),
    "tuple iterator": Kind(lambda n: half((1, n, n)), next, next),
    "str iterator": Kind(lambda n: half(f"1{n}"), lambda o: int(next(o)), next),
    "range iterator": Kind(lambda n: half(range(0, 9, n)), next, next),
    "dict iterator": Kind(lambda n: half({0: 1, n: 2}), next, next),
    "set iterator": Kind(lambda n: iter({n}), next, next, built="a set that is built again may have another order"),
    "reversed": Kind(lambda n: half(reversed([n, n, 1])), next, next),
    "enumerate": Kind(lambda n: half(enumerate([1, n])), lambda o: next(o)[1], next),
    "zip": Kind(lambda n: half(zip([1, n], "ab")), lambda o: next(o)[0], next),
    "map": Kind(lambda n: map(int, [n, 2]), next, next),
    "filter": Kind(lambda n: filter(None, [0, n]), lambda o: 1, guarded="only by what it is, not what it gives"),
    "itertools object": Kind(
        lambda n: itertools.chain([n], [2]), lambda o: 1, guarded="only by what it is, not what it gives",
        built="C code keeps it to itself",
    ),
    "generator": Kind(
        lambda n: (n for _ in range(2)), lambda o: 1, guarded="only by what it is, not what it gives",
        built="a frame that is suspended",
    ),
    "module": Kind(lambda n: torch, lambda o: len(o.__name__)),
    "SimpleNamespace": Kind(lambda n: types.SimpleNamespace(value=n), attribute, put("value")),
    "mapping proxy": Kind(lambda n: types.MappingProxyType({"a": n}), lambda o: 1, guarded="only by what it is"),
    "weak reference": Kind(lambda n: weakref.ref(Plain), lambda o: o() is Plain),
    "dtype": Kind(lambda n: torch.float32 if n == 1 else torch.float64, lambda o: o.itemsize),
    "device": Kind(lambda n: torch.device("cpu") if n == 1 else torch.device("meta"), lambda o: len(o.type)),
    "Size": Kind(lambda n: torch.Size([n, 2]), lambda o: o[0]),
    "Generator": Kind(
        lambda n: torch.Generator().manual_seed(n), lambda o: 1, guarded="only by what it is", built="C code keeps it"
    ),
    "tensor": Kind(lambda n: torch.full((2,), float(n)), lambda o: o, lambda o: o.add_(1)),
    "parameter": Kind(
        lambda n: torch.nn.Parameter(torch.full((2,), float(n)), False), lambda o: o, lambda o: o.add_(1),
        built="an operator of the graph cannot make one",
    ),
    "tensor subclass": Kind(
        lambda n: torch.ones(2).as_subclass(MyTensor), lambda o: o, guarded="runs natively", built="runs natively"
    ),
    "exception": Kind(lambda n: ValueError(n, "a"), lambda o: o.args[0]),
}  # fmt: skip


def calls(function: Callable[..., Any], *arguments: Callable[[], tuple[Any, ...]]) -> tuple[bool, list[str]]:
    """Call eagerly and compiled with arguments made anew each time: how each compiled call was served.

    Gives whether what can be seen is the same, and what served each call.
    """
    compiled = magpy.compile(function, backend="eager")
    served, same = [], True
    for make in arguments:
        before = magpy.info(compiled)
        pictures = []
        for call in (function, compiled):
            given = make()
            result = attempt(call, *given)
            kinds = [type(each) for each in given] + [type(result)]
            pictures.append((freeze(_shown(result)), [freeze(_shown(each)) for each in given], kinds))
        after = magpy.info(compiled)
        same &= pictures[0] == pictures[1]
        served.append("hit" if after.hits > before.hits else "miss")
    return same, served


def _shown(value: Any) -> Any:
    """What an object holds: of iterators what they have left, of views and weak references what is behind them."""
    kind = type(value)
    if isinstance(value, tuple) and kind is tuple:
        return tuple(_shown(each) for each in value)
    if isinstance(value, weakref.ref):
        return value()
    if isinstance(value, (types.MappingProxyType, collections.ChainMap)):
        return dict(value)
    if kind.__name__ in ("dict_keys", "dict_values", "dict_items", "map", "zip", "enumerate", "filter", "chain") or (
        kind.__name__.endswith("iterator") and kind is not types.GeneratorType
    ):
        return [kind.__name__, *list(value)]
    if kind in (torch.Generator, types.GeneratorType, functools.partial, slice, range):
        return repr(value).partition(" at ")[0]
    return value


@pytest.mark.parametrize("name", KINDS)
def test_guarded(name: str) -> None:
    kind = KINDS[name]
    x = torch.ones(2)
    one, other = (lambda: (x, kind.make(1))), (lambda: (x, kind.make(2)))
    same, served = calls(lambda x, obj: x * kind.read(obj), one, one, one, other, other)
    assert same
    if not kind.guarded:
        assert served[2] == "hit", served
        if kind.make(1) is not kind.make(2) and name not in ("tensor", "parameter", "weak reference", "bound method"):
            assert served[3] == "miss", served


@pytest.mark.parametrize("name", KINDS)
def test_built(name: str) -> None:
    kind = KINDS[name]
    make = kind.make
    same, served = calls(lambda x, n: (x + n, make(n)), *[lambda: (torch.ones(2), 1)] * 3)
    assert same
    assert served[2] == ("miss" if kind.built else "hit") or (kind.built and served[2] == "hit"), served


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.change is not None])
def test_effect(name: str) -> None:
    kind = KINDS[name]
    change = kind.change
    assert change is not None
    make = kind.make

    def f(x: Any, obj: Any) -> Any:
        change(obj)
        return x + 1

    Plain.shared.clear()
    same, served = calls(f, *[lambda: (torch.ones(2), make(1))] * 4)
    assert same
    assert served[3] == "hit" or kind.effect, served


def table() -> str:
    """The table of the page."""
    lines = ["| kind | guarded | built | effect replayed |", "| --- | --- | --- | --- |"]
    for name, kind in KINDS.items():
        guarded = kind.guarded or "yes"
        built = f"no: {kind.built}" if kind.built else "yes"
        effect = "-" if kind.change is None else (f"no: {kind.effect}" if kind.effect else "yes")
        lines.append(f"| {name} | {guarded} | {built} | {effect} |")
    return "\n".join(lines)


def test_the_page_shows_this_table(update_cases: bool) -> None:
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    head, _, _ = text.partition("| kind | guarded |")
    if update_cases:
        PAGE.write_text(f"{head}{table()}\n", encoding="utf-8")
    else:
        assert text == f"{head}{table()}\n"
