"""Programs that came out wrong: a partial whose state is set."""

import functools

from soundness import keep

from cases.world import X


@keep
def partial_setstate(c):
    p = functools.partial(lambda x, y: x * y, 2)
    g = c(lambda x: p(x))
    yield g(X()), g(X())
    p.__setstate__((lambda x, y: x + y, (3,), {}, None))
    yield g(X())
