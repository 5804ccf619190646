"""Calling below rebuilt frames: what is called sees the frames that a program would have, and nothing else changes."""

import dis
import functools
import gc
import inspect
import logging
import operator
import sys
import threading
import traceback
import types
import warnings
import weakref

import pytest

from magpy_runtime.capture import NULL, call_below, hide

LOOK = []


class Marker:
    """Something that can be referred to weakly."""


def probe():
    """Natively called by the programs below; rebuilt frames call others in its place."""
    return LOOK[0]()


def outermost(x, *, flag=False):
    made = [x, flag]
    return middle(*made, key=x) + 1


def middle(a, b, *args, **kwargs):
    def inner(c):
        with Context():
            return c + probe() + a

    return inner(2)


class Context:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


def endless():
    while True:
        probe()


def frames_of(function, *args, **kwargs):
    """The frames of a call at `probe`, as `call_below` takes them, taken from the running frames."""
    found = []

    def look():
        frame = sys._getframe(2)
        while frame.f_code in CODES or frame.f_code.co_name == "inner":
            found.insert(0, state_of(frame))
            frame = frame.f_back
        raise KeyError

    LOOK[:] = [look]
    with pytest.raises(KeyError):
        function(*args, **kwargs)
    LOOK.clear()
    return tuple(found)


CODES = {outermost.__code__, middle.__code__, endless.__code__}
GLOBALS = {"outermost": outermost, "middle": middle, "endless": endless}


def state_of(frame):
    code = frame.f_code
    names = [*code.co_varnames, *[n for n in code.co_cellvars if n not in code.co_varnames], *code.co_freevars]
    values = dict(frame.f_locals)
    cells = {*code.co_cellvars, *code.co_freevars}
    row = tuple(types.CellType(values[n]) if n in cells else values.get(n, NULL) for n in names)
    function = GLOBALS.get(code.co_name)
    if function is None:
        closure = tuple(types.CellType(values[n]) for n in code.co_freevars)
        function = types.FunctionType(code, globals(), closure=closure)
    at = max(i.offset for i in dis.get_instructions(code) if i.offset <= frame.f_lasti and i.opname != "CACHE") // 2
    stack = (NULL,) * depth_at(code, at)
    return function, 0, at, row, stack


def depth_at(code, at):
    from magpy_runtime import capture
    from magpy_runtime._stackdepth import stack_depths

    depth = stack_depths(code)[at]
    return depth - capture.pops(code, at)


def chain():
    """The frames of the program that call this."""
    found = []
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "test_function":
        found.append((frame.f_code.co_name, frame.f_lineno, frame.f_code.co_filename))
        frame = frame.f_back
    return found


def native(function, look, *args, **kwargs):
    """What `look` gives when it is called in place of `probe`."""
    kept = []

    def noted():
        kept.append(look())
        raise KeyError

    LOOK[:] = [noted]
    with pytest.raises(KeyError):
        function(*args, **kwargs)
    return kept[0]


