"""The public functions: what `compile` takes and gives, `info`, `explain`, `reset`, `disable`, and wrong arguments."""

from __future__ import annotations

import functools
import inspect
import pickle
import threading
import warnings
from typing import Any

import pytest
import torch
from serving import Served, reasons

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")


def double(x: torch.Tensor, *, by: float = 2.0) -> torch.Tensor:
    """Twice as much."""
    return x * by


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


# -- functions give functions ------------------------------------------------------------------------------------------


def test_a_function_keeps_its_face() -> None:
    double.note = "kept"  # type: ignore[attr-defined]
    compiled = compile_(double)
    assert inspect.isfunction(compiled)
    assert (compiled.__name__, compiled.__qualname__, compiled.__module__) == ("double", "double", __name__)
    assert compiled.__doc__ == "Twice as much."
    assert compiled.__wrapped__ is double
    assert inspect.signature(compiled) == inspect.signature(double)
    assert compiled.note == "kept"
    assert not hasattr(double, "__magpy__")


def test_decorator_without_and_with_arguments() -> None:
    @magpy.compile
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @magpy.compile(backend="eager", record_limit=2)
    def options(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @magpy.compile()
    def empty(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert [f.__name__ for f in (plain, options, empty)] == ["plain", "options", "empty"]
    served = Served(options)
    assert torch.equal(served.monitored(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(served.hit(torch.ones(2)), torch.full((2,), 2.0))


class Methods:
    scale = 3.0

    @compile_
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    @staticmethod
    @compile_
    def below(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @compile_
    @staticmethod
    def above(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    @compile_
    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.scale

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.scale


def test_methods_decorated_in_a_class() -> None:
    x = torch.ones(2)
    obj = Methods()
    served = Served(obj.method)
    assert torch.equal(served.monitored(x), x * 3)
    assert torch.equal(served.hit(x), x * 3)
    obj.scale = 5.0
    assert torch.equal(served.monitored(x), x * 5)
    assert torch.equal(served.hit(x), x * 5)
    other = Methods()
    assert torch.equal(other.method(x), x * 3)
    for function, expected in (
        (Methods.below, x + 1),
        (obj.above, x + 2),
        (obj.of_class, x * 3),
        (Methods.of_class, x * 3),
    ):
        assert torch.equal(function(x), expected)
        assert torch.equal(function(x), expected)
    assert magpy.info(Methods.above).hits == 1
    assert magpy.info(Methods.of_class).hits == 3


class Adder:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.n


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (functools.partial(double, by=4.0), 4.0),
        (Methods().plain, -2.0),
        (Adder(6), 7.0),
        (lambda x: x / 2, 0.5),
        (torch.neg, -1.0),
        (torch.Tensor.exp, 2.7182817),
        (functools.partial(functools.partial(torch.add, 1)), 2.0),
    ],
)
def test_callables_of_all_kinds(target: Any, expected: float) -> None:
    served = Served(compile_(target))
    x = torch.ones(2)
    for call in (served.monitored, served.hit, served.hit):
        assert torch.allclose(call(x), torch.full((2,), expected))


def test_a_callable_object_is_read_at_each_call() -> None:
    adder = Adder(1)
    compiled = compile_(adder)
    x = torch.zeros(1)
    assert compiled(x).item() == 1
    adder.n = 2
    assert compiled(x).item() == 2


def test_compile_of_a_compiled_function() -> None:
    once = compile_(double)
    twice = magpy.compile(once, backend="eager", record_limit=1)
    served = Served(twice)
    x = torch.ones(2)
    assert torch.equal(served.monitored(x), x * 2)
    assert torch.equal(served.hit(x), x * 2)
    assert magpy.info(once).monitored == 0


def test_a_compiled_function_inside_a_compiled_one_is_inlined() -> None:
    inner = compile_(double)

    @compile_
    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x, by=3.0) + inner(x)

    served = Served(outer)
    x = torch.ones(2)
    assert torch.equal(served.monitored(x), x * 5)
    assert torch.equal(served.hit(x), x * 5)
    info = magpy.info(inner)
    assert (info.monitored, info.hits, info.native) == (0, 0, 0)
    assert torch.equal(inner(x), x * 2)


def test_which_compiled_function_was_passed_is_a_fact() -> None:
    first, second = compile_(lambda x: x + 1), compile_(lambda x: x + 2)

    @compile_
    def outer(function: Any, x: torch.Tensor) -> torch.Tensor:
        return function(x) * 2

    x = torch.ones(1)
    for _ in range(2):
        assert outer(first, x).item() == 4
        assert outer(second, x).item() == 6


def test_recursion_while_recording_is_native() -> None:
    @compile_
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else power(x, n - 1) * 2

    x = torch.ones(2)
    assert torch.equal(power(x, 3), x * 8)
    info = magpy.info(power)
    assert info.monitored == 1 and info.native == 0
    assert torch.equal(power(x, 3), x * 8)
    assert magpy.info(power).hits == 1


# -- info, explain, reset ----------------------------------------------------------------------------------------------


def test_info_of_a_served_function() -> None:
    compiled = compile_(double)
    x = torch.ones(2)
    for _ in range(3):
        compiled(x)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native) == (1, 2, 0)
    assert (info.records, info.graphs, info.ops) == (1, 1, 1)
    assert info.boundaries == () and info.reasons == ()
    assert set(info.timings) == {"run", "generate", "codegen", "backend"}
    assert all(seconds >= 0 for seconds in info.timings.values())
    with pytest.raises(AttributeError):
        info.hits = 0  # type: ignore[misc]


def opaque(x: torch.Tensor) -> Any:
    y = x + 1
    return (y for _ in range(2))


def test_info_says_why_not() -> None:
    compiled = compile_(opaque)
    x = torch.ones(2)
    with pytest.warns(magpy.NotCompiledWarning) as caught:
        for _ in range(6):
            assert torch.equal(next(compiled(x)), x + 1)
    assert len(caught) == 1 and caught[0].filename == __file__
    info = magpy.info(compiled)
    assert info.monitored + info.native == 6 and info.hits == 0
    [reason] = info.reasons
    assert (reason.slug, reason.count) == ("unbuildable", 6)
    before = magpy.info(compiled).reasons
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)
    assert before[0].count == 6 and magpy.info(compiled).reasons[0].count == 7


def test_info_names_boundaries() -> None:
    compiled = compile_(branches)
    served, x = Served(compiled), torch.ones(2)
    served.monitored(x)
    served.hit(x)
    served.monitored(-x)
    for each in (x, -x):
        assert torch.equal(served.hit(each), branches(each))
    info = magpy.info(compiled)
    [boundary] = info.boundaries
    line = inspect.getsourcelines(branches)[1] + 1
    assert (boundary.operation, boundary.reason) == ("truth", "tensor-value")
    assert (boundary.file, boundary.line, boundary.taken) == (__file__, line, 5)
    assert sorted(boundary.outcomes.values()) == [2, 3] and not info.reasons


def test_warnings_as_errors_do_not_reach_the_program() -> None:
    compiled = compile_(branches)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)


