"""What a recorder offers at boundaries: frames, divert, forget, position, on_error."""

import contextlib
import dis

import pytest

from magpy_runtime.capture import NULL, Recorder, next_index, pops


def index_of(code, opname, nth=0):
    """The index of an opcode's nth instruction."""
    return [i.offset // 2 for i in dis.get_instructions(code) if i.opname == opname][nth]


def plans(items, monitored=()):
    """A plan_for of {function: {index: item}}; functions in `monitored` give frame events only."""
    codes = {function.__code__: chosen for function, chosen in items.items()}
    codes.update({function.__code__: {} for function in monitored})

    def plan_for(code):
        if code not in codes:
            return None
        plan = [None] * (len(code.co_code) // 2)
        for unit, item in codes[code].items():
            plan[unit] = item
        return plan

    return plan_for


def probe(call):
    return call()


def leaf(call, x):
    y = [x]
    return (x, probe(call), y)[1]


def middle(call, items):
    total = 0
    for item in items:
        with contextlib.nullcontext("w") as w:
            total += leaf(call, item) + len(w)
    del items
    return total


def outer(call):
    cell = 7

    def inner():
        return cell

    return ["a", middle(call, (1, 2)), inner()]


def test_frames_of_nested_calls():
    seen = []

    def call():
        recorder.pause()
        seen.append(recorder.frames())
        recorder.unpause()
        return 5

    recorder = Recorder(plans({}, (outer, middle, leaf, probe)))
    assert recorder.run(outer, (call,)) == ["a", 12, 7]
    assert recorder.error is None
    first, second = seen
    assert [frame[0] for frame in first] == [outer, middle, leaf, probe]
    assert [frame[1] for frame in first] == [f.__code__ for f in (outer, middle, leaf, probe)]
    for _, code, index, _, _ in first:
        assert dis.opname[code.co_code[2 * index]] == "CALL"
    (_, code, _, local, stack) = first[0]
    assert stack == ("a",)
    names = code.co_varnames + code.co_cellvars
    assert local[names.index("cell")].cell_contents == 7
    assert local[0] is call
    (_, code, _, local, stack) = second[1]
    assert dict(zip(code.co_varnames, local)) == {
        "call": call,
        "items": (1, 2),
        "total": 6,
        "item": 2,
        "w": "w",
    }
    assert type(stack[0]).__name__ == "tuple_iterator" and stack[2:] == (6,)
    assert stack[1].__self__.enter_result == "w"
    assert first[2][4] == (1,) and first[2][3] == (call, 1, [1])
    assert first[3][4] == () and first[3][3] == (call,)


def unbound(flag):
    if flag:
        x = 1
    del flag
    return abs(-3) if not locals() else x


def test_unbound_locals():
    seen = []
    index = index_of(unbound.__code__, "CALL", -1)
    item = (lambda inputs, arg: seen.append((recorder.frames(), inputs)), None, pops(unbound.__code__, index), 0, None)
    recorder = Recorder(plans({unbound: {index: item}}))
    assert recorder.run(unbound, (False,)) == 3
    assert recorder.error is None
    (((_, _, at, local, stack),), inputs) = seen[0]
    assert local == (NULL, NULL) and stack == () and at == index and -3 in inputs


def failing(items, catches):
    try:
        for item in items:
            abs(item)
    except TypeError:
        if not catches:
            raise
    return "done"


def passing(items):
    for item in items:
        abs(item)


@pytest.mark.parametrize("watched", ["left", "handled", "exit", "diverted"])
def test_frames_after_raising_have_no_stack(watched):
    """What was on the stack is freed by then: an iterator that is seen again would be freed twice."""
    seen = []
    function = failing if watched == "handled" else passing
    index = index_of(function.__code__, "CALL")

    def look(*given):
        seen.append(recorder.frames())

    def before(inputs, arg):
        if watched == "diverted":
            recorder.divert(look, 1)

    item = (before, look if watched in ("left", "handled") else None, 1, 1, None)

    def on_exit(code, value, kind):
        if watched == "exit" and value is NULL:
            look()

    for _ in range(200):
        recorder = Recorder(plans({function: {index: item}}), on_exit=on_exit)
        with contextlib.suppress(TypeError):
            recorder.run(function, (["x"], True) if function is failing else (["x"],))
        assert recorder.error is None
    assert len(seen) == 200 and all(state[0][4] == () for state in seen)


def test_divert_sees_no_frames_below():
    log = []
    index = index_of(leaf.__code__, "CALL")

    def before(inputs, arg):
        recorder.divert(lambda *given: log.append((*given, recorder.position(), recorder.offset())), 1)
        return "dropped"

    asked = []
    plan_for = plans({leaf: {index: (before, lambda *given: log.append("no"), 3, 1, "arg")}}, (probe,))

    def asking(code):
        asked.append(code)
        return plan_for(code)

    entered = []
    recorder = Recorder(asking, lambda code, *rest: entered.append(code), lambda *left: log.append(left[1:]))
    assert recorder.run(leaf, (lambda: 3, 1)) == 3
    assert recorder.error is None
    goes_on = (leaf.__code__, next_index(leaf.__code__, index))
    assert log == [(None, (3,), None, goes_on, index), (3, 0)]
    assert asked == [leaf.__code__] == entered


def test_divert_while_the_instruction_runs():
    log = []
    index = index_of(probe.__code__, "CALL")

    class Callee:
        def __call__(self):
            recorder.pause()
            recorder.divert(lambda *given: log.append(given), 1)
            recorder.unpause()
            return helper()

    def helper():
        return 4

    entered = []
    plan_for = plans(
        {probe: {index: (lambda *given: "state", lambda *given: log.append("no"), 1, 1, "arg")}}, (helper,)
    )
    recorder = Recorder(plan_for, lambda code, *rest: entered.append(code))
    assert recorder.run(probe, (Callee(),)) == 4
    assert recorder.error is None
    assert log == [(None, (4,), None)] and entered == [probe.__code__]


def raising(call):
    try:
        call()
    except ValueError:
        return "caught"


def broken():
    raise ValueError


@pytest.mark.parametrize("function", [raising, probe])
def test_divert_of_what_raises(function):
    log = []
    index = index_of(function.__code__, "CALL")

    def before(inputs, arg):
        recorder.divert(lambda *given: log.append(given), 1)

    recorder = Recorder(plans({function: {index: (before, None, 0, 0, None)}}, (broken,)))
    if function is raising:
        assert recorder.run(function, (broken,)) == "caught"
    else:
        with pytest.raises(ValueError):
            recorder.run(function, (broken,))
    assert recorder.error is None
    assert log == [(None, None, None)]


def branch(flag):
    if flag:
        return "yes"
    return "no"


def test_divert_of_a_jump():
    log = []
    code = branch.__code__
    index = next(i.offset // 2 for i in dis.get_instructions(code) if i.opname.startswith("POP_JUMP"))

    def before(inputs, arg):
        recorder.divert(lambda *given: log.append((given, recorder.position()[1])), 0)

    for flag in (True, False):
        recorder = Recorder(plans({branch: {index: (before, None, 1, 0, None)}}))
        assert recorder.run(branch, (flag,)) == ("yes" if flag else "no")
        assert recorder.error is None
    assert [given for given, _ in log] == [(None, (), None)] * 2
    assert log[0][1] == next_index(code, index) != log[1][1]


def test_forget_drops_the_outer_ones():
    log = []
    call_leaf = index_of(leaf.__code__, "CALL")
    call_probe = index_of(probe.__code__, "CALL")

    def before(inputs, arg):
        recorder.forget()

    item = (lambda inputs, arg: "s", lambda *given: log.append(given), 1, 1, "outer")
    own = (before, lambda *given: log.append(given), 1, 1, "own")
    recorder = Recorder(plans({leaf: {call_leaf: item}, probe: {call_probe: own}}))
    assert recorder.run(leaf, (lambda: 3, 1)) == 3
    assert recorder.error is None
    assert log == [(None, (3,), "own")]


@pytest.mark.parametrize("answer", [True, False, None])
def test_on_error(answer):
    log = []
    index = index_of(leaf.__code__, "CALL")

    def before(inputs, arg):
        raise KeyError("before")

    def on_error(error):
        log.append(repr(error))
        if answer is None:
            raise RuntimeError
        if answer:
            recorder.divert(lambda *given: log.append(given), 1)
        return answer

    plan_for = plans({leaf: {index: (before, lambda *given: log.append("no"), 3, 1, None)}}, (probe,))
    recorder = Recorder(plan_for, None, lambda code, *rest: log.append(code.co_name), None, on_error)
    assert recorder.run(leaf, (lambda: 3, 1)) == 3
    if answer:
        assert recorder.error is None
        assert log == ["KeyError('before')", (None, (3,), None), "leaf"]
    else:
        assert repr(recorder.error) == "KeyError('before')"
        assert log == ["KeyError('before')"]


def test_divert_after_the_fact_is_at_once():
    log = []
    index = index_of(leaf.__code__, "CALL")

    def after(state, outputs, arg):
        raise KeyError("after")

    def on_error(error):
        recorder.divert(lambda *given: log.append(given), 1)
        return True

    recorder = Recorder(plans({leaf: {index: (None, after, 0, 1, None)}}), on_error=on_error)
    assert recorder.run(leaf, (lambda: 3, 1)) == 3
    assert recorder.error is None
    assert log == [(None, (3,), None)]


@pytest.mark.parametrize("where", ["enter", "exit"])
def test_on_error_of_frame_callbacks(where):
    errors = []

    def fail(*given):
        raise KeyError(where)

    def on_error(error):
        errors.append(error)
        return True

    enter, leave = (fail, None) if where == "enter" else (None, fail)
    recorder = Recorder(plans({}, (leaf, probe)), enter, leave, on_error=on_error)
    assert recorder.run(leaf, (lambda: 3, 1)) == 3
    assert recorder.error is None and len(errors) == 2


def adds(call, x):
    y = [x]
    return x, call(x), y[0], x


@pytest.mark.parametrize(("frames", "inputs"), [(True, True), (True, False), (False, True)])
def test_replace(frames, inputs):
    own, copy = 1000.5, float("1000.5")

    def before(given, arg):
        recorder.replace({id(copy): (copy, own)}, frames, inputs)

    code = adds.__code__
    at = index_of(code, "CALL")
    recorder = Recorder(plans({adds: {at: (before, None, pops(code, at), 0, None)}}))
    first, second, third, fourth = recorder.run(adds, (lambda x: x, copy))
    assert recorder.error is None
    assert (first is own, second is own, third is own, fourth is own) == (frames, inputs, False, frames)
    with pytest.raises(TypeError):
        recorder.replace([], True, True)


def test_misuse():
    recorder = Recorder(plans({}))
    assert recorder.frames() == ()
    for wrong in (lambda: recorder.divert(print, 0), recorder.position):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(TypeError):
        recorder.divert(None, 0)
    with pytest.raises(ValueError):
        recorder.divert(print, -1)
