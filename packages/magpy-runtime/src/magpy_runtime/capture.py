"""Capture: watch one native run of a program, instruction by instruction.

A `Recorder` runs a callable and calls back for the frames that are entered meanwhile on this thread. What it calls
back for is said by a *plan*, one for each code object. The same protocol holds on every supported CPython; where the
events come from is the native module's business (a trace function on 3.11, `sys.monitoring` from 3.12 on).

**Plan.** A list with one element for each code unit (two bytes) of `co_code`, or None for a code object whose frames
give no events at all (frames that they call still do). An element is None (nothing is called) or
`(before, after, n_in, n_out, arg)`, with an optional sixth member `fallthrough`:

* `before(inputs, arg)` is called before the instruction runs. `inputs` are the top `n_in` stack values, deepest
  first; an empty slot is `NULL`. What it returns is kept as `state` (None without a `before`).
* `after(state, outputs, arg)` is called when the instruction has finished, which the frame's next instruction or its
  exit shows. `outputs` are the top `n_out` stack values at that time. It is None when the instruction raised, and `()`
  when the instruction left the frame (RETURN_VALUE, YIELD_VALUE) or when the next instruction is not `fallthrough`
  (an exhausted FOR_ITER).

Each `before` gets exactly one `after`, unless the capture stops in between. The element of an instruction with
EXTENDED_ARG prefixes stands at the instruction itself; elements of prefixes and inline caches are never due, nor are
those of the few instructions that precede RESUME (COPY_FREE_VARS, MAKE_CELL, RETURN_GENERATOR, POP_TOP). RESUME is
reported right after `on_enter`; after a yield, its top of stack is the value that was sent.

**Frames.** `on_enter(code, function, args, kind)` and `on_exit(code, value, kind)`; see `EntryKind` and `ExitKind`. A
generator's frame starts when it is first resumed, and leaves at each yield. `args` holds the argument variables of a
frame that starts (positional, keyword-only, `*args`, `**kwargs`; a cell's content for a cell), `()` otherwise.

**Where am I.** Inside a callback, `offset()` is the instruction that the callback is about: the finished one inside
`after`, RESUME (or the suspended YIELD_VALUE) inside `on_enter`, the last one inside `on_exit`.

**Failures.** What a callback raises never reaches the program: the capture stops, and the exception is `error`.
`on_stop()` is called then, once, to put back what else was switched on for the run. `fail(error)` does the same at the
next event, for those who notice something where they cannot raise. Only
KeyboardInterrupt is raised again in the program. Nothing that the program could see changes: not its exceptions, nor
`sys.exc_info()`, `sys.gettrace()` or recursion depth. Trace functions, profilers and monitoring tools of others keep
getting their events. A program that sets a trace function itself during the run (3.11) ends the capture with an error,
and so does whatever would make it incomplete: a frame that is left in a pause, or that was entered without an event
(3.11: a generator suspended in `yield from` since before the run, resumed by an exception that the inner one catches).

**Boundaries.** An operation that cannot be followed is taken as a whole. `divert(after, n_out)`, called inside a
`before` or later while the innermost frame's current instruction is in progress, replaces what is due after it:
`after(None, outputs, None)` is called when it has finished, with the top `n_out` stack values (None when it raised, `()`
when it left the frame), and until then no frame that is entered below is monitored (no plan, no entry, no exit). When
the instruction has finished already (inside an `after`), it is called at once. Inside any `after`, `position()` is the
code and the first code unit where the innermost frame goes on. `forget()` drops what is due in all outer frames.
`frames()` gives `(function, code, index, locals, stack)` of all monitored frames, outermost first: `index` is that of
the instruction that runs in the frame (CALL where 3.11 is at its PRECALL), `locals` are all `co_nlocalsplus` slots (the
cells themselves, NULL where unbound), `stack` holds the values below those that the instruction takes (see `pops`),
deepest first. `replace(others, frames, inputs)` puts other objects in the place of some: with `frames` in what `frames()`
shows, with `inputs`, in a callback that is not called from within the instruction, in what the innermost one takes; `others`
is `{id(object): (object, other)}`. An `on_error(exception)` that returns something true says that it took care of what a
before, after, enter or exit callback raised: the capture goes on then; without a `divert`, an instruction whose `before`
failed gets no `after`.

**Resuming.** `resume(frames, exception=None, recorder=None)` rebuilds frames of unchanged functions and lets the
interpreter go on in them. `frames` are `(function, start, at, locals, stack)`, outermost first, `locals` and `stack` as
`frames()` gives them. The innermost frame goes on at code unit `start` (see `next_index`), with what the finished
instruction left on top of its stack, or raises `exception` at the instruction `at`. The outer frames are its callers,
each in its instruction `at`; what the inner one returns is pushed (dropped where the stack has no room for it, as after
STORE_ATTR) before the frame goes on at `start`, what it raises is raised at `at`. The result is that of the outermost
frame. The caller vouches for the values. Generators and coroutines are refused, and so is a place between KW_NAMES and
its call; the handled exception (`sys.exc_info()`) is not restored, so do not resume `in_handler`. An exception keeps
its traceback, to which the frames are added. Tracers and profilers see each frame start when it goes on. With the
recorder that runs on this thread, the frames are monitored from there on as if they had been entered: plans are asked
for and exits reported, entries are not.

**Calling below frames.** `call_below(frames, function, args, kwargs)` calls a function that may look at its callers:
`frames` as for `resume` (their `start` is not used, their stacks may be empty) are rebuilt, each suspended in its
instruction `at`, and the function is called below the innermost. Whatever reads frames (`sys._getframe`, `inspect.stack`,
`warnings.warn`, `logging`) finds them; none of their code runs, and tracers do not see them start or end. What the
function raises has no entries for them in its traceback. A frame object that it keeps stays as it was during the call;
what it writes to the frames' variables is lost. `hide(prefixes)` names files whose frames are left out between the
outermost of these frames, or of resumed ones, and the program's own: `call_below((), ...)` calls a function as if there
were none of them.

**Answering.** A `FrameHook(answers)` that is installed on this thread (`with hook:`, or `hook.run(func, args, kwargs)`)
lets `answers[code](function, arguments)` answer each frame of such a code object that starts, wherever it is called
from; `arguments` are the argument variables as in `on_enter`. What it returns is the frame's result, what it raises
leaves the frame; `NULL` lets the frame run. Tracers do not see the frames that were answered. Nothing is answered where
a recorder records (but below a `divert`), nor inside trace functions. `hook.answer(code, callable)` changes an answer.
With `discover`, the hook asks `discover(code)` about each code object that it does not know when a frame of it starts; what
that gives answers from then on (None: nothing does), and no hook is installed while it or an answer runs. What an answer
raises has an entry for the frame in its traceback, unless the hook is `silent`. `unhooked(function, args, kwargs)` calls a
function below which no hook of this thread answers.
While a hook is installed on any thread, calls between Python functions are somewhat slower on all.

**Callbacks.** They run with no events, with room to recurse beyond the program's limit, and without garbage
collection, so that finalizers of the program run in the program. An input that `before` keeps lives longer than
natively: when it dies afterwards, its finalizer runs unseen. They have to be quick: a skipped instruction costs
about 40 ns, a reported one about 200 ns and what the callbacks take.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeAlias

from magpy_runtime._instructions import in_handler, jump_target, next_index, pops, pushes
from magpy_runtime._native import (
    NULL,
    FrameHook,
    NullType,
    Recorder,
    call_below,
    dict_version,
    distinct_int,
    has_instance_dict,
    hide,
    instance_dict,
    put_in_tuple,
    resume,
    super_lookup,
    type_lookup,
    type_version,
    unhooked,
)

Before: TypeAlias = Callable[[tuple[Any, ...], Any], Any]
After: TypeAlias = Callable[[Any, tuple[Any, ...] | None, Any], Any]
PlanItem: TypeAlias = (
    tuple[Before | None, After | None, int, int, Any] | tuple[Before | None, After | None, int, int, Any, int | None]
)
Plan: TypeAlias = list[PlanItem | None]


class EntryKind(IntEnum):
    """How a monitored frame was entered."""

    CALL = 0  #: it starts
    RESUME = 1  #: a generator or coroutine goes on after a yield
    THROW = 2  #: the same, with an exception


class ExitKind(IntEnum):
    """How a monitored frame was left."""

    RETURN = 0  #: with a value
    YIELD = 1  #: with a value, to be resumed
    EXCEPTION = 2  #: by an exception; the value is NULL


__all__ = [
    "NULL",
    "After",
    "Before",
    "EntryKind",
    "ExitKind",
    "FrameHook",
    "NullType",
    "Plan",
    "PlanItem",
    "Recorder",
    "call_below",
    "dict_version",
    "distinct_int",
    "has_instance_dict",
    "hide",
    "in_handler",
    "instance_dict",
    "jump_target",
    "next_index",
    "pops",
    "pushes",
    "put_in_tuple",
    "resume",
    "super_lookup",
    "type_lookup",
    "type_version",
    "unhooked",
]