def test_explain() -> None:
    compiled = compile_(double)
    for _ in range(2):
        compiled(torch.ones(2))
    text = magpy.explain(compiled)
    for part in ("1 monitored, 1 served from records, 0 native", "def guard(", "def mock(", "operator graph:"):
        assert part in text
    refused = compile_(opaque)
    Served(refused).monitored(torch.ones(2))
    text = magpy.explain(refused)
    assert "[unbuildable]" in text and magpy.REASONS["unbuildable"].advice in text
    split = compile_(branches)
    Served(split).monitored(torch.ones(2))
    assert f"boundary [tensor-value] truth at {__file__}:" in magpy.explain(split)


def test_reset() -> None:
    compiled = compile_(double)
    served = Served(compiled)
    served.monitored(torch.ones(2))
    served.hit(torch.ones(2))
    magpy.reset(compiled)
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.records, info.timings) == (0, 0, 0, {})
    served.monitored(torch.ones(2))
    served.hit(torch.ones(2))


def test_reset_from_inside_the_call() -> None:
    def resets(x: torch.Tensor) -> torch.Tensor:
        magpy.reset(compiled)
        return x + 1

    compiled = compile_(resets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)


@pytest.mark.parametrize("function", [magpy.info, magpy.explain, magpy.reset])
@pytest.mark.parametrize("other", [double, 3, torch.nn.Linear(2, 2), object()])
def test_what_compile_did_not_make(function: Any, other: Any) -> None:
    with pytest.raises(TypeError, match="did not make"):
        function(other)


