"""The monitor: one native run, observed.

It composes the rules with the native recorder: which frames are monitored, what explains them, and what is left when the
run is over.
"""

from __future__ import annotations

import gc
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from magpy_annotations import Registry
from magpy_refgraph import EdgeKind, Key
from magpy_runtime.capture import Plan, Recorder, call_below, resume
from magpy_runtime.segments import Point, following

from . import _torch
from ._failures import internal_error, locate
from ._mode import ENTERED
from ._nested import Root
from ._observe import tell
from ._opcodes import Planner
from ._reasons import Boundary
from ._splitting import SplitRules
from ._state import is_library, is_own

_BOOKKEEPING: Final = frozenset(
    {
        "WeakIdKeyDictionary.__init__.<locals>.remove", "WeakKeyDictionary.__init__.<locals>.remove",
        "WeakValueDictionary.__init__.<locals>.remove", "WeakSet.__init__.<locals>._remove", "WeakIdRef.__eq__",
        "WeakIdRef.__hash__", "ExactWeakKeyDictionary.__setitem__.<locals>.<lambda>", "ExactWeakKeyDictionary._remove_id",
    }
)  # fmt: skip
"""What takes dead objects out of weak containers: it runs when an object dies, at a hit as natively."""


@dataclass(slots=True)
class Run:
    """The outcome of a monitored run.

    Attributes:
        result: what the program returned.
        error: what it raised, or None.
        failure: why there can be no record, or None.
        seconds: how long it took.
        observed: whether it was watched at all.
        outer: the exception that was handled when it started.
    """

    result: Any
    error: BaseException | None
    failure: Boundary | None
    seconds: float
    observed: bool = True
    outer: BaseException | None = None


