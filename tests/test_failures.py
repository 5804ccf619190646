"""Failures of MagPy's own, injected at each stage: the program must not notice, and the reason must be told.

Each stage is broken in turn while programs run: one with effects, one that raises, one that updates a tensor in place, one
that draws random numbers. What they return, do and raise must be what they return, do and raise natively.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, equal, reasons

import magpy
from magpy import _behind, _compiled, _monitor, _opcodes, _recording, _torch

compile_ = functools.partial(magpy.compile, backend="eager")


class Injected(Exception):
    """What a stage raises."""


def boom(*args: Any, **kwargs: Any) -> Any:
    raise Injected("on purpose")


class World:
    """A program's surroundings, and portraits of them."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.counts = {"calls": 0}
        self.tensor = torch.zeros(3)

    def portrait(self) -> Any:
        return (self.log, self.counts, self.tensor, torch.get_rng_state())


def effects(world: World, x: torch.Tensor) -> Any:
    world.counts["calls"] = x.shape[0]
    world.log.append("called")
    y = torch.nn.functional.relu(x)
    world.tensor = y.sum(0)
    return {"y": y, "x": x, "sorted": sorted([3, 1, 2], key=lambda n: -n)}


def in_place(world: World, x: torch.Tensor) -> Any:
    world.tensor.add_(x[0])
    return world.tensor * 2


def random(world: World, x: torch.Tensor) -> Any:
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)


def raising(world: World, x: torch.Tensor) -> Any:
    world.log.append("started")
    y = x + 1
    try:
        {}["key"]
    finally:
        world.log.append("left")
    return y


def operator_raises(world: World, x: torch.Tensor) -> Any:
    world.log.append("started")
    return x @ torch.ones(7, 7)


def plain(world: World, x: torch.Tensor) -> Any:
    return (x * 2).relu() + x.sum()


PROGRAMS = [effects, in_place, random, raising, operator_raises, plain]
RAISE = [raising, operator_raises]


Injector = Callable[[pytest.MonkeyPatch], None]


def _on(owner: Any, name: str) -> Injector:
    return lambda patch: patch.setattr(owner, name, boom)


def _recorder_run(when: str) -> Injector:
    def inject(patch: pytest.MonkeyPatch) -> None:
        original = _monitor.Recorder

        class Broken:
            def __init__(self, *args: Any) -> None:
                self.recorder = original(*args)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.recorder, name)

            def run(self, function: Any, args: Any, kwargs: Any) -> Any:
                if when == "before":
                    boom()
                self.recorder.run(function, args, kwargs)
                if when == "after":
                    boom()

        patch.setattr(_monitor, "Recorder", Broken)

    return inject


def _recorder_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_monitor, "Recorder", boom)


