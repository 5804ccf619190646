"""Native guards, the dispatcher, and the call of compiled modules, with records made by hand. Needs no torch."""

import dis
import gc
import operator
import sys
import threading
import time
import traceback
import weakref

import pytest

from magpy_runtime._native import (
    CacheSlots,
    CountSlots,
    Dispatcher,
    FactTable,
    NativeGuard,
    RecordSlots,
    TwinCall,
    TwinSlots,
    is_recording,
    set_recording,
)
from magpy_runtime.capture import NULL

(POSITIONAL, KEYWORDS, MODES, HELD, IS, PLAIN, SAME, BIND, DIFFERENT, OUTSIDE, TENSORS, TRUE, REST, COMPARE, MORE) = (
    range(15)
)
ITEM, DICT, TYPE, LENGTH, TRUTH, CLASS, ELEMENT, CELL = range(8)
OTHER, ARGUMENT, KEYWORD, CALL = 11, 16, 17, 18
GE = 5
OUT, OBJ, TUPLE, LIST, MAPPING = range(5)


def register(number):
    return number, None


def held(obj):
    return -1, obj


def same(one, other):
    return type(one) is type(other) and one == other


class Steps:
    """Builds the steps of a guard."""

    def __init__(self, positional=1, keywords=()):
        self.steps = []
        self.registers = 0
        self.add(POSITIONAL, expected=positional)
        self.add(KEYWORDS, expected=keywords)

    def add(self, kind, *operands, question=-1, key=None, expected=None):
        self.steps.append((kind, len(self.steps), question, operands, key, expected))
        return self

    def bind(self, question, key, *operands):
        self.add(BIND, *operands, question=question, key=key, expected=self.registers)
        self.registers += 1
        return register(self.registers - 1)

    def guard(self, *, modes=(), facts=lambda: None, tensors=lambda *args: True, strict=None, direct=None, handed=-1):
        return NativeGuard(self.steps, modes, facts, tensors, same, strict, direct, handed)


def argument():
    steps = Steps()
    return steps, steps.bind(ARGUMENT, 0)


class Box:
    attribute = 1


# -- guards ------------------------------------------------------------------------------------------------------------


def test_the_form_of_the_call():
    steps = Steps(2, ("a", "b"))
    for question, key in ((ARGUMENT, 0), (ARGUMENT, 1), (KEYWORD, 0), (KEYWORD, 1)):
        steps.bind(question, key)
    guard = steps.guard()
    assert guard((1, 2), {"a": 3, "b": 4}) == (1, 2, 3, 4)
    assert guard((1,), {"a": 3, "b": 4}) == guard((1, 2, 3), {"a": 3, "b": 4}) == 0
    for keywords in ({}, {"a": 3}, {"b": 4, "a": 3}, {"a": 3, "c": 4}, {"a": 3, "b": 4, "c": 5}):
        assert guard((1, 2), keywords) == 1
    name = "".join(["long name ", "that is not interned"])
    steps = Steps(0, (name,))
    steps.bind(KEYWORD, 0)
    assert steps.guard()((), {"".join(["long name that ", "is not interned"]): 5}) == (5,)


