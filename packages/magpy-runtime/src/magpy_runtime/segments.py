"""Records as trees: segments that end at boundaries, and the points at which programs go on after them.

A call is served by a chain of segments. Each is a record by itself: its guard, its operator graph and its mock take the
objects that the frames hold at its start, the *slots* of a resume point, as the first segment takes the arguments of the
call. All boundaries that lead to the same frames at the same instructions share the point, so a loop enters the same
segments again. Here is what serving needs; where a segment can end, the monitor decides.
"""

from __future__ import annotations

import dis
import enum
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ._native import SiteSlots, Way, set_timed
from ._record import RecordCache
from .capture import NULL, call_below, type_lookup

CHILDREN: Final = 8
"""How many times as many records a resume point may have as a compiled callable."""

AFTER_LOOP: Final = 0 if "END_FOR" not in dis.opmap else 1 if "CALL_KW" not in dis.opmap else 2
"""How many instructions behind its target FOR_ITER goes on when the iterator is exhausted (END_FOR, POP_TOP)."""

_BARREN: Final = 8
_UNUSED: Final = CHILDREN // 2
"""What share of a point's records may be made before one of them is used again."""

_Hint = tuple[types.CodeType, int]

EXHAUSTED: Final = object()
"""The outcome of asking an iterator that has nothing left."""


class Entry(enum.Enum):
    """How an outcome enters the frame."""

    PUSH = "push"  # it is the instruction's result
    NOTHING = "nothing"  # the instruction has no result
    METHOD = "method"  # LOAD_METHOD: no method, then the attribute
    JUMP = "jump"  # its truth decides where the frame goes on
    JUMP_OR_POP = "jump or pop"  # likewise; where it jumps, the tested object stays
    UNPACK = "unpack"  # a tuple, whose elements are pushed, the last one first
    NEXT = "next"  # the iterator stays under its element, or both go


def instruction_at(code: types.CodeType, index: int) -> dis.Instruction:
    """The instruction at a code unit."""
    return instructions(code)[index]


_instructions: dict[types.CodeType, dict[int, dis.Instruction]] = {}


def instructions(code: types.CodeType) -> dict[int, dis.Instruction]:
    """The instructions of a code object by code unit."""
    found = _instructions.get(code)
    if found is None:
        if len(_instructions) > 256:
            _instructions.clear()
        found = _instructions[code] = {each.offset // 2: each for each in dis.get_instructions(code)}
    return found


def following(code: types.CodeType, index: int) -> int:
    """The code unit of the instruction after the one at `index`."""
    bytecode = code.co_code
    index += 1
    while 2 * index < len(bytecode) and bytecode[2 * index] == 0:
        index += 1
    return index


def line_of(code: types.CodeType, index: int) -> int:
    """The source line of an instruction."""
    line = 0
    for start, end, number in code.co_lines():
        if start <= index * 2 < end and number is not None:
            line = number
    return line or code.co_firstlineno


# -- boundary operations that are no single C function ------------------------------------------------------------


def joined(*parts: str) -> str:
    """The string that an f-string makes of its parts."""
    return "".join(parts)


def next_element(iterator: Any) -> Any:
    """`next(iterator)`, or `EXHAUSTED`."""
    return call_below((), next, (iterator, EXHAUSTED), None)


def lacks(container: Any, item: Any) -> bool:
    """`item not in container`."""
    return not call_below((), operator.contains, (container, item), None)


def unpack(obj: Any, count: int) -> tuple[Any, ...]:
    """`a, b, ... = obj`.

    Raises:
        ValueError: it has not as many elements.
    """
    iterator = call_below((), iter, (obj,), None)
    found: list[Any] = []
    for _ in range(count):
        element = next_element(iterator)
        if element is EXHAUSTED:
            raise ValueError(f"not enough values to unpack (expected {count}, got {len(found)})")
        found.append(element)
    if next_element(iterator) is not EXHAUSTED:
        raise ValueError(f"too many values to unpack (expected {count})")
    return tuple(found)


def spread(function: Callable[..., Any], args: Any, keywords: Any) -> Any:
    """`function(*args, **keywords)`."""
    if type_lookup(type(args), "__iter__") is NULL or type_lookup(type(keywords), "keys") is NULL:
        return function(*args, **keywords)  # it raises, in most cases
    given = call_below((), tuple, (args,), None)
    named = keywords if type(keywords) is dict else call_below((), dict, (keywords,), None)
    return call_below((), function, given, named)


# -- what the outcome does to the frame --------------------------------------------------------------------------------


def target_of(found: dis.Instruction) -> int:
    """The code unit that an instruction jumps to."""
    return int(found.argval) // 2


def enter(
    code: types.CodeType, index: int, entry: Entry, outcome: Any, args: tuple[Any, ...]
) -> tuple[int, tuple[Any, ...]]:
    """Where the innermost frame goes on after a boundary operation, and what is pushed on its stack.

    Args:
        code: the frame's code.
        index: the instruction's code unit.
        entry: how the outcome enters.
        outcome: what the operation gave.
        args: what it was given.
    """
    after = following(code, index)
    if entry is Entry.PUSH:
        return after, (outcome,)
    if entry is Entry.NOTHING:
        return after, ()
    if entry is Entry.METHOD:
        return after, (NULL, outcome)
    found = instruction_at(code, index)
    if entry is Entry.UNPACK:
        return after, outcome[::-1]
    if entry is Entry.NEXT:
        if outcome is EXHAUSTED:
            return target_of(found) + AFTER_LOOP, ()
        return after, (args[0], outcome)
    jumps = bool(outcome) == ("IF_TRUE" in found.opname)
    if entry is Entry.JUMP:
        return (target_of(found) if jumps else after), ()
    return (target_of(found), (args[0],)) if jumps else (after, ())


def is_true(code: types.CodeType, index: int, start: int) -> bool:
    """The condition that lets the conditional jump at `index` lead to `start`."""
    found = instruction_at(code, index)
    return (target_of(found) == start) == ("IF_TRUE" in found.opname)


# -- segments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameShape:
    """What is the same at every call of one frame at a boundary.

    Attributes:
        code: the frame's code.
        at: the instruction that it is suspended in.
        live: numbers of the local variables that it may still read.
        depth: values on its stack below those that the instruction takes.
        count: how many local variables it has.
    """

    code: types.CodeType
    at: int
    live: tuple[int, ...]
    depth: int
    count: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _count(self.code))

    @property
    def size(self) -> int:
        """How many slots it has: its function, its variables, its stack."""
        return 1 + len(self.live) + self.depth

    def rebuild(self, slots: tuple[Any, ...], place: int) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
        """The function, the variables and the stack, from the slots that start at `place`."""
        function = slots[place]
        code = self.code
        if function.__code__ is not code:
            function = types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
        above = place + 1 + len(self.live)
        variables = slots[place + 1 : above]
        if len(variables) != self.count:
            values = [NULL] * self.count
            for variable, value in zip(self.live, variables, strict=True):
                values[variable] = value
            variables = tuple(values)
        return function, variables, slots[above : above + self.depth]