# -- disable -----------------------------------------------------------------------------------------------------------


def test_a_disabled_function_ends_the_region() -> None:
    @magpy.disable
    def apart(x: torch.Tensor) -> torch.Tensor:
        """Apart."""
        return x + 1

    @compile_
    def outer(x: torch.Tensor) -> torch.Tensor:
        return apart(x) * 2

    assert apart.__name__ == "apart" and apart.__doc__ == "Apart."
    served = Served(outer)
    assert torch.equal(served.monitored(torch.ones(2)), torch.full((2,), 4.0))
    assert torch.equal(served.hit(torch.ones(2)), torch.full((2,), 4.0))
    [boundary] = magpy.info(outer).boundaries
    assert (boundary.reason, boundary.file, boundary.taken) == ("disabled", __file__, 2)
    with pytest.raises(magpy.FullGraphError, match="disabled"):
        magpy.compile(outer, backend="eager", fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("kind", ["function", "decorator", "method", "module", "partial"])
def test_the_compiled_object_of_something_disabled_runs_natively(kind: str) -> None:
    target: Any = {
        "function": lambda: magpy.disable(double),
        "decorator": lambda: magpy.disable()(double),
        "method": lambda: magpy.disable(Adder(1).__call__),
        "module": lambda: magpy.disable(torch.nn.ReLU()),
        "partial": lambda: magpy.disable(functools.partial(double)),
    }[kind]()
    compiled = compile_(target)
    served = Served(compiled)
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(served.native(x), target(x))
    assert reasons(compiled) == ["disabled"] and magpy.info(compiled).reasons[0].count == 4
    strict = magpy.compile(target, backend="eager", fullgraph=True)
    with pytest.raises(magpy.FullGraphError) as caught:
        strict(x)
    assert caught.value.reason == "disabled"
    Served(compile_(double)).monitored(x)  # the function itself is as it was


def test_a_disabled_module_inside_a_compiled_one() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), magpy.disable(torch.nn.ReLU()))
    compiled = compile_(model)
    x = torch.ones(2)
    assert torch.equal(Served(compiled).monitored(x), model(x))
    assert torch.equal(Served(compiled).hit(x), model(x))
    assert [boundary.reason for boundary in magpy.info(compiled).boundaries] == ["disabled"]


# -- wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": 3}, TypeError, "takes a callable, not int"),
        ({"target": Adder}, TypeError, "not a class"),
        (
            {"target": double, "backend": "nonsense"},
            ValueError,
            "unknown backend 'nonsense'; known ones: .*eager.*inductor",
        ),
        ({"target": double, "backend": 3}, TypeError, "backend must be"),
        ({"backend": "nonsense"}, ValueError, "unknown backend"),
        ({"target": double, "record_limit": 0}, ValueError, "at least 1"),
        ({"target": double, "record_limit": "8"}, TypeError, "record_limit must be int, not str"),
        ({"target": double, "record_limit": True}, TypeError, "record_limit must be int, not bool"),
        ({"target": double, "fullgraph": 1}, TypeError, "fullgraph must be bool, not int"),
        ({"target": double, "dynamic": "yes"}, TypeError, "dynamic must be bool or None, not str"),
        ({"target": double, "options": [1]}, TypeError, "options must be dict or None, not list"),
        ({"target": double, "mode": "fast"}, TypeError, "mode"),
    ],
)
def test_wrong_arguments_raise_at_once(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        magpy.compile(**arguments)


@pytest.mark.parametrize("other", [3, int, "name"])
def test_disable_takes_callables(other: Any) -> None:
    with pytest.raises(TypeError, match="takes a function or a module"):
        magpy.disable(other)


# -- fullgraph ---------------------------------------------------------------------------------------------------------


def test_fullgraph_says_where() -> None:
    compiled = magpy.compile(branches, backend="eager", fullgraph=True)
    line = inspect.getsourcelines(branches)[1] + 1
    for _ in range(5):  # at every call
        with pytest.raises(magpy.FullGraphError) as caught:
            compiled(torch.ones(2))
        error = caught.value
        assert (error.reason, error.file, error.line) == ("tensor-value", __file__, line)
        assert f"{__file__}:{line}" in str(error) and "[tensor-value]" in str(error)
        assert "Unsupported" in [cls.__name__ for cls in type(error).__mro__]
        assert error.__cause__ is None
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.reason, again.line) == (str(error), error.reason, error.line)
    assert magpy.info(compiled).monitored == 5