OBJECTS = [
    # what is asked of the argument, what it must be; arguments that pass; arguments that do not
    ((IS, TYPE, None, int), [1, 2], [True, 1.0, None]),
    ((IS, ITEM, "k", None), [{"k": None}], [{"k": 1}, {}, [], None]),
    ((IS, ITEM, "k", NULL), [{}, {"j": 1}], [{"k": 1}]),
    ((PLAIN, ITEM, "k", 10**20), [{"k": int("1" + "0" * 20)}], [{"k": 1}, {"k": 1e20}, {}]),
    ((PLAIN, ITEM, "k", "text"), [{"k": "".join(["te", "xt"])}], [{"k": "tex"}, {"k": b"text"}]),
    ((PLAIN, ITEM, "k", 0.0), [{"k": 0.0}], [{"k": -0.0}, {"k": 0}]),
    ((PLAIN, ITEM, "k", float("nan")), [{"k": float("nan")}], [{"k": 0.0}]),
    ((PLAIN, ITEM, "k", b"ab"), [{"k": bytes([97, 98])}], [{"k": "ab"}]),
    ((PLAIN, ITEM, "k", 1j), [{"k": complex(0, 1)}], [{"k": 1}]),
    ((IS, LENGTH, None, 2), [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}], [[1], [], 5, None]),
    ((IS, TRUTH, None, True), [[1], {1}], [[], {}, 5]),
    ((IS, TRUTH, None, False), [[], {}], [[1]]),
    ((PLAIN, ELEMENT, 1, 5), [[1, 5], (1, 5, 6)], [[1], [1, 6], (), {1: 5}, None]),
    ((IS, CLASS, "attribute", 1), [Box, type("C", (Box,), {})], [int, Box(), None]),
    ((IS, OTHER, len, 2), ["ab", [1, 2]], ["a"]),
]  # fmt: skip


@pytest.mark.parametrize(("question", "right", "wrong"), OBJECTS)
def test_questions_of_bound_objects(question, right, wrong):
    kind, ask, key, expected = question
    steps, arg = argument()
    guard = steps.add(kind, arg, question=ask, key=key, expected=expected).guard()
    for each in right:
        assert guard((each,), {}) == (each,)
    for each in wrong:
        assert guard((each,), {}) == 3


def test_bound_parts():
    steps, arg = argument()
    steps.add(IS, arg, question=TYPE, expected=dict)
    first = steps.bind(ITEM, "list", arg)
    second = steps.bind(ELEMENT, 0, first)
    missing = steps.bind(ITEM, "missing", arg)
    steps.add(SAME, arg, question=ITEM, key="again", expected=1)
    guard = steps.guard()
    items = [[1]]
    assert guard(({"list": items, "again": items},), {}) == ({"list": items, "again": items}, items, [1], NULL)
    assert guard(({"list": items, "again": [[1]]},), {}) == 7
    assert guard(({"list": items},), {}) == 7
    assert second == register(2) and missing == register(3)


def test_distinct_and_outside():
    steps = Steps(2)
    one, two = steps.bind(ARGUMENT, 0), steps.bind(ARGUMENT, 1)
    fixed = Box()
    steps.add(DIFFERENT, one, two, held(fixed)).add(OUTSIDE, one, expected=frozenset({id(fixed), id(Box)}))
    guard = steps.guard()
    a, b = Box(), Box()
    assert guard((a, b), {}) == (a, b)
    assert guard((a, a), {}) == guard((a, fixed), {}) == 4
    assert guard((Box, b), {}) == 5


def test_modes_held_facts_tensors_and_functions():
    mode, facts, seen = [True], {"k": 1}, []
    steps, arg = argument()
    steps.add(MODES).add(HELD).add(TENSORS, held("w"), arg, held("v")).add(TRUE, arg, held(5), key=lambda a, b: a != b)
    steps.add(IS, question=CALL, key=(mode.__getitem__, (0,)), expected=True)

    def tensors(*args):
        seen.append(args)
        return args[1] != "bad"

    table = FactTable([(ITEM, facts, "j", NULL, False), (ITEM, facts, "k", 1, True)], same)
    asked = lambda: mode[0] is not None
    guard = steps.guard(modes=((asked, True),), facts=table, tensors=tensors)
    for _ in range(3):
        assert guard(("x",), {}) == ("x",)
    assert guard(("bad",), {}) == 5 and guard((5,), {}) == 6
    assert seen == [("w", "x", "v")] * 3 + [("w", "bad", "v"), ("w", 5, "v")]
    facts["k"] = 2
    assert guard(("x",), {}) == -2
    facts["j"] = 2
    assert guard(("x",), {}) == -1
    facts.clear()
    facts["k"] = 1
    mode[0] = False
    assert guard(("x",), {}) == 7
    mode[0] = None
    assert guard(("x",), {}) == 3
    in_python = steps.guard(facts=lambda: 4)
    assert in_python(("x",), {}) == -5


