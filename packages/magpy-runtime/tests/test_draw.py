"""What native code says of iterators is what Python says."""

import pytest

from magpy_runtime import iterators
from magpy_runtime._native import drawn


class Items(list):
    pass


def _changed():
    found = {1: "a", 2: "b"}
    iterator = iter(found.values())
    found[3] = "c"
    return iterator


def _replaced():
    found = {1: "a", 2: "b", 3: "c"}
    iterator = iter(found)
    next(iterator)
    del found[1]
    found[4] = "d"
    return iterator


def _holes():
    found = dict.fromkeys(range(6))
    for key in (0, 2, 5):
        del found[key]
    return iter(found)


def _shorter():
    found = [1, 2, 3, 4]
    iterator = iter(found)
    next(iterator)
    next(iterator)
    del found[1:]
    return iterator


def _attributes():
    class Holder:
        def __init__(self):
            self.first, self.second, self.third = 1, 2, 3

    holder = Holder()
    del holder.second
    return iter(vars(holder).values())


MADE = [
    lambda: iter([]), lambda: iter([1, "b", None]), lambda: iter((1, 2)), lambda: iter(Items("abc")),
    lambda: iter(range(5)), lambda: iter(range(7, -9, -3)), lambda: iter(range(2, 2)),
    lambda: iter(range(1 << 80, (1 << 80) + 2)), lambda: iter(range(2**63 - 4, 2**63 - 1, 2)),
    lambda: iter(range(-(2**63), 5 - 2**63, 3)),
    lambda: iter({}), lambda: iter({1: 2, 3: 4}), lambda: iter({1: 2, 3: 4}.values()),
    lambda: iter({1: [2], 3: 4}.items()), lambda: iter("abc"), lambda: reversed([1, 2]), lambda: iter({1, 2}),
    lambda: reversed({1: 2}), _changed, _replaced, _holes, _shorter, _attributes,
]  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("taken", range(4))
def test_plain_iterators(made, taken):
    iterator = made()
    try:
        iterators.advance(iterator, taken)
    except RuntimeError:
        pass
    for count in (0, 1, 2, 3, 7, 1 << 80):
        wanted = iterators.ahead(iterator, count)
        asked = []
        assert drawn(lambda each: asked.append(each) or wanted, True, count, iterator) is wanted or not asked
        assert _same(drawn(lambda each, count=count: iterators.ahead(each, count), True, count, iterator), wanted)
    slowly = lambda each: iterators.part(each, "source")  # noqa: E731
    assert drawn(slowly, False, "source", iterator) is iterators.part(iterator, "source")


def _same(one, other):
    return one is other or one == other


def test_known_ones_need_no_python():
    def never(iterator):
        raise AssertionError(iterator)

    assert drawn(never, True, 1, iter([1, 2])) == 2
    assert drawn(never, True, 1, iter({"a": 1, "b": 2}.values())) == 2
    source = {"a": 1}
    assert drawn(never, False, "source", iter(source)) is source
    inner = iter([1, 2])
    found = enumerate(inner, 1 << 70)
    next(found)
    assert drawn(never, False, 0, found) is inner and drawn(never, False, "count", found) == (1 << 70) + 1


@pytest.mark.parametrize("start", [0, 5, -3, 1 << 62])
def test_enumerate(start):
    found = enumerate("abc", start)
    next(found)
    for name in (0, "count", "strict"):
        wanted = iterators.part(found, name)
        assert _same(drawn(lambda each, name=name: iterators.part(each, name), False, name, found), wanted)
