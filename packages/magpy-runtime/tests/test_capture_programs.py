"""Programs with every kind of control flow: captured, they do what they do natively, and each before has its after."""

import contextlib
import functools
import sys
import textwrap
import types

import pytest

PROGRAMS = {}


def program(function):
    """Registers a function without arguments whose result (or exception) is compared."""
    PROGRAMS[function.__name__] = function
    return function


@program
def sorted_with_key():
    return sorted([3, 1, 2], key=lambda v: -v), max("abc", key=ord), min([1], default=2, key=lambda x: x)


@program
def eq_from_c():
    class Odd:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n + 1

        def __hash__(self):
            return 1

    values = [Odd(1), Odd(2), Odd(5)]
    return values.index(Odd(4)), Odd(2) in values, len({Odd(1), Odd(1), Odd(2)}), values.count(Odd(0))


@program
def map_filter_reduce():
    return (
        list(map(lambda a, b: a * b, [1, 2], [3, 4])),
        list(filter(lambda a: a % 2, range(5))),
        functools.reduce(lambda a, b: a + [b], "abc", []),
    )


@program
def callback_raises():
    return sorted([1, 2], key=lambda v: 1 // 0)


@program
def callback_raises_and_is_caught():
    out = []
    for make in (lambda: sorted([1], key=lambda v: [][1]), lambda: list(map(int, ["x"]))):
        try:
            make()
        except (IndexError, ValueError) as error:
            out.append(str(error))
    return out


@program
def exceptions_through_frames():
    def a(n):
        try:
            return b(n)
        finally:
            log.append(("a", sys.exc_info()[0]))

    def b(n):
        return c(n) + 1

    def c(n):
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "callback")
            return 1 / n

    log = []
    try:
        a(0)
    except ZeroDivisionError as error:
        log.append(str(error))
    return a(1), log


@program
def uncaught_through_frames():
    def a():
        return [b() for _ in range(3)]

    def b():
        return {}["missing"]

    return a()


@program
def raise_from_and_reraise():
    def f():
        try:
            try:
                raise ValueError(1)
            except ValueError as error:
                raise TypeError(2) from error
        except TypeError:
            raise

    try:
        f()
    except TypeError as error:
        return repr(error.__cause__), repr(error.__context__)


@program
def bare_raise_without_exception():
    raise


@program
def try_finally_control_flow():
    def f(mode):
        for i in range(3):
            try:
                if mode == "return":
                    return i
                if mode == "break":
                    break
                if mode == "continue":
                    continue
                if mode == "raise":
                    raise KeyError(i)
            except KeyError:
                log.append("except")
            else:
                log.append("else")
            finally:
                log.append("finally")
        else:
            return "exhausted"
        return "end"

    log = []
    return [f(m) for m in ("return", "break", "continue", "raise", "none")], log


@program
def return_in_finally():
    def f():
        try:
            return 1 / 0
        finally:
            return "swallowed"  # noqa: B012

    return f()


@program
def with_statements():
    class Manager:
        def __init__(self, swallow):
            self.swallow = swallow

        def __enter__(self):
            log.append("enter")
            return self

        def __exit__(self, *exc):
            log.append(exc[0])
            return self.swallow

    @contextlib.contextmanager
    def managed():
        log.append("setup")
        try:
            yield 5
        except ValueError:
            log.append("swallowed")
        finally:
            log.append("teardown")

    log = []
    with Manager(True) as a, Manager(False):
        raise KeyError(a)
    with managed() as v:
        log.append(v)
        raise ValueError
    with managed(), managed():
        pass
    try:
        with managed():
            raise TypeError("through")
    except TypeError:
        log.append("outside")
    return [x if isinstance(x, (str, int)) else str(x) for x in log]


@program
def for_loops():
    out = []
    for i in ():
        out.append(i)
    for i, (a, *b) in enumerate(["abc", "de"]):
        out.append((i, a, b))
    else:
        out.append("else")
    for k, v in {"a": 1}.items():
        out.append((k, v))
    for i in iter([1, 2, 3]):
        for j in range(i):
            if j == 1:
                break
            out.append(j)
    while out and len(out) < 20:
        out.append(len(out))
    return out


@program
def iterator_that_raises():
    class It:
        def __iter__(self):
            return self

        def __next__(self):
            self.n = getattr(self, "n", 0) + 1
            if self.n == 3:
                raise ValueError("in next")
            return self.n

    out = []
    try:
        for i in It():
            out.append(i)
    except ValueError as error:
        out.append(str(error))
    return out