def test_the_rest_of_a_guard_in_python():
    steps, arg = argument()
    rest = lambda x: (x, x * 2, x * 3) if x else 17
    steps.add(REST, arg, key=rest, question=0, expected=3)
    guard = steps.guard(direct=((register(2), register(0)), 1, (TUPLE, ((OUT, 0), (OBJ, register(1))))))
    for _ in range(3):
        assert guard((1000,), {}) == (1000, 2000, 3000) and guard((0,), {}) == 17
    assert Served(Record(guard, lambda x, y: (x - y,))).dispatch((5,), {}) == (10, 10)
    steps, arg = argument()
    with_call = steps.add(REST, arg, key=lambda *given: (given,), question=1, expected=1).guard()
    assert with_call((5,), {}) == (((5,), {}, 5),)
    for wrong in (None, (1,), (1, 2, 3), "ab"):
        steps, arg = argument()
        guard = steps.add(REST, arg, key=lambda x, wrong=wrong: wrong, question=0, expected=2).guard()
        with pytest.raises(TypeError):
            guard((1,), {})
    for expected, more in ((-1, []), (65, []), (2, [(TRUE, 9, -1, (), all, None)])):
        steps, arg = argument()
        steps.add(REST, arg, key=rest, question=0, expected=expected).steps.extend(more)
        with pytest.raises(ValueError):
            steps.guard()


def test_the_last_lines_of_a_guard_in_python():
    steps, arg = argument()
    steps.bind(ELEMENT, 0, arg)
    steps.add(BIND, arg, question=LENGTH, expected=3)  # a number that is not handed on
    steps.add(COMPARE, register(3), held(2), question=GE, expected=True)
    last = lambda found, count: (found * count,) if found else 17
    steps.add(MORE, register(1), register(3), key=last, expected=(2,))
    guard = steps.guard(handed=3)
    for _ in range(3):
        assert guard(([5, 6],), {}) == ([5, 6], 5, 10)
        assert guard(([5],), {}) == 5 and guard(([0, 6],), {}) == 17 and guard((5,), {}) == 5
    assert steps.guard(handed=4)(([5, 6],), {}) == ([5, 6], 5, 10, 2)
    for wrong in ({"handed": 5}, {"handed": 65}):
        with pytest.raises(ValueError):
            steps.guard(**wrong)
    gap = Steps().add(BIND, question=ARGUMENT, key=0, expected=1)
    assert gap.guard(handed=0)((5,), {}) == ()
    with pytest.raises(ValueError):
        gap.guard(handed=2)
    for key, expected in ((5, (2,)), (last, (64,)), (last, (-1,)), (last, 2), (last, ("x",))):
        steps, arg = argument()
        with pytest.raises((TypeError, ValueError)):
            steps.add(MORE, arg, key=key, expected=expected).guard()
    for given in (None, (), (1, 2)):
        steps, arg = argument()
        with pytest.raises(TypeError):
            steps.add(MORE, arg, key=lambda x, given=given: given, expected=(1,)).guard()((1,), {})


@pytest.mark.parametrize("asked", range(6))
def test_numbers_are_compared_as_python_does(asked):
    ask = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge][asked]
    nan = float("nan")
    for expected in (True, False):
        steps = Steps(2)
        one, two = steps.bind(ARGUMENT, 0), steps.bind(ARGUMENT, 1)
        guard = steps.add(COMPARE, one, two, question=asked, expected=expected).guard()
        for pair in ((1, 2), (2, 1), (3, 3), (1.5, 1), (0.0, -0.0), (10**30, 10**30 + 1), (nan, nan), (nan, 1)):
            assert guard(pair, {}) == (pair if ask(*pair) is expected else 4), (pair, ask)
        for pair in ((True, 1), ("a", "a"), (1, None)):
            assert guard(pair, {}) == 4, "no numbers"
    steps = Steps(2)
    one, two = steps.bind(ARGUMENT, 0), steps.bind(ARGUMENT, 1)
    for question, operands in ((6, (one, two)), (-1, (one, two)), (2, (one,))):
        with pytest.raises(ValueError):
            NativeGuard([*steps.steps, (COMPARE, 4, question, operands, None, True)], (), None, None, same)


