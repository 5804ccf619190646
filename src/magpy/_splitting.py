"""Splitting a monitored run at boundaries: the segment so far becomes a record, the operation runs, the next one starts.

Where a run cannot be split, in a generator, inside of C code that calls back, while an exception is handled, the boundary
moves outwards: the call that leads there is remembered as a boundary as a whole, and the next monitored run splits there.
"""

from __future__ import annotations

import _random
import inspect
import operator
import random
import sys
import time
import types
import warnings
from typing import Any, Final

from magpy_annotations import OpKind
from magpy_codegen import Leave, links
from magpy_refgraph import EdgeKind, Key, Node
from magpy_runtime.capture import NULL, type_lookup
from magpy_runtime.segments import (
    BoundarySite,
    FrameShape,
    Point,
    Tree,
    following,
    instruction_at,
    next_element,
    spread,
)

from . import _torch
from ._frames import FrameRules
from ._mode import AFTER, BEFORE, WITHIN, WatchedTensorRules
from ._points import (
    Operation,
    handles_exception,
    is_operation,
    live_variables,
    operation,
    runs,
)
from ._reasons import Boundary
from ._recording import Draft, Entry, make_draft
from ._state import is_atom, is_library

_WHOLE: Final = frozenset(
    {
        "internal-error", "foreign-write", "class-changed", "function-mode", "value-identity", "tensor-subclass",
        "record-limit", "backend-failed", "unexplained-frame", "recursion-limit", "builtins-changed",
    }
)  # fmt: skip
"""Reasons for which a call as a whole runs natively."""

_TOUCHES_FRAMES: Final = frozenset({sys.settrace, sys.setprofile, eval, exec})
"""What changes the frames that call it, or how they run."""

_NAMESPACES: Final = frozenset({locals, vars, dir, super})
"""What needs the calling frame itself when it is called without arguments."""

_FRAMES: Final = frozenset({sys._getframe, inspect.currentframe})
"""What gives a frame. One that was rebuilt does not go on: it may only be asked at once for `_STABLE`."""

_STABLE: Final = frozenset({"f_code", "f_globals", "f_builtins", "f_back", "f_lineno", "f_lasti"})
_SHOWN: Final = getattr(warnings, "_showwarnmsg").__code__  # noqa: B009 - typeshed does not know it

_TENSOR_READS: Final = frozenset(
    {"tensor-value", "dynamic-shape", "array-contents", "update-then-raise", "backend-operator"}
)
"""Reasons of operations that let nobody refer to their arguments."""

_BLIND: Final = frozenset(
    {
        format, operator.truth, *filter(inspect.isbuiltin, vars(time).values()),
        *filter(inspect.ismethoddescriptor, vars(_random.Random).values()),
    }
)  # fmt: skip
"""Operations that let nobody refer to plain arguments and tensors, nor call Python code for these."""

_READS: Final = frozenset({int, float, bool, complex, len, next_element, operator.index})
"""What reads values of tensors and of containers."""

_QUIET: Final = _BLIND | {print}
"""Operations that let nobody refer to such arguments."""

_SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PLAIN_FRAME: Final = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_KEPT: Final = (
    "made_functions",
    "made_classes",
    "mode",
    "mode_on",
    "failed",
    "muted",
    "nested_codes",
    "links",
    "direct",
    "mark",
    "made",
)


class _Outwards(Exception):
    """The run cannot be split here."""


class _Begun(_Outwards):
    """The operation has begun, and may have drawn from an iterator or changed a container."""