def names_of(look):
    """What of a chain concerns the program."""
    return [each for each in look if each[0] in ("inner", "middle", "outermost", "endless")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_chain(count):
    frames = frames_of(outermost, 1, flag=True)
    assert len(frames) == 3
    assert (
        names_of(call_below(frames[-count:], chain, (), {})) == names_of(native(outermost, chain, 1, flag=True))[:count]
    )


def test_outermost_goes_back_to_the_caller():
    def look():
        return [frame.function for frame in inspect.stack()]

    assert call_below(frames_of(outermost, 1), look, (), None)[:5] == [
        "look", "inner", "middle", "outermost", "test_outermost_goes_back_to_the_caller"]  # fmt: skip


def test_variables():
    frames = frames_of(outermost, 7, flag=True)
    found = call_below(
        frames, lambda: [*map(dict, map(operator.attrgetter("f_locals"), map(sys._getframe, (1, 2, 3))))], (), {}
    )
    assert found[0] == {"c": 2, "a": 7}
    assert {k: v for k, v in found[1].items() if k != "inner"} == {"a": 7, "b": True, "args": (), "kwargs": {"key": 7}}
    assert found[2] == {"x": 7, "flag": True, "made": [7, True]}


def test_arguments_and_results():
    frames = frames_of(outermost, 1)
    assert call_below(list(frames), lambda *a, **k: (a, k), (1, 2), {"z": 3}) == ((1, 2), {"z": 3})
    given = list(frames)
    call_below(given, len, ("ab",), None)
    assert given == []
    assert call_below(tuple(frames), int, ("12",), {}) == 12


def test_exceptions_have_no_entries_of_the_frames():
    def boom():
        raise ValueError("boom")

    with pytest.raises(ValueError) as caught:
        call_below(frames_of(outermost, 1), boom, (), None)
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_exceptions_have_no_entries_of_the_frames", "boom"]
    assert caught.value.__context__ is None
    assert sys.exc_info() == (None, None, None)


def test_the_handled_exception_is_seen():
    frames = frames_of(outermost, 1)
    try:
        raise KeyError
    except KeyError as error:
        assert call_below(frames, lambda: sys.exc_info()[1], (), None) is error


def test_a_function_that_never_returns():
    frames = frames_of(endless)
    assert call_below(frames, lambda: sys._getframe(1).f_code.co_name, (), None) == "endless"
    with pytest.raises(ZeroDivisionError) as caught:
        call_below(frames, lambda: 1 / 0, (), None)
    assert "endless" not in [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert caught.value.__context__ is None


def test_kept_frames():
    frames = frames_of(outermost, 1)
    frame = call_below(frames, lambda: sys._getframe(1), (), None)
    gc.collect()
    assert names_of([(f.f_code.co_name,) for f in (frame, frame.f_back, frame.f_back.f_back)]) == [
        ("inner",), ("middle",), ("outermost",)]  # fmt: skip
    assert [(f.f_code.co_name, n) for f, n in traceback.walk_stack(frame)][:3] == [
        each[:2] for each in names_of(native(outermost, chain, 1))]  # fmt: skip
    assert frame.f_locals["c"] == 2
    assert frame.f_back.f_back.f_back.f_code.co_name == "test_kept_frames"
    frame.clear()
    assert frame.f_locals == {}


def test_values_live_as_natively():
    marker = Marker()
    dies = weakref.ref(marker)
    frames = frames_of(outermost, marker)
    function, start, at, row, stack = frames[0]
    LOOK.clear()
    del frames
    given = [(function, start, at, row, stack)]
    del row, marker
    gc.collect()
    assert call_below(given, lambda: dies() is not None, (), None)
    assert dies() is None


def test_no_leaks():
    frames = frames_of(outermost, 1)

    def boom():
        raise ValueError

    def run():
        for _ in range(200):
            call_below(frames, lambda: sys._getframe(1).f_locals, (), None)
            with pytest.raises(ValueError):
                call_below(frames, boom, (), None)

    run()
    gc.collect()
    gc.disable()
    try:
        before = [len(gc.get_objects()), sys.getrefcount(frames[0][0]), sys.getrefcount(None)]
        run()
        after = [len(gc.get_objects()), sys.getrefcount(frames[0][0]), sys.getrefcount(None)]
    finally:
        gc.enable()
    assert all(abs(one - other) < 60 for one, other in zip(before, after)), (before, after)


def test_recursion():
    frames = frames_of(outermost, 1)

    def again(depth):
        return call_below(frames, again, (depth + 1,), None)

    for _ in range(3):
        with pytest.raises(RecursionError):
            again(0)
    assert call_below(frames, lambda: 3, (), None) == 3

    def down(depth):
        return depth if depth == 20 else call_below(frames, down, (depth + 1,), None)

    assert down(0) == 20


def test_tracers_see_only_what_runs():
    frames = frames_of(outermost, 1)
    seen = []

    def trace(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return trace

    def called():
        return 1

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call_below(frames, called, (), None)
    finally:
        sys.settrace(before)
    assert seen == [("called", "call"), ("called", "line"), ("called", "return")]
    seen.clear()
    sys.setprofile(trace)
    try:
        call_below(frames, called, (), None)
    finally:
        sys.setprofile(None)
    assert [each for each in seen if not each[1].startswith("c_")] == [("called", "call"), ("called", "return")]


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_warnings(level):
    def warn(more):
        warnings.warn("here", UserWarning, stacklevel=level + more)
        return 0

    def place(call):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            call()
            call()
        assert "__warningregistry__" in globals()
        return [(each.filename, each.lineno) for each in caught]

    frames = frames_of(outermost, 1)
    more = 2 if level > 1 else 0  # natively there are `probe` and what it calls
    expected = place(lambda: native(outermost, functools.partial(warn, more), 1))
    assert len(expected) == 1
    assert place(lambda: call_below(frames, warn, (0,), None)) == expected
    if level > 1:
        line = {2: "inner", 3: "middle", 4: "outermost"}[level]
        assert expected[0][1] == next(each[1] for each in native(outermost, chain, 1) if each[0] == line)


def test_logging():
    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append((record.funcName, record.lineno, record.pathname))

    logger = logging.getLogger("magpy.call_below")
    logger.propagate = False
    logger.addHandler(Handler())
    logger.setLevel(logging.INFO)
    native(outermost, lambda: logger.info("x", stacklevel=4), 1)
    call_below(frames_of(outermost, 1), logger.info, ("x",), {})
    call_below(frames_of(outermost, 1), logging.Logger.info, (logger, "x"), {})
    assert len(records) == 3
    assert records[0] == records[1] == records[2]
    assert records[0][0] == "inner"


def test_hidden_files():
    source = "def own(call, *args):\n    return call(*args)\n"
    space = {}
    exec(compile(source, "<hidden file>", "exec"), space)
    own = space["own"]
    plain = [frame.function for frame in inspect.stack()]
    hide(("<hidden ",))
    try:
        frames = frames_of(outermost, 1)

        def look():
            return [frame.function for frame in inspect.stack()]

        assert own(own, call_below, (), look, (), None) == ["look", *plain]
        assert own(own, call_below, frames, look, (), None) == ["look", "inner", "middle", "outermost", *plain]
        kept = own(call_below, frames, lambda: sys._getframe(1), (), None)
        assert kept.f_back.f_back.f_back is sys._getframe()
        assert own(look) == ["look", "own", *plain]
        with pytest.raises(ZeroDivisionError):
            own(call_below, (), lambda: 1 / 0, (), None)
        assert own(call_below, (), next, (iter(x for x in [5]),), None) == 5
    finally:
        hide(())
        if (running := sys.modules.get("magpy_runtime._own")) is not None:
            running.own_files()  # as it was for other tests


def test_threads():
    frames = frames_of(outermost, 1)
    failed = []

    def work():
        for number in range(500):
            found = call_below(frames, lambda n: (n, sys._getframe(1).f_code.co_name), (number,), None)
            if found != (number, "inner"):
                failed.append(found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


def test_refusals():
    frames = frames_of(outermost, 1)
    function, start, at, row, stack = frames[0]
    with pytest.raises(ValueError, match="local values"):
        call_below([(function, start, at, row[1:], stack)], len, ("",), None)
    with pytest.raises(ValueError, match="no instruction"):
        call_below([(function, start, 10**6, row, stack)], len, ("",), None)
    with pytest.raises(TypeError):
        call_below([3], len, ("",), None)
    with pytest.raises(TypeError):
        call_below(frames, len, "", None)
    with pytest.raises(TypeError):
        hide("magpy")
