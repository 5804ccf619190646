"""Keys that dictionaries and sets find by identity: which object a key is, is a fact; which other one it is not, too."""

import collections
import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served

import magpy


class Thing:
    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def method(self) -> Any:
        return self.value


class Hashed(Thing):
    def __hash__(self) -> int:
        return 7


class Equal(Thing):
    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.value == other.value


def function(value: Any) -> Any:
    return lambda: value


MAKERS = {
    "instance": Thing,
    "own hash": Hashed,
    "own equality": Equal,
    "tensor": lambda value: torch.full((2,), float(value)),
    "function": function,
    "partial": lambda value: functools.partial(int, value),
}


class Holder:
    """State that is older than a call."""

    def __init__(self, keys: list[Any]) -> None:
        self.table: dict[Any, Any] = {key: number for number, key in enumerate(keys)}
        self.members = set(keys)
        self.seen: dict[Any, Any] = {}
        self.ordered = collections.OrderedDict(self.table)
        self.counts: dict[Any, int] = collections.defaultdict(int)
        self.chain = collections.ChainMap({}, self.table)
        self.current: Any = None


def get(holder: Holder, key: Any) -> Any:
    return holder.table.get(key, -1)


def subscript(holder: Holder, key: Any) -> Any:
    return holder.table[key] if key in holder.table else "none"


def of_attribute(holder: Holder, key: Any) -> Any:
    holder.current = key
    return holder.table.get(holder.current)


def memo(holder: Holder, key: Any) -> Any:
    if key not in holder.seen:
        holder.seen[key] = len(holder.seen)
    return holder.seen[key], len(holder.seen)


def count(holder: Holder, key: Any) -> Any:
    holder.counts[key] += 1
    return holder.counts[key]


def pop(holder: Holder, key: Any) -> Any:
    return holder.ordered.pop(key, None), len(holder.ordered)


def in_set(holder: Holder, key: Any) -> Any:
    return key in holder.members


def add(holder: Holder, key: Any) -> Any:
    holder.members.add(key)
    return len(holder.members)


def without(holder: Holder, key: Any) -> Any:
    return len(holder.members - {key})


def chained(holder: Holder, key: Any) -> Any:
    return key in holder.chain


@pytest.mark.parametrize("program", [get, subscript, of_attribute, memo, count, pop, in_set, add, without, chained])
@pytest.mark.parametrize("maker", [each for each in MAKERS if not each.startswith("own")])
def test_in_what_is_older(program: Callable[..., Any], maker: str) -> None:
    keys = [MAKERS[maker](number) for number in range(5)]
    compiled = magpy.compile(program, backend="eager")
    ours, theirs = Holder(keys[:3]), Holder(keys[:3])
    for number in (0, 0, 1, 3, 0, 4, 4, 2, 3, 1):
        assert compiled(ours, keys[number]) == program(theirs, keys[number])
    assert [*ours.seen.items()] == [*theirs.seen.items()] and ours.members == theirs.members
    assert magpy.info(compiled).monitored > 1


def pair_get(one: Any, other: Any) -> Any:
    return {one: 1}.get(other, 0)


def pair_set(one: Any, other: Any) -> Any:
    return len({one, other}), other in {one}, {one} <= {other}, len({one} - {other})


def pair_comprehension(one: Any, other: Any) -> Any:
    return len({each: 0 for each in (one, other)}), len({each for each in [one, other]})


def pair_loop(one: Any, other: Any) -> Any:
    seen, found = set(), 0
    for each in (one, other):
        if each in seen:
            continue
        seen.add(each)
        found += 1
    return found


def pair_in_tuples(one: Any, other: Any) -> Any:
    return (one, 1) in {(other, 1): 0}


def pair_counted(one: Any, other: Any) -> Any:
    return sorted(collections.Counter([one, other]).values()), len(dict.fromkeys((one, other)))


@pytest.mark.parametrize("program", [pair_get, pair_set, pair_comprehension, pair_loop, pair_in_tuples, pair_counted])
@pytest.mark.parametrize("maker", MAKERS)
def test_keys_of_what_the_call_makes(program: Callable[..., Any], maker: str) -> None:
    x, y, z, other = (MAKERS[maker](number) for number in (1, 1, 2, 3))
    served = Served(magpy.compile(program, backend="eager"))
    assert served.monitored(x, z) == program(x, z)
    assert served.monitored(x, x) == program(x, x)
    for pair in ((z, x), (z, z), (y, x), (other, x), (other, other), (x, z)):
        assert served.compiled(*pair) == program(*pair)
    if maker not in ("own hash", "own equality"):
        assert magpy.info(served.compiled).monitored == 2, (
            "which objects they are does not matter, but whether they are one"
        )


def with_older(key: Any) -> Any:
    return key in {OLDER: 1, "x": 2}, len({OLDER, key})


OLDER = Thing(9)


def test_a_key_that_is_one_of_those_that_the_record_holds() -> None:
    served = Served(magpy.compile(with_older, backend="eager"))
    assert served.monitored(Thing()) == (False, 2)
    assert served.hit(Thing()) == (False, 2)
    assert served.monitored(OLDER) == (True, 1)
    assert served.hit(Thing()) == (False, 2)


def ordered(*things: Any) -> Any:
    return [thing.value for thing in {*things}]


def taken(*things: Any) -> Any:
    return {*things}.pop().value


@pytest.mark.parametrize("program", [ordered, taken])
def test_the_order_of_a_set_is_that_of_addresses(program: Callable[..., Any]) -> None:
    things = [Thing(number) for number in range(20)]
    compiled = magpy.compile(program, backend="eager", record_limit=3)
    drawn = random.Random(3)
    assert compiled(*things[:4]) == compiled(*things[:4]) and magpy.info(compiled).hits == 1
    with pytest.warns(magpy.NotCompiledWarning):
        for _ in range(20):
            some = drawn.sample(things, 4)
            assert compiled(*some) == program(*some)


def hash_of(key: Any) -> Any:
    return hash(key)


def hash_in_tuple(key: Any) -> Any:
    return hash((key, 1))


def method_of_hash(key: Any) -> Any:
    return key.__hash__()


@pytest.mark.parametrize("program", [hash_of, hash_in_tuple, method_of_hash])
@pytest.mark.parametrize("maker", ["instance", "tensor"])
def test_hashes(program: Callable[..., Any], maker: str) -> None:
    keys = [MAKERS[maker](number) for number in range(3)]
    compiled = magpy.compile(program, backend="eager")
    for number in (0, 0, 1, 2, 1, 0):
        assert compiled(keys[number]) == program(keys[number])
    assert magpy.info(compiled).monitored


def test_a_key_that_is_not_equal_to_itself() -> None:
    one, other = float("nan"), float("nan")
    compiled = magpy.compile(get, backend="eager")
    holder = Holder([one])
    with pytest.warns(magpy.NotCompiledWarning):
        assert [compiled(holder, key) for key in (one, one, other, one)] == [0, 0, -1, 0]