class Point:
    """A resume point: where a program goes on after a boundary, and the segments that start there.

    Attributes:
        frames: the frames, outermost first.
        start: the instruction at which the innermost goes on.
        raised: whether it goes on by handling what the operation raised.
        cache: the records of the segments.
        failures: attempts in a row that gave no record.
        refused: whether it was noted that its cache is full.
        pruned: whether variables that are not read any more may be left out at the boundaries behind it.
    """

    __slots__ = ("cache", "failures", "frames", "pruned", "raised", "refused", "start")

    def __init__(self, frames: tuple[FrameShape, ...], start: int, raised: bool, limit: int, pruned: bool) -> None:
        self.frames = frames
        self.start = start
        self.raised = raised
        self.cache = RecordCache(limit, limit // _UNUSED)
        self.failures = 0
        self.refused = False
        self.pruned = pruned

    def rebuild(self, following: Any, args: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], BaseException | None]:
        """The frames for `resume`, and the exception that the innermost one raises, if any.

        Args:
            following: gives the instruction after another one.
            args: the slots, then what is pushed on the innermost frame's stack, or the exception.
        """
        frames: list[tuple[Any, ...]] = []
        place = 0
        last = len(self.frames) - 1
        for number, shape in enumerate(self.frames):
            function, values, stack = shape.rebuild(args, place)
            place += shape.size
            if number == last:
                start = self.start
                stack += args[place : -1 if self.raised else None]
            else:
                start = following(shape.code, shape.at)
            frames.append((function, start, shape.at, values, stack))
        return frames, args[-1] if self.raised else None


def _count(code: types.CodeType) -> int:
    extra = [name for name in code.co_cellvars if name not in code.co_varnames]
    return len(code.co_varnames) + len(extra) + len(code.co_freevars)


_FORMS: Final = {Entry.PUSH: 1, Entry.JUMP: 2}
"""The numbers of native code for how an outcome enters."""


