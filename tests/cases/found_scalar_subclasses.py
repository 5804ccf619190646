"""Programs that came out wrong: scalar subclasses."""

from soundness import keep

from cases.world import MyFloat, MyInt, MyStr, X


@keep
def int_subclass(c):
    f = c(lambda x, s: x * s)
    x = X()
    for s in (2, 2, 3):
        yield f(x, MyInt(s))


@keep
def float_subclass(c):
    f = c(lambda x, s: x + s)
    x = X()
    for s in (2, 2, 3):
        yield f(x, MyFloat(s))


@keep
def int_subclass_python(c):
    f = c(lambda x, s: x * (1 if s > 2 else 5))
    x = X()
    for s in (2, 2, 3):
        yield f(x, MyInt(s))


@keep
def int_subclass_range(c):
    def g(x, s):
        for i in range(s):
            x = x + i
        return x

    f = c(g)
    x = X()
    for s in (2, 2, 3):
        yield f(x, MyInt(s))


@keep
def int_subclass_index(c):
    f = c(lambda x, l, s: x * l[s])
    x = X()
    for s in (0, 0, 1):
        yield f(x, [1, 2, 3], MyInt(s))


@keep
def int_subclass_truth(c):
    f = c(lambda x, s: x * 2 if s else x * 3)
    x = X()
    for s in (1, 1, 0):
        yield f(x, MyInt(s))


@keep
def str_subclass_eq(c):
    f = c(lambda x, s: x * 2 if s == "a" else x * 3)
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))


@keep
def str_subclass_in(c):
    f = c(lambda x, s: x * 2 if "a" in s else x * 3)
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))


@keep
def str_subclass_key(c):
    f = c(lambda x, s: x * {"a": 1, "b": 2}[s])
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))
