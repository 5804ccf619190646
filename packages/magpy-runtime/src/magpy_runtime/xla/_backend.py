"""The backend: AOTAutograd, core ATen, parts, XLA."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from magpy_runtime import _torch
from magpy_runtime.partition import Partition, partition

from . import _decompositions
from ._parts import TorchPart, XlaPart
from ._program import LoweringError, Node, Program, is_static, refusal, results

_LIMIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `options` may say.

    Attributes:
        recompile_limit: sets of shapes for which a graph is compiled; others are run by torch's operators.
        fallback: whether operators that XLA cannot take run in parts of their own; otherwise the graph is refused.
    """

    recompile_limit: int = _LIMIT
    fallback: bool = True


class UnsupportedOperatorError(RuntimeError):
    """XLA cannot take an operator of the graph, and `fallback` is off."""


@dataclass(slots=True)
class Report:
    """What became of one graph; `explain` shows it.

    Attributes:
        name: forward, backward or inference.
        xla_parts: parts that XLA runs.
        torch_parts: parts that torch runs.
        operators: number of operators of the graph.
        refused: for operators that XLA does not take, why.
        partition: how the graph was cut.
        parts: those that XLA runs.
    """

    name: str
    xla_parts: int = 0
    torch_parts: int = 0
    operators: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    partition: Partition | None = None
    parts: list[XlaPart] = field(default_factory=list)

    def text(self) -> list[str]:
        """In words, a line each."""
        lines = [
            f"xla {self.name}: {self.operators} operators in {self.xla_parts} parts of XLA and {self.torch_parts} of torch"
        ]
        lines += [f"run by torch: {name}, because {reason}" for name, reason in self.refused.items()]
        for part in self.parts:
            if part.failure:
                what = f"a part of {len(part.program.nodes)} operators"
                lines.append(f"run by torch for some sizes: {what}, because a lowering failed: {part.failure}")
        return lines


