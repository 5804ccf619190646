"""Small programs that are run twice, eager and compiled, and must not differ.

A program is a generator function `program(compile_)`. It builds everything it needs, so that both runs start from equal
worlds, hands its target to `compile_`, calls what it gets, changes things between the calls, and yields whatever should be
looked at. What it yields is frozen at once: values, types, identities, aliases. `check` compares what the two runs yielded
and gives how the calls were served.
"""

import gc
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import magpy
from magpy._api import states

Program = Callable[[Callable[[Any], Any]], Iterator[Any]]

PROGRAMS: dict[str, tuple[Program, str | None]] = {}
"""All programs by name, each with the fault that makes it come out wrong, or None."""


def keep(program: Program, found: str | None = None) -> Program:
    """Register a program that comes out right, or one that is known to come out wrong."""
    name = program.__name__
    assert name not in PROGRAMS, f"two programs are called {name}"
    PROGRAMS[name] = (program, found)
    return program


def found(fault: str) -> Callable[[Program], Program]:
    """Register a program that comes out wrong because of `fault`; once that is mended it becomes `@keep`."""
    return lambda program: keep(program, fault)


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or what it raised."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return ("raised", type(error).__name__, str(error))


class _Freezer:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.keep: list[Any] = []

    def freeze(self, value: Any) -> Any:
        """A plain picture of a value: objects with an identity are numbered at their first sight."""
        kind = type(value)
        if kind in (int, str, bool, type(None), bytes, complex) or isinstance(value, (torch.dtype, torch.device)):
            return (kind.__name__, value)
        if kind is float or kind is range:
            return (kind.__name__, repr(value))
        if isinstance(value, (types.ModuleType, types.BuiltinFunctionType, types.CodeType)):
            return (kind.__name__, getattr(value, "__name__", ""))
        if isinstance(value, type):
            return ("type", value.__name__)
        number = self.numbers.get(id(value))
        if number is not None:
            return ("again", number)
        number = self.numbers[id(value)] = len(self.numbers)
        self.keep.append(value)
        return (kind.__name__, number, *self.parts(value))

    def parts(self, value: Any) -> Iterator[Any]:
        """What there is inside a value."""
        if isinstance(value, torch.Tensor):
            grad = value.grad if value.is_leaf else None
            plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
            yield (str(value.dtype), tuple(value.shape), value.requires_grad, value.is_leaf, repr(plain.tolist()))
            yield None if grad is None else repr(grad.tolist())
            yield value.stride() if value.layout is torch.strided else None
        elif type(value).__module__ == "numpy":
            yield (str(value.dtype), repr(value.tolist()))
        elif isinstance(value, dict):
            yield [(self.freeze(key), self.freeze(item)) for key, item in value.items()]
        elif isinstance(value, (set, frozenset)):
            yield sorted((self.freeze(item) for item in value), key=repr)
        elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            yield [self.freeze(item) for item in value]
        elif isinstance(value, (int, float, str)):
            yield str(value)
        elif isinstance(value, slice):
            yield [self.freeze(item) for item in (value.start, value.stop, value.step)]
        elif isinstance(value, BaseException):
            yield [self.freeze(item) for item in value.args]
        elif isinstance(value, types.MethodType):
            yield self.freeze(value.__self__)
            yield value.__func__.__name__
        if isinstance(value, types.FunctionType):
            yield value.__name__
            yield self.freeze(value.__defaults__)
            yield [self.freeze(cell.cell_contents) for cell in value.__closure__ or ()]
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            own = None
        if isinstance(own, dict) and own:
            yield [(key, self.freeze(item)) for key, item in own.items()]
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                    yield (slot, self.freeze(getattr(value, slot)))


def freeze(value: Any) -> Any:
    """A picture of a value that later changes do not reach."""
    return _Freezer().freeze(value)


def modes() -> tuple[Any, ...]:
    """What a call must not leave changed."""
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch.is_inference_mode_enabled(),
        torch._C._len_torch_function_stack(),
        sys.gettrace(),
        sys.getprofile(),
        torch.random.get_rng_state().sum().item(),
    )


