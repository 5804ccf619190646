"""The frame hook: frames are answered by callables instead of being run."""

import asyncio
import contextlib
import gc
import sys
import threading
import traceback
import weakref

import pytest

from magpy_runtime.capture import NULL, FrameHook, Recorder, unhooked

RAN = []


def target(a, b=2, *rest, c=3, **more):
    RAN.append((a, b, rest, c, more))
    try:
        return sum(x for x in (a, b, c))
    finally:
        RAN.append("finally")


def closes_over(x):
    y = x

    def inner(z):
        nonlocal y
        y += z
        return y

    return inner


def caller(*args, **kwargs):
    return ["called", target(*args, **kwargs)]


@pytest.fixture(autouse=True)
def clear():
    RAN.clear()


def test_answers():
    asked = []

    def answer(function, args):
        asked.append((function, args))
        return "answered"

    hook = FrameHook({target.__code__: answer})
    assert hook.run(caller, (1, 5, 6), {"c": 7, "d": 8}) == ["called", "answered"]
    assert asked == [(target, (1, 5, 7, (6,), {"d": 8}))] and not RAN
    assert hook.answered == 1
    assert caller(1) == ["called", 6]
    assert len(RAN) == 2 and hook.answered == 1


def test_declines_with_null():
    hook = FrameHook({target.__code__: lambda function, args: NULL})
    with hook:
        assert caller(1) == ["called", 6]
    assert len(RAN) == 2 and hook.answered == 0
    with FrameHook({target.__code__: lambda function, args: NotImplemented}):
        assert caller(1) == ["called", NotImplemented]


def test_answer_may_call_the_function():
    depth = []

    def answer(function, args):
        if depth:
            return NULL
        depth.append(1)
        return -function(*args[:2])

    with FrameHook({target.__code__: answer}):
        assert caller(1) == ["called", -6]


def test_exceptions_leave_as_natively():
    def answer(function, args):
        raise KeyError("answer")

    with FrameHook({target.__code__: answer}):
        with pytest.raises(KeyError) as caught:
            caller(1)
        try:
            caller(1)
        except KeyError:
            assert sys.exc_info()[0] is KeyError
        assert sys.exc_info() == (None, None, None)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert names[-3:] == ["caller", "target", "answer"] and caught.value.__context__ is None
    assert not RAN


def test_cells_and_free_variables():
    inner = closes_over(1)
    with FrameHook({closes_over.__code__: lambda function, args: args, inner.__code__: lambda f, args: (f, args)}):
        assert closes_over(5) == (5,)
        assert inner(6) == (inner, (6,))
    assert inner(6) == 7


def test_answers_change_while_installed():
    hook = FrameHook()
    code = target.__code__
    with hook:
        assert target(1) == 6
        hook.answer(code, lambda function, args: "one")
        assert target(1) == "one"
        hook.answer(code, lambda function, args: "two")
        assert target(1) == "two"
        hook.answer(code, None)
        assert target(1) == 6
        for i in range(100):
            space = {}
            exec(f"def f{i}(): return {i}", space)
            hook.answer(space[f"f{i}"].__code__, lambda function, args: "many")
            assert space[f"f{i}"]() == "many"
        hook.answer(code, lambda function, args: "three")
        assert target(1) == "three"


def test_nested_hooks():
    first = FrameHook({target.__code__: lambda f, a: "first", caller.__code__: lambda f, a: "caller"})
    second = FrameHook({target.__code__: lambda f, a: "second"})
    with first:
        with second:
            assert target(1) == "second" and caller(1) == "caller"
            with pytest.raises(RuntimeError):
                first.remove()
        assert target(1) == "first"
        with first:
            assert target(1) == "first"
        assert target(1) == "first"
    assert target(1) == 6
    with pytest.raises(RuntimeError):
        first.remove()


def test_refuses_what_cannot_be_answered():
    def generator():
        yield 1

    async def coroutine():
        await asyncio.sleep(0)

    def endless():
        while True:
            pass

    def raises():
        raise ValueError

    for function in (generator, coroutine, endless, raises):
        with pytest.raises(ValueError):
            FrameHook({function.__code__: print})
    with pytest.raises(ValueError):
        FrameHook({compile("1", "", "exec"): print})
    with pytest.raises(TypeError):
        FrameHook({target.__code__: 5})
    with pytest.raises(TypeError):
        FrameHook({target: print})
    with pytest.raises(TypeError):
        FrameHook().run(print, [])


def test_methods_and_callbacks_from_c():
    class Thing:
        def __init__(self, x):
            self.x = x

        def __lt__(self, other):
            return self.x < other.x

        @property
        def double(self):
            return self.x * 2

    answers = {
        Thing.__init__.__code__: lambda f, args: args[0].__dict__.update(x=-args[1]),
        Thing.double.fget.__code__: lambda f, args: "double",
    }
    with FrameHook(answers) as hook:
        made = [Thing(x) for x in range(3)]
        if sys.version_info < (3, 13):
            assert [m.x for m in sorted(made)] == [-2, -1, 0]
        assert made[0].double == "double"
        for _ in range(100):
            assert made[1].double == "double"
    assert hook.answered >= 101


def test_generators_pass_through():
    def generator(n):
        for i in range(n):
            got = yield target(i)
            if got:
                yield got

    with FrameHook({target.__code__: lambda f, args: args[0] * 10}):
        running = generator(3)
        assert next(running) == 0 and running.send("x") == "x" and next(running) == 10
        with pytest.raises(KeyError):
            running.throw(KeyError)


