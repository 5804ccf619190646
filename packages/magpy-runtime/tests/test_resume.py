"""Resuming: programs are stopped at each of their operations in turn, abandoned, and go on from what was captured."""

import contextlib
import dis
import gc
import sys
import threading
import traceback
import types
import weakref

import pytest

from magpy_runtime.capture import NULL, FrameHook, Recorder, in_handler, next_index, pops, resume

LOG = []
STATE = types.SimpleNamespace(machine=None)


class Stop(BaseException):
    """Ends a run that is abandoned."""


class Boom(Exception):
    """What an operation raises."""


class Machine:
    """Counts the operations of a run, and stops or raises at one of them."""

    def __init__(self, stop_at=None, raise_at=None, count=0):
        self.stop_at = stop_at
        self.raise_at = raise_at
        self.count = count
        self.recorder = None
        self.frames = self.value = None

    def op(self, args):
        at = self.count
        self.count += 1
        value = args[0] if args else at
        LOG.append((at, value))
        if at == self.stop_at:
            self.recorder.pause()
            self.frames = self.recorder.frames()
            self.recorder.unpause()
            self.value = value
            self.log = list(LOG)
            raise Stop
        if at == self.raise_at:
            raise Boom(at)
        return value


def op(*args, **kwargs):
    """An operation: its first argument."""
    return STATE.machine.op(args)


class Context:
    """A context manager that logs, and swallows what it is told to."""

    def __init__(self, swallows=False):
        self.swallows = swallows

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, *exc):
        LOG.append(("exit", exc[0]))
        return self.swallows and exc[0] is Boom


# -- programs: everything below whose name starts with `program` is monitored ------------------------------------------


def program_simple():
    return op(1) + op(2)


def program_for_range():
    total = 0
    for i in range(3):
        total += op(i)
    return total


def program_for_list():
    out = []
    for x in [1, (2, 3), "x"]:
        out = [*out, op(x)]
    return out


def program_for_many():
    out = ()
    for i, (a, b) in enumerate(zip(op([1, 2]), "xy")):
        for key, value in {a: b}.items():
            out += (i, op(key), value)
    else:
        out += (op("else"),)
    return out


def program_while():
    n = 3
    while op(n):
        n -= 1
        if op(n) == 1:
            continue
        LOG.append(n)
    return n


def program_callee(a, b=2, *rest, c, d=4, **more):
    x = op(a)
    return [x, b, rest, c, d, more, op(c)]


def program_signatures():
    return [
        program_callee(op(1), c=op(2)),
        program_callee(1, 2, 3, 4, c=op(5), e=op(6)),
        program_callee(*op((1, 2, 3)), **op({"c": 4, "f": 5})),
    ]


def program_deep3(x):
    with Context() as context:
        return (x, op(x), context.swallows)


def program_deep2(items):
    out = []
    for item in items:
        with Context(), contextlib.suppress(ZeroDivisionError):
            out = out + [program_deep3(item)]
    return out


def program_deep():
    with Context(True):
        return ("a", *program_deep2(op([1, 2])), op("z"))
    return "swallowed"


def program_try():
    out = []
    try:
        out = [*out, op(1)]
        try:
            out = [*out, op(2)]
        finally:
            LOG.append("inner")
            out = [*out, op(3)]
    except Boom as error:
        LOG.append(str(error))
        out = [*out, op(4)]
    else:
        out = [*out, op(5)]
    finally:
        LOG.append("outer")
    return out


def program_raise():
    try:
        op(1)
        raise KeyError(op(2))
    except KeyError as error:
        LOG.append(repr(error))
    return op(3)


def program_return_in_finally():
    for _ in range(2):
        try:
            return op(1)
        finally:
            LOG.append("finally")
            op(2)


def program_closure():
    count = 0
    late = None

    def program_inner(step):
        nonlocal count, late
        count += op(step)
        late = count
        return lambda: (count, late)

    get = program_inner(2)
    op("between")
    count += 10
    program_inner(op(3))
    return get(), count, late


