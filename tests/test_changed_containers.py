"""What C code reads of a container is read anew: each expression is served right after what it looks at was changed in place."""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import reasons

import magpy

pytestmark = pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")


class Plain:
    pass


def instance() -> Plain:
    made = Plain()
    made.a = 1
    return made


def module() -> types.ModuleType:
    made = types.ModuleType("made")
    made.a = 1
    return made


def a_class() -> type:
    class Made:
        a = 1

    return Made


def longer(v: Any) -> None:
    v.append(0)
    v[0] = 9


def more(v: Any) -> None:
    v["a"] = 7
    v["z"] = 1


def attributes(v: Any) -> None:
    v.a = 5
    v.zz = 1


def deep(v: Any) -> None:
    v[0][0] = 5
    v[1]["a"].append(1)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "list": (lambda: [3, 1, 2], longer),
    "deque": (lambda: collections.deque([1, 2]), longer),
    "bytearray": (lambda: bytearray(b"ab"), longer),
    "dict": (lambda: {"a": 1, "b": 2}, more),
    "OrderedDict": (lambda: collections.OrderedDict(a=1, b=2), more),
    "defaultdict": (lambda: collections.defaultdict(int, a=1), more),
    "Counter": (lambda: collections.Counter("aab"), more),
    "UserDict": (lambda: collections.UserDict(a=1), more),
    "set": (lambda: {1, 2}, lambda v: v.add(5)),
    "instance": (instance, attributes),
    "namespace": (lambda: types.SimpleNamespace(a=1), attributes),
    "module": (module, attributes),
    "class": (a_class, attributes),
    "nested": (lambda: [[1], {"a": [2]}], deep),
}

