"""One process of a program with a disk cache: prints how its calls were served.

python cached.py BACKEND CALLS
"""

from __future__ import annotations

import json
import sys

import deployed
import torch

import magpy


def main(backend: str, calls: int) -> None:
    """Call the programs, and say how that went."""
    model = magpy.compile(deployed.model(), backend=backend)
    dynamic = magpy.compile(deployed.dynamic, backend=backend)
    equal = 0
    with torch.no_grad():
        for seed in range(calls):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
            equal += deployed.alike(model(x), deployed.model()(x))
            equal += deployed.alike(dynamic(deployed.batch(seed)), deployed.dynamic(deployed.batch(seed)))
    found = {name: magpy.info(each) for name, each in (("model", model), ("dynamic", dynamic))}
    said = {name: {"monitored": each.monitored, "hits": each.hits} for name, each in found.items()}
    print(json.dumps({"equal": equal, **said}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