class SplitRules(FrameRules, WatchedTensorRules):
    """Rules for boundaries.

    Attributes:
        tree: where the segments go; None where a run is not to be split.
        drafts: the segments that are over, each with the point at which it starts (None: the call itself).
        point: the point at which the current segment starts.
        hint: an instruction that the next run should take for a boundary as a whole.
        made: whether nobody but the program holds what the boundary operation gave.
    """

    def __init__(self) -> None:
        super().__init__()
        self.direct: Any = None
        self.links: list[bool] = []
        self.made = False

    thrown: tuple[Any, tuple[Any, Any, Any, bool]] | None = None
    """What the boundary operation raised, from which the segment goes on, and its links then."""

    def prepare(
        self, tree: Tree | None, point: Point | None, unstable: set[Any], freeze: set[Any] | None = None
    ) -> None:
        """Once, before the run."""
        self.tree = tree
        self.drafts: list[tuple[Point | None, Draft]] = []
        self.point = point
        self.unstable = unstable
        self.freeze = freeze
        self.pruned = point is None or point.pruned
        self.hint: tuple[types.CodeType, int] | None = None
        self.known: Any = None
        self.over = False
        self.older: list[Any] = []
        self.pending: Any = None

    def begin(self, positional: int, keywords: tuple[str, ...]) -> None:
        """A segment starts with so many arguments or slots."""
        self.entry = Entry.now()
        self.positional = positional
        self.keywords = keywords
        self.thrown = None

    def slots(self, point: Point, args: tuple[Any, ...]) -> None:
        """The external state of a segment that starts at a point: what the rebuilt frames hold."""
        root = self.graph.root
        self.where = lambda: None  # type: ignore[method-assign]
        if point.raised:
            self.thrown = (args[-1], links(args[-1]))
        try:
            place = 0
            for index, arg in enumerate(args):
                self.follow(root, Key(EdgeKind.ARGUMENT, index), arg)
            for shape in point.frames:
                function = args[place]
                node = self.find(function)
                if isinstance(node, Node):
                    self.pin(function.__globals__)
                    self.follow(node, Key(EdgeKind.MEMBER, "__globals__"), function.__globals__)
                place += shape.size
        finally:
            del self.where

    def is_explained(self, error: BaseException) -> bool:
        """Also what the boundary operation raised, if it goes through the segment as it is."""
        if self.thrown is not None and error is self.thrown[0]:
            return all(now is then for now, then in zip(links(error)[1:], self.thrown[1][1:], strict=True))
        return super().is_explained(error)

    def release(self) -> None:
        """Let everything go that the run held."""
        self.thrown = None
        super().release()

    def thrown_with(self) -> tuple[BaseException, types.TracebackType | None] | None:
        """What the boundary operation raised, and its traceback as it came with."""
        return None if self.thrown is None else (self.thrown[0], self.thrown[1][0])

    # -- splitting ----------------------------------------------------------------------------------------------------

    def hints(self) -> dict[tuple[types.CodeType, int], tuple[str, str]]:
        """Instructions that are boundaries as a whole, with the reason."""
        return {} if self.tree is None else self.tree.hints

    def on_error(self, error: BaseException, phase: int) -> bool:
        """A rule has raised: gives whether the run goes on, split."""
        if type(error) is not Boundary or self.tree is None or self.over:
            return False
        if error.slug in _WHOLE:
            return False
        try:
            divided = self._divide(error, phase)
            if divided:  # its traceback holds the rules' frames, and these what they were given
                error.__traceback__ = error.__context__ = None
            return divided
        except Exception as internal:  # what fails here must not reach the program
            self.recorder.fail(internal)
            return False

    def _divide(self, error: Boundary, phase: int) -> bool:
        try:
            frames = self.recorder.frames()
            good = self._resumable(frames)
            if good < len(frames) or phase not in (BEFORE, WITHIN):
                self._push_outwards(
                    error, frames, good if phase in (BEFORE, WITHIN, AFTER) else min(good, len(frames) - 1)
                )
                return False
            try:
                self._split(error, frames, phase == WITHIN)
            except _Outwards as problem:
                self._push_outwards(error, frames, len(frames) - (type(problem) is not _Begun))
                return False
        except Boundary as boundary:
            boundary.__context__ = None
            if boundary.slug == "update-then-raise":
                self.apart(boundary)
            else:
                self._push_outwards(boundary, frames, len(frames) - 1)
            return False
        return True

    def apart(self, error: Boundary) -> None:
        """The graph updates an input that could not be put back: the next run has these operators as boundaries."""
        tree = self.tree
        if tree is not None:
            for place in [place for each in self.updates for place in each if place not in tree.hints]:
                tree.hints[place] = (error.slug, error.detail)
                self.hint = place

    def _resumable(self, frames: tuple[Any, ...]) -> int:
        """How many frames, from the outermost on, can be rebuilt."""
        for number, (function, code, index, _, _) in enumerate(frames):
            flags = code.co_flags
            if flags & _SUSPENDS or flags & _PLAIN_FRAME != _PLAIN_FRAME or function is None:
                return number
            if number >= len(self.links) or not self.links[number]:
                return number
            if handles_exception(code, index):
                return number
        return len(frames)

    def _push_outwards(self, error: Boundary, frames: tuple[Any, ...], good: int) -> None:
        """Remember the call in the innermost frame of `frames[:good]` that has one as a boundary."""
        tree = self.tree
        assert tree is not None
        for function, code, index, _, _ in reversed(frames[:good]):
            found = instruction_at(code, index)
            place = (code, index)
            if place in tree.hints or not is_operation(found) or is_library_glue(function):
                continue
            if found.opname == "PRECALL":
                place = (code, index + 2)
                if place in tree.hints:
                    continue
            tree.hints[place] = (error.slug, error.detail)
            self.hint = place
            return

    def _split(self, error: Boundary, frames: tuple[Any, ...], within: bool) -> None:
        recorder = self.recorder
        _, code, index, _, _ = frames[-1]
        inputs = recorder.inputs()
        if instruction_at(code, index).opname == "FOR_ITER":  # it only looks at its iterator, and may take it away
            function, _, _, variables, stack = frames[-1]
            inputs, frames = (stack[-1],), (*frames[:-1], (function, code, index, variables, stack[:-1]))
        if not within or all(map(self._plain, inputs)):
            self._taken_apart(inputs, instruction_at(code, index).opname)
        what = operation(code, index, inputs)
        if within and what is not None and not all(map(self._plain, (*what.args, *what.keywords.values()))):
            raise _Begun
        if (
            what is None
            or _needs_frames(what)
            or (_gives_frame(what) and not _asks_at_once(code, following(code, index)))
        ):
            raise _Outwards
        if error.slug not in _TENSOR_READS and not (
            (_hashable_in(what.function, _QUIET) or self._is_operator(what.function))
            and all(is_atom(arg) or type(arg) in self.tensor_classes for arg in (*what.args, *what.keywords.values()))
        ):
            self.pruned = False  # it may refer weakly to what only a variable holds
        shapes, slots = self._capture(frames)
        if any(type(slot) is types.FrameType for slot in slots):
            raise _Outwards  # natively it goes on running
        held = self.mode_on
        if held:
            self.switch_off()
        site = BoundarySite(
            self.tree, shapes, what.entry, what.text, error.slug, error.file, error.line, self.pruned,  # type: ignore[arg-type]
            self._may_look(what, error.slug), self._leaves_modes(what.function),
        )  # fmt: skip
        try:
            if self.known is None:
                leave = Leave(what.function, what.args, what.keywords, slots)
                draft = make_draft(
                    self, self.entry, self.positional, self.keywords, None, self.unstable, leave, self.freeze
                )
                draft.record.boundary = site
                self.drafts.append((self.point, draft))
            else:
                site = self.known.boundary or site
        except BaseException:
            if held:
                self.switch_on()
            raise
        self.muted = True
        self.crossing(within)
        self.graph.release()  # objects live as long as the program holds them
        self.collects_again()
        self.made = what.function is _torch.TOLIST
        self.pending = (site, slots, len(frames[-1][4]), held)
        recorder.divert(self.crossed, 0)

    def _may_look(self, what: Operation, slug: str) -> bool:
        """Whether an operation may look at its callers: whatever is Python code, calls some, or is not known."""
        known = slug in _TENSOR_READS or _hashable_in(what.function, _BLIND) or self._is_operator(what.function)
        if not known:
            return True
        given = [each for each in (*what.args, *what.keywords.values()) if type(each) is not random.Random]
        return runs(what.function) is not None or not all(map(self._plain, given))

    def _leaves_modes(self, function: Any) -> bool:
        """Whether a function is known to leave the modes of torch as they are, if it runs no Python."""
        if _hashable_in(function, _BLIND) or _hashable_in(function, _READS):
            return True
        return self._is_operator(function)

    def _is_operator(self, function: Any) -> bool:
        """Whether a function is an operator of torch's, in C, which reads and makes tensors and nothing else."""
        if runs(function) is not None:
            return False
        annotation = self.registry.lookup(function)
        op = None if annotation is None else annotation.as_op_node
        return op is not None and op.kind not in (OpKind.STATE, OpKind.IMPURE, OpKind.SETTER)

    def _taken_apart(self, inputs: tuple[Any, ...], name: str) -> None:
        """The operation gets what some of the instruction's inputs hold: they hold that at each call, or what they hold then."""
        for each in inputs:
            self.binding_facts(each)
            node = self.find(each) if name == "CALL_FUNCTION_EX" and type(each) in (tuple, list, dict) else None
            if node is not None and node.external:
                self.read_items(node, each)

    def _plain(self, value: Any) -> bool:
        """Whether an argument is a tensor, a plain value, or a tuple of such: nothing that an operation may use up."""
        if type(value) is tuple:
            return all(map(self._plain, value))
        return is_atom(value) or type(value) in self.tensor_classes

    def _capture(self, frames: tuple[Any, ...]) -> tuple[tuple[FrameShape, ...], tuple[Any, ...]]:
        """What is the same at every call of some frames, and what may differ."""
        shapes, slots = [], []
        for function, code, index, variables, stack in frames:
            live = live_variables(code, index) if self.pruned else tuple(range(len(variables)))
            for number, value in enumerate(variables):
                if number not in live and value is not NULL and type_lookup(type(value), "__del__") is not NULL:
                    raise _Outwards
            shapes.append(FrameShape(code, index, live, len(stack)))
            slots.append(function)
            slots += [variables[number] for number in live]
            slots += stack
        return tuple(shapes), tuple(slots)

    def crossed(self, state: None, outputs: tuple[Any, ...] | None, arg: None) -> None:
        """After a boundary operation: the next segment starts."""
        site, slots, depth, held = self.pending
        self.pending = None
        self.muted = False
        if outputs is None:  # it raised; the next call sees what comes of that
            self.finish()
            return
        recorder = self.recorder
        start, values = recorder.upcoming(depth)
        if any(type(value) is types.FrameType for value in values) and not _asks_at_once(recorder.position()[0], start):
            del self.drafts[-1:]
            self.finish()
            return
        site.taken += 1
        point = site.lead(start).point
        everything = slots + values
        self.known = None
        for other, draft in self.drafts:
            if other is point and type(draft.record.guard(everything, {})) is tuple:
                self.known = draft.record
        if self.known is None and (found := point.cache.find(everything, {})) is not None:
            self.known = found[0]
        if self.known is None and (point.cache.full or point.failures >= 3):
            self.finish()
            return
        self._renew(point, everything)
        if held or not self.mode_on:
            self.switch_on()
        self.collects_not()
        recorder.forget()

    def crossing(self, within: bool) -> None:
        """A boundary operation is about to run; `within`: torch already does. See `LiftingMonitor`."""

    def finish(self) -> None:
        """Stop here: what is left of the call runs unobserved."""
        self.over = True
        self.recorder.stop()
        self.on_stop()

    def _renew(self, point: Point, args: tuple[Any, ...]) -> None:
        """Forget everything about the objects of the program; they are external now."""
        attributes = vars(self)
        kept = {name: attributes[name] for name in _KEPT}
        self.older.append(self.graph)
        SplitRules.__init__(self)
        attributes.update(kept)
        self.point = point
        self.unstable = point.cache.unstable
        self.begin(len(args), ())
        self.slots(point, args)

    def is_old(self, obj: Any) -> bool:
        """Whether a class or function that no read has shown must be older than the call: nothing in it made such."""
        if type(obj) is types.FunctionType:
            return obj.__code__ not in self.nested_codes and not self.made_functions
        if _torch.is_profiler_mark(obj):
            return True
        return issubclass(type(obj), type) and not self.made_classes

    def on_stop(self) -> None:
        """The capture is over. See `Monitor`."""
        raise NotImplementedError

    def collects_not(self) -> None:
        """No garbage is collected from here on. See `Monitor`."""
        raise NotImplementedError

    def collects_again(self) -> None:
        """Garbage is collected again, if it was. See `Monitor`."""
        raise NotImplementedError

    # -- what a call goes through -------------------------------------------------------------------------------------

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Before a call; remembers which Python function it runs, if its result is the call's."""
        self.direct = None
        result = super().call(function, args, keywords)
        if result is None:
            self.direct = runs(function)
        return result

    def on_enter(
        self, code: types.CodeType, function: types.FunctionType | None, args: tuple[Any, ...], kind: int
    ) -> None:
        """A monitored frame starts."""
        if code is _SHOWN and kind == 0 and not self.muted:  # it would run twice: the call itself is the effect
            raise self.boundary("impure-call", "a warning that is shown")
        depth = self.recorder.depth()
        del self.links[depth - 1 :]
        self.links.append(kind == 0 and function is not None and function is self.direct)
        self.direct = None
        super().on_enter(code, function, args, kind)