def program_unbound():
    x = 1
    if op(x):
        del x
    op("deleted")
    try:
        return x
    except UnboundLocalError as error:
        LOG.append(type(error))
    x = op(5)
    return x


class ProgramObject:
    def __init__(self, value):
        self.value = value

    def program_method(self, x):
        return self.value + op(x)

    @property
    def program_property(self):
        return op(self.value) * 2

    @classmethod
    def program_class_method(cls, x):
        return cls.__name__, op(x)

    @staticmethod
    def program_static_method(x):
        return op(x)


def program_methods():
    made = ProgramObject(3)
    return [
        made.program_method(op(1)),
        made.program_property,
        made.program_class_method(2),
        made.program_static_method(x=2),
        ProgramObject.program_method(made, op(4)),
    ]


def program_comprehensions():
    base = op(10)
    a = [op(x) + base for x in range(2)]
    b = {op(x): [y for y in (op(base),)] for x in "ab"}
    c = {op(x) for x in (1, 2) if op(x)}
    return a, b, c


def program_expressions():
    a = op(1) if op(0) else op(2)
    b = op(0) or op(3) and op(4)
    c = f"{op(5)!r:>{op(6)}} {op('x')}"
    d = op(1) < op(2) <= op(2)
    e = [op(1), *op((2, 3)), {op("k"): op("v"), **op({"w": 1})}, op([1, 2, 3])[op(0) : op(2)]]
    f, (g, *h) = op((1, "xyz"))
    i = not op(0)
    return a, b, c, d, e, f, g, h, i, -op(3), op(5) @ Matrix() if op(0) else op(5) // 2


class Matrix:
    pass


def program_stores():
    target = types.SimpleNamespace()
    target.x = op(1)
    items = [0, 0]
    items[op(1)] = op(2)
    items[0] += op(3)
    del items[op(0)]
    assert op(True), "never"
    return target.x, items


def program_imports():
    import math as m
    from math import floor

    return m.floor(op(1.5)) + floor(op(2.5))


def program_match():
    out = []
    for subject in op([{"a": 1, "b": 2}, [1, 2, 3], 5, "x"]):
        match subject:
            case {"a": a, **rest}:
                out = [*out, op(a), rest]
            case [first, *_]:
                out = [*out, op(first)]
            case int() as n if op(n):
                out = [*out, n]
            case _:
                out = [*out, op("other")]
    return out


def program_recursive(n=6):
    return 1 if n == 0 else op(n) + program_recursive(n - 1)


class ProgramBase:
    def program_greet(self, x):
        return ("base", op(x))

    def __getattr__(self, name):
        return op(name)

    def __add__(self, other):
        return op(other)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, op(value))

    def __call__(self, *args, **kwargs):
        return args, op(kwargs)


class ProgramDerived(ProgramBase):
    def program_greet(self, x):
        return super().program_greet(op(x)), __class__.__name__


def program_classes():
    made = ProgramDerived()
    made.x = op(5)
    return [made.program_greet(op(1)), made.missing, made + op(2), made(1, 2, k=op(3)), made.x, op(made.x)]


def program_cells_deleted():
    x = op(1)

    def program_reads():
        return x

    first = program_reads()
    del x
    try:
        op("deleted")
        program_reads()
    except NameError as error:
        LOG.append(type(error))
    x = op(2)
    return first, program_reads()


def program_nested_functions():
    def program_outer(a, *, b=op(1)):
        def program_inside(c):
            nonlocal a
            a = a + op(c)
            return (lambda d: (op(d), a, b, c))(op(4))

        return program_inside(op(3)), a

    return program_outer(2, b=op(5)), program_outer(a=op(7))


def program_handler():
    try:
        op(1)
        raise KeyError
    except KeyError:
        op("in handler")
    return op(2)


def program_callbacks():
    return list(map(program_static, op([1, 2])))


def program_static(x):
    return op(x)


