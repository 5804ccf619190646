#!/usr/bin/env python3
"""Cutting operator graphs into parts: MagPy's partitioner against torch.fx's `CapabilityBasedPartitioner`.

    python benchmarks/partition.py [--json] [--sizes 1000,2000,5000,10000,20000] [--torch-up-to 2000] [--models lstm,gpt2]

Random graphs of two shapes (`local`: inputs from the last 50 operators; `wide`: from all before) and the ATen graphs of
real models; a tenth of the operators, chosen by a fixed seed, is called unsupported. For each: parts, the least number of
parts that there can be (the longest alternation on a path), processor time (the least of five runs), and how checks for
cycles went. Each partition is checked for cycles by an independent sort of its parts. With 3 kinds, another tenth is of a
third kind, so that merges are tried. Torch's partitioner keeps, for each operator, the set of all that follow, so it is
given up to `--torch-up-to` operators only.

Exits 1 where a partition has a cycle, more parts than torch's or than the least, or where an operator of the largest
graph takes more than `LIMIT` times what one of the smallest takes.
"""

import argparse
import gc
import graphlib
import importlib
import json
import operator
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.fx

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from magpy_runtime.partition import Partition, partition

LIMIT = 2.0
SEED = 2024
RARE = 0.1


@dataclass(kw_only=True, slots=True)
class Row:
    """What came of one graph; `torch_parts` is None where torch's partitioner was not run."""

    graph: str
    operators: int
    kinds: int
    parts: int
    least: int | None
    torch_parts: int | None
    time_ms: float
    torch_ms: float | None
    skipped: int
    searched: int
    cycles: int
    visited: int
    problems: list[str] = field(default_factory=list)

    @property
    def us_per_operator(self) -> float:
        return 1e3 * self.time_ms / self.operators


