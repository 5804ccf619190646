#!/usr/bin/env python3
"""The main job, shown: whole models, compiled by watching one native run of each.

    python examples/demo.py [--json] [--backend inductor|eager] [--only bert,lstm] [--threads 1]

Each model is compiled, called once under observation, and then called with fresh inputs. The table says for each:

* `equal`: results and the module's state after every call are eager's (bit by bit with `--backend eager`; within
  `TOLERANCE` of each tensor's largest number with Inductor, which reorders sums), and the monitored run's result is the
  native result bit by bit;
* `records`, `graphs`, `hits`: one record with one operator graph answered every call but the first;
* `py native`, `py hit`: bytecode instructions of user Python executed by an eager call and by a hit, counted by a trace
  function of this demo's own (`measuring/instructions.py` states what counts); a hit must execute none, and an eager call
  must show some, or the counter sees nothing;
* `ops`: aten operators that reach a kernel in eager; the captured graph must run the same ones, as often, and hold no
  module and no Python function;
* `first`: seconds of the first call, with the part of the monitored run and of the backend; `eager` and `hit`: milliseconds
  of a later call (medians, in turn). All on `--threads` threads (`torch.set_num_threads`, 1 unless told otherwise) and
  without gradients.

Exits 1 if a model misses any of this. `--front-end torch.compile` fills the same table for torch.compile, as far as that
can be said of it.
"""

import argparse
import copy
import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from measuring import (
    FrontEnd,
    InstructionCounter,
    MagPy,
    Served,
    TorchCompile,
    as_compiling,
    difference,
    graph_problems,
    interleaved,
    operators_run,
    state_difference,
)
from models import EXAMPLES, Example

TOLERANCE = 2e-4
SEED = 2024