TABLE = r"""
list deque bytearray
    operator.itemgetter(0)(v); operator.itemgetter(0, 1)(v); operator.itemgetter(0).__call__(v); operator.getitem(v, 0)
    [*map(operator.itemgetter(0), [v])]; functools.reduce(operator.getitem, [0], v); operator.methodcaller('count', 9)(v)
    operator.countOf(v, 9); operator.contains(v, 9); operator.concat(v, v); operator.mul(v, 2); operator.add(v, v)
    operator.eq(v, type(v)(v)); operator.lt(v, type(v)([9, 9])); operator.truth(v); operator.length_hint(v)
    min(v); max(v); sum(v); any(v); all(v); list(v); tuple(v); set(v); frozenset(v); sorted(v); [*reversed(list(v))]
    [*reversed(v)]; [*enumerate(v)]; [*zip(v, v)]; [*map(str, v)]; [*filter(None, v)]; repr(v); str(v); len(v); bool(v)
    copy.copy(v); copy.deepcopy(v); v == v.copy(); v * 2; v + v; 9 in v; [*itertools.chain(v, v)]; [*itertools.accumulate(v)]
    [*itertools.islice(v, 2)]; [*itertools.product(v, v)]; [*itertools.pairwise(v)]; [*itertools.chain.from_iterable([v, v])]
    [*itertools.groupby(v)][0][0]; [*itertools.takewhile(bool, v)]; next(itertools.cycle(v)); functools.reduce(operator.add, v)
    bytes(v); bytearray(v); heapq.nlargest(1, v); math.fsum(v); math.prod(v); statistics.mean(v); collections.Counter(v)
    next(iter(v)); [*v]; f'{v}'; v.__getitem__(0); v.__len__(); v.__contains__(9); type(v).__getitem__(v, 0)
    iter(v).__length_hint__(); math.hypot(*v); divmod(*[*v][:2]); torch.Size(v); dict.fromkeys(v, 1); sorted(v, key=lambda q: -q)
dict OrderedDict defaultdict Counter UserDict
    operator.itemgetter('a')(v); operator.itemgetter('a', 'a')(v); operator.getitem(v, 'a'); operator.contains(v, 'z')
    [*map(operator.itemgetter('a'), [v])]; functools.reduce(operator.getitem, ['a'], v); operator.methodcaller('get', 'z')(v)
    v.__contains__('z'); type(v).__contains__(v, 'z'); operator.truth(v); operator.eq(v, {'a': 1, 'b': 2}); list(v); len(v)
    sorted(v); max(v); repr(v); f'{v}'; dict(v); {**v}; [*v.items()]; [*v.values()]; [*v.keys()]; 'z' in v; copy.copy(v)
    copy.deepcopy(v); v == {'a': 1}; '%(a)s' % v; '{a}'.format(**v); '{a}'.format_map(v); string.Template('$a').substitute(v)
    next(iter(v)); next(iter(v.values())); next(iter(v.items())); v.get('z'); v.__getitem__('a'); sum(v.values())
    collections.ChainMap(v)['a']; (lambda **k: k)(**v); types.SimpleNamespace(**v); [*map(v.get, ('a', 'z'))]
    [*map(v.__getitem__, ['a'])]; [*filter(v.get, ['a', 'z'])]; [*filter(v.__contains__, ['a', 'z'])]; v | v
    v.keys() & {'z'}; max(v, key=v.get); sorted(v, key=v.get); min(v.items(), key=operator.itemgetter(1)); v.copy()
    type(v)(v); len(v.keys()); reprlib.repr(v); pprint.pformat(v); any(v.values()); hash(frozenset(v.items()))
dict
    eval('a', v); eval('a', {}, v); type('Z', (), v).a; type('Z', (), v).__dict__.get('z'); functools.partial(dict, **v)()
    v.setdefault('a', 3); types.MappingProxyType(v)['a']; dict.__getitem__(v, 'a'); dict.__contains__(v, 'z'); 'a'.translate(v)
    types.new_class('Z', (), {}, lambda ns: ns.update(v)).a; dict.fromkeys(v)
set
    operator.contains(v, 5); 5 in v; v.__contains__(5); set.__contains__(v, 5); len(v); sorted(v); v | {7}; v & {5}; v - {5}
    v ^ {5}; v <= {1, 2}; v == {1, 2}; v.union([7]); v.issubset([1, 2]); {1, 2}.issubset(v); {5}.isdisjoint(v); frozenset(v)
    operator.or_(v, {7}); operator.le(v, {1, 2}); max(v); sum(v); repr(v); v.copy(); {1: 1, 5: 3}.keys() & v; bool(v)
    [*filter(v.__contains__, [1, 5])]; [*map(v.__contains__, [1, 5])]
instance namespace module class
    operator.attrgetter('a')(v); operator.attrgetter('a', 'a')(v); operator.attrgetter('a').__call__(v); getattr(v, 'a')
    [*map(operator.attrgetter('a'), [v])]; max([v], key=operator.attrgetter('a')) is v; hasattr(v, 'zz'); getattr(v, 'zz', 0)
    [q for q in dir(v) if q[0] != '_']; vars(v)['a']; sorted(k for k in vars(v) if k[0] != '_'); v.__dict__.get('zz')
    'zz' in vars(v); vars(v).__contains__('zz'); len(v.__dict__); inspect.getattr_static(v, 'a'); '{.a}'.format(v); f'{v.a}'
    [n for n, _ in inspect.getmembers(v) if n[0] != '_']; copy.copy(v).a; functools.partial(getattr, v, 'a')()
    functools.reduce(getattr, ['a'], v); {**vars(v)}.get('zz'); type.__dir__(type(v)) and len(dir(v))
nested
    copy.deepcopy(v); repr(v); v == [[1], {'a': [2]}]; operator.itemgetter(0)(v)[0]
    functools.reduce(operator.getitem, [1, 'a'], v)
    v in [[[1], {'a': [2]}]]; (v,) == ([[1], {'a': [2]}],); {'k': v} == {'k': [[1], {'a': [2]}]}; max([v[0], [3]])
    '{0[0][0]}'.format(v); '%s' % (v,); pprint.pformat(v); repr({'k': v}); len(str(v)); [*itertools.starmap(max, [v[:1]])]
"""


