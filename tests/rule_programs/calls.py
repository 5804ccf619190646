"""Calls of all kinds."""

import functools

from ._programs import Box, program


def plain(a, b=2, *rest, c=3, **others):
    return [a, b, *rest, c, *others.items()]


class Base:
    def __init__(self, start=1):
        self.start = start

    def add(self, a, b=10, *, c=100):
        return self.start + a + b + c

    @classmethod
    def make(cls, start):
        return cls(start)

    @staticmethod
    def twice(a):
        return a * 2

    @property
    def double(self):
        return self.start * 2

    def __call__(self, a):
        return a - self.start

    def __repr__(self):
        return f"{type(self).__name__}({self.start})"


class Derived(Base):
    def __init__(self, start=1, extra=7):
        super().__init__(start)
        self.extra = extra

    def add(self, a, b=20, *, c=100):
        return super().add(a, b, c=c) + self.extra

    @property
    def double(self):
        return super().double + 1

    def named(self):
        return super(Derived, self).add(1)

    def bound(self):
        kept = super()
        return kept.add(5)

    @classmethod
    def make(cls, start):
        return super().make(start + 1)


@program(lambda: ([1, 2],))
def call_positional(values):
    return plain(values[0], values[1], 5, 6)


@program(lambda: (4,))
def call_keywords(value):
    return plain(value, b=5, c=6, d=7), plain(b=1, a=value)


@program(lambda: ([1, 2, 3], {"c": 5, "e": 6}))
def call_starred(values, options):
    return plain(*values), plain(*values, **options), plain(0, *values, c=1), plain(0, **options)


@program(lambda: ((1, 2), {"b": 5}))
def call_starred_mixed(values, options):
    return plain(*values, *values), plain(1, x=1, **options), max(*values), dict(**options)


@program(lambda: (Base(3), [1, 2]))
def call_methods(base, values):
    values.append(base.add(1))
    return base.add(1, 2), base.add(1, b=2), base.add(*values[:2], c=4), base.twice(5), base.double


@program(lambda: (Derived(3, 4),))
def call_super(derived):
    return derived.add(1), derived.double, derived.named(), derived.bound(), derived.make(8)


@program(lambda: (Base(3),))
def call_bound(base):
    bound = base.add
    partial = functools.partial(bound, 1, c=2)
    return bound(1), partial(), partial(5), base(9), base.__call__(8)


@program(lambda: (Base(5).add, Base(6)))
def call_bound_argument(bound, callable_object):
    return bound(1), bound(1, c=2), callable_object(1)


@program()
def call_classes():
    base = Base(4)
    derived = Derived(start=5)
    return base, derived, Derived.make(6), list((1, 2)), dict(a=1), int("12"), tuple([1]), str(5), type(base) is Base


@program(lambda: ([3, 1, 2], {"a": 1}))
def call_builtins(values, names):
    return len(values), sum(values), sorted(values), max(values), list(reversed(values)), list(names.items())


@program(lambda: ([3, 1, 2],))
def call_back(values):
    return (
        sorted(values, key=lambda value: -value),
        list(map(plain, values)),
        functools.reduce(lambda a, b: a + b, values),
    )


@program(lambda: ([1], {"a": 1}, {1}))
def call_effects(values, names, members):
    values.append(2)
    values.extend([3, 4])
    names.update(b=2)
    names["c"] = names.pop("a")
    members.add(5)
    last = values.pop()
    names.setdefault("d", last)


@program(lambda: (Box(a=1),))
def call_by_name(box):
    setattr(box, "b", getattr(box, "a") + 1)
    return hasattr(box, "c"), getattr(box, "c", 5), isinstance(box, Box), callable(box)


def decorate(function):
    return lambda *args: [function(*args)]


@program(lambda: (2,))
def call_decorated(value):
    @decorate
    @decorate
    def inner(a, b: int = 3) -> int:
        return a + b + value

    return inner(1)


@program(lambda: ((1, 2, 3),))
def call_lambda(values):
    add = lambda a, *, b=1: a + b
    return [add(value) for value in values], add(1, b=5)


@program(lambda: (lambda: 1 / 0,))
def call_that_raises(function):
    return function()


@program(lambda: ([1],))
def call_wrong(values):
    try:
        plain()
    except TypeError:
        values = len(values)
    return values


class Mapped:
    def __init__(self, names):
        self.names = names

    def keys(self):
        return self.names.keys()

    def __getitem__(self, name):
        return self.names[name]

    def __repr__(self):
        return f"Mapped({self.names})"


@program(lambda: ({"b": 5}, [1, 2], Mapped({"c": [3]})))
def call_starred_others(names, values, mapped):
    return (
        plain(*names), plain(*range(2)), plain(*{1}), plain(*(value for value in values)), plain(*map(str, values)),
        plain(0, **mapped), plain(0, *values, **mapped), {**mapped}, dict(**mapped),
    )  # fmt: skip


@program(lambda: ([1, 2],))
def call_starred_iterator(values):
    return max(*(value for value in values))


class Kept:
    """A class without `__init__`, called with keywords that its metaclass takes."""

    def __new__(cls, *args, **names):
        made = super().__new__(cls)
        made.args = args, names
        return made

    def __repr__(self):
        return f"Kept{self.args}"


@program(lambda: (Kept(1), {"x": 2}))
def call_new(kept, names):
    return Kept(1, a=2), Kept(**names), type(kept)(3, **names)
