"""From lifted numbers to a record: which of them are inputs, what the guard asks, and how the graph is compiled."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx

from magpy_codegen import Expression, GuardWriter, Lifted, Measured, NumberWriter, UnknownNumber, one_line, plain
from magpy_refgraph import Atom, EdgeKind, Key, Node, RefGraph
from magpy_runtime import NotSymbolic, SymbolicGraph, Varying, as_on_entry, guard_helpers

from . import _torch
from ._calculating import Risks, fits, fits_at_all, may_raise
from ._numbers import LIFTABLE, fact_key, is_liftable, is_number, known_before, size_key

member_get = guard_helpers()["member_get"]

_CALCULATED: Final = "what the program calculates can be calculated"
_FITS: Final = "operators take it"


class LiftedPart:
    """What lifted numbers add to a record.

    Attributes:
        why_static: why all numbers and sizes are taken for constants after all, None if they are not.
    """

    def __init__(self, monitor: Any, guard: GuardWriter) -> None:
        monitor.flush()
        self.why_static = monitor.numbers.everything
        self._guard = guard
        self._numbers = monitor.numbers
        self._conditions = list(monitor.numbers.conditions)
        self._roots = dict(monitor.roots)
        self._sizes = dict(monitor.sizes)
        self._inputs = list(monitor.nodes.inputs)
        self._risks = Risks(monitor.numbers.computed, self._roots)
        self._tensors = list(monitor.operators.inputs)
        self._symbolic: SymbolicGraph | None = None
        self._static: torch.fx.GraphModule | None = None
        self._values: dict[int, str] = {}
        self._leaving: dict[int, tuple[str, Expression]] = {}
        self._source = ""
        self._first = 0
        self._named: list[tuple[str, int, Lifted]] = []
        self._strided: list[tuple[str, int, str]] = []
        self.needs_graph = any("number" in node.meta for node in monitor.operators.graph.nodes)
        guard.lifted = self._name

    # -- for the guard and the mock -----------------------------------------------------------------------------------

    def _name(self, node: Node, key: Key) -> str | None:
        found = self._roots.get((node.index, key))
        return None if found is None else found.name

    def free(self, node: Node) -> frozenset[int]:
        """The dimensions of a tensor whose sizes are lifted."""
        return frozenset(dim for index, dim in self._sizes if index == node.index)

    def number(self, obj: Any) -> str | None:
        """The variable that holds a number that leaves the call, None for one that is the same at each call."""
        expression = self._numbers.find(obj)
        if expression is None:
            return None
        if isinstance(expression, Lifted):
            return self._hand_on(expression.name)
        found = self._leaving.get(id(expression))
        if found is None:
            found = self._leaving[id(expression)] = (f"m{len(self._leaving)}", expression)
        return self._hand_on(found[0])

    def _hand_on(self, name: str) -> str:
        if name not in self._guard.extra:
            self._guard.extra.append(name)
        return name

    def passed(self) -> list[str]:
        """The variables that the graph gets after its tensors."""
        return [self._hand_on(number.name) for number in self._inputs]

    def settle(self, graph: RefGraph, source: str) -> None:
        """The guard is written, but for numbers and sizes: keep what does not outlive the run.

        Args:
            graph: the RefGraph.
            source: the guard.
        """
        guard = self._guard
        self._source, self._first = source, len(guard.checks)
        guard.lifted = None  # the two must not lead to each other
        places = {node.index: place for place, node in enumerate(self._tensors)}
        for (index, dim), number in self._sizes.items():
            self._named.append((guard.name(graph.nodes[index]), dim, number))
        for index in dict.fromkeys(index for index, _ in self._sizes):
            if index in places:
                node = graph.nodes[index]
                self._strided.append((guard.name(node), places[index], repr(tuple(node.obj().stride()))))

    # -- the graph ----------------------------------------------------------------------------------------------------

    def resolve(self, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Run the graph on symbols; gives the graph with what is the same at each call as constants.

        Args:
            graph: the finished operator graph; it is used up.
        """
        _plain_carriers(graph)
        self._static = copied(graph)
        by_node: dict[int, dict[int, str]] = {}
        for (index, dim), number in self._sizes.items():
            by_node.setdefault(index, {})[dim] = number.name
        varying = [Varying(dims=by_node.get(node.index, {})) for node in self._tensors]
        varying += [Varying(name=number.name) for number in self._inputs]
        inputs: list[Any] = [as_on_entry(node.obj(), known_before(node)) for node in self._tensors]
        inputs += [number.value for number in self._inputs]
        self._tensors = []
        if self.why_static is None:
            try:
                self._symbolic = SymbolicGraph(graph, inputs, varying)
                self._check(graph, self._symbolic)
                fold(graph, lambda node: _constant(node.meta["example_value"]))
                return graph
            except NotSymbolic as problem:
                self._give_up(str(problem))
        _torch.dismantle(graph.graph)
        return self.static_graph()

    def _give_up(self, why: str) -> None:
        if self.why_static is None:
            self.why_static = why
        self._symbolic = None

    @property
    def is_open(self) -> bool:
        """Whether the graph for constant numbers was not asked for yet."""
        return self._static is not None

    def static_graph(self) -> torch.fx.GraphModule:
        """The graph for numbers and sizes that are as they were in the monitored run. It takes no numbers."""
        assert self._static is not None
        graph, self._static = self._static, None
        fold(graph, lambda node: node.meta["number"].value)
        for node in graph.graph.find_nodes(op="placeholder"):
            if "number" in node.meta:
                graph.graph.erase_node(node)
        graph.recompile()
        return graph

    def _check(self, graph: torch.fx.GraphModule, symbolic: SymbolicGraph) -> None:
        """What the program was told of tensors must be what symbols say."""
        for node in list(graph.graph.nodes):
            value = node.meta.get("example_value")
            if "expected" in node.meta:
                expected = node.meta["expected"]
                value = tuple(map(symbolic.specialize, value)) if type(value) in (tuple, torch.Size) else value
                value = symbolic.specialize(value)
                if value != (tuple(expected) if isinstance(expected, tuple) else expected):
                    raise NotSymbolic(f"{node.target} of a tensor is {value}, not {expected}")
                graph.graph.erase_node(node)
            elif isinstance(number := node.meta.get("number"), Measured):
                if symbolic.hint(value) != number.value:
                    raise NotSymbolic(f"the {node.target} of a tensor is {value}, not {number.value}")
                self._values[id(number)] = symbolic.text(value)
        for condition in self._conditions:
            read = condition.operands[0]
            if condition.outcome is None and isinstance(read, Expression) and read.node is not None:
                symbolic.specialize(read.node.meta.get("example_value"))

    def compile(self, backend: Any) -> Any:
        """Give the graph to a backend, with symbols.

        Returns:
            What runs the graph, None if that did not work: then all numbers and sizes are as in the monitored run.
        """
        if self._symbolic is None:
            return None
        try:
            return self._symbolic.compile(backend)
        except NotSymbolic as problem:
            self._give_up(str(problem))
            return None

    def without_numbers(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A graph for constant numbers takes none."""
        count = len(self._inputs)
        return run if not count else lambda *inputs: run(*inputs[:-count])

    # -- the guard's lines --------------------------------------------------------------------------------------------

    def guard_source(self) -> str:
        """The guard with the questions for numbers and sizes, and with the numbers that it hands on."""
        guard = self._guard
        del guard.checks[self._first :]
        try:
            lines = self._lines()
        except (NotSymbolic, UnknownNumber) as problem:
            self._give_up(str(problem))
            lines = self._lines()
        head, _, tail = self._source.rpartition("    return (")
        written = []
        calculates = False
        for line, comment in lines:
            if not calculates and may_raise(line):
                calculates = True
                written.append("    try:\n")
            if line.startswith("if "):
                line = f"{line}: return {len(guard.checks)}"
                guard.add_line(comment)
            indent = "        " if calculates else "    "
            written.append(f"{indent}{line}  # {comment}\n" if comment else f"{indent}{line}\n")
        if calculates:
            written.append(f"    except (ArithmeticError, ValueError): return {len(guard.checks)}  # {_CALCULATED}\n")
            guard.add_line(_CALCULATED)
        extra = "".join(f"{name}, " for name in guard.extra)
        return f"{head}{''.join(written)}    return ({tail.rstrip().removesuffix(')')}{extra})\n"

    def _lines(self) -> list[tuple[str, str]]:
        symbolic = self._symbolic
        lines = [(f"{number.name} = {name}.size({dim})", number.text) for name, dim, number in self._named]
        for name, place, strides in self._strided:
            asked = strides if symbolic is None else symbolic.strides(place)
            lines.append((f"if {name}.stride() != {asked}", "strides"))
        if self.why_static is not None:
            for number in (*self._roots.values(), *self._sizes.values()):
                shown = plain(number.value)
                different = (
                    f"not same_value({number.name}, {shown})"
                    if type(number.value) is float
                    else f"{number.name} != {shown}"
                )
                lines.append((f"if {different}", one_line(f"taken for a constant: {self.why_static}")))
        elif symbolic is not None:
            lines += [
                (f"if not ({assumed})", "an operator or the backend assumed it") for assumed in symbolic.assumptions()
            ]
        writer = NumberWriter(self._measured, lines)
        for condition in self._conditions:
            writer.condition(condition)
        if self.why_static is None:
            lines += [(line, _FITS) for number in self._inputs if self._risks.is_free(number) for line in fits(number)]
            for computed in self._risks.raising:
                writer.text(computed)
            for computed in self._risks.handed:
                lines.append((fits_at_all(writer.text(computed)), _FITS))
        for name, expression in self._leaving.values():
            lines.append((f"{name} = {writer.text(expression)}", "leaves the call"))
        namespace = self._guard.namespace.values
        text = "\n".join(line for line, _ in lines)
        for name, module in (("math", math), ("torch", torch)):
            if re.search(rf"\b{name}\.", text) and namespace.setdefault(name, module) is not module:
                raise UnknownNumber(name)
        return lines

    def _measured(self, number: Measured) -> str:
        if self.why_static is not None:
            return plain(number.value)
        try:
            return self._values[id(number)]
        except KeyError:
            raise UnknownNumber("a size of a tensor that is not in the graph") from None

    def checks(self, keys: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """What each failure number of the guard means, and its key. See `Record`."""
        texts = tuple(check.text for check in self._guard.checks)
        return texts, keys[: self._first] + (None,) * (len(texts) - self._first)

    def described(self) -> tuple[str, ...]:
        """Each lifted number with why, and what became of it."""
        read = {id(each.operands[0]) for each in self._conditions if each.outcome is None}
        found = []
        for number in (*self._roots.values(), *self._sizes.values()):
            text = f"{number.name}: {number.text}, {number.why}"
            if self.why_static is not None:
                text += f"; taken for a constant all the same: {self.why_static}"
            elif id(number) in read:
                text += "; the program reads its value, which is guarded"
            found.append(text)
        return tuple(found)


def copied(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of a graph; what hangs on its nodes is shared."""
    new = torch.fx.Graph()
    places: dict[torch.fx.Node, torch.fx.Node] = {}
    output = new.graph_copy(graph.graph, places)
    made = new.output(output)
    made.meta.update(next(iter(reversed(graph.graph.nodes))).meta)
    return torch.fx.GraphModule({}, new, class_name="OperatorGraph")


def _plain_carriers(graph: torch.fx.GraphModule) -> None:
    """Tensors made of one int: those that were only read as that int go, others are made without looking at the int."""
    for node in reversed(list(graph.graph.nodes)):
        if "carrier" not in node.meta:
            continue
        if not node.users:
            graph.graph.erase_node(node)
        elif node.op == "call_function" and node.target is torch.tensor and isinstance(node.args[0], torch.fx.Node):
            node.target = torch.scalar_tensor
            node.kwargs = {"dtype": torch.int64, **node.kwargs}
    for node in list(graph.graph.nodes):
        if "parts" in node.meta:
            with graph.graph.inserting_before(node):
                made = _stacked(graph.graph, node.args[0], node.meta.pop("parts"))
            node.replace_all_uses_with(made)
            graph.graph.erase_node(node)
    graph.recompile()


def _stacked(graph: torch.fx.Graph, parts: Any, options: dict[str, Any]) -> torch.fx.Node:
    """The tensor of nested lists of numbers, made without looking at these."""
    if isinstance(parts, (list, tuple)):
        return graph.call_function(torch.stack, ([_stacked(graph, each, options) for each in parts],))
    return graph.call_function(torch.scalar_tensor, (parts,), options)


def fold(graph: torch.fx.GraphModule, constant: Callable[[torch.fx.Node], Any]) -> None:
    """Put constants in the place of numbers that are the same at each call, and drop numbers that nothing needs.

    Args:
        graph: the graph.
        constant: gives the constant for a node that stands for a number, None where it varies.
    """
    for node in reversed(list(graph.graph.nodes)):
        if "number" not in node.meta:
            if "expected" in node.meta:
                graph.graph.erase_node(node)
            continue
        found = constant(node) if node.users else None
        if found is not None:
            for user in list(node.users):
                user.args = _replaced(user.args, node, found)
                user.kwargs = _replaced(user.kwargs, node, found)
        if not node.users and node.op != "placeholder":
            graph.graph.erase_node(node)
    graph.recompile()


def _constant(value: Any) -> Any:
    """The constant behind a number with symbols, None if it varies."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
    return value


def _replaced(args: Any, node: torch.fx.Node, value: Any) -> Any:
    return torch.fx.map_arg(args, lambda each: value if each is node else each)


# -- what varied ------------------------------------------------------------------------------------------------------


def number_key(path: Callable[[Node], Any], fact: Any) -> Any:
    """What to remember when a fact did not hold: the key of a number that can be lifted next time, else None."""
    target = fact.target
    if not isinstance(target, Atom) or fact.key.kind not in LIFTABLE:
        return None
    liftable = is_liftable if fact.node.index == 0 else is_number
    if fact.key.kind is not EdgeKind.LENGTH and not liftable(target.value):
        return None
    return fact_key(path, fact.node, fact.key)


_RETURNS: Final = re.compile(r": return (\d+)(?=  #|$)", re.M)


class Survey:
    """Says which numbers and sizes of a record differ at a call, all of them, where a guard stops at the first."""

    def __init__(
        self,
        source: str,
        namespace: dict[str, Any],
        keys: dict[int, Any],
        held: list[tuple[Callable[[], Any], Any, Any]],
        tensors: list[tuple[Any, tuple[Any, ...]]],
    ) -> None:
        """Keep what a survey needs.

        Args:
            source: the guard.
            namespace: its globals.
            keys: by number of a check the key of what can be lifted.
            held: for facts about held objects that can be lifted: what asks, the answer, the key.
            tensors: for each tensor of the guard how it is found, and its metadata.
        """
        self._source = source
        self._namespace = namespace
        self._keys = keys
        self._held = held
        self._tensors = tensors
        self._function: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The keys of all that differs."""
        found = []
        for ask, answer, key in self._held:
            try:
                now = ask()
            except Exception:
                continue
            if type(now) is type(answer) and repr(now) != repr(answer):
                found.append(key)
        numbers: list[int] = []
        try:
            self._compile()(args, kwargs, numbers, found, self._differ)
        except Exception:  # what follows a fact that does not hold may not make sense
            return found
        return found + [self._keys[number] for number in numbers]

    def _compile(self) -> Any:
        if self._function is None:

            def question(match: re.Match[str]) -> str:
                number = int(match[1])
                return f": numbers.append({number})" if number in self._keys else ": return"

            source = _RETURNS.sub(question, self._source)
            # What follows a type that does not hold would run operators of a class of the program.
            source = re.sub(
                r"^    if type\((\w+)\) is not (int|float): numbers\.append\(\d+\)",
                r"\g<0>\n    if type(\1) not in (int, float, bool): return",
                source,
                flags=re.M,
            )
            source = source.replace(
                "def guard(args, kwargs):", "def survey(args, kwargs, numbers, found, tensors_differ):", 1
            )
            source = re.sub(r"^    if \(failed := held_facts.*$", "    pass", source, flags=re.M)
            source = re.sub(
                r"^    if not tensors_match\((.*?)\): .*$", r"    tensors_differ(found, \1)", source, flags=re.M
            )
            names = dict(self._namespace)
            exec(compile(source, "<magpy survey>", "exec"), names)
            self._function = names.pop("survey")  # it must not lead to itself
        return self._function

    def _differ(self, found: list[Any], *tensors: Any) -> None:
        for tensor, (key, was) in zip(tensors, self._tensors, strict=True):
            if type(tensor) is not was[0] or tensor.dim() != len(was[4]):
                continue
            found += [key(dim) for dim, size in enumerate(was[4]) if tensor.size(dim) != size]


def _held_questions(guard: GuardWriter, path: Callable[[Node], Any]) -> list[tuple[Callable[[], Any], Any, Any]]:
    """For facts about held objects that can be lifted: what asks, the answer, the key. See `Survey`."""
    found = []
    for number, (node, key) in guard.origins.items():
        fact = guard.held[number]
        if type(fact.expected) not in (int, float) or key.kind not in LIFTABLE:
            continue
        if key.kind is EdgeKind.LENGTH or is_number(fact.expected):
            found.append((_asks(fact.obj, key), fact.expected, fact_key(path, node, key)))
    return found


def _asks(obj: Any, key: Key) -> Callable[[], Any]:
    """What gives a reference of an object."""
    base: Any = next((each for each in (dict, list, tuple, set, frozenset) if issubclass(type(obj), each)), None)
    match key.kind:
        case EdgeKind.LENGTH:
            return lambda: base.__len__(obj)
        case EdgeKind.CELL:
            return lambda: obj.cell_contents
        case EdgeKind.MEMBER:
            return lambda: member_get(obj, key.arg)
    if base is dict:  # a subscript of a subclass would run its `__missing__`
        return lambda: dict.get(obj, key.arg)
    return lambda: base.__getitem__(obj, key.arg)


def make_survey(
    guard: GuardWriter,
    path: Callable[[Node], Any],
    source: str,
    namespace: dict[str, Any],
    known: list[tuple[Any, ...]],
) -> Survey | None:
    """The survey of a record, None where nothing in it can be lifted.

    Args:
        guard: the guard's writer.
        path: how an object was found.
        source: the guard.
        namespace: its globals.
        known: metadata of its tensors.
    """
    keys = {}
    for number, check in enumerate(guard.checks):
        key = None if check.fact is None else number_key(path, check.fact)
        if key is not None:
            keys[number] = key
    held = _held_questions(guard, path)
    if not (keys or held or known):
        return None
    tensors = [(functools.partial(size_key, path(node)), was) for node, was in zip(guard.tensors, known, strict=True)]
    return Survey(source, namespace, keys, held, tensors)


def lifted_part(monitor: Any, guard: GuardWriter) -> LiftedPart | None:
    """What lifted numbers add to a record, None where nothing was lifted."""
    numbers = getattr(monitor, "numbers", None)
    if numbers is None:
        return None
    part = LiftedPart(monitor, guard)
    if monitor.roots or monitor.sizes:
        return part
    guard.lifted = None
    return None


__all__ = [
    "LiftedPart",
    "lifted_part",
    "make_survey",
    "number_key",
]