def random_graph(count: int, window: int | None, source: random.Random) -> torch.fx.Graph:
    """A graph of binary operators whose inputs are chosen among the last `window` ones."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(count):
        low = 0 if window is None else max(0, len(nodes) - window)
        chosen = (nodes[source.randrange(low, len(nodes))], nodes[source.randrange(low, len(nodes))])
        nodes.append(graph.call_function(operator.add, chosen))
    graph.output(nodes[-1])
    return graph


def model_graph(name: str) -> torch.fx.Graph:
    """The core ATen graph of one of the examples' models, as a backend gets it."""
    magpy = importlib.import_module("magpy")
    from models import EXAMPLES
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        from torch._decomp import core_aten_decompositions

        def compiler(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
            graphs.append(gm)
            return gm.forward

        backend: Any = aot_autograd(fw_compiler=compiler, decompositions=core_aten_decompositions())
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
        with math, torch._guards.tracing(torch._guards.TracingContext(mode)):
            backend(module, [mode.from_tensor(each, static_shapes=True) for each in inputs])
        return module.forward

    torch.manual_seed(SEED)
    example = EXAMPLES[name]
    with torch.no_grad():
        compiled = magpy.compile(example.build().eval(), backend=keep)
        args, kwargs = example.inputs(1)
        compiled(*args, **kwargs)
    return graphs[0].graph


def mark(graph: torch.fx.Graph, kinds: int, source: random.Random) -> int:
    """Choose a kind for each operator; the number of operators.

    What takes an item of an operator's results is of that operator's kind, as in the XLA backend and in torch's
    partitioner, which moves it there whatever it is told.
    """
    count = 0
    for node in graph.nodes:
        node.meta.pop("kind", None)
        if node.target is operator.getitem and (kind := kind_of(node.args[0])) is not None:
            node.meta["kind"] = kind
            count += 1
        elif node.op == "call_function":
            drawn = source.random()
            node.meta["kind"] = min(int(drawn / RARE) + 1, 10) % 10 if drawn < RARE * (kinds - 1) else 0
            count += 1
    return count


def kind_of(node: torch.fx.Node) -> int | None:
    kind: int | None = node.meta.get("kind")
    return kind


def least_parts(graph: torch.fx.Graph) -> int:
    """The longest alternation on a path: that many parts of kind 0 there must be."""
    level: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        supported = kind_of(node) == 0
        found = int(supported)
        for needed in node.all_input_nodes:
            found = max(found, level[needed] + int(supported and kind_of(needed) not in (0, None)))
            if kind_of(needed) is None:
                found = max(found, level[needed] + int(supported and not level[needed]))
        level[node] = found
    return max(level.values())


def has_cycle(parts: list[list[torch.fx.Node]]) -> bool:
    """Whether the parts, each seen as one operator, cannot be sorted; what is in no part stands alone."""
    home = {node: number for number, nodes in enumerate(parts) for node in nodes}
    arrows: dict[Any, set[Any]] = {}
    for nodes in parts:
        for node in nodes:
            for user in node.users:
                a, b = home[node], home.get(user, user)
                if a != b:
                    arrows.setdefault(b, set()).add(a)
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError:
        return True
    return False


def torch_partition(graph: torch.fx.Graph) -> tuple[int, float]:
    """Number of parts and milliseconds of torch's partitioner."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import create_op_support

    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    support = create_op_support(lambda modules, node: kind_of(node) == 0)
    started = time.process_time()
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    return len(partitioner.propose_partitions()), 1e3 * (time.process_time() - started)


def measure(name: str, graph: torch.fx.Graph, kinds: int, torch_up_to: int) -> Row:
    """Partition one graph, several times, and check the result."""
    count = mark(graph, kinds, random.Random(SEED))
    times = []
    for _ in range(5):
        gc.collect()
        started = time.process_time()
        found: Partition = partition(graph, kind_of, fewest=0)
        times.append(time.process_time() - started)
    checks = found.checks
    row = Row(
        graph=name, operators=count, kinds=kinds, parts=found.count(0), least=least_parts(graph) if kinds == 2 else None,
        torch_parts=None, time_ms=1e3 * min(times), torch_ms=None,
        skipped=checks.skipped, searched=checks.searched, cycles=checks.cycles, visited=checks.visited,
    )  # fmt: skip
    if has_cycle([list(part.nodes) for part in found.parts]):
        row.problems.append("a cycle")
    if row.least is not None and row.parts > row.least:
        row.problems.append("more parts than the least")
    if count <= torch_up_to and kinds == 2:
        row.torch_parts, row.torch_ms = torch_partition(graph)
        if row.parts > row.torch_parts:
            row.problems.append("more parts than torch's")
    return row


def table(rows: list[Row]) -> str:
    """The rows as text."""
    titles = "graph operators kinds parts least torch's ms torch's-ms us/op skipped searched cycles visited".split()
    cells = [titles]
    for r in rows:
        cells.append(
            [
                r.graph, f"{r.operators:,}", str(r.kinds), f"{r.parts:,}", _cell(r.least), _cell(r.torch_parts),
                f"{r.time_ms:.1f}", "-" if r.torch_ms is None else f"{r.torch_ms:,.0f}", f"{r.us_per_operator:.1f}",
                f"{r.skipped:,}", f"{r.searched:,}", f"{r.cycles:,}", f"{r.visited:,}",
            ]
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([*lines, *(f"{r.graph} {r.operators}: {problem}" for r in rows for problem in r.problems)])


def _cell(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    parser.add_argument("--sizes", default="1000,2000,5000,10000,20000", help="operators of the random graphs")
    parser.add_argument(
        "--torch-up-to", type=int, default=1000, help="operators up to which torch's partitioner is run"
    )
    parser.add_argument("--models", default="lstm,gpt2,seq2seq,bert", help="examples, with commas; may be empty")
    options = parser.parse_args(argv)
    sizes = [int(size) for size in options.sizes.split(",")]
    rows = []
    for shape, window in (("local", 50), ("wide", None)):
        for kinds in (2, 3):
            here = []
            for size in sizes:
                graph = random_graph(size, window, random.Random(SEED))
                here.append(measure(f"random, {shape}", graph, kinds, options.torch_up_to))
                print(f"{shape}, {kinds} kinds, {size} operators", file=sys.stderr, flush=True)
            if here[-1].us_per_operator > LIMIT * here[0].us_per_operator:
                here[-1].problems.append("the time is not linear")
            rows += here
    for name in filter(None, options.models.split(",")):
        rows.append(measure(name, model_graph(name), 2, options.torch_up_to))
    if options.json:
        about = {
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "missed": [r.graph for r in rows if r.problems],
        }
        print(json.dumps({**about, "graphs": [asdict(row) for row in rows]}, indent=2))
    else:
        print(table(rows))
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
