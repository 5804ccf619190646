"""Exceptions that leave a record: eager's type, arguments, attributes and links, with a fresh object at each call."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served, reasons

import magpy


class Own(ValueError):
    """An exception with state of its own."""

    def __init__(self, value: Any, extra: Any = None) -> None:
        super().__init__(f"got {value}")
        self.value = value
        self.extra = extra


class Slotted(Exception):
    __slots__ = ("place",)


def formatted(x: Any, n: Any) -> Any:
    y = x * 2
    if n > 3:
        raise ValueError(f"{n} of shape {tuple(y.shape)}")
    return y


def own(x: Any, n: Any) -> Any:
    raise Own(n, [n, {"x": n}])


def slotted(x: Any, n: Any) -> Any:
    error = Slotted(1, 2)
    error.place = n
    raise error


_namespace: dict[str, Any] = {"__name__": __name__}
exec("def asserted(x, n):\n    assert n < 3, f'too large: {n}'\n    return x\n", _namespace)  # not rewritten by pytest
asserted = _namespace["asserted"]


def key(x: Any, n: Any) -> Any:
    return {"a": x}[n]


def index(x: Any, n: Any) -> Any:
    return [x, x][n]


def division(x: Any, n: Any) -> Any:
    return x * (n // 0)


def attribute(x: Any, n: Any) -> Any:
    return n.nothing_there


def type_error(x: Any, n: Any) -> Any:
    return n + "a"


def caused(x: Any, n: Any) -> Any:
    try:
        return {}[n]
    except KeyError as error:
        raise ValueError("no") from error


def in_context(x: Any, n: Any) -> Any:
    try:
        return {}[n]
    except KeyError:
        raise ValueError("no")  # noqa: B904 - the context is what is tested


def from_none(x: Any, n: Any) -> Any:
    try:
        return {}[n]
    except KeyError:
        raise ValueError("no") from None


def noted(x: Any, n: Any) -> Any:
    error = ValueError(n)
    error.add_note("one")
    error.add_note("two")
    raise error


def deep(x: Any, n: Any) -> Any:
    def inner(value: Any) -> Any:
        raise Own(value)

    return inner(n)


def again(x: Any, n: Any) -> Any:
    try:
        raise Own(n)
    except Own as error:
        error.extra = "seen"
        raise


def with_tensor(x: Any, n: Any) -> Any:
    raise Own(1, x + 1)


def stop(x: Any, n: Any) -> Any:
    return next(iter(()))


def stop_with_value(x: Any, n: Any) -> Any:
    raise StopIteration(n)


def unbound(x: Any, n: Any) -> Any:
    if n is None:
        value = 1
    return value


def missing_name(x: Any, n: Any) -> Any:
    return not_defined_anywhere  # noqa: F821


def unpacked(x: Any, n: Any) -> Any:
    one, _two = (n,)
    return one


def in_finally(x: Any, n: Any) -> Any:
    try:
        raise Own(n)
    finally:
        n = None


def in_with(x: Any, n: Any) -> Any:
    with torch.no_grad():
        raise Own(n)


RAISING: list[Callable[[Any, Any], Any]] = [
    formatted, own, slotted, asserted, key, index, division, attribute, type_error, caused, in_context, from_none, noted,
    deep, again, with_tensor, stop, stop_with_value, unbound, missing_name, unpacked, in_finally, in_with,
]  # fmt: skip


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def look(error: BaseException | None, depth: int = 0) -> Any:
    """All that can be seen of an exception, and of what it is linked to; of its traceback the program's frames."""
    if error is None or depth > 5:
        return None
    entry, frames = error.__traceback__, []
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_filename.endswith("test_exceptions.py") and code.co_name not in ("catch", "all_calls"):
            frames.append((code.co_qualname, entry.tb_lineno, entry.tb_frame.f_globals["__name__"]))
        entry = entry.tb_next
    state = {name: plain(value) for name, value in vars(error).items()}
    members = [plain(getattr(error, name, None)) for name in ("place", "name", "value", "obj")]
    links = look(error.__cause__, depth + 1), look(error.__context__, depth + 1), error.__suppress_context__
    return type(error), error.args, state, members, frames, links


