"""The capture protocol: plans, callbacks, where one is, and what goes wrong."""

import dis
import functools
import gc
import sys
import weakref

import pytest

from magpy_runtime.capture import NULL, EntryKind, ExitKind, Recorder


def units(code, opname):
    """The indices of an opcode's instructions."""
    return [i.offset // 2 for i in dis.get_instructions(code) if i.opname == opname]


def plan_of(function, items):
    """A plan_for that reports the given units of one function and has no plan for anything else."""
    code = function.__code__

    def plan_for(asked):
        if asked is not code:
            return None
        plan = [None] * (len(code.co_code) // 2)
        for unit, item in items.items():
            plan[unit] = item
        return plan

    return plan_for


def every_unit(function, item):
    """A plan_for that reports each instruction of one function in the same way."""
    return plan_of(function, {i.offset // 2: item for i in dis.get_instructions(function.__code__)})


def add(a, b):
    c = a + b
    return c


def test_before_and_after_of_one_instruction():
    log = []
    unit = units(add.__code__, "BINARY_OP")[0]

    def before(inputs, arg):
        log.append(("before", inputs, arg, recorder.offset(), recorder.line()))
        return "state"

    def after(state, outputs, arg):
        log.append(("after", state, outputs, arg, recorder.offset(), recorder.line()))

    recorder = Recorder(plan_of(add, {unit: (before, after, 2, 1, "arg")}))
    assert recorder.run(add, (2, 3)) == 5
    line = add.__code__.co_firstlineno + 1
    assert log == [("before", (2, 3), "arg", unit, line), ("after", "state", (5,), "arg", unit, line)]
    assert recorder.error is None
    assert not recorder.active


@pytest.mark.parametrize("name", ["before", "after"])
def test_only_one_of_the_two(name):
    log = []
    unit = units(add.__code__, "BINARY_OP")[0]
    both = {"before": lambda inputs, arg: log.append(inputs), "after": lambda state, out, arg: log.append((state, out))}
    item = (both["before"] if name == "before" else None, both["after"] if name == "after" else None, 2, 1, None)
    recorder = Recorder(plan_of(add, {unit: item}))
    assert recorder.run(add, (2, 3)) == 5
    assert log == [(2, 3)] if name == "before" else [(None, (5,))]
    assert recorder.counts()["reported"] == 1


def test_nothing_to_call_is_skipped():
    recorder = Recorder(every_unit(add, (None, None, 9, 9, None)))
    assert recorder.run(add, (2, 3)) == 5
    counts = recorder.counts()
    assert counts["reported"] == 0 and counts["entered"] == 1 and counts["events"] >= 6


def test_run_takes_args_and_kwargs():
    def f(*args, **kwargs):
        return args, kwargs

    assert Recorder(lambda code: None).run(f) == ((), {})
    assert Recorder(lambda code: None).run(f, (1,), {"a": 2}) == ((1,), {"a": 2})
    assert Recorder(lambda code: None).run(func=f, args=(1,), kwargs=None) == ((1,), {})
    assert Recorder(lambda code: None).run(len, ("abc",)) == 3
    for bad in ((f, [1]), (f, (), [1]), (f, None), ()):
        with pytest.raises(TypeError):
            Recorder(lambda code: None).run(*bad)


def test_exceptions_pass_untouched():
    error = ValueError("mine")

    def f():
        raise error

    log = []
    recorder = Recorder(every_unit(f, (None, None, 0, 0, None)), None, lambda *args: log.append(args))
    with pytest.raises(ValueError, match="mine") as caught:
        recorder.run(f)
    assert caught.value is error and error.__context__ is None
    assert recorder.error is None
    assert log == [(f.__code__, NULL, ExitKind.EXCEPTION)]


def test_null_slots():
    def f(x):
        return len(x)

    seen = []
    recorder = Recorder(
        plan_of(f, {units(f.__code__, "CALL")[0]: (lambda inputs, arg: seen.append(inputs), None, 3, 0, None)})
    )
    assert recorder.run(f, ("ab",)) == 2
    assert set(map(type, seen[0])) == {type(len), type(NULL), str}
    assert seen[0][-1] == "ab" and NULL in seen[0] and len in seen[0]
    assert repr(NULL) == "NULL"
    with pytest.raises(TypeError):
        type(NULL)()


def test_fallthrough_tells_an_exhausted_loop():
    def f(xs):
        total = 0
        for x in xs:
            total += x
        return total

    unit = units(f.__code__, "FOR_ITER")[0]
    following = min(u for u in units(f.__code__, "STORE_FAST") if u > unit)
    log = []
    item = (None, lambda state, outputs, arg: log.append(outputs), 0, 1, None, following)
    recorder = Recorder(plan_of(f, {unit: item}))
    assert recorder.run(f, ([3, 4],)) == 7
    assert log == [(3,), (4,), ()]


def test_after_of_raising_instruction_comes_at_the_handler():
    def f(x):
        try:
            return 1 / x
        except ZeroDivisionError:
            return "handled"

    log = []
    unit = units(f.__code__, "BINARY_OP")[0]

    def plan_for(code):
        plan = plan_of(f, {unit: (None, lambda s, outputs, arg: log.append(outputs), 0, 1, None)})(code)
        if plan is not None:
            handler = units(code, "PUSH_EXC_INFO")[0]
            plan[handler] = (lambda inputs, arg: log.append("handler"), None, 1, 0, None)
        return plan

    assert Recorder(plan_for).run(f, (0,)) == "handled"
    assert log == [None, "handler"]


def test_after_of_pending_instructions_when_an_exception_leaves():
    def inner():
        raise KeyError

    def outer():
        return inner()

    log = []

    def plan_for(code):
        if code not in (inner.__code__, outer.__code__):
            return None
        plan = [None] * (len(code.co_code) // 2)
        for i in dis.get_instructions(code):
            if i.opname in ("CALL", "RAISE_VARARGS"):
                item = (None, lambda state, outputs, arg: log.append((arg, outputs)), 0, 0, code.co_name)
                plan[i.offset // 2] = item
        return plan

    recorder = Recorder(plan_for, None, lambda code, value, kind: log.append((code.co_name, value, kind)))
    with pytest.raises(KeyError):
        recorder.run(outer)
    assert log == [("inner", None), ("inner", NULL, 2), ("outer", None), ("outer", NULL, 2)]


def test_enter_gives_arguments():
    def f(a, /, b, c=3, *args, d, **kwargs):
        return lambda: (a, args, kwargs)

    def g():
        return f(1, 2, 3, 4, 5, d=6, e=7)

    log = []
    recorder = Recorder(every_unit(f, (None, None, 0, 0, None)), lambda *args: log.append(args))
    recorder.run(g)
    assert log == [(f.__code__, f, (1, 2, 3, 6, (4, 5), {"e": 7}), EntryKind.CALL)]


def test_enter_and_exit_of_generators():
    def gen(n):
        got = yield n
        try:
            yield got
        except KeyError:
            yield "caught"

    def f():
        it = gen(1)
        out = [next(it), it.send(5), it.throw(KeyError)]
        it.close()
        return out

    log = []
    recorder = Recorder(
        every_unit(gen, (None, None, 0, 0, None)),
        lambda code, function, args, kind: log.append((args, kind, recorder.offset())),
        lambda code, value, kind: log.append((value, kind)),
    )
    assert recorder.run(f) == [1, 5, "caught"]
    assert recorder.error is None
    kinds = [entry[1] for entry in log]
    assert kinds == [0, 1, 1, 1, 2, 1, 2, 2]
    assert [entry[0] for entry in log] == [(1,), 1, (), 5, (), "caught", (), NULL]
    resumes, yields = units(gen.__code__, "RESUME"), units(gen.__code__, "YIELD_VALUE")
    assert [entry[2] for entry in log if len(entry) == 3] == [resumes[0], resumes[1], yields[1], yields[2]]


def test_throw_into_a_generator_that_was_not_started():
    def gen():
        yield 1

    def f():
        gen().throw(KeyError)

    log = []
    recorder = Recorder(
        every_unit(gen, (None, None, 0, 0, None)),
        lambda code, function, args, kind: log.append((args, kind, recorder.offset())),
        lambda code, value, kind: log.append((value, kind)),
    )
    with pytest.raises(KeyError):
        recorder.run(f)
    assert recorder.error is None
    assert log == [((), 2, units(gen.__code__, "RETURN_GENERATOR")[0]), (NULL, 2)]


def test_sent_value_is_seen_at_resume():
    def gen():
        return (yield 1)

    def f():
        it = gen()
        next(it)
        try:
            it.send("sent")
        except StopIteration as stop:
            return stop.value

    seen = []
    unit = units(gen.__code__, "RESUME")[1]
    recorder = Recorder(plan_of(gen, {unit: (lambda inputs, arg: seen.append(inputs), None, 1, 0, None)}))
    assert recorder.run(f) == "sent"
    assert seen == [("sent",)]


def test_delegating_generator_that_is_resumed_by_a_throw():
    """On 3.11, CPython gives no call event for the outer generator here."""

    def inner():
        try:
            yield 1
        except ValueError:
            return "caught"

    def outer():
        x = yield from inner()
        yield x

    def f():
        it = outer()
        next(it)
        value = it.throw(ValueError)
        return value, it

    log = []
    recorder = Recorder(
        every_unit(outer, (None, None, 0, 0, None)),
        lambda code, function, args, kind: log.append(("enter", kind)),
        lambda code, value, kind: log.append(("exit", value, kind)),
    )
    value, it = recorder.run(f)
    assert recorder.error is None
    assert value == "caught"
    assert log[0:2] == [("enter", 0), ("exit", 1, 1)]
    assert log[2][0] == "enter" and log[3:] == [("exit", "caught", 1)]
    assert it.gi_frame.f_trace_opcodes is False


def test_places_and_variables():
    def inner(a):
        def cell():
            return a

        x = add(a, 1)
        return x

    def outer():
        return inner(4)

    seen = {}

    def look(inputs, arg):
        if recorder.code() is add.__code__:
            seen["pending"] = recorder.pending()
            seen["function"] = recorder.function()
            seen["globals"] = recorder.globals() is globals()
            seen["builtins"] = recorder.builtins()["len"] is len
            seen["locals"] = recorder.local(0), recorder.local(1), recorder.local(2)
            seen["depth"] = recorder.depth()
        elif recorder.code() is inner.__code__:
            seen.setdefault("cell", recorder.local(0))
        for bad in (-1, 99):
            with pytest.raises(IndexError):
                recorder.local(bad)

    def plan_for(code):
        if code in (add.__code__, inner.__code__, outer.__code__):
            plan = [None] * (len(code.co_code) // 2)
            for i in dis.get_instructions(code):
                if i.opname in ("BINARY_OP", "CALL"):
                    plan[i.offset // 2] = (look, None, 0, 0, None)
            return plan

    recorder = Recorder(plan_for)
    assert recorder.run(outer) == 5
    assert recorder.error is None
    codes = [code for code, _ in seen["pending"]]
    assert codes == [outer.__code__, inner.__code__, add.__code__]
    for code, unit in seen["pending"]:
        assert unit in units(code, "CALL") + units(code, "BINARY_OP")
    assert seen["function"] is add and seen["globals"] and seen["builtins"]
    assert seen["locals"] == (4, 1, NULL)
    assert seen["depth"] == 3
    assert seen["cell"].cell_contents == 4
    for question in (recorder.code, recorder.offset, recorder.line, recorder.globals, recorder.function):
        with pytest.raises(RuntimeError):
            question()
    assert recorder.pending() == () and recorder.depth() == 0


def test_extended_args():
    source = "def f():\n" + "".join(f"    v{i} = {i + 1000}\n" for i in range(300)) + "    return v299\n"
    space = {}
    exec(source, space)
    f = space["f"]
    log = []
    items = {}
    for i in dis.get_instructions(f.__code__):
        if i.opname == "LOAD_CONST":
            items[i.offset // 2] = (
                lambda inputs, arg: log.append((recorder.offset(), inputs)),
                lambda state, outputs, arg: log.append((arg, outputs)),
                0,
                1,
                (i.offset // 2, i.argval),
            )
    recorder = Recorder(plan_of(f, items))
    assert recorder.run(f) == 1299
    assert len(log) == 600
    for at in range(0, 600, 2):
        (unit, inputs), ((planned, value), outputs) = log[at : at + 2]
        assert (unit, inputs) == (planned, ()) and outputs == (value,)
    assert recorder.counts()["events"] in (602, 603)


def test_frames_without_plan_and_their_callees():
    def middle(x):
        return add(x, 1)

    def outer():
        return middle(2)

    log = []
    recorder = Recorder(
        lambda code: [None] * (len(code.co_code) // 2) if code in (add.__code__, outer.__code__) else None,
        lambda code, *rest: log.append(code.co_name),
        lambda code, *rest: log.append(code.co_name),
    )
    assert recorder.run(outer) == 3
    assert log == ["outer", "add", "add", "outer"]


def test_plan_is_asked_for_once():
    asked = []

    def plan_for(code):
        asked.append(code)
        return None

    def f():
        return [add(i, 1) for i in range(5)]

    recorder = Recorder(plan_for)
    recorder.run(f)
    assert len(asked) == len(set(asked)) and asked.count(add.__code__) == 1


@pytest.mark.parametrize(
    "plan",
    [
        (),
        [None],
        "text",
        [(1, 2)] * 500,
        lambda n: [(1, None, 0, 0, None)] * n,
        lambda n: [(None, 1, 0, 0, None)] * n,
        lambda n: [(None, repr, -1, 0, None)] * n,
        lambda n: [(None, repr, 0, 0, None, n)] * n,
        lambda n: [(None, repr, 2**40, 0, None)] * n,
        lambda n: [(None, repr, "x", 0, None)] * n,
        lambda n: [(lambda *args: None, None, 50, 0, None)] * n,
        lambda n: [(None, lambda *args: None, 0, 50, None)] * n,
        lambda n: [[None] * 5] * n,
    ],
)
def test_bad_plans_end_the_capture_and_nothing_else(plan):
    length = len(add.__code__.co_code) // 2
    recorder = Recorder(lambda code: plan(length) if callable(plan) else plan)
    assert recorder.run(add, (1, 2)) == 3
    assert isinstance(recorder.error, (TypeError, ValueError, OverflowError))
    assert not recorder.active and recorder.depth() == 0


def boom(*args):
    raise ZeroDivisionError("in a callback")


def test_callbacks_that_raise():
    def f():
        try:
            return add(1, 2)
        except ZeroDivisionError:
            return "leaked"

    def fine(*args):
        calls.append(args)

    for role in ("plan_for", "on_enter", "on_exit", "before", "after"):
        calls = []
        item = (boom if role == "before" else fine, boom if role == "after" else fine, 0, 0, None)
        recorder = Recorder(
            boom if role == "plan_for" else every_unit(add, item),
            boom if role == "on_enter" else fine,
            boom if role == "on_exit" else fine,
        )
        assert recorder.run(f) == 3
        assert isinstance(recorder.error, ZeroDivisionError)
        assert recorder.error.__traceback__.tb_frame.f_code is boom.__code__
        assert not recorder.active
        assert len(calls) <= {"plan_for": 0, "on_enter": 0, "before": 1, "after": 2}.get(role, 100)


def test_callback_that_raises_while_an_exception_leaves():
    def f():
        raise KeyError("mine")

    for role in ("after", "on_exit"):
        item = (None, boom if role == "after" else lambda *args: None, 0, 0, None)
        recorder = Recorder(every_unit(f, item), None, boom if role == "on_exit" else None)
        with pytest.raises(KeyError, match="mine"):
            recorder.run(f)
        assert isinstance(recorder.error, ZeroDivisionError)


def test_callback_that_raises_while_an_exception_is_thrown_in():
    def gen():
        yield 1

    def f():
        it = gen()
        next(it)
        it.throw(KeyError("thrown"))

    def on_enter(code, function, args, kind):
        if kind == EntryKind.THROW:
            boom()

    recorder = Recorder(every_unit(gen, (None, None, 0, 0, None)), on_enter)
    with pytest.raises(KeyError, match="thrown"):
        recorder.run(f)
    assert isinstance(recorder.error, ZeroDivisionError)


@pytest.mark.parametrize("role", ["plan_for", "on_enter", "on_exit", "before", "after"])
def test_stop_in_a_callback(role):
    calls = []

    def make(name, result=None):
        def callback(*args):
            calls.append(name)
            if name == role and len([c for c in calls if c == role]) == 2:
                recorder.stop()
                recorder.stop()
                assert not recorder.active
                assert recorder.depth() == 0
                calls.append("stopped")
            return result(*args) if result else None

        return callback

    def f():
        return [add(i, 1) for i in range(5)], sorted([3, 1], key=lambda v: add(v, 1))

    def plan_for(code):
        return [(make("before"), make("after"), 0, 0, None)] * (len(code.co_code) // 2)

    recorder = Recorder(make("plan_for", plan_for), make("on_enter"), make("on_exit"))
    assert recorder.run(f) == ([1, 2, 3, 4, 5], [1, 3])
    assert recorder.error is None
    assert calls[-1] == "stopped"
    # The thread is free again.
    assert Recorder(lambda code: None).run(add, (1, 2)) == 3


def test_pause():
    def handler(x):
        recorder.pause()
        try:
            recorder.pause()
            places.append((recorder.code(), recorder.offset(), recorder.line(), recorder.local(0)))
            add(x, 1)
            recorder.unpause()
            add(x, 1)
        finally:
            recorder.unpause()
        return add(x, 2)

    def f(x):
        y = handler(x)
        return add(y, 3)

    places, entered = [], []
    recorder = Recorder(
        lambda code: [None] * (len(code.co_code) // 2) if code in (add.__code__, f.__code__) else None,
        lambda code, *rest: entered.append(code.co_name),
    )
    assert recorder.run(f, (1,)) == 6
    assert recorder.error is None
    assert entered == ["f", "add", "add"]
    assert places == [(f.__code__, units(f.__code__, "CALL")[0], f.__code__.co_firstlineno + 1, 1)]
    with pytest.raises(RuntimeError, match="without"):
        recorder.unpause()


def test_pause_in_a_callback():
    log = []

    def before(inputs, arg):
        recorder.pause()
        add(1, 2)
        recorder.unpause()
        log.append(recorder.offset())

    recorder = Recorder(every_unit(add, (before, None, 0, 0, None)))
    assert recorder.run(add, (1, 2)) == 3
    assert recorder.error is None and len(log) >= 6


def test_questions_about_a_frame_that_left_in_a_pause():
    def pauses(x):
        recorder.pause()

    def f():
        pauses(1)
        for question in (lambda: recorder.local(0), recorder.globals, recorder.builtins, recorder.function):
            with pytest.raises(RuntimeError, match="no monitored frame"):
                question()
        return add(1, 2)

    recorder = Recorder(lambda code: [None] * (len(code.co_code) // 2))
    assert recorder.run(f) == 3


def test_unbalanced_pause_is_an_error():
    def pauses():
        recorder.pause()

    def f():
        pauses()
        return add(1, 2)

    recorder = Recorder(lambda code: [None] * (len(code.co_code) // 2))
    assert recorder.run(f) == 3
    assert isinstance(recorder.error, RuntimeError)


def test_frame_left_in_a_pause_is_an_error():
    def pauses():
        recorder.pause()

    def f():
        pauses()
        recorder.unpause()
        return add(1, 2)

    recorder = Recorder(lambda code: [None] * (len(code.co_code) // 2))
    assert recorder.run(f) == 3
    assert isinstance(recorder.error, RuntimeError)
    assert not recorder.active


def test_stop_while_paused():
    def f():
        recorder.pause()
        recorder.stop()
        recorder.unpause()
        return add(1, 2)

    recorder = Recorder(lambda code: [None] * (len(code.co_code) // 2))
    assert recorder.run(f) == 3
    assert recorder.error is None and not recorder.active


def test_runs_once():
    recorder = Recorder(lambda code: None)
    recorder.run(add, (1, 2))
    with pytest.raises(RuntimeError, match="once"):
        recorder.run(add, (1, 2))


def test_no_nested_run():
    def f():
        with pytest.raises(RuntimeError, match="another"):
            Recorder(lambda code: None).run(add, (1, 2))
        with pytest.raises(RuntimeError, match="once"):
            recorder.run(add, (1, 2))
        recorder.stop()
        return Recorder(lambda code: None).run(add, (1, 2))

    recorder = Recorder(lambda code: None)
    assert recorder.run(f) == 3


def test_nested_run_after_a_stop_leaves_the_outer_alone():
    def inner():
        return add(1, 2)

    def f():
        recorder.stop()
        other = Recorder(every_unit(add, (lambda *args: log.append(args), None, 0, 0, None)))
        return other.run(inner), other.counts()["entered"], other.error

    log = []
    recorder = Recorder(lambda code: None)
    assert recorder.run(f) == (3, 1, None)
    assert log


def test_ctrl_c_in_a_callback_reaches_the_program(request):
    import _thread
    import signal

    # A process in the background starts with SIGINT ignored.
    request.addfinalizer(functools.partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def f():
        try:
            for _ in range(100_000):
                add(1, 2)
        except KeyboardInterrupt:
            return "interrupted"

    def before(inputs, arg):
        _thread.interrupt_main()
        for _ in range(10):
            pass

    recorder = Recorder(plan_of(add, {units(add.__code__, "BINARY_OP")[0]: (before, None, 0, 0, None)}))
    assert recorder.run(f) == "interrupted"


def test_counts():
    recorder = Recorder(every_unit(add, (lambda *args: None, None, 0, 0, None)))
    recorder.run(add, (1, 2))
    counts = recorder.counts()
    assert set(counts) == {"events", "reported", "entered"}
    assert counts["entered"] == 1 and counts["events"] == counts["reported"] >= 6


def test_constructor():
    with pytest.raises(TypeError):
        Recorder()
    recorder = Recorder(plan_for=lambda code: None, on_enter=None, on_exit=None)
    assert recorder.run(add, (1, 2)) == 3
    assert Recorder(lambda code: None).active is False


def test_recorder_is_collected():
    class Marker:
        pass

    def make():
        marker = Marker()
        recorder = Recorder(every_unit(add, (lambda *args: recorder, None, 0, 0, marker)))
        recorder.run(add, (1, 2))
        return weakref.ref(marker)

    reference = make()
    gc.collect()
    assert reference() is None


def test_states_live_only_until_after():
    class State:
        pass

    alive = []

    def before(inputs, arg):
        state = State()
        alive.append(weakref.ref(state))
        return state

    def after(state, outputs, arg):
        assert [r() is not None for r in alive] == [False] * (len(alive) - 1) + [True]

    recorder = Recorder(every_unit(add, (before, after, 0, 0, None)))
    recorder.run(add, (1, 2))
    assert recorder.error is None
    assert not [r for r in alive if r() is not None]


def test_garbage_is_not_collected_in_a_callback():
    """Finalizers of the program run in the program."""

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            where.append(inside[0])

    def f():
        for _ in range(300):
            Cycle()

    def before(inputs, arg):
        inside[0] = True
        keep.extend([[] for _ in range(20)])
        inside[0] = False

    where, inside, keep = [], [False], []
    recorder = Recorder(every_unit(f, (before, None, 0, 0, None)))
    assert gc.isenabled()
    recorder.run(f)
    assert recorder.error is None and gc.isenabled()
    assert where and not any(where)


def test_inputs_are_not_kept():
    class Thing:
        def __add__(self, other):
            return sys.getrefcount(self)

    def f():
        return Thing() + 1

    native = f()
    recorder = Recorder(every_unit(f, (lambda inputs, arg: None, lambda state, outputs, arg: None, 0, 0, None)))
    assert recorder.run(f) == native
    unit = units(f.__code__, "BINARY_OP")[0]
    recorder = Recorder(plan_of(f, {unit: (lambda inputs, arg: None, lambda *args: None, 2, 1, None)}))
    assert recorder.run(f) == native