def test_only_on_its_thread():
    results = []
    with FrameHook({target.__code__: lambda f, args: "answered"}):
        thread = threading.Thread(target=lambda: results.append(target(1)))
        thread.start()
        thread.join()
        assert target(1) == "answered"
    assert results == [6]


def test_many_threads():
    failures = []

    def work(value):
        hook = FrameHook({target.__code__: lambda f, args: value})
        for _ in range(300):
            if target(1) != 6:
                failures.append("native")
            with hook:
                if target(1) is not value:
                    failures.append("hooked")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(object(),)) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


@pytest.mark.parametrize("kind", ["settrace", "setprofile"])
def test_tracers_see_nothing_of_answered_frames(kind):
    events = []

    def tracer(frame, event, arg):
        if frame.f_code in (caller.__code__, target.__code__):
            events.append((frame.f_code.co_name, event))
        return tracer

    before = getattr(sys, "get" + kind[3:])()
    hook = FrameHook({target.__code__: lambda f, args: "answered"})
    install = getattr(sys, kind)
    with hook:
        install(tracer)
        try:
            assert caller(1) == ["called", "answered"]
        finally:
            install(before)
    assert {name for name, _ in events} == {"caller"}
    names = [event for _, event in events if event != "line"]
    assert names == ["call", "return"] and not RAN


def test_a_recorder_comes_first():
    code = target.__code__
    recorder = Recorder(lambda asked: [None] * (len(asked.co_code) // 2) if asked is code else None)
    with FrameHook({code: lambda f, args: "answered"}):
        assert recorder.run(caller, (1,)) == ["called", 6]
        assert recorder.error is None and recorder.counts()["entered"] == 1
        assert caller(1) == ["called", "answered"]


def test_recursion_limit():
    def recursive(n):
        return recursive(n + 1)

    with FrameHook({target.__code__: lambda f, args: "answered"}):
        with pytest.raises(RecursionError):
            recursive(0)
        assert target(1) == "answered"
    with pytest.raises(RecursionError):
        recursive(0)

    def answer(function, args):
        return function(*args)

    with FrameHook({recursive.__code__: answer}), pytest.raises(RecursionError):
        recursive(0)


def growth(repeat, times):
    for _ in range(times):
        repeat()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        repeat()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_memory_is_flat():
    result, argument = object(), object()

    def fail(function, args):
        raise KeyError

    def failing():
        with contextlib.suppress(KeyError):
            closes_over(argument)

    hook = FrameHook({target.__code__: lambda f, args: result, closes_over.__code__: fail})
    gc.collect()  # other tests' garbage refers to None
    counts = sys.getrefcount(result), sys.getrefcount(argument), sys.getrefcount(None)
    with hook:
        assert growth(lambda: target(argument), 100_000) < 50
        assert growth(lambda: target(argument, 2, argument, c=4, d=argument), 20_000) < 50
        assert growth(failing, 20_000) < 50
    assert sys.getrefcount(result) == counts[0] and sys.getrefcount(argument) == counts[1]
    assert abs(sys.getrefcount(None) - counts[2]) < 1000 or sys.version_info >= (3, 12)


def test_hook_is_freed():
    class Answer:
        def __call__(self, function, args):
            return self

    hook = FrameHook()
    answer = Answer()
    answer.hook = hook
    hook.answer(target.__code__, answer)
    with hook:
        assert target(1) is answer
    count = len([o for o in gc.get_objects() if type(o) is Answer])
    assert count == 1
    del hook, answer
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is Answer]


# -- code that is discovered -------------------------------------------------------------------------------------------


def test_discover():
    asked = []

    def first(x):
        return second(x) + 1

    def second(x):
        return x * 2

    def generator(x):
        yield x

    def discover(code):
        asked.append(code.co_name)
        return (lambda function, arguments: -arguments[0]) if code is second.__code__ else None

    hook = FrameHook(discover=discover)
    assert hook.run(first, (5,)) == -4
    assert hook.run(first, (5,)) == -4
    assert hook.run(lambda: [*generator(3)]) == [3]
    assert [*dict.fromkeys(asked)] == asked
    assert asked[:2] == ["first", "second"]
    assert "generator" not in asked
    assert hook.answered == 2
    hook.answer(second.__code__, None)
    assert hook.run(first, (5,)) == 11


def test_discover_may_fail():
    def called(x):
        return x

    def discover(code):
        raise ValueError

    hook = FrameHook(discover=discover)
    assert hook.run(called, (5,)) == 5


def test_answers_of_discovered_code_are_not_answered():
    def called(x):
        return x

    hook = FrameHook(discover=lambda code: lambda function, arguments: (function(*arguments), "answered"))
    assert hook.run(called, (5,)) == (5, "answered")


def test_silent():
    def called(x):
        return x

    def answer(function, arguments):
        raise KeyError

    for silent in (False, True):
        with pytest.raises(KeyError) as caught:
            FrameHook({called.__code__: answer}, silent=silent).run(called, (1,))
        names = []
        entry = caught.value.__traceback__
        while entry is not None:
            names.append(entry.tb_frame.f_code.co_name)
            entry = entry.tb_next
        assert names[1:] == (["answer"] if silent else ["called", "answer"])


def test_unhooked():
    def called(x):
        return x

    def outer(x):
        return called(x), unhooked(called, (x,), {}), called(x)

    hook = FrameHook({called.__code__: lambda function, arguments: "answered"})
    assert hook.run(outer, (5,)) == ("answered", 5, "answered")


def test_a_hook_that_discovers_is_freed():
    class Asked:
        def __call__(self, code):
            return None

    asked = Asked()
    gone = weakref.ref(asked)
    hook = FrameHook(discover=asked)
    hook.run(len, ("",))
    del asked
    assert gone() is not None
    del hook
    assert gone() is None