@program
def python_iterator_exhausted():
    class It:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            if self.n > 3:
                raise StopIteration
            return self.n

    return [i for i in It()], list(It()), [*It()], dict(zip(It(), It()))


@program
def deep_recursion():
    def f(n):
        return n and 1 + f(n - 1)

    return f(150)


@program
def calls():
    def f(a, /, b, *args, c=3, **kwargs):
        return a, b, args, c, sorted(kwargs.items())

    class C:
        def __call__(self, *args):
            return args

        def method(self, x, *, y=1):
            return x, y

        @classmethod
        def cls(cls, x):
            return cls.__name__, x

        @staticmethod
        def static(x):
            return x

        @property
        def prop(self):
            return self.method(1, y=2)

    c = C()
    more = (1, 2, 3)
    return (
        f(1, 2),
        f(1, b=2, c=4, d=5),
        f(*more, **{"e": 1}),
        f(0, *more, c=1, **dict(z=2)),
        c(1, 2),
        c.method(1, y=3),
        C.cls(1),
        c.static(2),
        c.prop,
        functools.partial(f, 1)(2, k=3),
        dict(a=1, **{"b": 2}),
        print(*(), end=""),
        "{} {x}".format(1, x=2),
    )


@program
def call_errors():
    def f(a):
        return a

    out = []
    for call in (lambda: f(), lambda: f(1, 2), lambda: f(b=1), lambda: f(*[1], **{"a": 1}), lambda: f(1)()):
        try:
            call()
        except TypeError as error:
            out.append(str(error))
    return out


@program
def class_bodies():
    class Meta(type):
        def __new__(mcls, name, bases, namespace, **kw):
            return super().__new__(mcls, name, bases, {**namespace, "kw": kw})

        @classmethod
        def __prepare__(mcls, name, bases, **kw):
            return {"prepared": True}

        def __call__(cls, *args):
            return super().__call__(*args)

    class Base(metaclass=Meta, option=1):
        x = [i for i in range(3)]

        def __init_subclass__(cls, **kw):
            cls.subclass = kw

        def __class_getitem__(cls, item):
            return item

        def who(self):
            return __class__.__name__

    class Derived(Base, flag=2):
        y = Base.x

        def who(self):
            return super().who()

    return Derived().who(), Derived.kw, Derived.x, Derived[3], Derived.prepared, Base.kw


@program
def attribute_hooks():
    class Hooked:
        def __getattr__(self, name):
            if name == "missing":
                raise AttributeError(name)
            return name

        def __setattr__(self, name, value):
            super().__setattr__(name, value + 1)

        def __delattr__(self, name):
            log.append(name)

        def __getitem__(self, key):
            return key

        def __setitem__(self, key, value):
            log.append((key, value))

        def __delitem__(self, key):
            log.append(key)

        def __contains__(self, key):
            return key == 1

        def __bool__(self):
            return False

        def __len__(self):
            return 3

    log = []
    h = Hooked()
    h.a = 1
    h[1] = 2
    h[1:2] = 5
    del h[3]
    del h.b
    return h.a, h.other, hasattr(h, "missing"), h[1], h[::2] == slice(None, None, 2), 1 in h, not h, len(h), str(log)


@program
def operators():
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return NotImplemented

        def __radd__(self, other):
            return ("radd", self.v)

        def __iadd__(self, other):
            self.v += 1
            return self

        def __lt__(self, other):
            return self.v < other

        def __neg__(self):
            return -self.v

        def __format__(self, spec):
            return f"<{spec}>"

    v = V(1)
    w = 5 + v
    v += 1
    x = [1]
    x += (2,)
    return (
        w,
        v.v,
        1 < 2 < 3,
        0 < v < 5 if v < 9 else None,
        -v,
        ~5,
        f"{v:a{'b'}} {w!r:>20}",
        x,
        2**3 % 5 // 1 | 4 ^ 1,
        3 @ M(),
    )


class M:
    def __rmatmul__(self, other):
        return other


@program
def scopes():
    def make():
        n = 0
        unset: int

        def bump(by=1):
            nonlocal n
            n += by
            return n

        def read():
            return unset  # noqa: F821

        return bump, read

    bump, read = make()
    out = [bump(), bump(by=2)]
    try:
        read()
    except NameError as error:
        out.append(str(error))
    try:
        del unbound  # noqa: F821
    except UnboundLocalError as error:
        out.append(type(error).__name__)
    global _made
    _made = 3
    out.append(_made)
    del _made
    return out


