"""Programs that came out wrong: effects arguments."""

import collections

from soundness import keep

from cases.world import X


@keep
def effect_extend_then_append(c):
    log = []

    def g(x):
        t = [1, 2]
        log.extend(t)
        t.append(3)
        return x * 2, t

    f = c(g)
    yield f(X())
    yield log
    yield f(X())
    yield log


@keep
def effect_extend_iter(c):
    log = []

    def g(x):
        log.extend(iter([1, 2]))
        return x * 2

    f = c(g)
    yield f(X())
    yield log
    yield f(X())
    yield log


@keep
def effect_extend_reversed(c):
    log = []

    def g(x):
        log.extend(reversed([1, 2]))
        return x * 2

    f = c(g)
    yield f(X())
    yield log
    yield f(X())
    yield log


@keep
def effect_update_then_clear(c):
    d = {}

    def g(x):
        t = {"a": x * 2}
        d.update(t)
        t.clear()
        return x * 2

    f = c(g)
    yield f(X())
    yield d
    yield f(X() + 1)
    yield d


@keep
def effect_iadd_clear(c):
    log = []

    def g(x, log):
        t = [x * 2]
        log += t
        t.clear()
        return x * 2

    f = c(g)
    yield f(X(), log)
    yield log
    yield f(X() + 1, log)
    yield log


@keep
def effect_slice_store(c):
    log = [0]

    def g(x, log):
        t = [5, 6]
        log[0:1] = t
        t.pop()
        return x * 2

    f = c(g)
    yield f(X(), log)
    yield log
    log[:] = [0]
    yield f(X() + 1, log)
    yield log


@keep
def effect_set_update(c):
    log = set()

    def g(x, log):
        t = [5, 6]
        log.update(t)
        t.pop()
        return x * 2

    f = c(g)
    yield f(X(), log)
    yield log
    log.clear()
    yield f(X() + 1, log)
    yield log


@keep
def effect_deque_extend(c):
    log = collections.deque()

    def g(x, log):
        t = [5, 6]
        log.extendleft(t)
        t.pop()
        return x * 2

    f = c(g)
    yield f(X(), log)
    yield log
    log.clear()
    yield f(X() + 1, log)
    yield log