def make_large():
    lines = ["def program_large():", "    total = 0"]
    for i in range(300):
        lines.append(f"    v{i} = total + {i + 1000}")
    lines.append("    for i in range(2):")
    lines.append("        if op(0):")
    lines.extend(f"            total += v{i}" for i in range(290, 300))
    lines.extend(["            total = big"] * 300)
    lines.append("        total += op(v299)")
    lines.append("    return [" + ", ".join(f"v{i}" for i in range(0, 280)) + ", op(total), op(v270)]")
    lines.append("    return f(" + ", ".join(f"v{i}" for i in range(280)) + ", x=op(1))")
    space = {"op": op, "__name__": __name__}
    exec(compile("\n".join(lines), __file__, "exec"), space)
    return space["program_large"]


def make_many_arguments():
    source = "def program_many():\n    return collect(" + ", ".join(f"op({i})" for i in range(260)) + ", z=op(7))"
    space = {"op": op, "collect": lambda *args, **kwargs: (args, kwargs), "__name__": __name__}
    exec(compile(source, __file__, "exec"), space)
    return space["program_many"]


program_large = make_large()
program_many = make_many_arguments()

PROGRAMS = [
    program_simple,
    program_for_range,
    program_for_list,
    program_for_many,
    program_while,
    program_signatures,
    program_deep,
    program_try,
    program_raise,
    program_return_in_finally,
    program_closure,
    program_unbound,
    program_methods,
    program_comprehensions,
    program_expressions,
    program_stores,
    program_imports,
    program_match,
    program_recursive,
    program_classes,
    program_cells_deleted,
    program_nested_functions,
    program_handler,
    program_callbacks,
    program_large,
]


# -- running them ------------------------------------------------------------------------------------------------------


def is_program(code):
    """Whether a code object is one of a program's."""
    return code.co_filename == __file__ and "program" in code.co_qualname.lower()


