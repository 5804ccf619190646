"""Programs that came out wrong: slices."""

import torch
from soundness import keep

from cases.world import X


@keep
def slice_argument(c):
    f = c(lambda x, s: x[s] * 2)
    x = X()
    for s in (slice(0, 2), slice(0, 2), slice(1, 4), slice(0, 4, 2)):
        yield f(x, s)


@keep
def slice_in_tuple(c):
    f = c(lambda x, s: x[s] * 2)
    x = torch.arange(16.0).view(4, 4)
    for s in ((slice(0, 2), 1), (slice(0, 2), 1), (slice(1, 4), 1)):
        yield f(x, s)


@keep
def slices_and_ranges_kept(c):
    kept = []

    def f(x, n):
        kept.append(slice(n, None))
        kept.append(range(n))
        kept.append(divmod(n, 2))
        return x

    f = c(f)
    for n in (1, 1, 1, 3, 3):
        yield f(X(), n), list(kept)
