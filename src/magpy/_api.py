"""The public entry points: `compile`, `info`, `explain`, `reset`, `disable`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, TypeVar, overload

import torch

from magpy_runtime import resolve
from magpy_runtime.capture import unhooked
from magpy_runtime.twins import state_of, twin_of

from ._compiled import Compile, Compiled, Config
from ._disk import cache_folder
from ._env import VERIFY
from ._objects import CompiledObject, has_state
from ._refusals import NotCompiled, strip

T = TypeVar("T", bound=Callable[..., Any])


@overload
def compile(  # noqa: A001
    target: T,
    *,
    backend: str | Callable[..., Any] = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
    record_limit: int = 8,
    freeze: bool = False,
    compile_async: bool = False,
    verify: int | None = None,
) -> T: ...


@overload
def compile(  # noqa: A001
    target: None = None,
    *,
    backend: str | Callable[..., Any] = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
    record_limit: int = 8,
    freeze: bool = False,
    compile_async: bool = False,
    verify: int | None = None,
) -> Callable[[T], T]: ...


def compile(  # noqa: A001 - the name that users know from torch
    target: Any = None,
    *,
    backend: str | Callable[..., Any] = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: dict[str, Any] | None = None,
    record_limit: int = 8,
    freeze: bool = False,
    compile_async: bool = False,
    verify: int | None = None,
) -> Any:
    """Compile a function or a module by watching it run.

    The first call runs natively under observation; later calls for which its record's guard passes run the compiled
    operator graph and no Python of the user. Whatever cannot be compiled runs natively, with a reason (`magpy.info`).

    Args:
        target: a function, a bound method, any callable, or a `torch.nn.Module`. Without it, a decorator is returned.
        backend: `"inductor"`, `"eager"`, a name in torch's backend registry, or a callable
            `(GraphModule, example_inputs) -> callable`.
        fullgraph: raise `FullGraphError` where the program is not one operator graph, instead of running natively.
        dynamic: whether numbers and sizes that vary become inputs; None decides after a miss, False never.
        options: passed to the backend. `"cache"` is MagPy's own: a folder, or True for the user's, in which records are kept
            for other processes; the environment variable MAGPY_CACHE_DIR says so for all. `"merge_branches": True` is, too:
            a branch on a tensor becomes part of one graph where both ways are pure tensor code.
        record_limit: how many records one callable may have.
        freeze: let Inductor take parameters and buffers for constants where no gradients are wanted. An update that torch
            counts (`load_state_dict`, an optimizer's step, `.to()`) leads to a new record at the next call; what is
            written through `.data`, a numpy array or from another process is not seen.
        compile_async: return the first result before the backend has compiled. A thread compiles while calls run
            natively, and later calls are served by the record (`magpy.wait` waits for it).
        verify: the first so many hits of each record also run natively, and must not differ (`VerificationWarning`); the
            user gets the native result. None: as the environment variable MAGPY_VERIFY says, else 0.

    Returns:
        A function for a function; for a module a module of the same class that shares everything with the original; for a
        bound method or any other object something to call in its place. Copies of the latter two are compiled likewise, and
        serve copies of the module or the object.

    Raises:
        TypeError: `target` cannot be called, or an option has the wrong type.
        ValueError: the backend is unknown (the message lists the known ones) or cannot freeze, or `record_limit` is less
            than 1.
    """
    for name, value, kinds in (
        ("fullgraph", fullgraph, (bool,)),
        ("dynamic", dynamic, (bool, NoneType)),
        ("options", options, (dict, NoneType)),
        ("record_limit", record_limit, (int,)),
        ("freeze", freeze, (bool,)),
        ("compile_async", compile_async, (bool,)),
        ("verify", verify, (int, NoneType)),
    ):
        if not isinstance(value, kinds) or (int in kinds and isinstance(value, bool)):
            expected = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
            raise TypeError(f"{name} must be {expected}, not {type(value).__qualname__} ({value!r})")
    if verify is None:
        verify = int(VERIFY) if VERIFY.isdecimal() else 0
    if record_limit < 1:
        raise ValueError(f"record_limit must be at least 1, not {record_limit}")
    options, cache = cache_folder(options)
    options, merge = _merging(options)
    config = Config(
        backend=resolve(backend, options, freeze=freeze),
        backend_name=backend,
        fullgraph=fullgraph,
        dynamic=dynamic,
        options=options,
        record_limit=record_limit,
        freeze=freeze,
        compile_async=compile_async,
        verify=verify,
        cache=cache if isinstance(backend, str) else None,
        merge=merge,
    )
    if target is None:
        return functools.partial(_compile, config=config)
    return _compile(target, config=config)


def _merging(options: dict[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """The backend's options, and whether branches are to be merged.

    Raises:
        TypeError: the option is no bool.
    """
    if not options or "merge_branches" not in options:
        return options, False
    options = dict(options)
    found = options.pop("merge_branches")
    if not isinstance(found, bool):
        raise TypeError(f"the option merge_branches must be a bool, not {type(found).__qualname__} ({found!r})")
    return options or None, found


def _compile(target: Any, *, config: Config) -> Any:
    if isinstance(target, torch.nn.Module):
        return twin_of(target, Compile(config))
    if isinstance(target, (staticmethod, classmethod)):  # the decorator stands above theirs
        return type(target)(_compile(target.__func__, config=config))
    if isinstance(target, type):
        raise TypeError("magpy.compile takes an instance, not a class; compile the module that the class makes")
    if not callable(target):
        raise TypeError(f"magpy.compile takes a callable, not {type(target).__qualname__}")
    if isinstance(target, (types.FunctionType, CompiledObject)):
        known = target.__dict__.get("__magpy__")
        if isinstance(known, Compiled):
            target = known.target
    return CompiledObject(target, config) if has_state(target) else make_wrapper(target, config)


def make_wrapper(target: Callable[..., Any], config: Config) -> Any:
    """A function that serves calls of `target`."""
    state = Compiled(target, config)
    dispatch = state.dispatch

    @_look_like(target)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        try:
            return dispatch(args, kwargs)
        except BaseException as error:
            strip(error)
            del args, kwargs
            raise

    compiled.__magpy__ = state
    return compiled


def _look_like(target: Any) -> Callable[[Any], Any]:
    """Name, documentation, signature and `__wrapped__` of a callable; of a function its attributes, too."""
    copied = ("__dict__",) if isinstance(target, (types.FunctionType, types.MethodType)) else ()
    return functools.wraps(target, updated=copied)


@dataclass(frozen=True, slots=True)
class BoundaryInfo:
    """An operation at which a record is split: it runs eagerly, between two segments.

    Attributes:
        operation: what it is, in words.
        reason: why the record is split there, see `magpy.REASONS`.
        file: the user's file, "" if unknown.
        line: the line in it, 0 if unknown.
        taken: how often it ran.
        outcomes: how often the program went on where: at a line, for a condition with its value, or "raised".
        unmerged: why its two ways are no single graph, where `merge_branches` asked for one.
        seconds: how long the operation took altogether, in the program that the command `magpy` runs; otherwise None.
    """

    operation: str
    reason: str
    file: str
    line: int
    taken: int
    outcomes: dict[str, int]
    unmerged: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NestedInfo:
    """How calls of a function inside of what runs natively were served.

    Attributes:
        name: the function's qualified name.
        file: where it is defined.
        line: where in the file.
        info: how its calls were served; `native` counts those that ran as they are.
    """

    name: str
    file: str
    line: int
    info: Info


@dataclass(frozen=True, slots=True)
class Info:
    """How the calls of a compiled callable were served.

    Attributes:
        monitored: calls that ran natively under observation.
        hits: calls served from a record.
        native: calls that ran natively, unobserved.
        records: number of records.
        graphs: number of operator graphs in them.
        ops: number of operators in these graphs.
        boundaries: operations at which a record is split.
        reasons: why something was not compiled.
        timings: seconds, added up: `run` (monitored runs), `generate` (guard, mock, graph and backend),
            of which `codegen` and `backend`.
        lifted: numbers and sizes that are inputs of records, with why, each once.
        nested: functions that are called inside of what runs natively, and are compiled by themselves. Nothing of theirs
            is counted above.
    """

    monitored: int
    hits: int
    native: int
    records: int
    graphs: int
    ops: int
    boundaries: tuple[BoundaryInfo, ...]
    reasons: tuple[NotCompiled, ...]
    timings: dict[str, float]
    lifted: tuple[str, ...] = ()
    nested: tuple[NestedInfo, ...] = ()


def states(compiled: Any) -> list[Compiled]:
    """The compiled callables behind what `compile` returned.

    Raises:
        TypeError: it was not made by `magpy.compile`.
    """
    twin = state_of(compiled)
    if twin is not None and isinstance(twin.call, Compiled):
        return twin.entries()
    function = compiled.__func__ if isinstance(compiled, (types.MethodType, staticmethod, classmethod)) else compiled
    is_compiled = isinstance(function, (types.FunctionType, CompiledObject))
    found = function.__dict__.get("__magpy__") if is_compiled else None
    if isinstance(found, Compiled):
        return [found]
    raise TypeError(f"a {type(compiled).__qualname__} that magpy.compile did not make")


def info(compiled: Any) -> Info:
    """How the calls of a compiled callable were served, and why some were not compiled."""
    return _sum_up(states(compiled))


def _sum_up(found: list[Compiled]) -> Info:
    records = [record for state in found for record in state.records()]
    timings: dict[str, float] = {}
    for state in found:
        for name, seconds in [*state.statistics.timings.items()]:
            timings[name] = timings.get(name, 0.0) + seconds
    return Info(
        monitored=sum(state.statistics.monitored for state in found),
        hits=sum(state.statistics.hits for state in found),
        native=sum(state.statistics.native for state in found),
        records=len(records),
        graphs=sum(record.graph is not None for record in records),
        ops=sum(record.operators for record in records),
        boundaries=tuple(boundary for state in found for boundary in _boundaries(state)),
        reasons=tuple(replace(reason) for state in found for reason in [*state.statistics.reasons.values()]),
        timings=timings,
        lifted=tuple(dict.fromkeys(text for record in records for text in record.lifted)),
        nested=tuple(
            NestedInfo(inner.target.__qualname__, *_place(inner.target.__code__), _sum_up([inner]))
            for state in found
            if state.nested is not None
            for inner in state.nested.compiled()
        ),
    )


def _place(code: types.CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def _boundaries(state: Compiled) -> list[BoundaryInfo]:
    """The boundaries of a compiled callable: each operation once, however many records end there."""
    found: dict[tuple[str, str, int], BoundaryInfo] = {}
    for record in state.records():
        site = record.boundary
        if site is None:
            continue
        key = (site.text, site.file, site.line)
        known = found.get(key)
        outcomes = {} if known is None else known.outcomes
        for start, way in site.ways.items():
            where = site.where(start)
            outcomes[where] = outcomes.get(where, 0) + way.count
        taken = site.taken + (0 if known is None else known.taken)
        unmerged = site.unmerged or ("" if known is None else known.unmerged)
        times = [each for each in (site.seconds, None if known is None else known.seconds) if each is not None]
        seconds = sum(times) if times else None
        found[key] = BoundaryInfo(site.text, site.slug, site.file, site.line, taken, outcomes, unmerged, seconds)
    return [*found.values()]


def reset(compiled: Any) -> None:
    """Drop all records of a compiled callable and start anew."""
    for state in states(compiled):
        state.reset()


def wait(compiled: Any, timeout_s: float | None = None) -> bool:
    """Wait until the graphs of a callable compiled with `compile_async=True` are compiled, or have failed.

    Args:
        compiled: what `compile` returned.
        timeout_s: seconds to wait at most for each of its records; None for no limit.

    Returns:
        Whether all are.
    """
    done = [state.pending.wait(timeout_s) for state in states(compiled)]
    return all(done)


@overload
def disable(function: T) -> T: ...


@overload
def disable(function: None = None) -> Callable[[T], T]: ...


def disable(function: Any = None) -> Any:
    """Keep a function or a module out of compiled regions: a call of it ends the region, and it runs natively.

    Args:
        function: any callable. Without it, a decorator is returned.

    Returns:
        A function for a function, which itself is left as it was; a module is marked and returned.

    Raises:
        TypeError: `function` cannot be called.
    """
    if function is None:
        return disable
    if isinstance(function, torch.nn.Module):
        vars(function)["__magpy_disable__"] = True
        return function
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(disable(function.__func__))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"magpy.disable takes a function or a module, not {type(function).__qualname__}")
    known = getattr(function, "__dict__", {}).get("__magpy__")
    target = known.target if isinstance(known, Compiled) else function

    @_look_like(target)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        try:
            return unhooked(target, args, kwargs)
        except BaseException as error:
            strip(error)
            del args, kwargs
            raise

    disabled.__magpy_disable__ = True
    return disabled