def test_ids_that_arguments_must_not_have():
    objects = [Box() for _ in range(100)]
    steps = Steps(2)
    one, two = steps.bind(ARGUMENT, 0), steps.bind(ARGUMENT, 1)
    steps.add(OUTSIDE, one, expected=frozenset(map(id, objects))).add(
        OUTSIDE, two, expected=frozenset(map(id, objects))
    )
    guard = steps.add(OUTSIDE, two, expected=frozenset({id(steps)})).guard()
    free = Box()
    assert guard((free, free), {}) == (free, free) and guard((free, steps), {}) == 6
    for each in objects:
        assert guard((each, free), {}) == 4 and guard((free, each), {}) == 5
    for wrong in ({"a"}, {0}, {1 << 80}):
        steps, arg = argument()
        with pytest.raises((ValueError, OverflowError)):
            steps.add(OUTSIDE, arg, expected=frozenset(wrong)).guard()


def test_globals_of_functions():
    steps, arg = argument()
    guard = steps.add(IS, arg, question=OTHER, key=operator.attrgetter("__globals__"), expected=globals()).guard()
    assert guard((argument,), {}) == (argument,) and guard((dis.dis,), {}) == 3

    class Other:
        __globals__ = globals()

    other = Other()
    assert guard((other,), {}) == (other,)


def test_tensors_of_inner_calls_do_not_mix():
    steps, arg = argument()
    seen = []

    def tensors(*args):
        if args[0] == "outer":
            assert guard(("inner",), {}) == ("inner",)
        seen.append(args)
        return True

    guard = steps.add(TENSORS, arg, held("w")).guard(tensors=tensors)
    assert guard(("outer",), {}) == ("outer",) and guard(("plain",), {}) == ("plain",)
    assert seen == [("inner", "w"), ("outer", "w"), ("plain", "w")]
    kept = []
    keeps = steps.guard(tensors=lambda *args: not kept.append(args))
    assert keeps((1,), {}) == (1,) and keeps((2,), {}) == (2,) and kept == [(1, "w"), (2, "w")]


def test_many_tensors_after_a_pause():
    """What a check looks at is fetched ahead of it, whatever the objects are."""
    steps, arg = argument()
    objects = [object(), 1, "text", None, (), type, *map(Box.__new__, [Box] * 40)]
    seen = []
    guard = steps.add(TENSORS, arg, *map(held, objects)).guard(tensors=lambda *args: not seen.append(args))
    for number in range(4):
        time.sleep(0.001 * (number % 2))
        assert guard((number,), {}) == (number,)
    assert [[*map(id, args)] for args in seen] == [[id(number), *map(id, objects)] for number in range(4)]


@pytest.mark.parametrize("kind", ["modes", "facts", "tensors", "other"])
def test_what_raises_comes_out(kind):
    def fail(*args):
        raise LookupError(kind)

    steps, arg = argument()
    steps.add(MODES).add(HELD).add(TENSORS, arg).add(IS, arg, question=OTHER, key=fail, expected=1)
    keywords = {"modes": {"modes": ((fail, 1),)}, "facts": {"facts": fail}, "tensors": {"tensors": fail}}
    guard = steps.guard(**keywords.get(kind, {}))
    with pytest.raises(LookupError, match=kind):
        guard((1,), {})