def _third_call(owner: Any, name: str) -> Injector:
    def inject(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)
        calls: list[int] = []

        def third(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            return boom() if len(calls) % 3 == 0 else original(*args, **kwargs)

        patch.setattr(owner, name, third)

    return inject


RULES = [
    name
    for name in (
        "load_global", "call", "after_call", "binary", "attribute", "load_item", "store_item", "iterate", "native", "operator",
        "argument", "result", "use_function", "lookup", "where", "boundary", "user_where", "find",
    )
    if hasattr(_monitor.Monitor, name)
]  # fmt: skip

STAGES: dict[str, Injector] = {
    "recorder made": _recorder_made,
    "recorder runs, before": _recorder_run("before"),
    "recorder runs, after": _recorder_run("after"),
    "entry state": _on(_recording.Entry, "now"),
    "registry": _on(_compiled, "registry"),
    "monitor inputs": _on(_monitor.Monitor, "_inputs"),
    "plan_for": _on(_monitor.Monitor, "plan_for"),
    "plan_for, third": _third_call(_monitor.Monitor, "plan_for"),
    "planner": _on(_opcodes.Planner, "plan"),
    "on_enter": _on(_monitor.Monitor, "on_enter"),
    "on_enter, third": _third_call(_monitor.Monitor, "on_enter"),
    "mode on": _on(_torch, "push_mode"),
    "mode handler": _on(_monitor.Monitor, "operator"),
    "mode handler, third": _third_call(_monitor.Monitor, "operator"),
    **{f"rule {name}": _on(_monitor.Monitor, name) for name in RULES},
    **{f"rule {name}, third": _third_call(_monitor.Monitor, name) for name in RULES},
    "make_draft": _on(_compiled, "make_draft"),
    "guard writer": _on(_recording, "GuardWriter"),
    "guard written": _on(_recording.GuardWriter, "write"),
    "mock writer": _on(_recording, "MockWriter"),
    "mock written": _on(_recording.MockWriter, "write"),
    "generated code": _on(_recording, "make_function"),
    "tensor check": _on(_recording, "TensorCheck"),
    "record": _on(_recording, "Record"),
    "release": _on(_monitor.Monitor, "release"),
}
MAY_SUCCEED = ("rule", "mode handler", "release")  # programs that do not come there are recorded


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Any:
    before = (sys.gettrace(), sys.getprofile(), gc.isenabled(), threading.active_count())
    yield
    assert before == (sys.gettrace(), sys.getprofile(), gc.isenabled(), threading.active_count())
    left = torch._C._len_torch_function_stack()
    for _ in range(left):
        torch._C._pop_torch_function_stack()
    assert left == 0
    assert not torch.compiler.is_compiling()
    assert not _behind.recording.active
    assert torch.is_grad_enabled()


def outcome(function: Any, world: World, x: torch.Tensor) -> Any:
    try:
        return function(world, x)
    except Exception as error:
        return (type(error), str(error), type(error.__context__), error.__suppress_context__)


def compare(program: Any, compiled: Any, calls: int = 5) -> None:
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    native, mine = World(), World()
    torch.manual_seed(0)
    expected = [outcome(program, native, x) for _ in range(calls)], native.portrait()
    torch.manual_seed(0)
    got = [outcome(compiled, mine, x) for _ in range(calls)], mine.portrait()
    assert equal(expected, got), (expected, got)


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_fails(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in PROGRAMS:
        compiled = compile_(program)
        with monkeypatch.context() as patch:
            STAGES[stage](patch)
            compare(program, compiled, calls=2)
        info = magpy.info(compiled)
        assert info.monitored + info.hits + info.native == 2
        if not stage.startswith(MAY_SUCCEED) and not stage.endswith("third") and program not in RAISE:
            assert reasons(compiled) == ["internal-error"] and info.records == 0, info
            assert "Injected" in info.reasons[0].message and "on purpose" in info.reasons[0].details
        # Mended, the same object records and serves.
        compare(program, compiled, calls=3)
        if program not in RAISE:
            assert magpy.info(compiled).hits >= 1, (program, magpy.info(compiled))


def test_giving_back_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_monitor.Monitor, "give_back", boom)
    served = Served(compile_(lambda x: x + 1))
    x = torch.ones(2)
    assert equal(served.monitored(x), x + 1)
    assert reasons(served.compiled) == ["internal-error"]
    assert "on purpose" in magpy.info(served.compiled).reasons[0].details
    assert equal(served.hit(x), x + 1)


@pytest.mark.parametrize("stage", ["plan_for", "mode handler", "guard written"])
def test_fullgraph_tells_a_failure(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    STAGES[stage](monkeypatch)
    compiled = magpy.compile(plain, backend="eager", fullgraph=True)
    world = World()
    with pytest.raises(magpy.FullGraphError) as caught:
        compiled(world, torch.ones(2, 3))
    assert caught.value.reason == "internal-error" and "on purpose" in caught.value.__notes__[0]


# -- what a program may do to the interpreter --------------------------------------------------------------------------


def deep(depth: int) -> Any:
    nested: Any = []
    for _ in range(depth):
        nested = [nested]
    try:
        return len(repr(nested))
    except RecursionError:
        return "too deep"


def replaced_attribute(depth: int) -> Any:
    seen: list[int] = []
    plain = builtins.len
    builtins.len = lambda obj: seen.append(1) or plain(obj)  # type: ignore[assignment]
    try:
        found = [len(range(each)) for each in range(depth)]
    finally:
        builtins.len = plain
    return found, seen


def replaced_item(depth: int) -> Any:
    seen: list[int] = []
    namespace = vars(builtins)
    plain = namespace["len"]
    namespace["len"] = lambda obj: seen.append(1) or plain(obj)
    try:
        found = [len(range(each)) for each in range(depth)]
    finally:
        namespace["len"] = plain
    return found, seen


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
@pytest.mark.parametrize(
    ("program", "depth", "reason"),
    [
        (deep, 100_000, "recursion-limit"),
        (replaced_attribute, 4, "builtins-changed"),
        (replaced_item, 4, "builtins-changed"),
    ],
)
def test_there_is_no_room_for_magpy(program: Callable[[int], Any], depth: int, reason: str) -> None:
    expected, compiled = program(depth), compile_(program)
    assert [compiled(depth) for _ in range(3)] == [expected] * 3
    assert reasons(compiled) == [reason] and magpy.info(compiled).records == 0


# -- backends ----------------------------------------------------------------------------------------------------------


def fails_at_once(module: Any, inputs: Any) -> Any:
    raise Injected("cannot compile")


def fails_when_called(module: Any, inputs: Any) -> Any:
    return boom


def fails_on_the_second_call(module: Any, inputs: Any) -> Any:
    calls: list[int] = []

    def run(*args: Any) -> Any:
        calls.append(1)
        return module.forward(*args) if len(calls) == 1 else boom()

    return run


def gives_nothing(module: Any, inputs: Any) -> Any:
    return None


def gives_too_little(module: Any, inputs: Any) -> Any:
    return lambda *args: ()


BACKENDS = [fails_at_once, fails_when_called, fails_on_the_second_call, gives_nothing, gives_too_little]


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [effects, in_place, random, plain])
def test_a_backend_fails(program: Any, backend: Any) -> None:
    compiled = magpy.compile(program, backend=backend)
    compare(program, compiled, calls=6)
    assert reasons(compiled) == ["backend-failed"]
    strict = magpy.compile(program, backend=backend, fullgraph=True)
    with pytest.raises(magpy.FullGraphError) as caught:
        for _ in range(3):
            strict(World(), torch.ones(2, 3))
    assert caught.value.reason == "backend-failed"


def test_a_graph_that_fails_half_way_is_not_run_again() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            module.forward(*args)
            raise Injected("late")

        return run

    compiled = magpy.compile(in_place, backend=backend)
    world, x = World(), torch.ones(2, 3)
    compiled(world, x)
    with pytest.raises(Injected) as caught:
        compiled(world, x)
    assert torch.equal(world.tensor, torch.full((3,), 2.0))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("harmless", [False, True])
def test_a_graph_that_updates_only_its_own_is_not_watched_where_that_is_known(harmless: bool) -> None:
    def own(world: World, x: torch.Tensor) -> Any:
        y = x + 1
        y.relu_()
        world.log.append("called")
        return y, x.view(-1)

    fail: list[bool] = []

    def backend(module: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            result = module.forward(*args)
            if fail:
                raise Injected("late")
            return result

        run.repeatable = harmless  # type: ignore[attr-defined]
        return run

    compiled = magpy.compile(own, backend=backend)
    served = Served(compiled)
    world, x = World(), torch.randn(2, 3)
    served.monitored(world, x)
    [record] = compiled.__magpy__.cache.records
    assert record.mutates and (type(record.run).__name__ == "Updating") is not harmless
    assert equal(served.hit(world, x), own(World(), x))
    fail.append(True)
    with pytest.warns(magpy.NotCompiledWarning):
        assert equal(compiled(world, x), own(World(), x))
    assert world.log == ["called"] * 3


# -- guards and mocks that fail when they serve ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
@pytest.mark.parametrize("part", ["guard", "mock"])
def test_a_record_fails_to_serve(part: str) -> None:
    compiled = compile_(plain)
    served = Served(compiled)
    world, x = World(), torch.ones(2, 3)
    expected = served.monitored(world, x)
    [record] = compiled.__magpy__.cache.records
    setattr(record, part, boom)
    record.native = None  # or the dispatcher asks neither
    assert torch.equal(served.native(world, x), expected)
    assert reasons(compiled) == ["internal-error"] and magpy.info(compiled).records == 0
    assert torch.equal(served.monitored(world, x), expected)
    assert torch.equal(served.hit(world, x), expected)


def test_exactly_one_warning_for_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compiled, "make_draft", boom)
    for _ in range(2):
        compiled = compile_(plain)
        with pytest.warns(magpy.NotCompiledWarning, match="MagPy itself failed: Injected: on purpose") as caught:
            for _ in range(5):
                compiled(World(), torch.ones(2, 3))
        assert len(caught) == 1 and caught[0].filename == __file__
