"""A second process: seconds until the first compiled answer, with caches that an earlier process has filled.

Three ways: torch.compile; MagPy with torch's own caches alone, which are on in any case; and MagPy with its cache of records
(`options={"cache": folder}`), by which the second process compiles nothing and imports neither Dynamo nor Inductor.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Settings, table

_ROOT = Path(__file__).parents[2]
_MODELS = ("bert", "resnet", "thousand")
_WAYS = ("torch.compile", "magpy", "magpy, cache")
LIMIT = 0.5
"""Of torch.compile's time, for the best way that MagPy has."""


def measure(settings: Settings) -> dict[str, Any]:
    """Cold and warm, each in a process of its own, with a cache directory of their own."""
    models: dict[str, Any] = {}
    for name in settings.only or (("thousand",) if settings.quick else _MODELS):
        if name not in _MODELS:
            continue
        found: dict[str, Any] = {}
        for way in _WAYS:
            print(f"   {name} {way}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                starts = [_child(name, way, settings, folder) for _ in range(4)]
            found[way] = {
                "cold_s": starts[0]["seconds"],
                "warm_s": min(each["seconds"] for each in starts[1:]),
                "monitored": starts[-1]["monitored"],
            }
        for way in _WAYS[1:]:
            found[f"ratio, {way}"] = found[way]["warm_s"] / found["torch.compile"]["warm_s"]
        models[name] = found
    return {"limit": LIMIT, "models": models}


def _child(name: str, way: str, settings: Settings, folder: str) -> dict[str, Any]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MAGPY_CACHE")},
        "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "torch"),
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path]),
    }
    if way == "magpy, cache":
        environment["MAGPY_CACHE_DIR"] = str(Path(folder) / "records")
    words = [
        sys.executable, "-m", "benchmarks.sections.second_start", name, way, settings.device, str(int(settings.quick)),
    ]  # fmt: skip
    done = subprocess.run(words, env=environment, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start(name: str, way: str, device: str, quick: bool) -> dict[str, Any]:
    """Seconds from the import of the front end to the first compiled answer, and how many calls were monitored.

    The first call of a process that records is answered by the monitored run, so there the second call counts.
    """
    import torch
    from benchmarks.harness import SEED, to_device
    from benchmarks.models import build, rows, thousand

    torch.set_num_threads(1)
    if name == "thousand":
        model, arguments = thousand(20 if quick else 500).eval().to(device), to_device(rows(SEED), device)
    else:
        model, inputs = build(name, Settings(device=device, quick=quick))
        arguments = inputs(SEED)
    args, kwargs = arguments
    monitored = None
    if "magpy" in sys.modules:
        raise RuntimeError("MagPy was imported before its import was timed")
    with torch.no_grad():
        model(*args, **kwargs)
        started = time.perf_counter()
        if way == "torch.compile":
            torch.compile(model, dynamic=False)(*args, **kwargs)
            seconds = time.perf_counter() - started
        else:
            import magpy

            compiled: Any = magpy.compile(model)
            compiled(*args, **kwargs)
            if magpy.info(compiled).monitored:
                compiled(*args, **kwargs)
            seconds = time.perf_counter() - started
            info = magpy.info(compiled)
            monitored = info.monitored
            if not info.hits or info.native:
                raise RuntimeError(f"no compiled answer: {info.reasons}")
    return {"seconds": seconds, "monitored": monitored}


def show(found: dict[str, Any]) -> str:
    """A table."""
    head = ["model", *(f"{way} {when} s" for way in _WAYS for when in ("cold", "warm"))]
    head += [f"ratio, {way}" for way in _WAYS[1:]]
    rows = [
        [
            name,
            *(each[way][when] for way in _WAYS for when in ("cold_s", "warm_s")),
            *(each[f"ratio, {way}"] for way in _WAYS[1:]),
        ]
        for name, each in found["models"].items()
    ]
    over = [name for name, each in found["models"].items() if each[f"ratio, {_WAYS[-1]}"] > found["limit"]]
    return table(head, rows) + "".join(f"\n{name}: over the limit of {found['limit']}" for name in over)


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "1")))
