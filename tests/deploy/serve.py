"""Run in the clean environment: serves 100 calls from each archive, and says in JSON how that went."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import deployed
import torch

import magpy_runtime

COMPILE_SIDE = ("magpy", "magpy_codegen", "magpy_refgraph", "magpy_annotations", "torch._dynamo", "torch._inductor")


def main(folder: Path) -> None:
    """Serve; what was compiled in `folder` has a file for each program."""
    bert, model = deployed.bert(), deployed.model()
    before = {name for name in sys.modules if name.startswith(COMPILE_SIDE)}  # transformers looks into torch._dynamo
    served_bert = magpy_runtime.load(folder / "bert.magpy", bert, on_miss="error")
    served_model = magpy_runtime.load(folder / "model.magpy", model, on_miss="error")
    dynamic = magpy_runtime.load(folder / "dynamic.magpy", deployed.dynamic)
    equal = 0
    with torch.no_grad():
        for seed in range(100):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
            equal += (
                deployed.alike(served_bert(**deployed.sentence(seed)), bert(**deployed.sentence(seed)))
                and deployed.alike(served_model(x), model(x))
                and deployed.alike(dynamic(deployed.batch(seed)), deployed.dynamic(deployed.batch(seed)))
            )
    infos = {"bert": served_bert, "model": served_model, "dynamic": dynamic}
    print(
        json.dumps(
            {
                "equal": equal,
                "hits": {name: magpy_runtime.info(each).hits for name, each in infos.items()},
                "boundaries": magpy_runtime.info(dynamic).boundaries,
                "compile side": sorted(
                    name
                    for name in sys.modules
                    if name.startswith(COMPILE_SIDE) and name not in before and not name.startswith("magpy_runtime")
                ),
                "runtime": magpy_runtime.__file__,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