def frames_only(code):
    """Monitors a program's frames without looking at their instructions."""
    return [None] * (len(code.co_code) // 2) if is_program(code) else None


def outcome(call, machine, log=()):
    """What a call gives: ("value", ..) or ("error", .., traceback's places in programs, contexts), and the log."""
    STATE.machine = machine
    LOG[:] = log
    try:
        result = ("value", call())
    except Exception as error:
        result = ("error", repr(error), places(error), chain(error))
    return result, list(LOG)


def places(error):
    """Function and line of each entry of a traceback that is in a program."""
    return [
        (frame.f_code.co_name, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_program(frame.f_code)
    ]


def chain(error):
    """The exceptions that an exception was raised in."""
    seen = []
    while error is not None:
        seen.append(repr(error))
        error = error.__context__
    return seen


def stopped(function, at, start=None):
    """The machine of a run that was abandoned at an operation, or None if it came to its end before that."""
    machine = Machine(stop_at=at)
    machine.recorder = Recorder(frames_only)
    STATE.machine = machine
    LOG.clear()
    with contextlib.suppress(Stop):
        machine.recorder.run(function)
    assert machine.recorder.error is None, machine.recorder.error
    return machine if machine.frames is not None else None


def rebuild(frames, value=NULL):
    """The argument of `resume` for what a recorder's frames() gave; the innermost operation gives `value` or raises."""
    rebuilt = [
        (function, next_index(code, index), index, local, stack) for function, code, index, local, stack in frames
    ]
    if value is not NULL:
        function, start, at, local, stack = rebuilt[-1]
        rebuilt[-1] = (function, start, at, local, (*stack, value))
    return tuple(rebuilt)


def resumable(frames):
    """Whether frames can be rebuilt: no handlers, no C code with a state of its own in between, no generators."""
    return not any(
        in_handler(code, index) or code.co_flags & 0x2A0 or any(callable_in_between(code, index, frames, k))
        for k, (_, code, index, _, _) in enumerate(frames)
    )


def callable_in_between(code, index, frames, k):
    """Yields true where the inner frame was called by C code that does more than call it."""
    if k + 1 < len(frames) and code.co_name == "program_callbacks":
        yield True


@pytest.fixture(autouse=True)
def no_collections():
    """Garbage of other tests must not run finalizers in a monitored run."""
    gc.disable()
    yield
    gc.enable()


def each_stop(program):
    """Every abandoned run of a program that can be resumed."""
    total = Machine()
    outcome(program, total)
    found = 0
    for at in range(total.count):
        machine = stopped(program, at)
        assert machine is not None
        if resumable(machine.frames):
            found += 1
            yield at, machine
    assert found, "nothing could be resumed"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_goes_on_with_the_value(program):
    expected = outcome(program, Machine())
    for at, machine in each_stop(program):
        got = outcome(lambda m=machine: resume(rebuild(m.frames, m.value)), Machine(count=at + 1), machine.log)
        assert got == expected, at


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_goes_on_with_an_exception(program):
    for at, machine in each_stop(program):
        expected = outcome(program, Machine(raise_at=at))
        got = outcome(lambda m=machine, at=at: resume(rebuild(m.frames), Boom(at)), Machine(count=at + 1), machine.log)
        assert got == expected, at


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_goes_on_under_a_recorder(program, raises, make_watch):
    for at, machine in list(each_stop(program))[:40]:
        expected = outcome(program, Machine(raise_at=at if raises else None))
        watch = make_watch(is_program, keep=False)
        watch.frames.extend([frame[1], None] for frame in machine.frames)

        def run(machine=machine, watch=watch, at=at):
            given = (rebuild(machine.frames, NULL if raises else machine.value), Boom(at) if raises else None)
            return watch.recorder.run(resume, (*given, watch.recorder))

        got = outcome(run, Machine(count=at + 1), machine.log)
        watch.assert_sound()
        assert got == expected, at
        assert raises or watch.befores > 0


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not program_large], ids=lambda p: p.__name__)
def test_step_by_step(program):
    """Each operation ends a run, and the next run goes on from there."""
    expected = outcome(program, Machine())
    machine = stopped(program, 0)
    at = 0
    while True:
        assert is_program(machine.frames[-1][1])
        following = at + 1
        while True:
            # Where it cannot be resumed, the one before goes on to a later one.
            further = Machine(stop_at=following, count=at + 1)
            further.recorder = Recorder(frames_only)

            def run(machine=machine, further=further):
                return further.recorder.run(resume, (rebuild(machine.frames, machine.value), None, further.recorder))

            try:
                got = outcome(run, further, machine.log)
            except Stop:
                assert further.recorder.error is None
                if resumable(further.frames):
                    break
                # The abandoned run has moved iterators on: start over.
                machine, at = stopped(program, following), following
                return
            assert further.recorder.error is None
            assert got == expected
            return
        machine, at = further, following


CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
UNFIT = (super, locals, sys.exc_info, Context.__init__)


