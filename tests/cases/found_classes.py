"""Programs that came out wrong: classes."""

import types

from soundness import keep
from torch import nn

from cases.world import X, dunder, k


@keep
def class_dict(c):
    class C:
        a = 1

    f = c(lambda x: x * C.__dict__["a"])
    yield f(X())
    yield f(X())
    C.a = 3
    yield f(X())


@keep
def class_vars(c):
    class C:
        a = 1

    f = c(lambda x: x * vars(C)["a"])
    yield f(X())
    yield f(X())
    C.a = 3
    yield f(X())


@keep
def class_vars_iter(c):
    class C:
        a = 1

    f = c(lambda x: x * len([k for k in vars(C) if not k.startswith("_")]))
    yield f(X())
    yield f(X())
    C.b = 3
    yield f(X())


@keep
def class_name(c):
    class C:
        a = 1

    f = c(lambda x, o: x * len(type(o).__name__))
    o = C()
    yield f(X(), o)
    yield f(X(), o)
    C.__name__ = "Longer"
    yield f(X(), o)


@keep
def class_doc(c):
    class C:
        "doc"

    f = c(lambda x: x * len(C.__doc__))
    yield f(X())
    yield f(X())
    C.__doc__ = "longer doc"
    yield f(X())


@keep
def class_annotations(c):
    class C:
        a: int

    f = c(lambda x: x * len(C.__annotations__))
    yield f(X())
    yield f(X())
    C.__annotations__["b"] = int
    yield f(X())


@keep
def class_annotations_write(c):
    class C:
        a: int

    def g(x):
        C.__annotations__["z"] = 5
        return x * 2

    f = c(g)
    yield f(X())
    yield dict(C.__annotations__)
    del C.__annotations__["z"]
    yield f(X())
    yield dict(C.__annotations__)


@keep
def callable_instance_class(c):
    class A:
        def __call__(s, x):
            return x * 2

    class B:
        def __call__(s, x):
            return x * 3

    a = A()
    f = c(a)
    yield f(X())
    yield f(X())
    a.__class__ = B
    yield f(X())


@keep
def module_class_change(c):
    class A(nn.Module):
        def forward(s, x):
            return x * 2

    class B(A):
        def forward(s, x):
            return x * 3

    a = A()
    f = c(a)
    yield f(X())
    yield f(X())
    a.__class__ = B
    yield f(X())


@keep
def desc_becomes_data(c):
    class D:
        def __get__(s, o, t):
            return 5

    class C:
        v = D()

    o = C()
    o.__dict__["v"] = 1
    f = c(lambda x, o: x * o.v)
    yield f(X(), o)
    yield f(X(), o)
    D.__set__ = lambda s, o, v: None
    yield f(X(), o)


@keep
def attr_becomes_desc(c):
    class D:
        k = 3

    class C:
        v = D()

    o = C()
    f = c(lambda x, o: x * o.v.k)
    yield f(X(), o)
    yield f(X(), o)
    D.__get__ = lambda s, o, t: types.SimpleNamespace(k=9)
    yield f(X(), o)


dunder("call_29", "__call__", lambda x, o: x * callable(o), [None, k(2)])


@keep
def constructors_behind_a_metaclass(c):
    class Meta(type):
        def __call__(cls, *args):
            return super().__call__(*args)

    class Plain(metaclass=Meta):
        pass

    class Base:
        pass

    class Derived(Base, metaclass=Meta):
        pass

    f = c(lambda x: (x + 1, type(Plain()).__name__, vars(Derived())))
    yield f(X())
    yield f(X())
    Plain.__new__ = lambda cls: 5
    yield f(X())
    yield f(X())

    def init(self):
        self.value = 3

    Base.__init__ = init
    yield f(X())
    yield f(X())