def catch(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("function", RAISING, ids=lambda function: function.__name__)
@pytest.mark.parametrize("handling", [False, True])
def test_raised_out_of_a_record(function: Callable[..., Any], handling: bool) -> None:
    n = 7
    compiled = Served(magpy.compile(function, backend="eager"))
    x = torch.ones(2)

    def all_calls() -> None:
        before = sys.exc_info()
        errors = [catch(compiled, how, x, n) for how in ("monitored", "hits", "hits")]
        assert sys.exc_info() == before
        for error in errors:
            assert look(error) == look(catch(function, x, n))
        assert errors[1] is not errors[2]

    if handling:
        try:
            raise RuntimeError("the caller's")
        except RuntimeError:
            all_calls()
    else:
        all_calls()
    assert torch.is_grad_enabled()
    assert not reasons(compiled.compiled)


def test_context_is_the_callers_of_that_call() -> None:
    compiled = Served(magpy.compile(own, backend="eager"))
    x = torch.ones(2)
    assert catch(compiled.monitored, x, 1).__context__ is None
    try:
        raise RuntimeError("one")
    except RuntimeError as outer:
        assert catch(compiled.hit, x, 1).__context__ is outer
    compiled = Served(magpy.compile(in_context, backend="eager"))
    try:
        raise RuntimeError("one")
    except RuntimeError as outer:
        context = catch(compiled.monitored, x, 1).__context__
        assert context is not None and context.__context__ is outer
    context = catch(compiled.hit, x, 1).__context__
    assert context is not None and context.__context__ is None


def test_effects_before_it() -> None:
    """What happened before is done at each call; the exception can be one of the things that are kept."""

    def f(x: Any, log: list[Any]) -> Any:
        log.append(x + 1)
        error = Own(len(log))
        log.append(error)
        raise error

    compiled = Served(magpy.compile(f, backend="eager"))
    for how in ("monitored", "hits", "hits"):
        log: list[Any] = []
        error = catch(compiled, how, torch.ones(1), log)
        assert [type(each) for each in log] == [torch.Tensor, Own]
        assert log[1] is error


def test_another_value_is_another_exception() -> None:
    compiled = Served(magpy.compile(formatted, backend="eager"))
    x = torch.ones(2)
    assert str(catch(compiled.monitored, x, 5)) == "5 of shape (2,)"
    assert compiled.monitored(x, 1).tolist() == [2.0, 2.0]
    assert str(catch(compiled.hit, x, 5)) == "5 of shape (2,)"
    assert compiled.hit(x, 1).tolist() == [2.0, 2.0]
    assert "shape (3,)" in str(catch(compiled, "monitored", torch.ones(3), 5))


def test_the_traceback_shows_the_programs_lines() -> None:
    compiled = Served(magpy.compile(deep, backend="eager"))
    for how in ("monitored", "hits"):
        error = catch(compiled, how, torch.ones(2), 1)
        text = "".join(traceback.format_exception(error))
        assert "raise Own(value)" in text and "return inner(n)" in text
        assert "magpy" not in text.partition("in deep")[2]


def sums(x: Any, n: Any) -> Any:
    return x * 2 + torch.ones(n)


def sums_finally(x: Any, n: Any) -> Any:
    log: list[int] = []
    try:
        return x + torch.ones(n)
    finally:
        log.append(n)


def sums_again(x: Any, n: Any) -> Any:
    try:
        return x + torch.ones(n)
    except RuntimeError:
        raise


def sums_in_with(x: Any, n: Any) -> Any:
    with torch.no_grad():
        return [x + torch.ones(k) for k in (1, n)]


def sums_below(x: Any, n: Any) -> Any:
    def inner(value: Any) -> Any:
        return deeper(value + 1)

    def deeper(value: Any) -> Any:
        return value @ torch.ones(n)

    return inner(x * 2)


def sums_in_context(x: Any, n: Any) -> Any:
    try:
        return x + torch.ones(n)
    except RuntimeError:
        raise Own(n)  # noqa: B904


def unknown_axis(x: Any, n: Any) -> Any:
    return x.exp().sum(dim=n)


@magpy.disable
def refuses(x: Any, n: Any) -> Any:
    def inner() -> None:
        raise Own(n, x)

    inner()


def below_disabled(x: Any, n: Any) -> Any:
    return refuses(x * 2, n)


RAISING_BEHIND = [
    sums, sums_finally, sums_again, sums_in_with, sums_below, sums_in_context, unknown_axis, below_disabled,
]  # fmt: skip


@pytest.mark.skipif("MAGPY_VERIFY" in os.environ, reason="a verified call leaves cycles")
@pytest.mark.parametrize("function", [with_tensor, below_disabled], ids=lambda function: function.__name__)
def test_exceptions_hold_nothing(function: Callable[..., Any]) -> None:
    """The exception of a record is freed at once, and with it the tensors that it holds."""
    import gc
    import weakref

    compiled = magpy.compile(function, backend="eager")
    gc.disable()
    try:
        for _ in range(6):
            error: Any = catch(compiled, torch.ones(2), 1)
            alive = weakref.ref(error.extra)
            del error
            assert alive() is None
    finally:
        gc.enable()
    assert magpy.info(compiled).hits >= 3


@pytest.mark.parametrize("function", RAISING_BEHIND, ids=lambda function: function.__name__)
@pytest.mark.parametrize("handling", [False, True])
def test_what_an_operation_raises_leaves_the_call(function: Callable[..., Any], handling: bool) -> None:
    """The operation is a boundary and raises at each call, with a message of its own; what is behind it is a record."""
    compiled = magpy.compile(function, backend="eager")

    def all_calls() -> None:
        errors = []
        for x in [torch.ones(2)] * 6:
            error = catch(compiled, x, 7)
            assert look(error) == look(catch(function, x, 7))
            errors.append(error)
        assert len({id(error) for error in errors}) == 6
        assert magpy.info(compiled).hits >= 3
        assert magpy.info(compiled).native == 0

    if handling:
        try:
            raise RuntimeError("the caller's")
        except RuntimeError:
            all_calls()
    else:
        all_calls()


def test_links_that_the_program_changes_are_no_record() -> None:
    """The exception of an operation is raised as it came; a program that links it to others runs natively."""

    def linked(x: Any, n: Any) -> Any:
        try:
            return x + torch.ones(n)
        except RuntimeError as error:
            raise error from KeyError(n)

    compiled = magpy.compile(linked, backend="eager")
    for _ in range(6):
        assert look(catch(compiled, torch.ones(2), 7)) == look(catch(linked, torch.ones(2), 7))


def test_fullgraph() -> None:
    compiled = Served(magpy.compile(own, backend="eager", fullgraph=True))
    for how in ("monitored", "hits"):
        assert type(catch(compiled, how, torch.ones(2), 1)) is Own


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_graph_that_raises_at_a_hit_has_left_no_effects(backend: str) -> None:
    """The program runs natively then, and handles what it raises itself."""
    log: list[str] = []

    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            log.append("try")
            return x // y
        except RuntimeError:
            log.append("except")
            return x * 0 - 1
        finally:
            log.append("finally")

    fast = magpy.compile(divide, backend=backend)
    seven = torch.tensor(7)
    assert fast(seven, torch.tensor(2)).item() == 3
    assert fast(seven, torch.tensor(2)).item() == 3
    assert log == ["try", "finally"] * 2
    log.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fast(seven, torch.tensor(0)).item() == -1
    assert log == ["try", "except", "finally"]