def xla(
    module: torch.fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph by XLA, as a backend of torch.compile would: fake inputs, in a tracing context.

    The result has the attribute `reports`: what became of the forward graph, of the backward graph once it is compiled.

    Raises:
        TypeError: an option that there is not.
        UnsupportedOperatorError: an operator that XLA does not take, with the option `fallback` off.
    """
    settings = Options(**(options or {}))
    reports: list[Report] = []

    def compiler(name: str) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            return _boxed(_compile(graph, name, settings, reports))

        return compile_graph

    entry = _torch.aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=_decompositions.table(),
        partition_fn=_torch.min_cut_partition,
    )
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        compiled: Callable[..., Any] = entry(module, inputs)

    def run(*args: Any) -> Any:
        return compiled(*args)

    run.reports = reports  # type: ignore[attr-defined]
    module.meta["reports"] = reports
    return run


def _boxed(run: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """As AOTAutograd calls it: with a list, which is emptied."""

    def boxed(inputs: list[Any]) -> Any:
        values = list(inputs)
        inputs.clear()
        return run(values)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _device(graph: torch.fx.Graph) -> torch.device:
    """Where the graph's tensors are: the first that is not a number's."""
    for node in graph.nodes:
        for value in results(node):
            if isinstance(value, torch.Tensor) and (value.ndim or value.device.type != "cpu"):
                return value.device
    return torch.device("cpu")


def _kinds(graph: torch.fx.Graph, report: Report) -> dict[Node, str]:
    """What runs each operator: "xla" or "torch"."""
    device = _device(graph)
    kinds: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is operator.getitem and node.args[0] in kinds:
            kinds[node] = kinds[node.args[0]]
            continue
        reason = refusal(node, device)
        kinds[node] = "xla" if reason is None else "torch"
        if reason is not None:
            report.refused.setdefault(str(node.target), reason)
    for node in reversed(kinds):
        # What is made of nothing goes where it is used.
        if not node.all_input_nodes and node.users and all(kinds.get(user) == "torch" for user in node.users):
            kinds[node] = "torch"
    return kinds


def _draws(node: Node) -> bool:
    """Whether operators like this one must keep their order: they draw random numbers or have other effects."""
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or bool(schema is not None and schema.is_mutable)


def _compile(
    module: torch.fx.GraphModule, name: str, options: Options, reports: list[Report]
) -> Callable[[list[Any]], Any]:
    graph = module.graph
    report = Report(name=name)
    kinds = _kinds(graph, report)
    report.operators = len(kinds)
    if report.refused and not options.fallback:
        text = "; ".join(f"{target}: {reason}" for target, reason in report.refused.items())
        raise UnsupportedOperatorError(text)
    cut = partition(graph, kinds.get, in_order=lambda node: kinds.get(node) == "torch" and _draws(node), fewest="xla")
    report.partition = cut
    report.xla_parts, report.torch_parts = cut.count("xla"), cut.count("torch")
    reports.append(report)
    return _Graph(module, cut, report, options)


class _Graph:
    """A graph's parts, run one after the other."""

    def __init__(self, module: torch.fx.GraphModule, cut: Partition, report: Report, options: Options) -> None:
        graph = module.graph
        self._places = list(graph.find_nodes(op="placeholder"))
        constants = {node: _attribute(module, node) for node in graph.find_nodes(op="get_attr")}
        place: dict[Node, int] = {}
        for node in (*self._places, *constants):
            place[node] = len(place)
        self._constants = list(constants.values())
        (output,) = graph.find_nodes(op="output")
        self._steps: list[tuple[Callable[[Sequence[Any]], Sequence[Any]], list[int], list[int], list[int]]] = []
        device = _device(graph)
        programs = [_program(part.nodes) for part in cut.parts]
        last: dict[Node, int] = {}
        for number, program in enumerate(programs):
            for node in program.inputs:
                last[node] = number
        kept = set(output.all_input_nodes)
        for number, (part, program) in enumerate(zip(cut.parts, programs, strict=True)):
            eager = _module(module, program)
            run: Any = TorchPart(eager)
            if part.kind == "xla":
                run = self._xla(program, eager, device, report, options)
            for node in program.outputs:
                place.setdefault(node, len(place))
            done = [place[node] for node in program.inputs if last[node] == number and node not in kept]
            self._steps.append((run, [place[n] for n in program.inputs], [place[n] for n in program.outputs], done))
        self._size = len(place)
        outputs: Any = output.args[0]
        self._output = [_Slot(place[each]) if isinstance(each, torch.fx.Node) else each for each in outputs]

    @staticmethod
    def _xla(
        program: Program, eager: torch.fx.GraphModule, device: torch.device, report: Report, options: Options
    ) -> XlaPart | TorchPart:
        """A part that XLA runs; torch runs it, and the report says so, where a lowering fails."""
        part = XlaPart(program, eager, device, options.recompile_limit)
        try:
            part.prepare()
        except LoweringError as error:
            if not options.fallback:
                raise
            report.refused[f"a part of {len(program.nodes)} operators"] = f"a lowering failed: {error}"
            report.xla_parts, report.torch_parts = report.xla_parts - 1, report.torch_parts + 1
            return TorchPart(eager)
        report.parts.append(part)
        return part

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values: list[Any] = [*inputs, *self._constants]
        inputs.clear()
        values += [None] * (self._size - len(values))
        for run, needed, given, done in self._steps:
            found = run([values[n] for n in needed])
            for n in done:
                values[n] = None
            for n, value in zip(given, found, strict=True):
                values[n] = value
        return [values[each.number] if type(each) is _Slot else each for each in self._output]


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a value stands among those of a call."""

    number: int


def _attribute(module: torch.fx.GraphModule, node: Node) -> Any:
    value: Any = operator.attrgetter(str(node.target))(module)
    if "val" not in node.meta:
        node.meta["val"] = value
    return value


def _program(nodes: tuple[Node, ...]) -> Program:
    """A part's program: its inputs and outputs are what crosses its border."""
    inside = set(nodes)
    inputs = dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return Program(nodes=nodes, inputs=tuple(inputs), outputs=tuple(outputs))


def _module(owner: torch.fx.GraphModule, program: Program) -> torch.fx.GraphModule:
    """A part as torch runs it."""
    graph = torch.fx.Graph()
    known: dict[Node, Node] = {node: graph.placeholder(node.name) for node in program.inputs}
    for node in program.nodes:
        known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(tuple(known[node] for node in program.outputs))
    return torch.fx.GraphModule(owner, graph)


__all__ = ["Options", "Report", "UnsupportedOperatorError", "is_static", "xla"]
