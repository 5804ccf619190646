"""Each program of `tests/programs`, eager against compiled: values, effects, identity, modes, and how calls were served.

Two worlds are made by the same function. In one the calls are eager, in the other they go to the compiled object; after each
call a portrait of everything reachable (all results and arguments so far, the module, what the program observes) is taken,
and the portraits must agree. Then `magpy.info` must say that the calls were served as the program expects: a pass is never
a silent native run.
"""

import contextlib
import io
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from programs import PROGRAMS, Program
from programs.portrait import Line, first_difference, portrait

import magpy

BACKEND = os.environ.get("MAGPY_TEST_BACKEND", "eager")
TOLERANCE = 0.0 if BACKEND == "eager" else 1e-4

Compiler = Callable[[Any], Callable[..., Any]]


def _compilers_own(name: str) -> bool:
    """Attributes that a compiler may leave on a module."""
    return bool(re.match(r"_(magpy|compiled|dynamo|is_torch)", name))


@contextlib.contextmanager
def _answering_as_compiling(on: bool) -> Iterator[None]:
    compiler: Any = torch.compiler
    before = compiler._is_compiling_flag
    compiler._is_compiling_flag = on or before
    try:
        yield
    finally:
        compiler._is_compiling_flag = before


def _seed(value: int) -> None:
    torch.manual_seed(value)
    random.seed(value)


def _floats(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _floats(item)


def run_world(program: Program, compile_: Compiler | None) -> tuple[list[list[Line]], Callable[..., Any]]:
    """Makes the calls; a portrait after each. Without a compiler the calls are eager."""
    target = program.target
    if isinstance(target, torch.nn.Module):
        target.train(program.train)
    function = target if compile_ is None else compile_(target)
    portraits, results, arguments = [], [], []
    first = program.calls[0]
    entries = [first, None, *program.calls[1:]]
    copies = _twin(first)
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        warnings.catch_warnings(record=True) as caught,
        torch.set_grad_enabled(program.grad),
        _answering_as_compiling(program.compiling and compile_ is None),
    ):
        warnings.simplefilter("always")
        for number, entry in enumerate(entries):
            if program.between is not None:
                program.between(number)
            call = copies if entry is None else entry
            arguments.append((call.args, call.kwargs))
            _seed(number)
            try:
                result = function(*call.args, **call.kwargs)
            except Exception as problem:
                result = ("raised", type(problem), str(problem))
            results.append(result)
            after = (random.getstate()[1][:3], torch.random.get_rng_state().sum().item())
            losses = [t.sum() for t in _floats(result)] if program.grad else []
            if losses:
                torch.stack([loss.double() for loss in losses]).sum().backward()
            modes = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"))
            said = [
                (w.category.__name__, str(w.message)) for w in caught if not w.category.__module__.startswith("magpy")
            ]
            seen = {
                "results": results,
                "arguments": arguments,
                "module": target if isinstance(target, torch.nn.Module) else None,
                "observed": program.observe() if program.observe else None,
                "modes": modes,
                "random": after,
                "printed": out.getvalue(),
                "warned": said,
            }
            portraits.append(portrait(seen, _compilers_own))
    return portraits, function


def _raised(lines: list[Line], number: int) -> str:
    """The exception of a call, in words, if it raised one."""
    start = f"['results'][{number - 1}]"
    found = [what for path, what in lines if path in (f"{start}(1)", f"{start}(2)")]
    first = [what for path, what in lines if path == f"{start}(0)"]
    return " ".join(map(str, found)) if first == ["str 'raised'"] else ""


def _twin(call: Any) -> Any:
    import copy

    return copy.deepcopy(call)


def compare(make: Callable[[], Program], compile_: Compiler) -> tuple[str | None, Callable[..., Any]]:
    """The first difference between the eager and the compiled world, and the compiled object."""
    expected, _ = run_world(make(), None)
    got, compiled = run_world(make(), compile_)
    for number, (one, two) in enumerate(zip(expected, got, strict=True), start=1):
        found = first_difference(one, two, TOLERANCE)
        if found and (raised := _raised(two, number)):
            found += f"; raised {raised}"
        if found:
            return f"call {number}: {found}", compiled
    return None, compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]()
    difference, compiled = compare(PROGRAMS[name], lambda target: magpy.compile(target, backend=BACKEND))
    info = magpy.info(compiled)
    reasons = [str(getattr(reason, "slug", reason)) for reason in info.reasons]
    assert difference is None, f"{difference} (monitored {info.monitored}, hits {info.hits}, native {info.native})"
    later = len(program.calls)
    served = f"monitored {info.monitored}, hits {info.hits}, native {info.native}, reasons {list(info.reasons)}"
    if program.served == "record":
        assert info.monitored + info.hits == 1 + later and info.native == 0, served
        assert info.hits >= later - program.misses, served
        assert not reasons, served
    elif program.served == "split":
        assert info.native == 0 and info.hits >= later - program.misses, served
        assert program.reason in [boundary.reason for boundary in info.boundaries], info.boundaries
    elif program.served == "native":
        assert info.hits == 0 and info.records == 0, served
        assert reasons and (program.reason is None or program.reason in reasons), served


def test_a_difference_is_found() -> None:
    """The comparison sees what a wrong compiler would do: another value, a lost effect, a copy in place of an alias."""

    def times_two(target: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: target(*args, **kwargs) * 1.5

    def copies(target: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: _twin(target(*args, **kwargs))

    def forgets(target: Any) -> Callable[..., Any]:
        done: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            done[:] = done or [target(*args, **kwargs)]
            return done[0]

        return call

    assert compare(PROGRAMS["statements.lambdas_and_nested_defs"], times_two)[0]
    assert compare(PROGRAMS["containers.inputs_come_back"], copies)[0]
    assert compare(PROGRAMS["containers.list_of_the_caller"], forgets)[0]
    assert compare(PROGRAMS["modules.buffers_updated"], forgets)[0]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