class CallStopper:
    """Ends a run at one of its call instructions, whatever it calls, once the call has given its value."""

    def __init__(self, stop_at):
        self.stop_at = stop_at
        self.count = 0
        self.frames = None
        self.recorder = Recorder(self.plan_for)

    def plan_for(self, code):
        if not is_program(code):
            return None
        plan = [None] * (len(code.co_code) // 2)
        for instruction in dis.get_instructions(code):
            if instruction.opname in CALLS:
                index = instruction.offset // 2
                taken = pops(code, index)
                plan[index] = (self.before, None, taken, 0, taken)
        return plan

    def before(self, inputs, taken):
        at = self.count
        self.count += 1
        deepest = 0 if inputs[0] is not NULL else 1
        called = inputs[deepest]
        if at != self.stop_at or called in UNFIT or isinstance(called, type(Stop)):
            return

        def stop(*args, **kwargs):
            self.recorder.pause()
            try:
                self.value = called(*args, **kwargs)
                self.frames = self.recorder.frames()
                self.log = list(LOG)
                self.operations = STATE.machine.count
            finally:
                self.recorder.unpause()
            raise Stop

        self.recorder.poke(taken - 1 - deepest, stop)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_call(program):
    expected = outcome(program, Machine())
    found = at = 0
    while True:
        stopper = CallStopper(at)
        STATE.machine = Machine()
        LOG.clear()
        with contextlib.suppress(Stop):
            stopper.recorder.run(program)
        assert stopper.recorder.error is None, stopper.recorder.error
        if stopper.count <= at:
            break
        at += 1
        if stopper.frames is None or not resumable(stopper.frames):
            continue
        found += 1
        machine = Machine(count=stopper.operations)
        got = outcome(lambda s=stopper: resume(rebuild(s.frames, s.value)), machine, stopper.log)
        assert got == expected, (at, stopper.frames[-1])
    assert found


def test_frames_are_the_callers():
    machine = stopped(program_deep, 2)
    names = [frame[1].co_name for frame in machine.frames]
    assert names == ["program_deep", "program_deep2", "program_deep3"]
    seen = []

    class Spy(Machine):
        def op(self, args):
            frame = sys._getframe(2)
            lines = []
            while is_program(frame.f_code):
                lines.append((frame.f_code.co_name, frame.f_lineno, frame.f_lasti // 2, sorted(frame.f_locals)))
                frame = frame.f_back
            seen.append((lines, frame.f_code.co_name, sys.exc_info()))
            return super().op(args)

    outcome(program_deep, Spy())
    native = list(seen)
    seen.clear()
    outcome(lambda: resume(rebuild(machine.frames, machine.value)), Spy(count=3), machine.log)
    assert [s[0] for s in seen][0][0] == native[-1][0][0]
    assert len(seen) == len(native) - 3 or len(seen) >= 1
    assert all(s[2] == (None, None, None) for s in seen)
    # Outer frames are there, with their lines, while an inner one runs.
    for got, wanted in zip(reversed(seen), reversed(native)):
        assert [(n, line, names) for n, line, _, names in got[0]] == [
            (n, line, names) for n, line, _, names in wanted[0]
        ]


def test_same_function_resumed_within_itself():
    machine = stopped(program_recursive, 4)
    assert len(machine.frames) == 5
    assert len({frame[0] for frame in machine.frames}) == 1
    assert outcome(lambda: resume(rebuild(machine.frames, 100)), Machine(count=5))[0] == (
        "value",
        1 + 6 + 5 + 4 + 3 + 100 + 1,
    )


def test_cells_are_shared():
    machine = stopped(program_closure, 1)
    (_, code, _, local, _) = machine.frames[0]
    cell = local[(code.co_varnames + code.co_cellvars).index("count")]
    assert cell.cell_contents == 2
    outcome(lambda: resume(rebuild(machine.frames, None)), Machine(count=2))
    assert cell.cell_contents == 15


def plain(a, b):
    c = op(a)
    return [a, b, c]


def state_of(function, args, at=0):
    """The frames of a function (not a program) that is stopped at an operation."""
    code = function.__code__
    machine = Machine(stop_at=at)
    machine.recorder = Recorder(lambda asked: [None] * (len(asked.co_code) // 2) if asked is code else None)
    STATE.machine = machine
    with contextlib.suppress(Stop):
        machine.recorder.run(function, args)
    return machine.frames


def test_refused():
    def generator():
        yield op(1)

    (frame,) = rebuild(state_of(plain, (1, 2)), 3)
    function, start, at, local, stack = frame
    for wrong, error in (
        ([], ValueError),
        ([None], TypeError),
        ([(function, start, at, list(local), stack)], TypeError),
        ([(print, start, at, local, stack)], TypeError),
        ([(function, start, at, local[1:], stack)], ValueError),
        ([(function, start, at, local, (*stack, 1))], ValueError),
        ([(function, start, at, local, ())], ValueError),
        ([(function, 10000, at, local, stack)], ValueError),
        ([(function, -1, at, local, stack)], ValueError),
        ([(generator, start, at, (), stack)], ValueError),
    ):
        with pytest.raises(error):
            resume(wrong)
    with pytest.raises(TypeError):
        resume([frame], ValueError)
    with pytest.raises(TypeError):
        resume([frame], None, 5)
    with pytest.raises(RuntimeError):
        resume([frame], None, Recorder(frames_only))
    assert resume([frame]) == [1, 2, 3]


def test_a_recorder_must_be_passed():
    (frame,) = rebuild(state_of(plain, (1, 2)), 3)
    recorder = Recorder(frames_only)

    def run():
        with pytest.raises(RuntimeError):
            resume([frame])
        recorder.pause()
        value = resume([frame])
        recorder.unpause()
        return value

    assert recorder.run(run) == [1, 2, 3]
    assert recorder.error is None


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="CALL_KW has its keywords on the stack")
def test_keywords_must_not_get_lost():
    code = program_signatures.__code__
    index = next(i.offset // 2 for i in dis.get_instructions(code) if i.opname == "KW_NAMES")
    with pytest.raises(ValueError):
        resume([(program_signatures, next_index(code, index), index, (), (NULL, program_callee, 1, 2))])


# -- memory, recursion, threads, tools ---------------------------------------------------------------------------------


def growth(repeat, times):
    """How many memory blocks more there are after the second half of the calls."""
    for _ in range(times):
        repeat()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        repeat()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_memory_is_flat():
    class Thing:
        pass

    thing = Thing()
    frames = rebuild(state_of(plain, (thing, 2)), thing)
    references = sys.getrefcount(thing)
    assert growth(lambda: resume([*frames]), 50_000) < 50
    assert sys.getrefcount(thing) == references


def catch_boom(frames):
    try:
        resume([*frames], Boom())
    except Boom:
        return
    raise AssertionError


def test_memory_is_flat_with_exceptions_and_more_frames():
    machine = stopped(program_recursive, 3)
    STATE.machine = types.SimpleNamespace(op=lambda args: args[0])
    frames = rebuild(machine.frames, 1)
    raising = rebuild(machine.frames)
    assert growth(lambda: resume([*frames]), 5_000) < 50
    assert growth(lambda: catch_boom(raising), 5_000) < 50


def test_memory_is_flat_under_a_recorder():
    machine = stopped(program_recursive, 3)
    STATE.machine = types.SimpleNamespace(op=lambda args: args[0])
    frames = rebuild(machine.frames, 1)

    def run():
        recorder = Recorder(frames_only)
        recorder.run(resume, (frames, None, recorder))
        assert recorder.error is None

    assert growth(run, 300) < 50


def deeper(n):
    return n if n == 0 else deeper(n - 1)


def how_deep():
    """How many more levels Python functions can recurse."""
    low, high = 0, 3000
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            deeper(middle)
            low = middle
        except RecursionError:
            high = middle
    return low


def program_deepening(n):
    return (op(n), how_deep())[1] if n == 0 else program_deepening(n - 1)


def test_recursion_depth():
    STATE.machine = Machine()
    native = program_deepening(100)
    machine = stopped(lambda: program_deepening(100), 0)
    assert len(machine.frames) == 101
    STATE.machine = Machine()
    frames = rebuild(machine.frames, 0)
    assert abs(resume([*frames]) - native) <= 4
    assert abs(program_deepening(100) - native) <= 1


def test_too_many_frames_are_a_recursion_error():
    machine = stopped(lambda: program_recursive(100), 99)
    frames = rebuild(machine.frames, 1)
    with pytest.raises(RecursionError):
        resume(frames[:50] + frames[40:50] * 400 + frames[50:])
    STATE.machine = Machine()
    assert resume([*frames]) > 0


def test_threads():
    failures = []
    frames = rebuild(state_of(plain, (1, 2)), 3)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            if deeper(20) != 0:
                failures.append("deeper")

    def resuming():
        try:
            for _ in range(3000):
                if resume([*frames]) != [1, 2, 3]:
                    failures.append("resume")
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        others = [threading.Thread(target=work) for _ in range(2)]
        threads = [threading.Thread(target=resuming) for _ in range(3)]
        for thread in others + threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        for thread in others:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_tracers_see_balanced_events():
    machine = stopped(program_deep, 2)

    for raises in (False, True):
        machine = stopped(program_deep, 2)
        events = []

        def tracer(frame, event, arg, events=events):
            if is_program(frame.f_code):
                events.append((frame.f_code.co_name, event))
            return tracer

        frames = rebuild(machine.frames, NULL if raises else machine.value)
        STATE.machine = Machine(count=3)
        for install, remove in ((sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile)):
            machine = stopped(program_deep, 2)
            STATE.machine = Machine(count=3)
            frames = rebuild(machine.frames, NULL if raises else machine.value)
            events.clear()
            before = remove()
            install(tracer)
            try:
                resume([*frames], Boom() if raises else None)
            finally:
                install(before)
            calls = [name for name, event in events if event == "call"]
            returns = [name for name, event in events if event == "return"]
            assert sorted(calls) == sorted(returns) and len(calls) >= 3, (install, raises)
            assert calls[:3] == ["program_deep3", "program_deep2", *calls[2:3]]
            if install is sys.settrace:
                assert ("program_deep2", "line") in events or ("program_deep", "line") in events


def test_profiler():
    import cProfile

    machine = stopped(program_deep, 2)
    STATE.machine = Machine(count=3)
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        resume(rebuild(machine.frames, machine.value))
        deeper(3)
    finally:
        profiler.disable()
    counts = {entry.code.co_name: entry.callcount for entry in profiler.getstats() if hasattr(entry.code, "co_name")}
    assert counts["program_deep"] == counts["program_deep2"] == 1
    assert counts["deeper"] == 4


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_tools_that_came_later():
    machine = stopped(program_deep, 2)
    STATE.machine = Machine(count=3)
    frames = rebuild(machine.frames, machine.value)
    monitoring = sys.monitoring
    events = monitoring.events
    seen = []
    monitoring.use_tool_id(2, "test")
    kinds = {"PY_START": events.PY_START, "PY_RETURN": events.PY_RETURN, "LINE": events.LINE}
    kinds |= {"PY_THROW": events.PY_THROW, "PY_UNWIND": events.PY_UNWIND}
    try:
        for name, kind in kinds.items():
            monitoring.register_callback(
                2, kind, lambda code, *rest, name=name: seen.append((name, code.co_name)) if is_program(code) else None
            )
        monitoring.set_events(2, sum(kinds.values()))
        resume([*frames])
    finally:
        monitoring.set_events(2, 0)
        for kind in kinds.values():
            monitoring.register_callback(2, kind, None)
        monitoring.free_tool_id(2)
    names = ["program_deep3", "program_deep2", "program_deep"]
    assert [name for kind, name in seen if kind == "PY_START"][:1] == names[:1]
    starts = [name for kind, name in seen if kind == "PY_START"]
    returns = [name for kind, name in seen if kind == "PY_RETURN"]
    assert sorted(starts) == sorted(returns) and set(names) == set(starts)
    assert not [event for event in seen if event[0] in ("PY_THROW", "PY_UNWIND")]
    assert {name for kind, name in seen if kind == "LINE"} >= {"program_deep2"}


def test_adaptive_code():
    """Hot code is resumed in its specialised form."""
    STATE.machine = types.SimpleNamespace(op=lambda args: args[0])
    for _ in range(100):
        program_signatures(), program_expressions(), program_for_range(), program_comprehensions()
    for program in (program_signatures, program_expressions, program_for_range, program_comprehensions):
        test_goes_on_with_the_value(program)
        test_goes_on_with_an_exception(program)


def test_previous_hook_is_kept():
    """Many resumes later, calls are still inlined: no hook is left behind."""
    frames = rebuild(state_of(plain, (1, 2)), 3)
    for _ in range(10):
        resume([*frames])
    assert how_deep() > 500

    def count():
        frame, n = sys._getframe(), 0
        while frame:
            frame, n = frame.f_back, n + 1
        return n

    assert count() == count()


def test_a_list_of_frames_is_emptied():
    class Thing:
        pass

    def dropping(a):
        b = a
        reference = weakref.ref(a)
        op(1)
        del a, b
        return reference()

    frames = list(rebuild(state_of(dropping, (Thing(),)), 1))
    STATE.machine = None
    assert resume(frames) is None and frames == []


def test_callbacks_of_rebuilt_frames():
    machine = stopped(program_deep, 2)
    log = []
    recorder = Recorder(
        frames_only,
        lambda code, function, args, kind: log.append(("enter", code.co_name)),
        lambda code, value, kind: log.append(("exit", code.co_name, kind)),
    )
    machine.op = lambda args: log.append([code.co_name for code, _ in recorder.pending()]) or args[0]
    STATE.machine = machine
    recorder.run(resume, (rebuild(machine.frames, machine.value), None, recorder))
    assert recorder.error is None
    names = ["program_deep", "program_deep2", "program_deep3"]
    assert log == [("exit", names[2], 0), ("exit", names[1], 0), names[:1], ("exit", names[0], 0)]
    assert recorder.counts()["entered"] == 3


def test_a_failing_plan_does_not_reach_the_program():
    machine = stopped(program_deep, 2)
    STATE.machine = Machine(count=3)

    def plan_for(code):
        raise KeyError("plan")

    recorder = Recorder(plan_for)
    result = recorder.run(resume, (rebuild(machine.frames, machine.value), None, recorder))
    assert result[0] == "a" and isinstance(recorder.error, KeyError)


def test_resume_within_resume():
    frames = rebuild(state_of(plain, (1, 2)), 3)
    outer_frames = rebuild(state_of(program_simple, ()), 5)
    results = []

    class Nested(Machine):
        def op(self, args):
            results.append(resume(frames))
            return args[0]

    STATE.machine = Nested()
    assert resume(outer_frames) == 7 and results == [[1, 2, 3]]


def test_tracebacks_outlive_the_frames():
    machine = stopped(program_deep, 2)
    machine.frames = [f for f in machine.frames if f[1].co_name != "program_deep"]
    STATE.machine = Machine(count=3)
    with pytest.raises(Boom) as caught:
        resume(rebuild(machine.frames), Boom())
    entry = caught.value.__traceback__
    while entry.tb_next:
        entry = entry.tb_next
    frame = entry.tb_frame
    gc.collect()
    assert [frame.f_code.co_name, frame.f_back.f_code.co_name] == ["program_deep3", "program_deep2"]
    assert frame.f_locals["x"] == 2 and frame.f_back.f_locals["out"] == [(1, 1, False)]
    assert frame.f_back.f_back.f_code.co_name == "test_tracebacks_outlive_the_frames"


def test_collections_and_inspection_while_frames_wait():
    machine = stopped(program_deep, 2)

    class Spy(Machine):
        def op(self, args):
            gc.collect()
            frame = sys._getframe(1)
            while frame:
                assert frame.f_lineno > 0 and isinstance(dict(frame.f_locals), dict)
                frame = frame.f_back
            gc.collect()
            return super().op(args)

    STATE.machine = Spy(count=3)
    assert resume(rebuild(machine.frames, machine.value))[0] == "a"


def test_answered_frames_and_rebuilt_ones():
    machine = stopped(program_deep, 1)
    STATE.machine = Machine(count=2)
    code = next(frame[1] for frame in machine.frames if frame[1].co_name == "program_deep3")
    hook = FrameHook({code: lambda function, args: ("answered", *args)})
    result = hook.run(resume, (rebuild(machine.frames, machine.value),))
    assert result == ("a", (1, 1, False), ("answered", 2), "z") and hook.answered == 1