def is_library_glue(function: Any) -> bool:
    """Whether a boundary should not stand in a function: a library's own, deep inside of what the user called."""
    return function is not None and is_library(function.__code__.co_filename)


def _gives_frame(what: Operation) -> bool:
    """Whether an operation is known to give a frame."""
    return _hashable_in(what.function, _FRAMES) or (
        what.function is getattr and type(what.args[1]) is str and what.args[1] == "f_back"
    )


def _asks_at_once(code: types.CodeType, unit: int) -> bool:
    """Whether an instruction asks the frame on top of the stack for what is not wrong in one that was rebuilt."""
    found = instruction_at(code, unit)
    return found.opname == "LOAD_ATTR" and found.argval in _STABLE


def _needs_frames(what: Operation) -> bool:
    """Whether an operation needs the frames that call it to be those that go on afterwards."""
    if what.function is spread and any(
        _hashable_in(what.args[0], each) for each in (_TOUCHES_FRAMES, _NAMESPACES, _FRAMES)
    ):
        return True
    if _hashable_in(what.function, _TOUCHES_FRAMES) or (_hashable_in(what.function, _NAMESPACES) and not what.args):
        return True
    given = (*what.args, *what.keywords.values())
    if not any(type(each) is types.FrameType for each in given):
        return False
    return not (what.function is getattr and len(given) == 2 and given[1] in _STABLE)


def _hashable_in(function: Any, functions: frozenset[Any]) -> bool:
    try:
        return function in functions
    except TypeError:
        return False


__all__ = ["SplitRules"]
