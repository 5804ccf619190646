"""What the tests of codegen share: a bench on which small graphs are built by hand, and their guards and mocks run."""

from __future__ import annotations

import contextlib
import enum
import types
from pathlib import Path
from typing import Any

import pytest

from magpy_refgraph import ABSENT, Atom, EdgeKind, Effect, Key, Location, Node, RefGraph, verify

CASES = Path(__file__).parent / "cases"
PLAIN = (int, float, complex, str, bytes, bool, type(None), range, types.BuiltinFunctionType)


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # the root's conftest has added it
        parser.addoption("--update-cases", action="store_true", help="rewrite the golden cases that differ")


def is_plain(obj: Any) -> bool:
    """Whether an object is a value without identity."""
    return type(obj) in PLAIN or (type(obj) is type and not obj.__flags__ & 1 << 9)


class Bench:
    """A graph in the making, and what is generated from it.

    Attributes:
        graph: the graph.
        args: arguments of the recorded call.
        held: facts about held objects, once the guard is written.
    """

    def __init__(self) -> None:
        from magpy_codegen import GuardWriter, Namespace
        from magpy_runtime import guard_helpers

        self.graph = RefGraph()
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.line = 0
        self.helpers = guard_helpers()
        self.namespace = Namespace()
        self.namespace.values.update(self.helpers)
        self.namespace.values.update(modes_match=lambda: True, tensors_match=lambda *tensors: True)
        self.writer = GuardWriter(
            self.graph,
            self.namespace,
            self.pinned,
            lambda node: ("path", node.index),
            self.helpers,
            lambda where: where,
        )
        self.source = ""
        self.tensor = is_tensor

    def pinned(self, node: Node) -> bool:
        if node.key.kind is EdgeKind.PIN or issubclass(node.type, (type, types.ModuleType, enum.Enum)):
            return True
        return node.key.kind not in (EdgeKind.ARGUMENT, EdgeKind.KEYWORD) and self.pinned(node.parent)

    # -- building -----------------------------------------------------------------------------------------------------

    def place(self) -> Location:
        self.line += 1
        return Location("/src/program.py", self.line, "f")

    def read(self, node: Node, kind: EdgeKind, arg: Any, target: Any) -> Any:
        """Note a reference; `target` is a plain value, ABSENT, or an object, which gets a node."""
        key = Key(kind, arg)
        if target is ABSENT or type(target) in (Atom, Node):
            found = target
        elif is_plain(target) or kind is EdgeKind.TYPE:
            found = Atom(target)
        else:
            found = self.graph.find(target) or self.graph.add(target, node, key)
        self.graph.read(node, key, found, self.place())
        return found

    def arg(self, obj: Any, *, typed: bool = True) -> Any:
        """The next positional argument."""
        self.args.append(obj)
        node = self.read(self.graph.root, EdgeKind.ARGUMENT, len(self.args) - 1, obj)
        if typed and isinstance(node, Node):
            self.read(node, EdgeKind.TYPE, None, type(obj))
        return node

    def keyword(self, name: str, obj: Any) -> Any:
        self.kwargs[name] = obj
        return self.read(self.graph.root, EdgeKind.KEYWORD, name, obj)

    def pin(self, obj: Any) -> Node:
        """An object that the record holds."""
        count = sum(key.kind is EdgeKind.PIN for key in self.graph.root.initial)
        return self.read(self.graph.root, EdgeKind.PIN, count, obj)

    def made(self, obj: Any) -> Node:
        """An object made during the run."""
        return self.graph.add(obj)

    def effect(
        self, node: Node, function: Any, *args: Any, changes: dict[Key, Any] | None = None, **keywords: Any
    ) -> None:
        effect = Effect(self.graph.tick(), node, function, args, keywords, self.place())
        self.graph.write(effect, changes or {})

    # -- using --------------------------------------------------------------------------------------------------------

    def guard(self) -> Any:
        """`guard(*args, **kwargs)`: what the guard says; -1 - i for the i-th held fact."""
        from magpy_codegen import make_function
        from magpy_runtime import fact_table

        assert verify(self.graph) == []
        mutated = {effect.node.index for effect in self.graph.effects}
        self.source = self.writer.write(len(self.args), tuple(self.kwargs), mutated)
        self.held = self.writer.held
        table = fact_table([fact.entry() for fact in self.held])
        python = self.python()
        assert table() == python()

        def held_facts() -> int | None:
            found = table()
            assert found == python(), self.held_text()
            return found

        self.namespace.values["held_facts"] = held_facts
        function = make_function(self.source, "guard", self.namespace.values, "guard")
        return lambda *args, **kwargs: function(args, kwargs)

    def python(self) -> Any:
        """The held facts as generated Python."""
        from magpy_codegen import make_function, render

        text, namespace = render(self.held, self.helpers, self.helpers["ABSENT"], lambda where: where)
        return make_function(text, "held", namespace, "held facts")

    def held_text(self) -> str:
        from magpy_codegen import render

        return render(self.held, self.helpers, self.helpers["ABSENT"], lambda where: where)[0]

    def failed(self, number: Any) -> str:
        """What a failure number means."""
        assert type(number) is int, "the guard passes"
        return self.held[-1 - number].text if number < 0 else self.writer.checks[number].text

    def mock(self, result: Any, inputs: tuple[Node, ...] = ()) -> Any:
        """The mock's writer and source, for `result`; the guard must have been written."""
        from magpy_codegen import MockWriter, builder

        writer = MockWriter(
            self.graph, self.namespace, self.writer, is_plain=is_plain, is_tensor=self.tensor, builder=builder,
            locate=lambda where: where,
        )  # fmt: skip
        return writer, writer.write(result, list(inputs))

    def rebuilt(self, result: Any, *args: Any, run: Any = None, inputs: tuple[Node, ...] = ()) -> Any:
        """What guard and mock give for a call with `args`, the recorded ones by default."""
        from magpy_codegen import make_function

        guard = self.guard()
        _, source = self.mock(result, inputs)
        bound = guard(*(args or self.args))
        assert type(bound) is tuple, self.failed(bound)
        return make_function(source, "mock", self.namespace.values, "mock")(bound, run)


def is_tensor(obj: Any) -> bool:
    import torch

    return issubclass(type(obj), torch.Tensor)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def make_bench() -> type[Bench]:
    return Bench


@pytest.fixture
def rebuild() -> Any:
    """`rebuild(obj)`: an object that a run made, built again by a mock."""
    return lambda obj: Bench().rebuilt(obj)


class Hostile:
    """What user code must not run: everything raises."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("user code runs")

    __eq__ = __ne__ = __hash__ = __len__ = __bool__ = __getitem__ = __iter__ = __contains__ = _refuse  # type: ignore[assignment]
    __int__ = __float__ = __complex__ = __index__ = __bytes__ = __str__ = __repr__ = _refuse  # type: ignore[assignment]
    __getattribute__ = __getattr__ = __setattr__ = __delattr__ = __reduce__ = __reduce_ex__ = _refuse  # type: ignore[assignment]
    __class__ = property(_refuse)  # type: ignore[assignment]
    get = keys = values = items = append = _refuse


@pytest.fixture
def hostile() -> Any:
    """`hostile(base)`: a subclass of a builtin type whose every method raises."""

    def make(base: type = object) -> type:
        members = {name: value for name, value in vars(Hostile).items() if name not in ("__dict__", "__weakref__")}
        return type(f"Hostile{base.__name__}", (base,), members)

    return make