def cases() -> list[Any]:
    found: list[Any] = []
    kinds: list[str] = []
    for line in TABLE.strip().splitlines():
        if line[0] != " ":
            kinds = line.split()
        else:
            found += [(kind, each.strip()) for each in line.split(";") for kind in kinds]
    return found


def shown(value: Any) -> Any:
    if isinstance(value, Plain):
        return vars(value)
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [shown(each) for each in value]
    return type(value).__name__, repr(value)


def seen(expression: str, kind: str, compiled: list[Any] | None) -> list[Any]:
    make, change = KINDS[kind]
    world = {**globals(), "v": make()}
    exec(f"def f(x):\n    r = {expression}\n    return x * 2, r\n", world)
    program = world["f"]
    if compiled is not None:
        compiled.append(magpy.compile(program, backend="eager"))
        program = compiled[0]
    found: list[Any] = []
    for step in ("call", "call", "change", "call", "again", "call", "change", "call"):
        if step == "change":
            change(world["v"])
        elif step == "again":
            world["v"] = make()
        else:
            try:
                found.append(shown(program(torch.ones(2))[1]))
            except Exception as error:
                found.append((type(error).__name__, str(error)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_c_code_reads(kind: str) -> None:
    hits = total = 0
    for other, expression in cases():
        if other == kind:
            compiled: list[Any] = []
            assert seen(expression, kind, compiled) == seen(expression, kind, None), expression
            hits += magpy.info(compiled[0]).hits
            total += 1
    assert hits >= (0 if kind == "bytearray" else total // 2), (hits, total)  # an array is read at each call


def spread(x: torch.Tensor, held: Any) -> Any:
    try:
        found = list.pop(*held[0])
    except IndexError:
        found = -1
    return x * 2, found


def test_what_a_call_at_a_boundary_is_spread_from() -> None:
    """The call has raised before, so that it is a boundary from its very beginning."""
    compiled = magpy.compile(spread, backend="eager")
    held, other = [None], [None]
    for step in range(6):
        if step % 2 == 0:
            held[0], other[0] = ([3, 1, 2], 1), ([3, 1, 2], 1)
        else:
            held[0][0].pop(), other[0][0].pop()
        assert compiled(torch.ones(1), held)[1] == spread(torch.ones(1), other)[1]
        assert held == other
    assert magpy.info(compiled).hits


def test_keys_stay_what_they_are() -> None:
    """An iterator, or a frozen set, that is added to a set is that object in a later call, too."""
    world: dict[str, Any] = {}

    def added(x: torch.Tensor) -> torch.Tensor:
        world["set"].add(world["key"])
        return x * 2

    compiled = magpy.compile(added, backend="eager")
    for make in (lambda: iter([1, 2]), lambda: frozenset([1]), lambda: (1, 2)):
        for _ in range(4):
            world["set"], world["key"] = {5}, make()
            compiled(torch.ones(1))
            assert any(each is world["key"] for each in world["set"])


def test_a_weakly_held_object_may_die() -> None:
    import gc
    import weakref

    target = instance()
    reference = weakref.ref(target)

    def alive(x: torch.Tensor) -> torch.Tensor:
        found = reference()
        return x * 2 if found is None else x * found.a

    compiled = magpy.compile(alive, backend="eager")
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1, 1, 1]
    assert magpy.info(compiled).hits == 2 and reasons(compiled) == []
    del target
    gc.collect()
    assert reference() is None and compiled(torch.ones(1)).item() == 2


def test_an_exception_that_is_made_of_a_used_one() -> None:
    """The interpreter keeps used MemoryErrors, without their arguments."""
    held = [1]

    def made(x: torch.Tensor) -> Any:
        return x * 2, MemoryError(held)

    compiled = magpy.compile(made, backend="eager")
    for _ in range(4):
        assert compiled(torch.ones(1))[1].args == (held,)
        assert sys.getrefcount(held) < 20
    assert magpy.info(compiled).hits == 3
