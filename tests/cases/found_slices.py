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
