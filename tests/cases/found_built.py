"""Programs that came out wrong: what was built again had another identity, or code of a subclass ran."""

import functools
import types

import torch
from soundness import keep

from cases.world import X


class Box:
    pass


class Five(int):
    def __int__(self):
        return 5


@keep
def built_attributes_first(c):
    def g(x):
        box = Box()
        box.x = x
        return box.__dict__ is vars(box), (box.__dict__, box)

    f = c(g)
    for _ in range(3):
        same, (names, box) = f(X())
        yield same, names is box.__dict__, names


@keep
def built_attributes_last(c):
    def g(x):
        space, box = types.SimpleNamespace(a=x), Box()
        box.x = x
        return space, space.__dict__, box, box.__dict__

    f = c(g)
    for _ in range(3):
        space, names, box, others = f(X())
        yield space.__dict__ is names, box.__dict__ is others


@keep
def built_tuple_in_its_list(c):
    def g(x):
        items = [x]
        whole = (items,)
        items.append(whole)
        return whole

    f = c(g)
    for _ in range(3):
        whole = f(X())
        yield whole is whole[0][1], whole[0][0]


@keep
def built_slice_twice(c):
    def g(x):
        part = slice(0, x.shape[0])
        return part, part

    f = c(g)
    for _ in range(3):
        one, other = f(X())
        yield one is other, one


@keep
def built_number_of_a_subclass(c):
    f = c(lambda x: (Five(3), x))
    for _ in range(3):
        yield int.__add__(f(X())[0], 0)


@keep
def built_partial(c):
    f = c(lambda x: functools.partial(dict, **{"a b": x, "class": 1}))
    for _ in range(3):
        yield f(X())()


@keep
def built_exception_with_a_value(c):
    f = c(lambda x: (StopIteration(x.shape[0]), x))
    for _ in range(3):
        yield f(X())[0].value


@keep
def built_exhausted_iterator(c):
    def g(x):
        iterator = reversed([1])
        next(iterator)
        return next(iterator, 2), iterator, x

    f = c(g)
    for _ in range(3):
        yield type(f(X())[1]).__name__


@keep
def built_looks_at_no_class(c):
    """Whoever asks for an instance's class by `isinstance` runs its `__getattribute__`."""
    log = []

    class Proxy:
        def __getattribute__(self, name):
            log.append(name)
            return object.__getattribute__(self, name)

    held = Proxy()

    def g(x, given):
        return x + 1, given, held, [held], Proxy()

    f = c(g)
    for _ in range(3):
        f(X(), Proxy())
        yield list(log)


@keep
def built_set_of_what_hashes_itself(c):
    log = []

    class Key:
        def __hash__(self):
            log.append("hash")
            return 1

    held = Key()
    f = c(lambda x: ({held}, x + 1))
    for _ in range(3):
        f(X())
        yield list(log)


@keep
def built_reads_no_list_by_its_methods(c):
    log = []

    class Items(list):
        def __getattribute__(self, name):
            log.append(name)
            return list.__getattribute__(self, name)

        def __len__(self):
            log.append("len")
            return list.__len__(self)

        def __iter__(self):
            log.append("iter")
            return list.__iter__(self)

    items = Items([1, 2])
    table = {items.append: 1}

    def g(x):
        items.append(3)
        return items[0], items.pop(), torch.stack(Items([x, x])), table.get(5)

    f = c(g)
    for _ in range(3):
        f(X())
        yield list(log)
