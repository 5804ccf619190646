"""The mock: generated Python that runs the graph, replays the effects in program order and builds what leaves the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magpy_refgraph import Effect, Node, RefGraph

from ._guard import GuardWriter
from ._origins import Origins
from ._raising import Raised, stubs
from ._source import Namespace, Source, literal


class Unbuildable(Exception):
    """An object that leaves the region and cannot be built again.

    Attributes:
        obj_type: its type.
        why: in words.
    """

    def __init__(self, obj: Any, why: str = "") -> None:
        super().__init__(f"a {type(obj).__qualname__}{': ' + why if why else ''}")
        self.obj_type = type(obj)


@dataclass(frozen=True, slots=True)
class Leave:
    """How a segment ends at a boundary: the operation that is due, and the state of the frames.

    Attributes:
        function: the boundary operation.
        args: its arguments.
        keywords: its keyword arguments.
        slots: the objects that the frames hold.
    """

    function: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    slots: tuple[Any, ...]


Builder = Callable[["MockWriter", Any], str]
"""Writes the lines that build an object and gives its name. Registered by kind, see `kinds`."""


class MockWriter:
    """Writes the mock of one record.

    Attributes:
        number: gives the variable of a number that differs from call to call, None for any other object.
        passed: variables that the graph gets behind its tensors.
        origins: where plain values came from that only pass through.
        outputs: tags (operator nodes) of the tensors that leave the graph, in order.
        unused: gives for these further ones, which are outputs only to be calculated.
    """

    def __init__(
        self,
        graph: RefGraph,
        namespace: Namespace,
        guard: GuardWriter,
        *,
        is_plain: Callable[[Any], bool],
        is_tensor: Callable[[Any], bool],
        builder: Callable[[Any], Builder | None],
        locate: Any,
    ) -> None:
        self.graph = graph
        self.namespace = namespace
        self.guard = guard
        self.outputs: list[Any] = []
        self.body: list[tuple[str, str]] = []
        self._is_plain = is_plain
        self._is_tensor = is_tensor
        self._builder = builder
        self._locate = locate
        self._names: dict[int, str] = {}
        self._output_names: dict[int, str] = {}
        self.number: Callable[[Any], str | None] | None = None
        self.passed: list[str] = []
        self.origins = Origins(guard)
        self.unused: Callable[[list[Any]], list[Any]] | None = None
        self._keep: list[Any] = []
        self._count = 0
        self.raised: Raised | None = None

    def write(
        self,
        result: Any,
        inputs: list[Node],
        leave: Leave | None = None,
        last: tuple[tuple[Any, ...], ...] = (),
        raised: Raised | None = None,
    ) -> str:
        """Write the whole mock.

        Args:
            result: what the call returned.
            inputs: nodes of the graph's inputs, in order.
            leave: what the segment ends with, if that is no result.
            last: calls with constant arguments that come at the very end, `(function, *args)`.
            raised: the exception that the call ends with, if any.

        Returns:
            Source of `mock(bound, run)`; `bound` is what the guard gave, `run` the compiled graph, None without operators.
            It gives the result, or the four parts of `leave`, or the exception that is to be raised.
        """
        self.raised = raised
        if raised is not None:
            result = raised.error
        for effect in self.graph.effects:
            self._effect(effect)
        value = self.value(result) if leave is None else self._leave(leave)
        if raised is not None and raised.given is not None and (frames := raised.frames.get(id(raised.given))):
            self.add(f"{self.namespace.constant(stubs(frames), 'throw')}({self.value(raised.given)})")
        for function, *arguments in last:
            constants = [self.namespace.constant(each, "state") for each in arguments]
            self.add(f"{self.namespace.constant(function, function.__name__)}({', '.join(constants)})")
        out = Source("def mock(bound, run):")
        if self.guard.bound or self.guard.extra:
            handed = [*(self.guard.names[node.index] for node in self.guard.bound), *self.guard.extra]
            out.add(f"({''.join(name + ', ' for name in handed)}) = bound")
        names = ", ".join([*(self.guard.name(node) for node in inputs), *self.passed])
        if self.unused is not None:
            self.outputs += self.unused(self.outputs)
        outputs = "".join(f"o{index}, " for index in range(len(self.outputs)))
        self.runs_graph = bool(self.outputs)
        if outputs:
            out.add(f"({outputs}) = run({names})")
        else:
            out.add(f"if run is not None: run({names})")
        for line, comment in self.body:
            out.add(line, comment)
        out.add(f"return {value}")
        return out.text()

    def _leave(self, leave: Leave) -> str:
        function, args = self.value(leave.function), self._tuple(leave.args)
        keywords = ", ".join([f"{name!r}: {self.value(value)}" for name, value in leave.keywords.items()])
        slots = self._tuple(leave.slots)
        return f"{function}, {args}, {{{keywords}}}, {slots}"

    def _tuple(self, values: tuple[Any, ...]) -> str:
        absent = self.namespace.values["ABSENT"]
        parts = ["ABSENT" if value is absent else self.value(value) for value in values]
        return f"({''.join(part + ', ' for part in parts)})"

    def add(self, line: str, comment: str = "") -> None:
        """Append a line of the body."""
        self.body.append((line, comment))

    def fresh(self, obj: Any) -> str:
        """A name for an object that is about to be built; asked for again, the object has it."""
        self._count += 1
        name = self._names[id(obj)] = f"n{self._count}"
        self._keep.append(obj)
        return name

    def known(self, obj: Any) -> str | None:
        """The name of an object that need not be built: it existed before, or it has been built.

        A builder that names its object after the parts asks again when it has those: a part may have led back to it.
        """
        node = self.graph.find(obj)
        if node is not None and node.external:
            return self.guard.name(node)
        return self._names.get(id(obj))

    def part(self, obj: Any, expression: str) -> str:
        """An object that came into being together with another one is known by an expression."""
        self._names[id(obj)] = expression
        self._keep.append(obj)
        return expression

    def attributes(self, name: str, obj: Any, found: dict[str, Any], *, settable: bool) -> None:
        """Fill the attribute dictionary of `obj`, just built under `name`; from now on it is known by that name, too.

        Raises:
            Unbuildable: the dictionary was built on its own before, and cannot be given to the object.
        """
        shown = self.known(found)
        if shown is None:
            shown = self.part(found, f"instance_dict({name})")
            if found:
                parts = ", ".join([f"{self.value(key)}: {self.value(value)}" for key, value in found.items()])
                self.add(f"{shown}.update({{{parts}}})")
        elif settable:
            self.add(f"{self.namespace.constant(object.__setattr__, 'object_setattr')}({name}, '__dict__', {shown})")
        else:
            raise Unbuildable(obj, "its attribute dictionary is used by itself")

    def value(self, obj: Any) -> str:
        """The expression for any object, after the lines that build it."""
        if obj is None or obj is True or obj is False:
            return repr(obj)
        node = self.graph.find(obj)
        if node is not None and node.external:
            return self.guard.name(node)
        if self._is_plain(obj):
            if self.number is not None and (name := self.number(obj)) is not None:
                return name
            if (name := self.origins.name(obj)) is not None:
                return name
            kind = type(obj)
            if (text := literal(obj)) is not None:
                return text
            return self.namespace.constant(obj, getattr(obj, "__name__", kind.__name__))
        found = self._names.get(id(obj))
        if found is not None:
            return found
        if self._is_tensor(obj):
            return self._tensor(obj, node)
        build = self._builder(obj)
        if build is None:
            raise Unbuildable(obj)
        name = build(self, obj)
        self._names[id(obj)] = name
        self._keep.append(obj)
        return name

    def _tensor(self, obj: Any, node: Node | None) -> str:
        if node is None or node.tag is None:
            raise Unbuildable(obj, "no observed operator made it")
        if getattr(obj, "__dict__", None):
            raise Unbuildable(obj, "it has Python attributes")
        tag = node.tag
        name = self._output_names.get(id(tag))
        if name is None:
            name = self._output_names[id(tag)] = f"o{len(self.outputs)}"
            self.outputs.append(tag)
        self._names[id(obj)] = name
        self._keep.append(obj)
        return name

    def _effect(self, effect: Effect) -> None:
        location = None if effect.location is None else self._locate(effect.location)
        comment = "" if location is None else f"{location.file.rpartition('/')[2]}:{location.line}"
        function = effect.function
        module = getattr(function, "__objclass__", None) or getattr(function, "__module__", "")
        hint = f"{getattr(module, '__name__', module)}_{getattr(function, '__name__', 'effect')}"
        if effect.node.external:
            target = self.guard.name(effect.node)
        else:
            target = self.value(effect.node.obj())
        args = [target, *[self.value(arg) for arg in effect.args]]
        args += [f"{name}={self.value(arg)}" for name, arg in effect.keywords.items()]
        self.add(f"{self.namespace.constant(function, hint)}({', '.join(args)})", comment)
