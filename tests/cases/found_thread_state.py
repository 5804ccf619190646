"""Programs that came out wrong: thread state."""

import threading

from soundness import keep

from cases.world import X


@keep
def except_tuple_arg(c):
    def g(x, excs):
        try:
            raise ValueError
        except excs:
            return x * 2
        except Exception:
            return x * 3

    f = c(g)
    yield f(X(), (ValueError,))
    yield f(X(), (ValueError,))
    yield f(X(), (KeyError,))


@keep
def thread_name(c):
    f = c(lambda x: (x * 2, threading.current_thread().name))
    yield f(X())
    yield f(X())
    out = []
    t = threading.Thread(target=lambda: out.append(f(X())), name="other")
    t.start()
    t.join()
    yield out


@keep
def exc_info(c):
    import traceback

    f = c(lambda x: (x * 2, traceback.format_exc().splitlines()[-1]))
    yield f(X())
    yield f(X())
    try:
        1 / 0
    except ZeroDivisionError:
        yield f(X())
    yield f(X())


@keep
def raised_again_for_the_caller(c):
    def g(x):
        try:
            raise
        except ValueError:
            return x + 1
        except OSError:
            return x + 2
        except RuntimeError:
            return x + 3

    f = c(g)
    yield f(X())
    yield f(X())
    for error in (OSError, ValueError):
        try:
            raise error
        except error:
            yield f(X())
            yield f(X())
    yield f(X())


@keep
def context_of_the_caller(c):
    def g(x):
        try:
            raise ValueError
        except ValueError as error:
            return x + (error.__context__ is None)

    f = c(g)
    yield f(X())
    yield f(X())
    try:
        raise OSError
    except OSError:
        yield f(X())
        yield f(X())
    yield f(X())
