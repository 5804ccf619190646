#!/usr/bin/env python3
"""How long recording takes: MagPy's first call, less its backend's time, against torch.compile(backend="eager")'s.

    python benchmarks/first_call.py [--json] [--only bert,mlp] [--rounds 5] [--threads 1] [--out FILE]

Both in this process and in turn, each on a fresh copy of the same model, without gradients, after a warm-up of both on a
small model; `torch._dynamo.reset()` before each. torch.compile's first call is its tracing and one run, since its "eager"
backend runs the graph as it is; MagPy's is the monitored run, its rules and the code generation. Of both one eager call is
taken off, since either gives the program's result. Exits 1 where MagPy takes more than `LIMIT` of torch.compile's time.
"""

import argparse
import copy
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from measuring import FrontEnd, MagPy, TorchCompile
from models import EXAMPLES, Arguments

LIMIT = 0.2
SEED = 2024


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCall:
    """One first call.

    Attributes:
        total_s: All of it.
        backend_s: What the backend took of that; 0 where the front end does not say.
        timings_s: The front end's own phases.
    """

    total_s: float
    backend_s: float
    timings_s: dict[str, float]

    @property
    def recording_s(self) -> float:
        return self.total_s - self.backend_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The medians for one model, both without one eager call; `ratio` is MagPy's recording over torch.compile's."""

    model: str
    modules: int
    eager_s: float
    magpy_s: float
    torch_compile_s: float
    ratio: float
    phases_s: dict[str, float]
    magpy: list[FirstCall]
    torch_compile: list[FirstCall]


def mlp() -> nn.Module:
    """A thousand modules: 500 Linear(8, 8) with a ReLU behind each."""
    return nn.Sequential(*(layer for _ in range(500) for layer in (nn.Linear(8, 8), nn.ReLU())))


def mlp_inputs(seed: int) -> Arguments:
    return (torch.randn(4, 8, generator=torch.Generator().manual_seed(seed)),), {}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Arguments]]] = {
    "bert": (EXAMPLES["bert"].build, EXAMPLES["bert"].inputs),
    "mlp": (mlp, mlp_inputs),
}


def first_call(front_end: FrontEnd, model: nn.Module, arguments: Arguments) -> FirstCall:
    """Compiles a copy of the model and times the call that captures it; checks that the call after it is right."""
    subject, (args, kwargs) = copy.deepcopy(model), arguments
    torch._dynamo.reset()
    gc.collect()
    compiled = front_end.compile(subject, "eager")
    start = time.perf_counter()
    compiled(*args, **kwargs)
    total_s = time.perf_counter() - start
    timings_s = front_end.served(compiled).timings_s
    compiled(*args, **kwargs)
    served = front_end.served(compiled)
    if served.hits not in (None, 1):
        raise RuntimeError(f"{front_end.name} did not answer the second call from a record: {served}")
    return FirstCall(total_s=total_s, backend_s=timings_s.get("backend", 0.0), timings_s=timings_s)


def measure(name: str, rounds: int) -> Result:
    """All rounds for one model."""
    build, inputs = MODELS[name]
    torch.manual_seed(SEED)
    model = build().eval()
    args, kwargs = inputs(1)
    eager = copy.deepcopy(model)
    eager(*args, **kwargs)
    natively: list[float] = []
    front_ends: list[FrontEnd] = [MagPy(), TorchCompile()]
    calls: dict[str, list[FirstCall]] = {front_end.name: [] for front_end in front_ends}
    for _ in range(rounds):
        start = time.perf_counter()
        eager(*args, **kwargs)
        natively.append(time.perf_counter() - start)
        for front_end in front_ends:
            calls[front_end.name].append(first_call(front_end, model, inputs(1)))
        front_ends.reverse()
    ours, theirs = calls["magpy"], calls["torch.compile"]
    eager_s = statistics.median(natively)
    magpy_s = statistics.median(c.recording_s for c in ours) - eager_s
    torch_s = statistics.median(c.recording_s for c in theirs) - eager_s
    return Result(
        model=name,
        modules=sum(1 for _ in model.modules()),
        eager_s=eager_s,
        magpy_s=magpy_s,
        torch_compile_s=torch_s,
        ratio=magpy_s / torch_s,
        phases_s={k: statistics.median(c.timings_s[k] for c in ours) for k in ours[0].timings_s},
        magpy=ours,
        torch_compile=theirs,
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    parser.add_argument("--out", help="write the JSON to this file, too")
    parser.add_argument("--only", default="", help=f"names of models, with commas: {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5, help="first calls of each (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch's kernels (default 1)")
    options = parser.parse_args(argv)
    names = [name for name in options.only.split(",") if name] or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no model is called {', '.join(unknown)}")
    torch.set_num_threads(options.threads)
    with torch.no_grad():
        for warm in (MagPy(), TorchCompile()):
            first_call(warm, nn.Sequential(nn.Linear(2, 2), nn.ReLU()), ((torch.ones(1, 2),), {}))
        results = [measure(name, options.rounds) for name in names]
    report: dict[str, Any] = {
        "benchmark": "first_call",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "threads": options.threads,
        "limit": LIMIT,
        "results": [asdict(result) for result in results],
    }
    if options.out:
        Path(options.out).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(f"{'model':8} {'modules':>8} {'eager s':>9} {'magpy s':>9} {'torch.compile s':>16} {'ratio':>7}")
        for r in results:
            print(
                f"{r.model:8} {r.modules:8} {r.eager_s:9.4f} {r.magpy_s:9.3f} {r.torch_compile_s:16.3f} {r.ratio:7.3f}"
            )
            print("         phases of magpy's: " + ", ".join(f"{k} {v:.3f}" for k, v in r.phases_s.items()))
    return 0 if all(result.ratio <= LIMIT for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
