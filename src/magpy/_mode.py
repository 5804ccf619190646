"""The function mode of a monitored run, and what keeps the rules' failures away from the program."""

from __future__ import annotations

import sys
import types
from typing import Any, Final

from . import _torch
from ._describe import describe
from ._reasons import Boundary
from ._state import is_own
from ._tensor_calls import TensorCallRules

PROGRAM: Final = "program"
"""Name of the function through which the monitor calls the program; operators called from elsewhere in MagPy are its own."""


BEFORE, AFTER, ENTERED, LEFT, WITHIN = range(5)
"""When a boundary turned up: before or after an instruction, when a frame was entered or left, within an operator."""


class _Raised(BaseException):
    """What a torch function raised, told apart from what the rules raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
        self.context = error.__context__


class _Mode(_torch.TorchFunctionMode):
    """Reports each torch function that is called on this thread to the rules."""

    def __init__(self, rules: Any) -> None:
        self.rules = rules

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rules = self.rules
        kwargs = kwargs or {}
        recorder = rules.recorder
        caller = sys._getframe(1).f_code
        if (
            rules.failed
            or rules.muted
            or not recorder.active
            or (is_own(caller.co_filename) and caller.co_name != PROGRAM)
        ):
            return func(*args, **kwargs)
        rules.reported += 1
        recorder.pause()
        mode_on, rules.mode_on = rules.mode_on, False
        try:
            return rules.watch(func, args, kwargs)
        finally:
            rules.mode_on = mode_on
            recorder.unpause()


class WatchedTensorRules(TensorCallRules):
    """Keeps failures of the rules away from the program while torch calls into the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = _Mode(self)
        self.failed = False
        self.muted = False
        self.mark = -1
        self.reported = 0

    def on_error(self, error: BaseException, phase: int) -> bool:
        """A rule has raised: gives whether the run goes on all the same. See `SplitRules`."""
        return False

    def watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one torch function under the rules. What the function itself raises is the program's."""
        done: list[Any] = []

        def once(*a: Any, **k: Any) -> Any:
            try:
                done.append(func(*a, **k))
            except BaseException as error:
                raise _Raised(error) from None
            return done[0]

        if type(func) is types.FunctionType:
            found = _torch.TENSOR_BASE.__dict__.get(func.__name__)
            if found is None:
                return self.python_function(func, args, kwargs)
            # A C method of the tensor's base, reported by the name of the Python method that called it.
            func = found
        error: BaseException | None = None
        context: BaseException | None = None
        before = self.operator_count + self.state_events
        try:
            result = self.operator(func, once, args, kwargs)
            if self.operator_count + self.state_events != before:
                self.mark = self.recorder.counts()["reported"]
            return result
        except _Raised as raised:
            error, context = raised.error, raised.context
            self.failed = True
        except BaseException as internal:
            fresh = not done and self.mark != self.recorder.counts()["reported"]
            if not self.on_error(internal, WITHIN if fresh else AFTER):
                self.failed = True
                self.recorder.fail(
                    internal if isinstance(internal, Exception) else Boundary("internal-error", repr(internal))
                )
        # Not inside of the handlers, where the program would see what is handled as the context of its exceptions.
        if error is None:
            return done[0] if done else func(*args, **kwargs)
        try:
            boundary = self.boundary("exception", f"{type(error).__name__} in {describe(func)}")
            self.on_error(boundary, AFTER)  # the next run splits here
            self.recorder.fail(boundary)
        except Exception as internal:
            self.recorder.fail(internal)
        try:
            raise error
        except BaseException:
            error.__context__ = context
            raise
        finally:
            error = context = None  # the traceback holds this frame