@program
def exec_and_eval():
    space = {"n": 3}
    exec("def f(a):\n    return a * n\nresult = [f(i) for i in range(n)]", space)
    return space["result"], eval("n + f(2)", space), exec("class A:\n    y = n", space), space["A"].y


@program
def imports():
    import os.path as path
    from collections import OrderedDict as od
    from string import (
        ascii_letters,  # noqa: F401
        digits,
    )

    return path.join("a", "b"), od(a=1), digits


@program
def match_statements():
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def f(v):
        match v:
            case 0 | 1:
                return "small"
            case [a, *rest] if rest:
                return a, rest
            case {"k": w, **others}:
                return w, others
            case Point(x=0, y=yy):
                return "on axis", yy
            case Point(a, b):
                return a, b
            case str() as s:
                return s
            case _:
                return None

    return [f(v) for v in (0, [1, 2, 3], {"k": 1, "z": 2}, Point(0, 5), Point(1, 2), "text", 2.5, [1])]


@program
def exception_groups():
    def f(errors):
        log = []
        try:
            try:
                raise ExceptionGroup("g", errors)
            except* ValueError as group:
                log.append(("value", len(group.exceptions)))
            except* (KeyError, TypeError) as group:
                log.append(("key", len(group.exceptions)))
                raise LookupError("again") from None
        except ExceptionGroup as group:
            log.append(("left", repr(group)))
        except LookupError as error:
            log.append(repr(error))
        return log

    return f([ValueError(1), ValueError(2)]), f([ValueError(1), OSError(3)]), f([KeyError(1)]), f([OSError()])


@program
def unpacking():
    a, b, *c = range(5)
    (d, [e, f]), g = (1, [2, 3]), 4
    h = {**{"a": 1}, "b": 2}
    i = [*c, *"xy"]
    j = (*c,)
    k = {*c, 1}
    try:
        x, y = [1]  # noqa: F841
    except ValueError as error:
        m = str(error)
    return a, b, c, d, e, f, g, h, i, j, k, m


@program
def del_and_finalizers():
    class Final:
        def __del__(self):
            log.append("del")

    log = []
    x = Final()
    del x
    Final()
    [Final() for _ in range(2)]

    def raises():
        y = Final()  # noqa: F841
        raise ValueError

    try:
        raises()
    except ValueError:
        log.append("caught")
    return log


@program
def asserts():
    try:
        assert 1 == 2, "no"  # noqa: PLR0133
    except AssertionError as error:
        return str(error)


@program
def recursion_error_is_caught():
    def forever(n):
        return forever(n + 1)

    try:
        forever(0)
    except RecursionError as error:
        return str(error)


@program
def recursion_error_through_c():
    class R:
        def __repr__(self):
            return repr([self])

        def __len__(self):
            return len(self)

    try:
        len(R())
    except RecursionError:
        return "caught"


@program
def lambda_defaults_and_closures():
    fs = [lambda x=i: (x, i) for i in range(3)]
    return [f() for f in fs], (lambda *a, **k: (a, k))(1, b=2)


@program
def long_jumps():
    # More than 255 code units in a loop body, and more than 255 names: EXTENDED_ARG everywhere.
    lines = ["def f(n):", "    total = 0", "    for i in range(n):"]
    lines += [f"        v{i} = i + {i + 1000}" for i in range(300)]
    lines += ["        if v299 % 2:", "            continue", "        try:"]
    lines += [f"            total += v{i}" for i in range(300)]
    lines += ["        except ValueError:", "            pass", "    return total"]
    space = {}
    exec("\n".join(lines), space)
    return space["f"](4)


@program
def self_jumping_loop():
    n = iter(range(5))
    while next(n) < 4:
        pass
    return next(n, "done")


@program
def star_args_swallow():
    def f(*args, **kwargs):
        if args:
            return f(*args[1:], **kwargs) + 1
        return len(kwargs)

    return f(1, 2, 3, a=1, b=2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_native(name, same_as_native):
    same_as_native(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_skipping_everything(name, same_without_a_plan):
    same_without_a_plan(PROGRAMS[name])


def test_module_body(make_watch):
    source = textwrap.dedent(
        """
        import functools
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int = 1
        def f(): return P(2)
        r = f().x
        """
    )
    watch = make_watch(wanted=lambda code: code.co_filename == "<body>")
    space = {"__name__": "body"}
    sys.modules["body"] = types.ModuleType("body")
    try:
        watch.run(exec, compile(source, "<body>", "exec"), space)
    finally:
        del sys.modules["body"]
    assert space["r"] == 2
    assert watch.of("<module>", "enter") == [((), 0)]
    assert watch.of("f", "enter") == [((), 0)]
