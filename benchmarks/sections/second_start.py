"""A second process: seconds until the first compiled answer, with caches that an earlier process has filled."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Settings, table

_ROOT = Path(__file__).parents[2]
_MODELS = ("bert", "resnet", "thousand")


def measure(settings: Settings) -> dict[str, Any]:
    """Cold and warm, each in a process of its own, with a cache directory of their own."""
    models: dict[str, Any] = {}
    for name in settings.only or (("thousand",) if settings.quick else _MODELS):
        if name not in _MODELS:
            continue
        found: dict[str, Any] = {}
        for front_end in ("torch.compile", "magpy"):
            print(f"   {name} {front_end}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                starts = [_child(name, front_end, settings, folder) for _ in range(3)]
            found[front_end] = {"cold_s": starts[0], "warm_s": min(starts[1:])}
        found["ratio"] = found["magpy"]["warm_s"] / found["torch.compile"]["warm_s"]
        models[name] = found
    return {"models": models}


def _child(name: str, front_end: str, settings: Settings, folder: str) -> float:
    import os

    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path]),
    }
    words = [
        sys.executable,
        "-m",
        "benchmarks.sections.second_start",
        name,
        front_end,
        settings.device,
        str(int(settings.quick)),
    ]
    done = subprocess.run(words, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def start(name: str, front_end: str, device: str, quick: bool) -> float:
    """Seconds from the import of the front end to the second answer, which is a compiled one for both."""
    import torch
    from benchmarks.harness import SEED, to_device
    from benchmarks.models import rows, thousand
    from benchmarks.sections.steady import build

    torch.set_num_threads(1)
    if name == "thousand":
        model, arguments = thousand(20 if quick else 500).eval().to(device), to_device(rows(SEED), device)
    else:
        model, inputs = build(name, Settings(device=device, quick=quick))
        arguments = inputs(SEED)
    args, kwargs = arguments
    with torch.no_grad():
        model(*args, **kwargs)
        started = time.perf_counter()
        if front_end == "magpy":
            import magpy

            compiled: Any = magpy.compile(model)
        else:
            compiled = torch.compile(model, dynamic=False)
        compiled(*args, **kwargs)
        if front_end == "magpy":  # the first one was the monitored run's
            compiled(*args, **kwargs)
        return time.perf_counter() - started


def show(found: dict[str, Any]) -> str:
    """A table."""
    head = ["model", "torch.compile cold s", "warm s", "MagPy cold s", "warm s", "warm ratio"]
    return table(
        head,
        [
            [
                name,
                *[each[which][when] for which in ("torch.compile", "magpy") for when in ("cold_s", "warm_s")],
                each["ratio"],
            ]
            for name, each in found["models"].items()
        ],
    )


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "1")))
