"""Globals, closures, local variables, imports, unpacking."""

import collections
import collections.abc as abstract

from ._programs import Box, program

COUNT = 1
STEP = 5


def put_back():
    global COUNT
    COUNT = 1
    globals().pop("MADE", None)


@program(reset=put_back)
def global_load():
    return COUNT + STEP, len, max


@program(reset=put_back)
def global_store():
    global COUNT, MADE
    COUNT += STEP
    MADE = [COUNT]
    return COUNT


@program(reset=put_back)
def global_delete():
    global MADE
    MADE = 1
    del MADE
    try:
        return MADE
    except NameError:
        return "gone"


def counter(start):
    count = start
    unbound = 0
    del unbound

    def step(by=1):
        nonlocal count
        count += by
        return count

    def missing():
        return unbound  # noqa: F821

    return step, missing


@program(lambda: counter(5))
def closure(step, missing):
    first = step(), step(by=4)
    try:
        missing()
    except NameError:
        return first


def emptied(start):
    held = start

    def clear(again=False):
        nonlocal held
        was = held
        del held
        if again:
            held = again  # noqa: F841
        return was

    return clear


@program(lambda: (emptied([1]), emptied([2])))
def closure_delete(one, other):
    return one(), other(again=3)


@program(lambda: ([1, 2],))
def closure_made(values):
    total = 0
    step = values[0]

    def add(value):
        nonlocal total
        total += value * step  # noqa: F821
        return total

    for value in values:
        add(value)
    del step
    return total, add


@program(lambda: (1,))
def local_delete(value):
    other = value
    del other
    if value > 5:
        later = 1
    try:
        later
    except UnboundLocalError:
        return value


@program(lambda: (1,))
def walrus(value):
    if (other := value + 1) > 1:
        return [other, (third := other + 1), third]


@program(lambda: ((1, 2), [3, 4, 5], {"a": 1}))
def unpack(pair, values, names):
    a, b = pair
    first, *middle, last = values
    (c,) = names
    [d, [e, f]] = [1, [2, 3]]
    a, b = b, a
    a, b, c = c, a, b
    return a, b, c, d, e, f, first, middle, last


@program(lambda: ((1, 2), [3], {"a": 1}))
def stars(pair, values, names):
    return [*pair, *values], (*pair, 0), {*pair, *values}, {**names, "b": 2, **names}, [0, *pair]


@program(lambda: (1, 2))
def displays(a, b):
    big = [1, 2, 3, 4, 5]
    keyed = {"a": a, "b": b, "c": 3}
    return [a, b], (a, b), {a, b}, {a: b}, keyed, big, {1, 2, 3}, {"x": 1, a: 2}, slice(a, b), (a, b)[0:1]


@program()
def imports():
    import collections
    import collections.abc
    import collections.abc as other
    from collections import OrderedDict
    from collections import deque as queue

    return other is collections.abc, queue is collections.deque, OrderedDict is collections.OrderedDict


@program(lambda: (Box(a=1, b=[2]),))
def attributes(box):
    box.c = box.a
    box.b.append(box.c)
    box.a += 1
    del box.c
    box.d: int = 4
    return box.b is box.b, abstract.Mapping is collections.abc.Mapping


@program(lambda: ([1, 2, 3, 4], {"a": 1}))
def subscripts(values, names):
    values[0] = names["a"]
    values[1] += 5
    names["b"] = values[-1]
    names["a"] += 1
    del values[2]
    del names["b"]
    return values[0], values[1:], values[:1], values[0:2], values[::2]


@program(lambda: ([1, 2, 3, 4], (5, 6, 7), 1))
def slices(values, pair, start):
    values[start:2] = pair
    values[0:1] = [9]
    values[:] = values[start:]
    values[::2] = [0] * len(values[::2])
    del values[1:2]
    return values[start:], pair[start : start + 1], "text"[start:]


class Sliced:
    def __getitem__(self, key):
        return key

    def __setitem__(self, key, value):
        self.set = key, value

    def __delitem__(self, key):
        self.deleted = key

    def __repr__(self):
        return f"Sliced({self.__dict__})"


@program(lambda: (Sliced(), [1]))
def slices_of_objects(sliced, values):
    sliced[1:2] = values
    sliced[3] = 4
    del sliced[5:6]
    return sliced[1:2], sliced[:], sliced[1:2, 3], sliced[1:2:3]
