"""What is dropped is gone, at once and without garbage collection; what served a hundred hits is as big as before."""

from __future__ import annotations

import contextlib
import functools
import gc
import linecache
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Everything must go by reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.history: list[int] = []

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.history.append(1)
        return {"y": self.norm(self.first(x)), "x": x}


class Arg:
    """An argument that can be referred to weakly."""

    def __init__(self) -> None:
        self.x = torch.ones(3, 4)


def references(*objects: Any) -> list[weakref.ref[Any]]:
    return [weakref.ref(obj) for obj in objects]


def alive(found: list[weakref.ref[Any]]) -> list[str]:
    return [type(each()).__name__ for each in found if each() is not None]


def of_model(model: Model) -> list[weakref.ref[Any]]:
    return references(model, model.first, *model.parameters(), *model.buffers())


@pytest.mark.parametrize("how", ["recorded", "hits", "reset", "several"])
def test_dropping_a_compiled_module_frees_everything(how: str) -> None:
    model = Model()
    compiled = compile_(model)
    x = torch.ones(3, 4)
    compiled(x)
    if how != "recorded":
        compiled(x)
    if how == "several":
        compiled(torch.ones(2, 4))
        compiled.eval()(x)
    [*records] = type(compiled)._magpy_state.__get__(compiled).call.cache.records
    graphs = [record.graph for record in records]
    found = of_model(model) + references(x, compiled, *graphs)
    del records, graphs
    if how == "reset":
        magpy.reset(compiled)
    del model, compiled, x
    assert alive(found) == []


def test_dropping_a_compiled_function_frees_what_it_held() -> None:
    arg = Arg()

    def read(x: torch.Tensor) -> torch.Tensor:
        return arg.x * 2 + x  # noqa: F821

    compiled = compile_(read)
    x = torch.ones(3, 4)
    for _ in range(3):
        result = compiled(x)
    assert magpy.info(compiled).hits == 2
    [record] = compiled.__magpy__.cache.records
    found = references(
        arg, arg.x, x, read, compiled, compiled.__magpy__, result, record.graph, record.guard, record.mock
    )
    del arg, read, compiled, x, result, record
    assert alive(found) == []


def test_arguments_are_not_kept() -> None:
    compiled = compile_(lambda arg, x: arg.x + x)
    arg, x = Arg(), torch.ones(3, 4)
    for _ in range(3):
        compiled(arg, x)
        compiled(arg, x=x) if False else None
    found = references(arg.x, x)
    assert magpy.info(compiled).hits == 2
    del x
    assert alive(found[1:]) == []


def tensor_value(arg: Arg) -> torch.Tensor:
    return arg.x + float(arg.x.sum())


def raises(arg: Arg) -> torch.Tensor:
    y = arg.x + 1
    raise ValueError(y.shape)


def operator_raises(arg: Arg) -> torch.Tensor:
    return arg.x @ torch.ones(3, 3)


def unbuildable(arg: Arg) -> Any:
    y = arg.x + 1
    return (y for _ in range(3))


