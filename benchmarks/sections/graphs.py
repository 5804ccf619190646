"""How many graphs each front end makes of each model, and where the program falls apart; TorchScript where it compiles."""

import sys
import warnings
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, table
from benchmarks.models import MODELS, build

import magpy


def measure(settings: Settings) -> dict[str, Any]:
    """Counts for each model."""
    models = {}
    with torch.no_grad():
        for name in settings.only or MODELS:
            if name in MODELS:
                print(f"   {name}", file=sys.stderr, flush=True)
                models[name] = _one(name, settings)
    return {"models": models}


def _one(name: str, settings: Settings) -> dict[str, Any]:
    model, inputs = build(name, settings)
    args, kwargs = inputs(SEED)
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    counters.clear()
    theirs = torch.compile(model, backend="eager", dynamic=False)
    theirs(*args, **kwargs)
    breaks = sum(counters["graph_break"].values())
    graphs = int(counters["stats"]["unique_graphs"])
    torch._dynamo.reset()
    ours = magpy.compile(model, backend="eager")
    ours(*args, **kwargs)
    ours(*args, **kwargs)
    info = magpy.info(ours)
    return {
        "torch_compile": {"graphs": graphs, "breaks": breaks},
        "magpy": {"graphs": info.graphs, "boundaries": len(info.boundaries), "hits": info.hits, "operators": info.ops},
        "torchscript": _script(model),
    }


def _script(model: torch.nn.Module) -> str:
    """Whether `torch.jit.script` takes a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.jit.script(model)
        except Exception as error:
            return type(error).__name__
    return "1 graph"


def show(found: dict[str, Any]) -> str:
    """A table."""
    head = ["model", "torch.compile graphs", "breaks", "MagPy graphs", "boundaries", "operators", "TorchScript"]
    return table(
        head,
        [
            [
                MODELS[name].title,
                each["torch_compile"]["graphs"],
                each["torch_compile"]["breaks"],
                each["magpy"]["graphs"],
                each["magpy"]["boundaries"],
                each["magpy"]["operators"],
                each["torchscript"],
            ]
            for name, each in found["models"].items()
        ],
    )