def test_fullgraph_of_what_compiles() -> None:
    served = Served(magpy.compile(double, backend="eager", fullgraph=True))
    served.monitored(torch.ones(2))
    served.hit(torch.ones(2))


def test_fullgraph_lets_the_programs_own_exception_out() -> None:
    error = KeyError("mine")

    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            raise error
        return x

    compiled = magpy.compile(raises, backend="eager", fullgraph=True)
    for _ in range(5):
        with pytest.raises(KeyError) as caught:
            compiled(torch.ones(2))
        assert caught.value is error and error.__cause__ is None and error.__context__ is None


def test_fullgraph_and_a_full_cache() -> None:
    compiled = magpy.compile(lambda x, n: x + n, backend="eager", fullgraph=True, dynamic=False, record_limit=1)
    compiled(torch.ones(1), 1)
    with pytest.raises(magpy.FullGraphError) as caught:
        compiled(torch.ones(1), 2)
    assert caught.value.reason == "record-limit"
    assert compiled(torch.ones(1), 1).item() == 2


def test_a_full_cache_keeps_serving_and_says_which_facts_failed() -> None:
    compiled = magpy.compile(lambda x, n: x + len(n), backend="eager", record_limit=2)
    x = torch.ones(1)
    words = ["a", "bb", "ccc", "dddd"]
    with pytest.warns(magpy.NotCompiledWarning) as caught:
        for word in words * 2:
            assert compiled(x, word).item() == 1 + len(word)
    assert len(caught) == 1
    info = magpy.info(compiled)
    assert (info.records, info.monitored, info.hits, info.native) == (2, 2, 2, 4)
    [reason] = info.reasons
    assert reason.slug == "record-limit" and reason.count == 4 and "1" in reason.message


# -- threads and modes -------------------------------------------------------------------------------------------------


def test_threads_share_records() -> None:
    compiled = compile_(lambda x, n: (x * n).relu() + 1)
    wrong: list[Any] = []
    barrier = threading.Barrier(6)

    def work(seed: int) -> None:
        barrier.wait()
        for k in range(60):
            n = (seed + k) % 3 + 1
            x = torch.full((2,), float(seed))
            if not torch.equal(compiled(x, n), (x * n).relu() + 1):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and wrong == []
    info = magpy.info(compiled)
    assert info.monitored + info.hits + info.native == 360
    assert info.reasons == () and info.monitored == info.records <= 3 and info.hits > 0


def test_while_one_thread_records_another_runs_natively() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def backend(module: Any, inputs: Any) -> Any:
        inside.set()
        assert go_on.wait(30)
        return module.forward

    compiled = magpy.compile(double, backend=backend)
    x = torch.ones(2)
    thread = threading.Thread(target=compiled, args=(x,))
    thread.start()
    try:
        assert inside.wait(30)
        assert torch.equal(Served(compiled).native(x), x * 2)
        other = Served(compile_(double))  # another compiled object records meanwhile
        other.monitored(x)
        other.hit(x)
    finally:
        go_on.set()
        thread.join(30)
    assert torch.equal(Served(compiled).hit(x), x * 2)


def test_is_compiling_answers_true_while_recording_on_that_thread_only() -> None:
    answers: list[bool] = []
    elsewhere: list[bool] = []

    def asks(x: torch.Tensor) -> torch.Tensor:
        answers.append(torch.compiler.is_compiling())
        thread = threading.Thread(target=lambda: elsewhere.append(torch.compiler.is_compiling()))
        thread.start()
        thread.join()
        return x + 1

    compiled = compile_(asks)
    assert not torch.compiler.is_compiling()
    Served(compiled).monitored(torch.ones(2))
    assert answers == [True] and elsewhere == [False]
    assert not torch.compiler.is_compiling()
