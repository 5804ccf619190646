"""Iterators that existed before the call: what they give is guarded, and taking from them is an effect."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from serving import Served, equal, reasons

import magpy


def left(iterator: Any) -> list[Any]:
    """What an iterator has left; it is used up."""
    return list(iterator)


def half(iterable: Any, taken: int = 1) -> Iterator[Any]:
    """An iterator that has given some elements."""
    iterator = iter(iterable)
    for _ in range(taken):
        next(iterator)
    return iterator


T = [torch.full((2,), float(number)) for number in range(5)]

MADE: dict[str, Callable[[], Any]] = {
    "list": lambda: half(list(T)),
    "tuple": lambda: half(tuple(T)),
    "reversed list": lambda: half(reversed(list(T))),
    "range": lambda: half(range(2, 30, 3)),
    "big range": lambda: half(range(1 << 70, (1 << 70) + 5)),
    "str": lambda: half("abcdef"),
    "wide str": lambda: half("abc\u00e9\u4e00"),
    "bytes": lambda: half(b"abcdef"),
    "dict": lambda: half(dict(zip("abcde", T, strict=True))),
    "dict values": lambda: half(dict(zip("abcde", T, strict=True)).values()),
    "dict items": lambda: half(dict(zip("abcde", T, strict=True)).items()),
    "reversed dict": lambda: half(reversed(dict(zip("abcde", T, strict=True)))),
    "set": lambda: half({3, 4, 5, 6}),
    "enumerate": lambda: half(enumerate(list(T), 3)),
    "zip": lambda: half(zip(list(T), range(7))),
    "map": lambda: half(map(lambda value: value * 2, list(T))),
    "map int": lambda: half(map(int, "123456")),
    "enumerate zip": lambda: half(enumerate(zip(list(T), "abcdefg"))),
    "zip enumerate": lambda: half(zip(enumerate(list(T)), enumerate("abcdefg", 5))),
    "exhausted list": lambda: half([1, 2], 2),
    "empty": lambda: iter(()),
}


def picture(value: Any) -> Any:
    return [picture(each) for each in value] if isinstance(value, tuple) else value


def all_of(x: Any, iterator: Any) -> Any:
    found = []
    for value in iterator:
        found.append(value)
    return x + len(found), found


def one_of(x: Any, iterator: Any) -> Any:
    for value in iterator:
        return x + 1, value
    return x, None


def next_of(x: Any, iterator: Any) -> Any:
    one = next(iterator, None)
    return x * 2, one, next(iterator, "nothing")


def list_of(x: Any, iterator: Any) -> Any:
    return x * 2, list(iterator)


def is_in(x: Any, iterator: Any) -> Any:
    return x + (4 in iterator)


def tail_of(x: Any, iterator: Any) -> Any:
    first, *rest = iterator
    return x * 2, first, rest


def mean(x: Any, iterator: Any) -> Any:
    total, count = x, 0
    for value in iterator:
        total = total + (value if isinstance(value, torch.Tensor) else 1)
        count += 1
        if count == 2:
            break
    return total / max(count, 1)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("function", [all_of, one_of, next_of, list_of, mean, is_in, tail_of])
def test_served_and_taken(name: str, function: Callable[..., Any]) -> None:
    make = MADE[name]
    if function is is_in and ("T" in make.__code__.co_names or name in ("map", "zip", "enumerate zip")):
        pytest.skip("tensors have no truth")
    if function is tail_of and name in ("exhausted list", "empty"):
        pytest.skip("raises")
    x = torch.ones(2)
    compiled = Served(magpy.compile(function, backend="eager"))
    for how in ("monitored", "hits", "hits"):
        one, other = make(), make()
        expected = function(x, one)
        if name in ("set", "map int") and function is is_in:
            got = compiled.compiled(x, other)
        else:
            got = compiled(how, x, other)
        assert equal(expected, got)
        assert type(one) is type(other)
        assert equal(left(one), left(other))
    assert not reasons(compiled.compiled)


def test_loops_share_records_at_any_place() -> None:
    """What comes next is guarded, not where the iterator stands."""
    compiled = Served(magpy.compile(one_of, backend="eager"))
    iterator = iter(list(T))
    x = torch.ones(2)
    compiled.monitored(x, iterator)
    for _ in range(4):
        compiled.hit(x, iterator)
    assert equal(compiled.monitored(x, iterator), (x, None))
    assert equal(compiled.monitored(x, iterator), (x, None))  # it has let its list go
    assert equal(compiled.hit(x, iterator), (x, None))


def test_other_elements_miss() -> None:
    compiled = Served(magpy.compile(lambda x, it: x * next(it), backend="eager"))
    x = torch.ones(2)
    compiled.monitored(x, iter([3, 4]))
    compiled.hit(x, iter([3, 5]))
    assert equal(compiled.monitored(x, iter([4, 5])), x * 4)
    assert equal(compiled.monitored(x, iter((3, 4))), x * 3)


def test_the_container_is_another_one() -> None:
    """An iterator over a list that the call changes, and one over another list, are told apart."""

    def f(x: Any, iterator: Any, items: list[int]) -> Any:
        value = next(iterator)
        items.append(value)
        return x * value

    compiled = Served(magpy.compile(f, backend="eager"))
    x = torch.ones(2)
    for how in ("monitored", "hits"):
        items = [1, 2]
        compiled(how, x, iter([5]), items)
        assert items[-1] == 5
    for how in ("monitored", "hits"):
        items = [5]
        iterator = iter(items)
        assert equal(compiled(how, x, iterator, items), x * 5)
        assert items == [5, 5] and list(iterator) == [5]


def test_an_exhausted_iterator_stays_so() -> None:
    """An exhausted list iterator lets its list go: what is appended later is not given."""

    def f(x: Any, iterator: Any) -> Any:
        return x * sum(iterator)

    compiled = Served(magpy.compile(f, backend="eager"))
    for how in ("monitored", "hits"):
        items = [1, 2]
        iterator = iter(items)
        compiled(how, torch.ones(2), iterator)
        items.append(3)
        assert list(iterator) == []


def test_iterators_held_by_an_object() -> None:
    class Feeder:
        def __init__(self) -> None:
            self.it = iter([1.0, 1.0, 1.0, 2.0, 2.0])

        def __iter__(self) -> Any:
            return self.it

    def run(compile_: Callable[[Any], Any]) -> list[Any]:
        feeder = Feeder()
        f = compile_(lambda x: x * next(feeder.it))
        return [f(torch.ones(1)) for _ in range(4)] + list(feeder.it)

    made = []

    def compile_(function: Any) -> Any:
        made.append(magpy.compile(function, backend="eager"))
        return made[-1]

    assert equal(run(lambda f: f), run(compile_))
    assert magpy.info(made[0]).hits == 2


def test_changed_dictionaries_are_not_served() -> None:
    """The iterator raises, as natively."""

    def f(x: Any, iterator: Any) -> Any:
        return x * next(iterator)

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        items = {1: 2, 3: 4}
        iterator = iter(items)
        assert equal(compiled(torch.ones(1), iterator), torch.ones(1))
        items[5] = 6
        with pytest.raises(RuntimeError, match="changed size"):
            compiled(torch.ones(1), iterator)


def test_raising_on_the_way() -> None:
    """What was taken before an exception is taken once."""

    def f(x: Any, iterator: Any) -> Any:
        for value in iterator:
            if value == 3:
                raise ValueError(value)
        return x

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        iterator = iter([1, 2, 3, 4, 5])
        with pytest.raises(ValueError, match="3"):
            compiled(torch.ones(1), iterator)
        assert list(iterator) == [4, 5]


def test_two_names_of_one_iterator() -> None:
    def f(x: Any, one: Any, other: Any) -> Any:
        return x * next(one) + next(other)

    compiled = Served(magpy.compile(f, backend="eager"))
    for how in ("monitored", "hits"):
        iterator = iter([1, 2, 3])
        assert equal(compiled(how, torch.ones(1), iterator, iterator), torch.tensor([3.0]))
    for how in ("monitored", "hits"):
        items = [1, 2, 3]
        assert equal(compiled(how, torch.ones(1), iter(items), iter(items)), torch.tensor([2.0]))


def test_sharing_an_inner_iterator() -> None:
    """Chunks by `zip` of one iterator with itself; an enumerate whose inner iterator is also taken from directly."""

    def pairs(x: Any, iterator: Any) -> Any:
        return [x * one + other for one, other in iterator]

    def both(x: Any, numbered: Any, inner: Any) -> Any:
        found = next(numbered)
        next(inner)
        return x * found[1], next(numbered)

    one, two = Served(magpy.compile(pairs, backend="eager")), Served(magpy.compile(both, backend="eager"))
    x = torch.ones(1)
    for how in ("monitored", "hits"):
        inner = iter([1, 2, 3, 4, 5])
        assert equal(one(how, x, zip(inner, inner)), [x * 3, x * 7])
        assert list(inner) == []
        inner = iter([1, 2, 3, 4, 5])
        numbered = enumerate(inner)
        assert equal(two(how, x, numbered, inner), (x, (1, 3)))
        assert list(numbered) == [(2, 4), (3, 5)]


def test_what_is_not_known_is_not_served_wrongly() -> None:
    def first(x: Any, it: Any) -> Any:
        for value in it:
            return x * value

    for function in (lambda x, it: x * next(it), first):
        compiled = magpy.compile(function, backend="eager")
        for number in (1, 1, 2, 2):
            assert equal(compiled(torch.ones(1), itertools.count(number)), torch.ones(1) * number)
        counting = itertools.count()
        assert [compiled(torch.ones(1), counting).item() for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
        generated = (each for each in (3, 4))
        assert equal(compiled(torch.ones(1), generated), torch.ones(1) * 3)
        assert equal(compiled(torch.ones(1), generated), torch.ones(1) * 4)
