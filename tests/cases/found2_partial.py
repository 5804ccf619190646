"""Programs that came out wrong: a partial whose state is set."""

import functools

from soundness import found

from cases.world import X


@found("a partial's function and positional arguments are taken for constants, but `__setstate__` replaces them")
def partial_setstate(c):
    p = functools.partial(lambda x, y: x * y, 2)
    g = c(lambda x: p(x))
    yield g(X()), g(X())
    p.__setstate__((lambda x, y: x + y, (3,), {}, None))
    yield g(X())