@pytest.mark.parametrize(
    "steps",
    [
        [1], [(1, 2)], [(99, 0, -1, (), None, None)], [(-1, 0, -1, (), None, None)],
        [(BIND, 0, ARGUMENT, (), 0, 0)], [(POSITIONAL, 0, -1, (), None, "x")],
        [(POSITIONAL, 0, -1, (), None, 1), (BIND, 0, ARGUMENT, (), 1, 0)],
        [(POSITIONAL, 0, -1, (), None, 1), (BIND, 0, ARGUMENT, (), 0, 1)],
        [(POSITIONAL, 0, -1, (), None, 1), (BIND, 0, ARGUMENT, (), -1, 0)],
        [(KEYWORDS, 0, -1, (), None, ("a",)), (BIND, 0, KEYWORD, (), 1, 0)],
        [(KEYWORDS, 0, -1, (), None, tuple(map(str, range(99))))], [(KEYWORDS, 0, -1, (), None, None)],
        [(IS, 0, TYPE, ((0, None),), None, int)], [(IS, 0, TYPE, ((-2, None),), None, int)],
        [(IS, 0, TYPE, (), None, int)], [(IS, 0, 99, ((-1, 1),), None, int)], [(IS, 0, TYPE, 5, None, int)],
        [(SAME, 0, TYPE, ((-1, 1),), None, 0)], [(SAME, 0, TYPE, ((-1, 1),), None, -2)],
        [(OUTSIDE, 0, -1, ((-1, 1),), None, {1})], [(TRUE, 0, -1, (), 5, None)], [(IS, 0, CALL, (), 5, None)],
        [(PLAIN, 0, LENGTH, ((-1, []),), None, 1)], [(IS, 0, ELEMENT, ((-1, []),), -1, 1)],
    ],
)  # fmt: skip
def test_wrong_steps_are_refused(steps):
    with pytest.raises((TypeError, ValueError)):
        NativeGuard(steps, (), None, None, same)


@pytest.mark.parametrize(
    "direct",
    [5, (), ((), 1, ()), ((), 1, (OUT, 1)), ((), 1, (OUT, -1)), ((), 1, (9, 1)), (((0, None),), 1, (OUT, 0)),
     ((), 1, (TUPLE, [])), ((), 1, (MAPPING, ((OUT, 0),))), ((), 1, (MAPPING, ((OUT, 0),), ())), ((), 0, (OBJ, 5)),
     ((), 1, (LIST, ((OUT, 0), (OUT, 7))))],
)  # fmt: skip
def test_wrong_results_are_refused(direct):
    with pytest.raises((TypeError, ValueError)):
        NativeGuard([(POSITIONAL, 0, -1, (), None, 0)], (), None, None, same, None, direct)
    assert not NativeGuard([], (), None, None, same).direct


def test_more_registers_than_there_are():
    steps = Steps(64)
    for number in range(64):
        steps.bind(ARGUMENT, number)
    assert steps.guard()(tuple(range(64)), {}) == tuple(range(64))
    steps.bind(ARGUMENT, 0)
    with pytest.raises(ValueError):
        steps.guard()


# -- the dispatcher ----------------------------------------------------------------------------------------------------


class Record(RecordSlots):
    def __init__(self, native, run=None):
        self.native = native
        self.run = run


class Served(Dispatcher):
    def __init__(self, *records):
        self.cache = CacheSlots()
        self.cache.records = records
        self.statistics = CountSlots()
        self.slow = []

    def serve(self, args, kwargs):
        self.slow.append((args, kwargs))
        return "slow"

    def serve_found(self, record, bound, args, kwargs):
        return "found", record, bound, args, kwargs


def record_for(value, run, direct=True):
    steps, arg = argument()
    steps.add(IS, arg, question=TYPE, expected=type(value))
    result = (TUPLE, ((OUT, 0), (OBJ, arg)))
    return Record(steps.guard(direct=((arg, held("w")), 1, result) if direct else None), run)