def run(program: Program, compile_: Callable[[Any], Any]) -> list[Any]:
    """Everything that a program yields, frozen at once, with the modes of that moment."""
    torch.manual_seed(0)
    seen = []
    grad = torch.is_grad_enabled()
    trace = sys.gettrace()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", magpy.NotCompiledWarning)
            for value in program(compile_):
                seen.append((freeze(value), modes()))
    finally:
        torch.set_grad_enabled(grad)
        torch.set_autocast_enabled("cpu", False)
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        sys.settrace(trace)
    return seen


class Served:
    """How the calls of a program's compiled objects were served, added up."""

    def __init__(self, compiled: list[Any]) -> None:
        infos = [magpy.info(each) for each in compiled]
        self.monitored = sum(each.monitored for each in infos)
        self.hits = sum(each.hits for each in infos)
        self.native = sum(each.native for each in infos)
        self.records = sum(each.records for each in infos)
        self.reasons = [f"{reason.slug}: {reason.message}" for each in infos for reason in each.reasons]

    def __repr__(self) -> str:
        return f"monitored {self.monitored}, hits {self.hits}, native {self.native}, reasons {self.reasons}"


class Calls:
    """How each call of a program's compiled objects was served, and how many operators ran.

    Attributes:
        served: for each call "hit", "monitored" or "native".
        operators: for each call the number of operators that it runs natively.
        in_graphs: how many of them ran in compiled graphs. In a call that one record serves that is all of them, also
            those that its graph leaves out since nobody needs them.
        pictures: what the program yielded.
    """

    def __init__(self) -> None:
        self.served: list[str] = []
        self.operators: list[int] = []
        self.in_graphs: list[int] = []
        self.pictures: list[Any] = []

    def eager(self, target: Any) -> Any:
        """A callable that counts its operators."""

        def call(*args: Any) -> Any:
            with _Counting() as counting:
                try:
                    return target(*args)
                finally:
                    self.operators.append(counting.number)

        return call

    def compiled(self, target: Any) -> Any:
        """A compiled callable whose calls are noted."""
        [state] = states(target)

        def call(*args: Any) -> Any:
            before = magpy.info(target)
            hits = {id(record): record.hits for record in state.records()}
            counted = [0]
            for record in state.records():
                if record.run is not None:
                    record.run = _Counted(record.run.run if type(record.run) is _Counted else record.run, counted)
            try:
                return target(*args)
            finally:
                after = magpy.info(target)
                names = [
                    name for name in ("native", "monitored", "hits") if getattr(after, name) > getattr(before, name)
                ]
                self.served.append(names[0] if names else "native")
                number = self.operators[len(self.served) - 1] if len(self.served) <= len(self.operators) else 0
                split = any(
                    record.boundary is not None and record.hits > hits.get(id(record), 0) for record in state.records()
                )
                whole = names == ["hits"] and not split
                self.in_graphs.append(number if whole else min(number, counted[0]))

        return call


class _Counted:
    """A graph that counts its operators as `_Counting` does."""

    def __init__(self, run: Any, counted: list[int]) -> None:
        self.run = run
        self.counted = counted

    def __call__(self, *inputs: Any) -> Any:
        with _Counting() as counting:
            try:
                return self.run(*inputs)
            finally:
                self.counted[0] += counting.number


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


def difference(program: Program, backend: Any = "eager", calls: Calls | None = None) -> tuple[str | None, Served]:
    """The first difference between a program's eager and compiled runs, None if there is none; and how it was served."""
    made: list[Any] = []

    def compile_(target: Any) -> Any:
        made.append(magpy.compile(target, backend=backend))
        return made[-1] if calls is None else calls.compiled(made[-1])

    expected = run(program, (lambda target: target) if calls is None else calls.eager)
    if calls is not None:
        calls.pictures = [picture for picture, _ in expected]
    try:
        got = run(program, compile_)
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised {type(error).__name__}: {error} ({place.filename}:{place.lineno})", Served(made)
    served = Served(made)
    gc.collect(0)
    if len(expected) != len(got):
        return f"{len(expected)} observations eager, {len(got)} compiled", served
    for number, (one, two) in enumerate(zip(expected, got, strict=True), start=1):
        if one != two:
            return f"observation {number}: eager {one}, compiled {two}", served
    return None, served


def check(program: Program, backend: Any = "eager") -> Served:
    """A program's eager and compiled runs must not differ.

    Raises:
        AssertionError: they do; the message says where, and how the calls were served.
    """
    found, served = difference(program, backend)
    assert found is None, f"{found}\n{served}"
    return served
