"""The first call: run, rules and code generation, backend; and torch.compile's tracing of the same model."""

import sys
import time
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, table
from benchmarks.models import MODELS, build

import magpy


def measure(settings: Settings) -> dict[str, Any]:
    """Seconds of each phase; the backends only hand the graph back, so caches and compilers have no part in them."""
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
    for _ in range(2):
        started = time.perf_counter()
        model(*args, **kwargs)
        eager = time.perf_counter() - started
    torch._dynamo.reset()
    theirs = torch.compile(model, backend="eager", dynamic=False)
    started = time.perf_counter()
    theirs(*args, **kwargs)
    tracing = time.perf_counter() - started - eager
    ours = magpy.compile(model, backend="eager")
    started = time.perf_counter()
    ours(*args, **kwargs)
    total = time.perf_counter() - started
    timings = magpy.info(ours).timings
    recording = total - timings.get("backend", 0.0) - eager
    torch._dynamo.reset()
    return {
        "eager_s": eager,
        "torch_compile_tracing_s": tracing,
        "magpy_recording_s": recording,
        "phases_s": {
            "run": timings.get("run", 0.0),
            "codegen": timings.get("codegen", 0.0),
            "backend": timings.get("backend", 0.0),
            "rest": total - timings.get("run", 0.0) - timings.get("generate", 0.0),
        },
        "ratio": recording / tracing,
    }


def show(found: dict[str, Any]) -> str:
    """A table."""
    head = ["model", "eager s", "torch.compile's tracing s", "MagPy's recording s", "ratio", "run s", "codegen s"]
    return table(
        head,
        [
            [
                MODELS[name].title,
                each["eager_s"],
                each["torch_compile_tracing_s"],
                each["magpy_recording_s"],
                each["ratio"],
                each["phases_s"]["run"],
                each["phases_s"]["codegen"],
            ]
            for name, each in found["models"].items()
        ],
    )