def test_the_first_record_that_passes_serves_and_comes_to_the_front():
    one, two = record_for(1, lambda x, w: (x + 1,)), record_for("", lambda x, w: [x + w])
    served = Served(one, two)
    assert served.dispatch((5,), {}) == (6, 5) and served.cache.records == (one, two)
    assert served.dispatch(("a",), {}) == ("aw", "a") and served.cache.records == (two, one)
    assert served.dispatch((5,), {}) == (6, 5) and served.cache.records == (one, two)
    assert (one.hits, two.hits, served.statistics.hits, served.slow) == (2, 1, 3, [])
    assert served.dispatch((5.5,), {}) == "slow" and served.dispatch((), {"a": 1}) == "slow"
    assert served.slow == [((5.5,), {}), ((), {"a": 1})]


def test_what_the_mock_must_do():
    record = record_for(1, None, direct=False)
    served = Served(record)
    assert served.dispatch((5,), {}) == ("found", record, (5,), (5,), {})
    direct = record_for(1, None)
    served = Served(direct)
    assert served.dispatch((5,), {}) == ("found", direct, (5,), (5,), {}), "no graph"


def test_records_without_a_native_guard_are_for_python():
    bare, one = Record(None), record_for(1, lambda x, w: (x,))
    assert Served(bare, one).dispatch((5,), {}) == "slow"
    assert Served(one, bare).dispatch((5,), {}) == (5, 5)
    assert Served(one, bare).dispatch(("",), {}) == "slow"
    assert Served("nonsense").dispatch((5,), {}) == "slow"
    served = Served()
    assert served.dispatch((5,), {}) == "slow"
    del served.cache
    assert served.dispatch((5,), {}) == "slow"
    with pytest.raises(TypeError):
        served.dispatch(5, {})


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_graph_that_raises(error):
    def run(x, w):
        raise error

    served = Served(record_for(1, run))
    if error is ValueError:
        assert served.dispatch((5,), {}) == "slow"
    else:
        with pytest.raises(error):
            served.dispatch((5,), {})
    assert served.statistics.hits == 0


def test_a_guard_that_raises():
    def fail():
        raise ValueError

    steps, _ = argument()
    assert Served(Record(steps.add(MODES).guard(modes=((fail, 1),)))).dispatch((5,), {}) == "slow"


def test_a_thread_that_records():
    served = Served(record_for(1, lambda x, w: (x,)))
    found = []
    set_recording(True)
    try:
        assert is_recording() and served.dispatch((5,), {}) == "slow"
        thread = threading.Thread(target=lambda: found.append((is_recording(), served.dispatch((5,), {}))))
        thread.start()
        thread.join()
    finally:
        set_recording(False)
    assert found == [(False, (5, 5))] and not is_recording()


def test_records_that_go_while_they_serve():
    def run(x, w):
        served.cache.records = ()
        record.native = record.run = None
        gc.collect()
        return (x,)

    record = record_for(1, run)
    served = Served(record)
    assert served.dispatch((5,), {}) == (5, 5)
    assert served.dispatch((5,), {}) == "slow"


def test_strict_mode_is_asked():
    asked = []
    steps, _ = argument()
    guard = steps.guard(strict=lambda *args: asked.append(args), direct=((), 1, (OUT, 0)))
    served = Served(Record(guard, lambda: ("result",)))
    assert served.dispatch((5,), {}) == "result" and served.dispatch((), {"a": 1}) == "slow"
    assert guard((6,), {}) == (6,) and guard.check((7,), {}) == (7,)
    assert asked == [(guard, (5,), {}, (5,)), (guard, (), {"a": 1}, 0), (guard, (6,), {}, (6,))]

    def contradict(*args):
        raise AssertionError("they differ")

    served = Served(Record(steps.guard(strict=contradict), None))
    with pytest.raises(AssertionError, match="differ"):
        served.dispatch((5,), {})


