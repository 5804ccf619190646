"""Exceptions that leave a record: raised anew at each call, from frames that look like the program's.

The frames are those of stubs: one tiny function for each frame of the program, with its file, name, line and globals. They
hold none of the program's variables.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

_NO_COLUMNS = 13  # an entry of `co_linetable` that says nothing of columns
_ENTRY = 0x80


@dataclass(frozen=True, slots=True)
class Frame:
    """Where one frame of the program stood.

    Attributes:
        code: its code object.
        namespace: its globals.
        line: the line that was executed.
    """

    code: types.CodeType
    namespace: dict[str, Any]
    line: int


@dataclass(slots=True)
class Raised:
    """An exception that left the call.

    Attributes:
        error: the exception itself.
        outer: the exception that the caller was handling, if any: the last context of whatever the call raises.
        frames: by the identity of an exception that was raised during the call, the frames in its traceback, outermost
            first.
        given: the exception that a boundary operation has raised, from which the segment went on.
    """

    error: BaseException
    outer: BaseException | None
    frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    given: BaseException | None = None


def raised(
    error: BaseException,
    outer: BaseException | None,
    is_hidden: Callable[[str], bool],
    given: tuple[BaseException, types.TracebackType | None] | None = None,
) -> Raised:
    """An exception and those that it is linked to, as they are needed to raise it again.

    Args:
        error: what the call raised.
        outer: what the caller was handling.
        is_hidden: whether a file's frames are left out.
        given: the exception that a boundary operation has raised, and its traceback as it came with.
    """
    thrown, before = given or (None, None)
    found = Raised(error, outer, given=thrown)
    queue: list[BaseException | None] = [error]
    for each in queue:
        if each is None or each is outer or id(each) in found.frames:
            continue
        found.frames[id(each)] = tuple(_frames(each, is_hidden, before if each is thrown else None))
        queue += [links(each)[1], links(each)[2]]
    return found


def _frames(error: BaseException, is_hidden: Callable[[str], bool], end: types.TracebackType | None) -> Iterable[Frame]:
    entry = links(error)[0]
    while entry is not None and entry is not end:
        frame = entry.tb_frame
        if not is_hidden(frame.f_code.co_filename):
            yield Frame(frame.f_code, frame.f_globals, entry.tb_lineno)
        entry = entry.tb_next


def links(error: BaseException) -> tuple[Any, Any, Any, bool]:
    """Traceback, cause, context, and whether the context is not shown; without running code of the exception's class."""
    get = [vars(BaseException)[name].__get__ for name in ("__traceback__", "__cause__", "__context__")]
    suppressed = bool(vars(BaseException)["__suppress_context__"].__get__(error))
    return get[0](error), get[1](error), get[2](error), suppressed


def _outer(box: list[BaseException], call: Any) -> None:
    call.pop()(box, call)


def _inner(box: list[BaseException], call: Any) -> None:
    raise box.pop()


def stubs(frames: tuple[Frame, ...]) -> Callable[[BaseException], None]:
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

    throw.frames = frames  # type: ignore[attr-defined]
    return throw


def _stub(frame: Frame, model: Callable[..., None]) -> types.FunctionType:
    code: types.CodeType = model.__code__
    units = len(code.co_code) // 2
    table = bytearray()
    while units > 0:
        count = min(units, 8)
        table += bytes((_ENTRY | _NO_COLUMNS << 3 | (count - 1), 0))
        units -= count
    code = code.replace(
        co_filename=frame.code.co_filename,
        co_name=frame.code.co_name,
        co_qualname=frame.code.co_qualname,
        co_firstlineno=frame.line,
        co_linetable=bytes(table),
    )
    return types.FunctionType(code, frame.namespace)


def handled() -> BaseException | None:
    """The exception that the caller is handling."""
    return sys.exc_info()[1]