@pytest.mark.parametrize("program", [tensor_value, raises, operator_raises, unbuildable])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_failed_recordings_keep_nothing(program: Any, fullgraph: bool) -> None:
    compiled = magpy.compile(program, backend="eager", fullgraph=fullgraph)
    for _ in range(5):
        arg = Arg()
        found = references(arg, arg.x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compiled(arg)
            except Exception as error:
                found += references(error) if not isinstance(error, (ValueError, RuntimeError)) else []
        del arg
        assert alive(found) == []
    assert fullgraph or program in (tensor_value, raises, operator_raises) or magpy.info(compiled).hits == 0


def test_internal_errors_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from magpy import _compiled, _monitor

    def boom(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("on purpose")

    for owner, name in (
        (_compiled, "make_draft"), (_monitor.Monitor, "plan_for"), (_monitor.Monitor, "on_enter"),
        (_monitor.Monitor, "operator"), (_monitor.Monitor, "_inputs"), (_monitor.Monitor, "binary"),
    ):  # fmt: skip
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(owner, name, boom)
            compiled = compile_(lambda arg: arg.x + 1)
            arg = Arg()
            found = references(arg, arg.x)
            compiled(arg)
            del arg
            assert alive(found) == [], name
            assert [reason.slug for reason in magpy.info(compiled).reasons] == ["internal-error"]


@pytest.mark.parametrize("kind", ["eager", "compiled"])
def test_an_exception_holds_what_it_would_natively(kind: str) -> None:
    """While the exception lives, its frames hold their variables, and nothing else does."""

    def program(arg: Arg) -> None:
        held = Arg()
        found.extend(references(arg, held))
        del arg
        raise ValueError

    function: Any = program if kind == "eager" else compile_(program)
    for _ in range(5):
        found: list[weakref.ref[Any]] = []
        try:
            function(Arg())
        except ValueError as error:
            kept = error
        # the frames of an exception that a record raises hold no variables
        assert alive(found) == ["Arg"] or (kind == "compiled" and alive(found) == [])
        del kept
        assert alive(found) == []


def test_a_failing_graph_keeps_nothing() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise RuntimeError("on purpose")

        return run

    compiled = magpy.compile(lambda arg: arg.x + 1, backend=backend)
    for _ in range(4):
        arg = Arg()
        found = references(arg, arg.x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(arg)
        del arg
        assert alive(found) == []


def test_hits_leave_memory_flat() -> None:
    compiled = compile_(lambda x, log: (log.append(1), log.clear(), {"y": x + 1, "z": [x, (x,)]})[-1])
    x = torch.ones(2)
    log: list[int] = []
    for _ in range(100):
        compiled(x, log)
    gc.collect()
    before = sys.getallocatedblocks()
    references_ = sys.getrefcount(x), sys.getrefcount(log), sys.getrefcount(None)
    for _ in range(10_000):
        compiled(x, log)
    assert sys.getallocatedblocks() - before < 200
    after = sys.getrefcount(x), sys.getrefcount(log)
    assert after == references_[:2]
    assert magpy.info(compiled).hits >= 10_000


def test_native_calls_and_exceptions_leave_memory_flat() -> None:
    compiled = compile_(raises)
    arg = Arg()

    def call(times: int) -> None:
        for _ in range(times):
            try:
                compiled(arg)
            except ValueError:
                pass

    call(300)
    gc.collect()
    before = sys.getallocatedblocks()
    call(2000)
    gc.collect()  # the RefGraphs of the few attempts
    assert sys.getallocatedblocks() - before < 400


def test_sources_of_dropped_records_are_forgotten() -> None:
    def sources() -> int:
        return sum(name.startswith("<magpy ") for name in linecache.cache)

    before = sources()
    for _ in range(3):
        compiled = compile_(lambda x: x + 1)
        compiled(torch.ones(2))
        assert sources() > before
        del compiled
    assert sources() == before


class Held:
    """An object whose end the program looks at."""


def seen_by_a_generator(x: torch.Tensor) -> Any:
    def ends(held: Any) -> Iterator[Any]:
        held = weakref.ref(held)
        gc.collect()
        yield held()

    return x + 1, [*ends(Held())]


def seen_by_a_context_manager(x: torch.Tensor) -> Any:
    @contextlib.contextmanager
    def ends(held: Any, other: Any) -> Iterator[Any]:
        held, other = weakref.ref(held), weakref.ref(other)
        yield held() or other()

    with ends(Held(), other=Held()) as left:
        return x + 1, [left]


def seen_in_a_cycle(x: torch.Tensor) -> Any:
    held = Held()
    reference = weakref.ref(held)
    container = {held, 1}
    held.iterator = iter(container)  # type: ignore[attr-defined]
    del held, container
    gc.collect()
    return x + 1, [reference()]


@pytest.mark.parametrize("function", [seen_by_a_generator, seen_by_a_context_manager, seen_in_a_cycle])
def test_objects_of_a_run_that_is_watched_no_more_end_as_natively(function: Any) -> None:
    compiled = compile_(function)
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", magpy.NotCompiledWarning)
            result, left = compiled(torch.ones(2))
        assert left == [None] and result.tolist() == [2, 2]
    assert {reason.slug for reason in magpy.info(compiled).reasons} == {"impure-call"}


def test_bytes_are_counted_natively() -> None:
    def made() -> tuple[int, ...]:
        items: list[int] = []
        for each in range(5):
            items.append(each)
        held = Held()
        held.a, held.b = 1, 2  # type: ignore[attr-defined]
        return sys.getsizeof(items), items.__sizeof__(), sys.getsizeof(vars(held)) > sys.getsizeof({"a": 1, "b": 2})

    compiled = compile_(made)
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", magpy.NotCompiledWarning)
            assert compiled() == made()
    assert {reason.slug for reason in magpy.info(compiled).reasons} == {"value-identity"}


def test_references_are_counted_natively() -> None:
    def counts(x: torch.Tensor) -> Any:
        held = Held()
        before = sys.getrefcount(held)
        for _ in range(3):
            with contextlib.suppress(TypeError):
                reversed(held)  # type: ignore[call-overload]
        return x + 1, sys.getrefcount(held) - before

    compiled = compile_(counts)
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", magpy.NotCompiledWarning)
            assert compiled(torch.ones(2))[1] == 0
    assert [reason.slug for reason in magpy.info(compiled).reasons] == ["value-identity"]
