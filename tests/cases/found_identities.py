"""Programs that came out wrong: identities."""

from soundness import keep

from cases.world import X


@keep
def exc_args_identity(c):
    log = []

    def g(x, k):
        try:
            if k > 1:
                raise KeyError(k)
        except KeyError as e:
            log.append(e.args)
            return x * 5
        return x

    f = c(g)
    yield f(X(), 2), log
    yield f(X(), 2), log
    yield f(X(), 2), log
