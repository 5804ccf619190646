"""Programs that came out wrong: sizes that leave the call."""

from soundness import keep

from cases.world import X


@keep
def size_identity(c):
    log = []

    def f(x):
        log.append(x.shape[-1:])
        return x.size()

    g = c(f)
    sizes = []
    for _ in range(4):
        sizes.append(g(X()))
        yield log, sizes
