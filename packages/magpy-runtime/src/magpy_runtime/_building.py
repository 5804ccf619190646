"""What saved mocks call to build iterators and exceptions."""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

_NO_COLUMNS: Final = 13  # an entry of `co_linetable` that says nothing of columns
_ENTRY: Final = 0x80

Frame = tuple[str, str, str, int, dict[str, Any]]
"""File, name, qualified name, line, globals."""


def advanced(iterator: Iterator[Any], steps: int) -> Iterator[Any]:
    """The same iterator, after so many steps; one more than it has elements exhausts it."""
    for _ in itertools.islice(iterator, steps):
        pass
    return iterator


def exhausted(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same iterator, which has nothing left and knows it."""
    for _ in iterator:
        pass
    return iterator


def handled() -> BaseException | None:
    """The exception that the caller is handling."""
    return sys.exc_info()[1]


def _outer(box: list[BaseException], call: Any) -> None:
    call.pop()(box, call)


def _inner(box: list[BaseException], call: Any) -> None:
    raise box.pop()


def thrower(*frames: Frame) -> Callable[[BaseException], None]:
    """A function that raises an exception from stubs of these frames and catches it, so that it has its traceback."""
    last = len(frames) - 1
    made = [_stub(frame, _inner if number == last else _outer) for number, frame in enumerate(frames)]

    def throw(error: BaseException) -> None:
        context = error.__context__
        box, functions = [error], made[:0:-1]
        try:
            made[0](box, functions)
        except BaseException as caught:
            traceback = caught.__traceback__
            assert traceback is not None
            error.__traceback__ = traceback.tb_next
            error.__context__ = context
            del error, context  # the stubs' frames lead back to this one

    return throw


def _stub(frame: Frame, model: Callable[..., None]) -> types.FunctionType:
    code: types.CodeType = model.__code__
    units = len(code.co_code) // 2
    table = bytearray()
    while units > 0:
        count = min(units, 8)
        table += bytes((_ENTRY | _NO_COLUMNS << 3 | (count - 1), 0))
        units -= count
    filename, name, qualname, line, namespace = frame
    code = code.replace(
        co_filename=filename, co_name=name, co_qualname=qualname, co_firstlineno=line, co_linetable=bytes(table)
    )
    return types.FunctionType(code, namespace)


def build(name: str, args: tuple[Any, ...]) -> Any:
    """A function by its name, or one that is made for some frames."""
    if name == "throw":
        return thrower(*args)
    return {"advanced": advanced, "exhausted": exhausted, "handled": handled}[name]


__all__ = ["advanced", "build", "exhausted", "handled", "thrower"]
