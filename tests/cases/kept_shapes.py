"""Programs on tensors whose shapes depend on values."""

import torch
from soundness import keep

XS = ([1.0, -1.0, 2.0], [1.0, -1.0, -2.0], [1.0, 1.0, 2.0], [-1.0, -1.0, -2.0])


def over(name, f):
    def program(c):
        g = c(f)
        for values in XS:
            yield g(torch.tensor(values))

    program.__name__ = f"shapes_{name}"
    keep(program)


over("masked_sum", lambda x: x[x > 0].sum())
over("masked", lambda x: x[x > 0] * 2)
over("squeezed", lambda x: x[x > 0].squeeze() + 1)
over("squeezed_rank", lambda x: x[x > 0].squeeze().dim())
over("squeezed_sum", lambda x: (x[x > 0].squeeze() * 2).sum().dim())
over("nonzero_rank", lambda x: torch.nonzero(x > 0).dim())
over("where_mean", lambda x: torch.where(x > 0)[0].float().mean())
over("asked_size", lambda x: x[x > 0].shape[0])
over("asked_length", lambda x: len(x[x > 0]))
over("iterated", lambda x: [each * 2 for each in x[x > 0]])
over("unpacked_split", lambda x: x[x > 0].split(1))
over("into_shape", lambda x: torch.zeros(x[x > 0].size(0) + 1))
over("unique", lambda x: torch.unique(x))
over("mask_of_constant", lambda x: x[torch.tensor([True, False, True])].shape)
