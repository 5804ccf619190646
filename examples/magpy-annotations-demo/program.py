"""A model that hashes words into the rows of a table, by a C function; says how its calls were served.

Without annotations of xxhash each call runs natively. With `magpy-annotations-demo` installed the first call is watched,
and all others are one graph.
"""

import json
import warnings

import torch
import xxhash

import magpy


class HashedWords(torch.nn.Module):
    """The mean of the rows that the words hash to, then a linear layer."""

    def __init__(self, rows, width):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(rows, width))
        self.head = torch.nn.Linear(width, 2)

    def forward(self, words):
        places = [xxhash.xxh32_intdigest(word.encode(), seed=7) % len(self.table) for word in words]
        return self.head(torch.stack([self.table[place] for place in places]).mean(0))


def main():
    model = HashedWords(64, 8)
    fast = magpy.compile(model, backend="eager")
    words = ["one", "for", "sorrow", "two", "for", "joy"]
    equal = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.NotCompiledWarning)  # it is what `reasons` below says
        for _ in range(4):
            equal &= torch.equal(fast(words), model(words))
        equal &= torch.equal(fast(words[:2]), model(words[:2]))  # other words: other rows
    info = magpy.info(fast)
    print(
        json.dumps(
            {
                "equal": equal,
                "hits": info.hits,
                "monitored": info.monitored,
                "native": info.native,
                "records": info.records,
                "graphs": info.graphs,
                "reasons": {reason.slug: reason.message for reason in info.reasons},
                "boundaries": [str(boundary) for boundary in info.boundaries],
            }
        )
    )


if __name__ == "__main__":
    main()