@dataclass(kw_only=True, slots=True)
class Row:
    """What the table says of one model; `problems` is empty when all went as promised."""

    name: str
    title: str
    backend: str
    front_end: str
    equal: bool = False
    monitored: int | None = None
    records: int | None = None
    graphs: int | None = None
    hits: int | None = None
    native: int | None = None
    instructions_native: int = 0
    instructions_hit: int = -1
    operators: int = 0
    nodes: int = 0
    first_call_s: float = float("nan")
    run_s: float = float("nan")
    backend_s: float = float("nan")
    eager_ms: float = float("nan")
    compiled_ms: float = float("nan")
    timings_s: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Demo:
    """Takes one example through all the checks.

    Args:
        example: The model.
        front_end: The compiler.
        backend: Name of the backend.
        budget_s: Seconds for timing later calls.
    """

    def __init__(self, example: Example, front_end: FrontEnd, backend: str, budget_s: float) -> None:
        self.example = example
        self.front_end = front_end
        self.backend = backend
        self.budget_s = budget_s
        self.tolerance = 0.0 if backend == "eager" else TOLERANCE
        self.row = Row(name=example.name, title=example.title, backend=backend, front_end=front_end.name)

    def run(self) -> Row:
        """All checks; a failure of one is a problem in the row, never an exception."""
        self.front_end.reset()
        torch.manual_seed(SEED)
        model = self.example.build().eval()
        steps: tuple[Callable[[torch.nn.Module], None], ...] = (self.check_operators, self.check_calls)
        with torch.no_grad():
            for step in steps:
                try:
                    step(copy.deepcopy(model))
                except Exception as problem:
                    line = traceback.extract_tb(problem.__traceback__)[-1]
                    self.fail(f"{step.__name__}: {type(problem).__name__}: {problem} ({line.filename}:{line.lineno})")
        return self.row

    def fail(self, text: str | None) -> None:
        if text:
            self.row.problems.append(" ".join(text.split())[:400])

    def check_calls(self, model: torch.nn.Module) -> None:
        """Values, effects, hits, instructions and times."""
        row, reference, twin = self.row, copy.deepcopy(model), copy.deepcopy(model)
        already = len(row.problems)
        compiled = self.front_end.compile(model, self.backend)
        if self.front_end.name == "magpy" and not isinstance(compiled, type(model)):
            self.fail("the compiled module is not of the module's class")

        def call(target: Callable[..., Any], seed: int) -> Any:
            args, kwargs = self.example.inputs(seed)
            return target(*args, **kwargs)

        start = time.perf_counter()
        got = call(compiled, 1)
        row.first_call_s = time.perf_counter() - start
        with as_compiling():
            native = call(twin, 1)
        monitored_exact = self.front_end.name == "magpy"
        self.fail(difference(native, got, tolerance=0.0 if monitored_exact else self.tolerance, where="monitored run"))
        call(reference, 1)
        for number in (2, 3):
            expected, got = call(reference, number), call(compiled, number)
            self.fail(difference(expected, got, tolerance=self.tolerance, where=f"call {number}"))
            self.fail(state_difference(reference, model, tolerance=self.tolerance))
        row.equal = len(row.problems) == already

        args, kwargs = self.example.inputs(4)
        with InstructionCounter() as counter:
            reference(*args, **kwargs)
        row.instructions_native = counter.total
        if not counter.total:
            self.fail("the instruction counter saw nothing of an eager call")
        with InstructionCounter() as counter:
            compiled(*args, **kwargs)
        row.instructions_hit = counter.total
        if counter.total:
            files = ", ".join(f"{name} {count}" for name, count in counter.by_file.most_common(3))
            self.fail(f"{counter.total} instructions of user Python on a hit: {files}")
        self.check_books(self.front_end.served(compiled), hits=3)

        times = interleaved(
            {"eager": lambda: reference(*args, **kwargs), "compiled": lambda: compiled(*args, **kwargs)},
            budget_s=self.budget_s,
        )
        row.eager_ms, row.compiled_ms = (1e3 * times[name].median_s for name in ("eager", "compiled"))

    def check_books(self, served: Served, hits: int) -> None:
        """The compiler's own account must agree with what was seen."""
        row = self.row
        row.monitored, row.hits, row.native = served.monitored, served.hits, served.native
        row.records, row.graphs, row.timings_s = served.records, served.graphs, served.timings_s
        row.run_s = served.timings_s.get("run", float("nan"))
        row.backend_s = served.timings_s.get("backend", float("nan"))
        if served == Served():
            return
        wanted = {"monitored": 1, "records": 1, "graphs": 1, "hits": hits, "native": 0, "boundaries": 0}
        for name, value in wanted.items():
            if getattr(served, name) != value:
                self.fail(f"{name} is {getattr(served, name)}, not {value}")
        for reason in served.reasons:
            self.fail(f"reason: {reason}")

    def check_operators(self, model: torch.nn.Module) -> None:
        """Captures the graph of another copy and holds it against the operators that eager runs."""
        graphs: list[torch.fx.GraphModule] = []
        inputs: list[tuple[Any, ...]] = []

        def keep(graph_module: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
            graphs.append(copy.deepcopy(graph_module))

            def run(*args: Any) -> Any:
                inputs.append(tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
                return graph_module(*args)

            return run

        reference = copy.deepcopy(model)
        compiled = self.front_end.compile(model, keep)
        for seed in (5, 6):
            args, kwargs = self.example.inputs(seed)
            compiled(*args, **kwargs)
        self.row.nodes = sum(n.op.startswith("call_") for g in graphs for n in g.graph.nodes)
        args, kwargs = self.example.inputs(6)
        with as_compiling():
            eager = operators_run(lambda: reference(*args, **kwargs))
        self.row.operators = eager.total()
        if len(graphs) != 1 or not inputs:
            self.fail(f"{len(graphs)} operator graphs, run {len(inputs)} times: {self.front_end.served(compiled)}")
            return
        if self.front_end.name == "magpy":
            for problem in graph_problems(graphs[0]):
                self.fail(f"operator graph: {problem}")
        replayed = operators_run(lambda: graphs[0](*inputs[-1]))
        for text, counts in (("lacks", eager - replayed), ("adds", replayed - eager)):
            if counts:
                self.fail(f"operator graph {text} " + ", ".join(f"{name} x{n}" for name, n in counts.most_common(6)))


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("model", lambda r: r.title),
    ("equal", lambda r: "yes" if r.equal else "NO"),
    ("records", lambda r: _cell(r.records)),
    ("graphs", lambda r: _cell(r.graphs)),
    ("hits", lambda r: _cell(r.hits)),
    ("py native", lambda r: f"{r.instructions_native:,}"),
    ("py hit", lambda r: _cell(r.instructions_hit)),
    ("ops", lambda r: str(r.operators)),
    ("first s", lambda r: f"{r.first_call_s:.2f}"),
    ("run s", lambda r: f"{r.run_s:.2f}"),
    ("backend s", lambda r: f"{r.backend_s:.2f}"),
    ("eager ms", lambda r: f"{r.eager_ms:.3f}"),
    ("hit ms", lambda r: f"{r.compiled_ms:.3f}"),
    ("", lambda r: "ok" if not r.problems else "MISSED"),
)


def _cell(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def table(rows: Iterable[Row]) -> str:
    """The rows as text, with the problems below."""
    rows = list(rows)
    cells = [[title for title, _ in COLUMNS]] + [[show(row) for _, show in COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for number, line in enumerate(cells):
        lines.append(
            "  ".join(t.ljust(w) if n == 0 else t.rjust(w) for n, (t, w) in enumerate(zip(line, widths, strict=True)))
        )
        if number == 0:
            lines.append("-" * len(lines[0]))
    for row in rows:
        lines += [f"{row.title}: {problem}" for problem in row.problems]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    parser.add_argument(
        "--backend", default="inductor", help="inductor (default), eager, or another name that torch knows"
    )
    parser.add_argument("--only", default="", help=f"names of models, with commas: {', '.join(EXAMPLES)}")
    parser.add_argument("--threads", type=int, default=1, help="threads for torch's kernels (default 1)")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for timing later calls of each model")
    parser.add_argument("--front-end", choices=("magpy", "torch.compile"), default="magpy")
    options = parser.parse_args(argv)
    names = [name for name in options.only.split(",") if name] or list(EXAMPLES)
    unknown = [name for name in names if name not in EXAMPLES]
    if unknown:
        parser.error(f"no model is called {', '.join(unknown)}; there are {', '.join(EXAMPLES)}")
    torch.set_num_threads(options.threads)
    rows = []
    for name in names:
        front_end: FrontEnd = MagPy() if options.front_end == "magpy" else TorchCompile()
        row = Demo(EXAMPLES[name], front_end, options.backend, options.budget).run()
        rows.append(row)
        print(f"{row.title}: {'ok' if not row.problems else 'MISSED'}", file=sys.stderr, flush=True)
    missed = [row.name for row in rows if row.problems]
    if options.json:
        about = {
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "threads": options.threads,
            "missed": missed,
        }
        print(json.dumps({**about, "models": [dataclasses.asdict(row) for row in rows]}, indent=2))
    else:
        print(table(rows))
        print(
            f"\n{len(rows) - len(missed)} of {len(rows)} models as promised ({options.front_end}, {options.backend})."
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
