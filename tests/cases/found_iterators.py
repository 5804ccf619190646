"""Programs that came out wrong: iterators."""

import itertools

from soundness import keep

from cases.world import X


@keep
def iter_returns_stored_gen(c):
    class S:
        def __iter__(s):
            return s.it

    s = S()
    s.it = (i for i in range(10))

    def g(x, s):
        for v in s:
            return x * v

    f = c(g)
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def iter_returns_stored_iter(c):
    class S:
        def __iter__(s):
            return s.it

    s = S()
    s.it = iter(range(10))

    def g(x, s):
        for v in s:
            return x * v

    f = c(g)
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def iter_returns_stored_listiter(c):
    class S:
        def __iter__(s):
            return s.it

    s = S()
    s.it = iter([3, 4, 5, 6, 7])
    f = c(lambda x, s: x * sum(s))
    yield f(X(), s)
    yield f(X(), s)
    yield f(X(), s)


@keep
def count_subclass_for(c):
    class S(itertools.count):
        pass

    s = S(1)

    def g(x):
        for v in s:
            return x * v

    f = c(g)
    yield f(X())
    yield f(X())
    yield f(X())