class Monitor(SplitRules):
    """Watches one call of a program and keeps what it saw in a RefGraph and an operator graph.

    Attributes:
        holders: the monitors, by identity, for whose sake no garbage is collected; on all threads.
        collected: whether garbage was collected when the first of them asked for that.
    """

    holders: ClassVar[set[int]] = set()
    collected: ClassVar[bool] = False

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.registry = registry
        self.planner = Planner(self)
        self.recorder = Recorder(self.plan_for, self.on_enter, self.on_exit, self.on_stop, self.on_failure)
        self.collectors = {getattr(each, "__code__", None) for each in gc.callbacks}

    def run(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        point: Point | None = None,
        box: list[tuple[Any, ...]] | None = None,
    ) -> Run:
        """Call `function(*args, **kwargs)` natively and watch it; or let a program go on at a resume point.

        The result, or what it raises, is exactly the native one. Failures of the monitor end up in `Run.failure`.

        Args:
            function: what is called; with `point`, what gives the result where nothing can be watched.
            args: its arguments.
            kwargs: its keyword arguments.
            point: where the program goes on.
            box: holds the slots, and what is pushed or raised; they are taken out.
        """
        started = time.perf_counter()
        outer = sys.exc_info()[1]
        failure: Boundary | None = None
        try:
            if point is None:
                self._inputs(function, args, kwargs)
            else:
                assert box is not None
                self._slots(point, box[0])
                function = self._going_on(point, box)
        except Boundary as boundary:
            failure = boundary
        except Exception as internal:
            failure = internal_error(internal)
        if failure is not None:
            return self._natively(function, args, kwargs, failure, started)
        begun: list[bool] = []
        results: list[Any] = []

        def program(*args: Any, **kwargs: Any) -> None:
            begun.append(True)
            if type(function) is Root:
                results.append(call_below((), args[0], args[1:], kwargs))
            else:
                results.append(call_below((), function, args, kwargs))

        error: BaseException | None = None
        self.collects_not()
        try:
            self.switch_on()
            self.recorder.run(program, args, kwargs)
        except BaseException as raised:
            error = raised
        finally:
            self.collects_again()
        try:
            self.switch_off()
            _torch.remove_mode(self.mode)  # it comes back if the capture was stopped while torch called its handler
        except Exception as internal:
            failure = internal_error(internal)
        if error is not None and (results or not begun):  # not the program's
            failure = internal_error(error)
            error = None
            if not begun:
                return self._natively(function, args, kwargs, failure, started)
        result = results.pop() if results else None
        seconds = time.perf_counter() - started
        if failure is not None:
            return Run(result, error, failure, seconds)
        found = self.recorder.error
        if isinstance(found, Boundary):
            failure = found
        elif found is not None:
            failure = internal_error(found)
        elif error is not None and not self.is_explained(error):
            failure = Boundary("exception", type(error).__name__)
        return Run(result, error, failure, seconds, outer=outer)

    def on_failure(self, error: BaseException) -> bool:
        """A callback has raised: gives whether the capture goes on all the same."""
        return self.on_error(error, self.recorder.phase())

    def give_back(self, run: Run) -> None:
        """Nothing more will be made of a run: whatever stood in for the program's own objects goes. See `LiftingMonitor`."""

    def on_stop(self) -> None:
        """The capture is over: put back what was switched for it.

        A frame that nobody called, a finalizer's, may run while torch is about to report an operator to the function mode,
        which then has to be there: it stays to the end of the run, and reports nothing.

        The rest of the run sees objects live as long as the program holds them: nothing here does any more, not even the
        tracebacks of what the rules have raised.
        """
        self.collects_again()
        found = self.recorder.error
        if isinstance(found, Boundary):
            found.__traceback__ = found.__context__ = None
        self.release()
        if self.recorder.phase() == ENTERED:
            self.failed = True
        else:
            self.switch_off()

    def collects_not(self) -> None:
        """No garbage is collected from here on: finalizers of unrelated garbage would run inside of the region."""
        if not self.holders:
            Monitor.collected = gc.isenabled() or self.recorder.collects
        self.holders.add(id(self))
        gc.disable()
        self.recorder.collects = False

    def collects_again(self) -> None:
        """Garbage is collected again, if it was, and no run of another thread holds it up."""
        if id(self) in self.holders:
            self.holders.discard(id(self))
            if Monitor.collected and not self.holders:
                gc.enable()

    def _natively(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], failure: Boundary, started: float
    ) -> Run:
        try:
            return Run(call_below((), function, args, kwargs), None, failure, time.perf_counter() - started, False)
        except BaseException as raised:
            return Run(None, raised, failure, time.perf_counter() - started, False)

    def _slots(self, point: Point, args: tuple[Any, ...]) -> None:
        """The external state behind a boundary: what the frames hold."""
        if _torch.function_mode_depth() or _torch.dispatch_mode_depth():
            raise Boundary("function-mode", "torch function or dispatch mode")
        self.begin(len(args), ())
        self.slots(point, args)
        self.links = [True] * len(point.frames)

    def _going_on(self, point: Point, box: list[tuple[Any, ...]]) -> Callable[[], Any]:
        """What lets the program go on; its only call empties the box."""
        recorder = self.recorder

        def go_on() -> Any:
            frames, error = point.rebuild(following, box.pop())
            return resume(frames, error, recorder if recorder.active else None)

        return go_on

    def _inputs(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The external state: the callable, which the record holds, and its arguments."""
        if (mode := _torch.mode_on_entry()) is not None:
            raise Boundary("function-mode", mode)
        self.begin(len(args), tuple(kwargs))
        root = self.graph.root
        self.where = lambda: None  # type: ignore[method-assign]
        try:
            nested = type(function) is Root
            if not nested:
                self.pin(function)
            for index, arg in enumerate(args):
                self.follow(root, Key(EdgeKind.ARGUMENT, index), arg)
            for name, arg in kwargs.items():
                self.follow(root, Key(EdgeKind.KEYWORD, name), arg)
            if nested:  # the function may be another one at each call
                self.call(args[0], args[1:], kwargs)
            else:
                self.call(function, args, kwargs)
        finally:
            del self.where

    # -- frames -------------------------------------------------------------------------------------------------------

    def plan_for(self, code: types.CodeType) -> Plan | None:
        """The plan of a code object; MagPy's own frames are never monitored."""
        if (
            code in self.collectors
            or is_own(code.co_filename)
            or (code.co_qualname in _BOOKKEEPING and is_library(code.co_filename))
        ):
            return None
        plan = self.planner.plan(code)
        tell("planned", code, plan)
        if code is _torch.IS_COMPILING_CODE:
            self._pretend_compiling(code, plan)
        return plan

    def _pretend_compiling(self, code: types.CodeType, plan: Plan) -> None:
        """`torch.compiler.is_compiling()` answers True on the recording thread, for one instruction."""
        import dis

        def before(inputs: Any, arg: Any) -> Any:
            was = _torch.COMPILER_GLOBALS[_torch.IS_COMPILING_FLAG]
            _torch.COMPILER_GLOBALS[_torch.IS_COMPILING_FLAG] = True
            return was

        def after(state: Any, outputs: Any, arg: Any) -> None:
            _torch.COMPILER_GLOBALS[_torch.IS_COMPILING_FLAG] = state

        for instruction in dis.get_instructions(code):
            if instruction.opname == "LOAD_GLOBAL" and instruction.argval == _torch.IS_COMPILING_FLAG:
                plan[instruction.offset // 2] = (before, after, 0, 1, None)


__all__ = ["Monitor", "Run", "internal_error", "locate"]
