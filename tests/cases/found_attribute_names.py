"""Programs that came out wrong: attribute names."""

import enum

from soundness import keep

from cases.world import MyStr, X


@keep
def getattr_str_subclass(c):
    class Obj:
        pass

    o = Obj()
    o.a = 1
    o.b = 2
    f = c(lambda x, s: x * getattr(o, s))
    x = X()
    for s in "aab":
        yield f(x, MyStr(s))
    k = MyStr("a")
    g = c(lambda x: x * getattr(o, k))
    yield g(x)
    yield g(x)
    o.a = 7
    yield g(x)


@keep
def setattr_str_subclass(c):
    class Obj:
        pass

    o = Obj()
    k = MyStr("a")

    def g(x):
        setattr(o, k, 5)
        return x * 2

    f = c(g)
    x = X()
    yield f(x)
    yield o.a
    o.a = 1
    yield f(x)
    yield o.a


@keep
def str_enum_getattr(c):
    class K(str, enum.Enum):
        A = "a"
        B = "b"

    class Obj:
        a = 1
        b = 2

    f = c(lambda x, o, s: x * getattr(o, s))
    x = X()
    o = Obj()
    o.a = 3
    yield f(x, o, K.A)
    yield f(x, o, K.A)
    o.a = 9
    yield f(x, o, K.A)