def test_everything_is_freed_and_nothing_grows():
    box, graph = Box(), lambda x, w: (x,)
    steps, arg = argument()
    steps.add(IS, arg, question=TYPE, expected=int).add(TENSORS, arg, held(box)).add(DIFFERENT, arg, held(box))
    guard = steps.guard(tensors=lambda *args: True, direct=((arg, held(box)), 1, (MAPPING, ((OUT, 0),), ("a",))))
    served = Served(Record(guard, graph))
    for number in range(100):
        assert served.dispatch((number,), {}) == {"a": number}
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(10_000):
        served.dispatch((5,), {})
        served.dispatch(("",), {})
        served.slow.clear()
    assert sys.getallocatedblocks() - before < 50
    found = [weakref.ref(box), weakref.ref(graph)]
    del box, graph, steps, guard, served, arg
    gc.collect()
    assert [each() for each in found] == [None, None]


# -- compiled modules --------------------------------------------------------------------------------------------------


class Original:
    pass


class OtherOriginal:
    pass


class State(TwinSlots):
    __slots__ = ()

    def __init__(self, module, call):
        self.module = module
        self.base = type(module)
        self.call = call


class Twin:
    __slots__ = ("state",)
    followed = []

    def __call__(self, *args, **kwargs):
        """Documentation."""
        return "python", args, kwargs


def follow(twin, state):
    Twin.followed.append((twin, state))
    state.base = type(state.module)


def strip(error):
    error.stripped = True
    error.__traceback__ = None


class NativeTwin(Twin):
    __slots__ = ()


NativeTwin.__call__ = TwinCall(Twin.__call__, Twin.__dict__["state"], follow, strip)


def twin_of(*records):
    twin = NativeTwin()
    twin.state = State(Original(), Served(*records))
    return twin


def keyword_record():
    steps = Steps(1, ("b",))
    one, two = steps.bind(ARGUMENT, 0), steps.bind(KEYWORD, 0)
    return Record(steps.guard(direct=((one, two), 1, (OUT, 0))), lambda a, b: (a - b,))


def test_calls_of_a_twin():
    twin = twin_of(keyword_record())
    assert twin(5, b=3) == 2 and twin(*(5,), **{"b": 3}) == 2 and twin.__call__(5, b=3) == 2
    assert NativeTwin.__call__(twin, 5, b=3) == 2 and [*map(twin, ())] == []
    assert twin(5) == "slow" and twin.state.call.slow == [((5,), {})]
    assert twin(b=5, c=6) == "slow" and twin.state.call.slow[-1] == ((), {"b": 5, "c": 6})
    assert twin.state.call.statistics.hits == 4
    assert NativeTwin.__call__.__doc__ == "Documentation." and NativeTwin.__call__.__name__ == "__call__"
    import inspect

    assert str(inspect.signature(twin)) == "(*args, **kwargs)"


def test_what_is_not_usual_goes_to_python():
    twin = twin_of(keyword_record())
    twin.state.module = OtherOriginal()
    assert twin(5, b=3) == ("python", (5,), {"b": 3})
    del twin.state.call
    assert twin(5, b=3) == ("python", (5,), {"b": 3})
    del twin.state
    assert twin(1) == ("python", (1,), {})
    assert NativeTwin.__call__(5, 6) == ("python", (6,), {}), "another object"
    with pytest.raises(TypeError):
        NativeTwin.__call__()


def test_a_class_that_changes_during_the_call_is_followed():
    def run():
        twin.state.module = OtherOriginal()
        return ("result",)

    steps = Steps(0)
    twin = twin_of(Record(steps.guard(direct=((), 1, (OUT, 0))), run))
    Twin.followed.clear()
    assert twin() == "result" and Twin.followed == [(twin, twin.state)]


def test_exceptions_are_stripped():
    class Raises(Served):
        def serve(self, args, kwargs):
            raise LookupError("from the program")

    twin = twin_of()
    twin.state.call = Raises()
    with pytest.raises(LookupError, match="from the program") as caught:
        twin()
    assert caught.value.stripped and [each.name for each in traceback.extract_tb(caught.value.__traceback__)] == [
        "test_exceptions_are_stripped"
    ]
