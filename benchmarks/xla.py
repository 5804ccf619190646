#!/usr/bin/env python3
"""`backend="xla"` on the models of the demo: equal to eager, one graph each, and the time of a call.

    python benchmarks/xla.py [--json] [--only bert,lstm] [--budget 3] [--threads 1] [--no-inductor] [--fastest]

In one process and in turn, without gradients: eager; MagPy with Inductor; MagPy with XLA; and `jax.jit` of the same graph,
which gets arrays that are there already and whose results are waited for, so that it is the least that XLA can take.
Needs `magpy-runtime[xla]`. XLA itself runs on as many threads as the process may use; pin the process (`taskset -c 1`) for
a comparison on one.

Exits 1 where a model differs from eager, has not exactly one graph that XLA runs as one part, or does not hit.
"""

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from measuring import as_compiling, difference, interleaved, state_difference
from models import EXAMPLES, Example

import magpy

TOLERANCE = 2e-4
SEED = 2024


@dataclass(kw_only=True, slots=True)
class Row:
    """What came of one model; times are milliseconds of a call."""

    name: str
    title: str
    equal: bool = False
    graphs: int = 0
    parts: int = 0
    operators: int = 0
    hits: int = 0
    first_s: float = float("nan")
    eager_ms: float = float("nan")
    inductor_ms: float | None = None
    xla_ms: float = float("nan")
    jit_ms: float = float("nan")
    problems: list[str] = field(default_factory=list)


def plain_jit(run: Any) -> Callable[[], Any]:
    """`jax.jit` of a compiled graph's only part, on copies of the inputs that it was last called with."""
    import jax

    (part,) = run.parts
    program = part.program
    (executable,) = part.executables
    assert executable is not None

    def function(*arrays: Any) -> Any:
        return [value for value in program.trace(arrays)[0] if hasattr(value, "shape")]

    jitted = jax.jit(function)
    with jax.enable_x64(True):
        arrays = [_random(jax, node.meta["val"], n) for n, node in enumerate(program.inputs)]
        jax.block_until_ready(jitted(*arrays))

    def call() -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(jitted(*arrays))

    return call


def _random(jax: Any, fake: Any, seed: int) -> Any:
    """An array like a fake tensor: small numbers, integers all zero (as indices must be in range)."""
    if not isinstance(fake, torch.Tensor):
        return fake
    shape, kind = tuple(fake.shape), str(fake.dtype).removeprefix("torch.")
    if fake.is_floating_point():
        return jax.numpy.abs(0.05 * jax.random.normal(jax.random.key(seed), shape, kind)) + 0.01
    return jax.numpy.zeros(shape, kind)


def measure(example: Example, budget_s: float, with_inductor: bool, fastest: bool) -> Row:
    """All of one model."""
    row = Row(name=example.name, title=example.title)
    torch.manual_seed(SEED)
    model = example.build().eval()
    reference, twin = copy.deepcopy(model), copy.deepcopy(model)
    compiled = magpy.compile(model, backend="xla")
    inductor = magpy.compile(copy.deepcopy(model), backend="inductor") if with_inductor else None
    started = time.perf_counter()
    for seed in (1, 2, 3):
        args, kwargs = example.inputs(seed)
        if seed == 1:
            with as_compiling():
                expected = twin(*args, **kwargs)
            reference(*args, **kwargs)
        else:
            expected = reference(*args, **kwargs)
        found = compiled(*args, **kwargs)
        if seed == 1:
            row.first_s = time.perf_counter() - started
        if problem := difference(expected, found, tolerance=TOLERANCE, where=f"call {seed}"):
            row.problems.append(problem)
    if problem := state_difference(reference, model, tolerance=TOLERANCE):
        row.problems.append(problem)
    row.equal = not row.problems
    info = magpy.info(compiled)
    row.graphs, row.hits = _count(info.graphs), _count(info.hits)
    if row.graphs != 1 or row.hits != 2:
        row.problems.append(f"{row.graphs} graphs, {row.hits} hits: {[str(reason) for reason in info.reasons]}")
        return row
    (report,) = REPORTS[-1]
    row.parts, row.operators = report.xla_parts + report.torch_parts, report.operators
    if row.parts != 1:
        row.problems.append("; ".join(report.text()))
        return row
    args, kwargs = example.inputs(4)
    calls: dict[str, Callable[[], Any]] = {
        "eager": lambda: reference(*args, **kwargs),
        "xla": lambda: compiled(*args, **kwargs),
        "jit": plain_jit(report),
    }
    if inductor is not None:
        calls["inductor"] = lambda: inductor(*args, **kwargs)
    times = interleaved(calls, budget_s=budget_s)
    found_ms = {name: 1e3 * (timing.fastest_s if fastest else timing.median_s) for name, timing in times.items()}
    row.eager_ms, row.xla_ms, row.jit_ms = found_ms["eager"], found_ms["xla"], found_ms["jit"]
    row.inductor_ms = found_ms.get("inductor")
    return row


def _count(value: Any) -> int:
    return value if isinstance(value, int) else len(value)


REPORTS: list[Any] = []
"""What the backend says of each graph that it compiled."""


def keep_reports() -> None:
    """Have the backend's reports kept in `REPORTS`."""
    import magpy_runtime.xla as package

    compile_graph = package.xla

    def keeping(*args: Any, **kwargs: Any) -> Any:
        run: Any = compile_graph(*args, **kwargs)
        REPORTS.append(run.reports)
        return run

    package.xla = keeping


def table(rows: list[Row]) -> str:
    """The rows as text; ratios are to eager."""
    lines = [
        f"{'model':20} equal graphs ops  first s  eager ms  inductor ms  xla ms  jax.jit ms  xla/eager  xla/inductor  xla/jit"
    ]
    for r in rows:
        inductor = r.inductor_ms if r.inductor_ms is not None else float("nan")
        lines.append(
            f"{r.title:20} {'yes' if r.equal else 'NO':>5} {r.graphs:6} {r.operators:4} {r.first_s:7.1f} {r.eager_ms:9.3f}"
            f" {inductor:12.3f} {r.xla_ms:7.3f} {r.jit_ms:11.3f} {r.xla_ms / r.eager_ms:10.2f}"
            f" {r.xla_ms / inductor:13.2f} {r.xla_ms / r.jit_ms:8.2f}"
        )
    return "\n".join([*lines, *(f"{r.title}: {problem}" for r in rows for problem in r.problems)])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds for timing each model")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch's kernels")
    parser.add_argument(
        "--no-inductor", action="store_true", help="leave Inductor out, whose compilation takes longest"
    )
    parser.add_argument("--fastest", action="store_true", help="the fastest call, not the median: for a busy machine")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    keep_reports()
    rows = []
    with torch.no_grad():
        for name in [name for name in options.only.split(",") if name] or list(EXAMPLES):
            rows.append(measure(EXAMPLES[name], options.budget, not options.no_inductor, options.fastest))
            print(f"{rows[-1].title}: {'ok' if not rows[-1].problems else 'MISSED'}", file=sys.stderr, flush=True)
    if options.json:
        about = {"torch": torch.__version__, "python": sys.version.split()[0], "threads": options.threads}
        print(json.dumps({**about, "models": [asdict(row) for row in rows]}, indent=2))
    else:
        print(table(rows))
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