@dataclass(slots=True)
class BoundarySite(SiteSlots):
    """Where a segment ends.

    Attributes:
        tree: the tree that it belongs to.
        frames: the frames, outermost first.
        entry: how the outcome enters the innermost frame.
        text: the operation in words.
        slug: why it is a boundary.
        file: where it is, the innermost user frame's file.
        line: and line.
        pruned: whether variables that are not read any more were left out.
        sees: whether the operation may look at its callers.
        steady: whether the operation is known to leave the modes of torch as they are.
        barren: how many times in a row no frame inside of it could have been served.
        taken: how often it was reached.
        seconds: how long its operation took altogether; None as long as nobody measures it.
        ways: where it led: by the instruction, or None for an exception.
        seen: how many records there were behind it when its ways were to be merged.
        unmerged: why they were not, if they were to be.
        form: how an outcome enters, for native code.
        when_false: where an outcome leads that is pushed, or is tested and false, once that is known.
        when_true: where one leads that is tested and true.
    """

    tree: Tree
    frames: tuple[FrameShape, ...]
    entry: Entry
    text: str
    slug: str
    file: str
    line: int
    pruned: bool
    sees: bool = True
    steady: bool = False
    barren: int = 0
    taken: int = 0
    ways: dict[int | None, Way] = field(default_factory=dict)
    seen: int = 0
    unmerged: str = ""
    seconds: float | None = None
    form: int = field(init=False, repr=False)
    when_false: Way | None = field(default=None, init=False, repr=False)
    when_true: Way | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.form = _FORMS.get(self.entry, 0)

    def run(
        self,
        function: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        slots: tuple[Any, ...],
        nested: Callable[[], Any] | None = None,
    ) -> Any:
        """Run the operation; what may look at its callers finds their frames.

        Args:
            function: what runs it.
            args: its arguments.
            keywords: its keyword arguments.
            slots: what the frames hold.
            nested: gives what serves frames inside of it; None where nothing does.
        """
        if not self.sees:
            return function(*args, **keywords)
        frames = []
        place = 0
        for shape in self.frames:
            owner, values, stack = shape.rebuild(slots, place)
            place += shape.size
            frames.append((owner, 0, shape.at, values, stack))
        if self.entry is Entry.NEXT:  # the iterator stays on the stack meanwhile
            frames[-1] = (owner, 0, shape.at, values, stack + args[:1])
        if nested is None or self.barren >= _BARREN or self.slug == "disabled":
            return call_below(frames, function, args, keywords)
        serves = nested()
        serves.tried(function)
        touched = serves.touched
        try:
            return serves.run(call_below, (frames, function, args, keywords))
        finally:
            self.barren = self.barren + 1 if serves.touched == touched else 0

    def go_on(self, outcome: Any, args: tuple[Any, ...], slots: tuple[Any, ...]) -> tuple[Way, tuple[Any, ...]]:
        """Where the program goes on, and what its frames hold then.

        Args:
            outcome: what the operation gave.
            args: what it was given.
            slots: what the frames held before.
        """
        innermost = self.frames[-1]
        start, pushed = enter(innermost.code, innermost.at, self.entry, outcome, args)
        way = self.lead(start)
        if self.entry is Entry.JUMP and outcome:
            self.when_true = way
        elif self.form:
            self.when_false = way
        return way, slots + pushed

    def go_wrong(
        self, error: BaseException, args: tuple[Any, ...], slots: tuple[Any, ...]
    ) -> tuple[Way, tuple[Any, ...]]:
        """Where the program goes on when the operation has raised, and what its frames hold then."""
        if self.entry is Entry.NEXT:  # the iterator stays on the stack meanwhile
            slots += args[:1]
        return self.lead(None), (*slots, error)

    def where(self, start: int | None) -> str:
        """Where the program goes on at an instruction, in words."""
        innermost = self.frames[-1]
        if start is None:
            return "raised"
        line = f"line {line_of(innermost.code, start)}"
        if self.entry in (Entry.JUMP, Entry.JUMP_OR_POP):
            return f"{is_true(innermost.code, innermost.at, start)}: {line}"
        return line

    def lead(self, start: int | None) -> Way:
        """The way to an instruction of the innermost frame, or after an exception (None)."""
        way = self.ways.get(start)
        if way is None:
            point = self.tree.point(self.frames, start, self.pruned)
            way = self.ways.setdefault(start, Way(point, point.cache))
        way.count += 1
        return way


class Tree:
    """The resume points of one compiled callable.

    Attributes:
        points: by frames and instruction.
        hints: instructions that are boundaries as a whole, with the reason.
        limit: how many records a point may have.
    """

    def __init__(self, limit: int) -> None:
        self.points: dict[tuple[tuple[FrameShape, ...], int | None, bool], Point] = {}
        self.hints: dict[_Hint, tuple[str, str]] = {}
        self.limit = limit * CHILDREN

    def point(self, frames: tuple[FrameShape, ...], start: int | None, pruned: bool) -> Point:
        """The resume point of some frames."""
        key = (frames, start, pruned)
        found = self.points.get(key)
        if found is None:
            made = Point(frames, frames[-1].at if start is None else start, start is None, self.limit, pruned)
            found = self.points.setdefault(key, made)
        return found


__all__ = [
    "AFTER_LOOP",
    "CHILDREN",
    "EXHAUSTED",
    "BoundarySite",
    "Entry",
    "FrameShape",
    "Point",
    "Tree",
    "Way",
    "enter",
    "following",
    "instruction_at",
    "instructions",
    "is_true",
    "joined",
    "lacks",
    "line_of",
    "next_element",
    "set_timed",
    "spread",
    "target_of",
    "unpack",
]
