"""What comes behind boundaries, with segments made by hand. Needs no torch."""

import gc
import signal
import threading
import time
import weakref

import pytest

from magpy_runtime._native import (
    CacheSlots,
    CountSlots,
    Dispatcher,
    NativeGuard,
    RecordSlots,
    SiteSlots,
    Way,
    set_timed,
)

(POSITIONAL, KEYWORDS, MODES, HELD, IS, PLAIN, SAME, BIND) = range(8)
TYPE, ARGUMENT = 2, 16
PUSHED, TESTED, OTHER = 1, 2, 0
OUT, OBJ, TUPLE, LIST, MAPPING = range(5)


class Site(SiteSlots):
    """A boundary: an outcome that is not pushed or tested goes by its type."""

    def __init__(self, form=PUSHED, *, sees=False, steady=False):
        self.form, self.sees, self.steady = form, sees, steady
        self.ways = {}
        self.asked = []

    def way(self, start):
        if start not in self.ways:
            cache = CacheSlots()
            cache.records = ()
            self.ways[start] = Way(("point", start), cache)
        self.ways[start].count += 1
        return self.ways[start]

    def go_on(self, outcome, args, slots):
        self.asked.append(outcome)
        if self.form == PUSHED:
            self.when_false = self.way("pushed")
            return self.when_false, (*slots, outcome)
        if self.form == TESTED:
            way = self.way(bool(outcome))
            if outcome:
                self.when_true = way
            else:
                self.when_false = way
            return way, slots
        return self.way(type(outcome)), (*slots, outcome, args)

    def go_wrong(self, error, args, slots):
        return self.way(None), (*slots, error)

    def add(self, start, *records):
        way = self.way(start)
        way.count -= 1
        self.caches = getattr(self, "caches", {})
        cache = self.caches.setdefault(start, CacheSlots())
        cache.records = records
        self.ways[start] = Way(("point", start), cache)
        return self.ways[start]


class Record(RecordSlots):
    def __init__(self, guard, mock, boundary=None, run=None, *, plain=True, native=None, steady=False):
        self.guard, self.mock, self.run, self.boundary = guard, mock, run, boundary
        self.plain, self.native, self.steady = plain, native, steady


class Served(Dispatcher):
    def __init__(self, fresh=None):
        self.statistics = CountSlots()
        self.cache = CacheSlots()
        self.cache.records = ()
        self.fresh = fresh
        self.log = []

    def operate(self, site, function, args, keywords, slots):
        self.log.append(("operate", slots))
        return function(*args, **keywords)

    def strip(self, error):
        self.log.append("strip")

    def no_segment(self, point, box, made):
        return "exit", point, box.pop(), made

    def guard_raised(self, point, box, error):
        return "guard", point, box.pop(), str(error)

    def serve_segment(self, point, record, box):
        bound, slots = box.pop(), box.pop()
        self.log.append(("segment", point, slots, bound))
        return record.boundary is None, record.mock(bound, record.run)

    def segment_failed(self, point, record, box, error):
        return "failed", point, box.pop(), str(error)

    def serve(self, args, kwargs):
        return "slow"


def everything(args, kwargs):
    assert kwargs == {}
    return args


def of_type(index, kind):
    return lambda args, kwargs: args if type(args[index]) is kind else 7


def native(count, *, modes=(), kind=None, direct=None, strict=None):
    """A guard that binds all slots."""
    steps = [(POSITIONAL, 0, -1, (), None, count), (MODES, 1, -1, (), None, None)]
    steps += [(BIND, 2, ARGUMENT, (), number, number) for number in range(count)]
    if kind is not None:
        steps.append((IS, 3, TYPE, ((count - 1, None),), None, kind))
    same = lambda one, other: one == other
    return NativeGuard(steps, modes, lambda: None, lambda *given: True, same, strict, direct)


def test_an_outcome_is_pushed_and_the_call_ends():
    site, served = Site(), Served()
    record = Record(everything, lambda bound, run: (*bound, run))
    site.add("pushed", record)
    for count in (1, 2, 3):
        assert served.go_on(site, [(pow, (2, 5), {"mod": 7}, ("slot",))]) == ("slot", 4, None)
        assert (record.hits, served.statistics.hits, site.taken, site.ways["pushed"].count) == (count,) * 4
    assert site.asked == [4], "the way is known from then on"


def test_outcomes_are_tested():
    site, served = Site(TESTED), Served()
    site.add(True, Record(everything, lambda bound, run: ("yes", *bound)))
    site.add(False, Record(everything, lambda bound, run: ("no", *bound)))
    for value, answer in ((1, "yes"), (0, "no"), ([], "no"), ("a", "yes"), (0.5, "yes")):
        assert served.go_on(site, [(lambda x: x, (value,), {}, (1, 2))]) == (answer, 1, 2)
    assert site.asked == [1, 0] and (site.ways[True].count, site.ways[False].count) == (3, 2)

    class Broken:
        def __bool__(self):
            raise LookupError("truth")

    with pytest.raises(LookupError, match="truth"):
        served.go_on(site, [(Broken, (), {}, ())])


def test_a_chain_of_segments():
    one, two, three, served = Site(), Site(TESTED), Site(OTHER), Served()
    one.add("pushed", Record(everything, lambda bound, run: (bool, (bound[-1],), {}, bound), two))
    two.add(True, Record(everything, lambda bound, run: (str, (bound[-1],), {}, bound), three))
    two.add(False, Record(everything, lambda bound, run: "nothing"))
    three.add(str, Record(None, lambda bound, run: bound, native=native(4)))
    for _ in range(3):
        assert served.go_on(one, [(abs, (-3,), {}, ("a",))]) == ("a", 3, "3", (3,))
        assert served.go_on(one, [(abs, (0,), {}, ("a",))]) == "nothing"
    assert (one.taken, two.taken, three.taken, served.statistics.hits) == (6, 6, 3, 6)


def test_what_served_last_is_tried_first():
    site, served, asked = Site(), Served(), []

    def guard(name, kind):
        def asks(args, kwargs):
            asked.append(name)
            return args if type(args[0]) is kind else 3

        return asks

    kinds = {"int": int, "str": str, "float": float, "list": list, "set": set, "dict": dict}
    records = {name: Record(guard(name, kind), lambda bound, run, name=name: name) for name, kind in kinds.items()}
    way = site.add("pushed", *records.values())

    def call(value):
        asked.clear()
        return served.go_on(site, [(lambda: value, (), {}, ())]), [*asked]

    assert call("a") == ("str", ["int", "str"]) and call("a") == ("str", ["str"])
    assert call(1) == ("int", ["str", "int"]) and call("a") == ("str", ["int", "str"])
    assert call(set())[0] == "set" and call(set()) == ("set", ["set"])
    cache = site.caches["pushed"]
    cache.records = tuple([each for each in cache.records if each is not records["set"]])
    assert call(set())[0] == ("exit", ("point", "pushed"), (set(),), False), "it was dropped"
    for value, name in (({}, "dict"), ([], "list"), (1.5, "float"), ("a", "str"), (1, "int")):
        assert call(value)[0] == name
    assert call({})[1] == ["int", "str", "float", "list", "dict"], "only so many are remembered"
    assert way.count == 13


def test_nothing_fits():
    site, served = Site(), Served(fresh=tuple)
    site.add("pushed", Record(of_type(1, str), None), Record(None, None, native=native(2, kind=str)))
    assert served.go_on(site, [(int, ("5",), {}, (1,))]) == ("exit", ("point", "pushed"), (1, 5), False)
    assert served.go_on(site, [(tuple, (), {}, (1,))]) == ("exit", ("point", "pushed"), (1, ()), True)
    site.add("pushed")
    assert Served().go_on(Site(), [(tuple, (), {}, ())])[3] is False


def test_slots_live_as_long_as_the_program_holds_them():
    class Slot:
        pass

    class Drops(Served):
        def no_segment(self, point, box, made):
            (slots,) = box
            kept = weakref.ref(slots[0])
            del slots
            box.clear()
            return kept()

        def serve_segment(self, point, record, box):
            del box[1]
            return True, self.no_segment(point, box, False)

    for records in ((), (Record(everything, None, plain=False),), (Record(None, None, plain=False, native=native(2)),)):
        site = Site()
        site.add("pushed", *records)
        assert Drops().go_on(site, [(int, (), {}, (Slot(),))]) is None, records


def test_what_an_operation_raises_goes_on():
    site, served = Site(), Served()
    site.add(None, Record(of_type(1, ValueError), lambda bound, run: ("caught", str(bound[1]))))

    def fails():
        raise ValueError("in python")

    assert served.go_on(site, [(fails, (), {}, ("slot",))]) == ("caught", "in python") and served.log == ["strip"]
    assert served.go_on(site, [(int, ("x",), {}, ("slot",))])[0] == "caught" and served.log == ["strip"], "no traceback"
    with_slots = served.go_on(site, [(lambda: 1 / 0, (), {}, ("slot",))])
    assert with_slots[:2] == ("exit", ("point", None)) and type(with_slots[2][1]) is ZeroDivisionError


def test_operations_that_may_look_at_their_callers():
    site, served = Site(sees=True), Served()
    site.add("pushed", Record(everything, lambda bound, run: bound))
    assert served.go_on(site, [(int, ("5",), {}, (1,))]) == (1, 5) and served.log == [("operate", (1,))]
    site.sees = False
    set_timed(True)
    try:
        served.go_on(site, [(int, ("5",), {}, (2,))])
    finally:
        set_timed(False)
    served.go_on(site, [(int, ("5",), {}, (3,))])
    assert served.log == [("operate", (1,)), ("operate", (2,))]


def test_records_that_need_more_than_their_mock():
    one, two, served = Site(), Site(), Served()
    first = Record(None, lambda bound, run: (len, (bound,), {}, bound), two, plain=False, native=native(2))
    one.add("pushed", first)
    two.add("pushed", Record(everything, lambda bound, run: bound[-1], plain=False))
    assert served.go_on(one, [(int, (), {}, (1,))]) == 2
    assert served.log == [
        ("segment", ("point", "pushed"), (1, 0), (1, 0)),
        ("segment", ("point", "pushed"), (1, 0, 2), (1, 0, 2)),
    ]
    assert served.statistics.hits == 0, "that is done there"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_raises(error):
    def fails(*args):
        raise error("on purpose")

    for record, kind in ((Record(everything, fails), "failed"), (Record(fails, None), "guard")):
        site = Site()
        site.add("pushed", record)
        if error is KeyboardInterrupt:
            with pytest.raises(error):
                Served().go_on(site, [(int, (), {}, (1,))])
        else:
            found = Served().go_on(site, [(int, (), {}, (1,))])
            assert found == (kind, ("point", "pushed"), (1, 0), "on purpose") and record.hits == 0


def test_modes_that_were_just_found_are_not_asked_again():
    asked = []
    modes = ((lambda: not asked.append(1), True),)
    one, two, served = Site(steady=True), Site(steady=True), Served()
    first = Record(None, lambda bound, run: (int, (), {}, bound), two, native=native(2, modes=modes), steady=True)
    one.add("pushed", first)
    other = Record(None, lambda bound, run: bound, native=native(3, modes=modes))
    two.add("pushed", other)

    def call():
        asked.clear()
        assert served.go_on(one, [(int, (), {}, (1,))]) == (1, 0, 0)
        return len(asked)

    assert call() == 1
    for holder, name, value in (
        (first, "steady", False), (two, "steady", False), (two, "sees", True),
        (other, "native", native(3, modes=((lambda: not asked.append(1), True),))),
    ):  # fmt: skip
        was = getattr(holder, name)
        setattr(holder, name, value)
        assert call() == 2, name
        setattr(holder, name, was)
    assert call() == 1


def test_strict_mode_is_asked_behind_boundaries():
    asked = []
    guard = native(1, strict=lambda *given: asked.append(given))
    site = Site()
    site.add("pushed", Record(None, lambda bound, run: bound, native=guard))
    assert Served().go_on(site, [(int, (), {}, ())]) == (0,) and asked == [(guard, (0,), {}, (0,))]


def test_a_segment_without_python():
    done = []
    bound = [(0, None), (1, None)]
    left = (
        TUPLE,
        (
            (OBJ, (-1, pow)),
            (TUPLE, ((OUT, 0), (OBJ, (-1, 2)))),
            (MAPPING, ((OBJ, (-1, 5)),), ("mod",)),
            (TUPLE, ((OBJ, bound[0]),)),
        ),
    )
    actions = ((done.append, ((TUPLE, ((OUT, 0), (OBJ, bound[0]))),)), (done.append, ((OBJ, bound[1]),)))
    guard = native(2, direct=((bound[1],), 1, left, actions))
    one, two, served = Site(), Site(), Served()
    one.add("pushed", Record(None, None, two, lambda x: (x + 1,), plain=False, native=guard))
    two.add("pushed", Record(everything, lambda bound, run: bound))
    for _ in range(2):
        with pytest.raises(TypeError):
            served.go_on(one, [(int, ("6",), {}, ("slot",))])  # it ends at a boundary, so Python decides
    one.caches["pushed"].records[0].plain = True
    one.caches["pushed"].records[0].mock = lambda bound, run: 1 / 0
    done.clear()
    assert served.go_on(one, [(int, ("6",), {}, ("slot",))]) == ("slot", 4) and done == [(7, "slot"), 6]
    nothing = Record(
        None, lambda bound, run: 1 / 0, native=native(1, direct=((), 0, (OBJ, bound[0]), ((done.append, ()),)))
    )
    nothing.run = None
    site = Site()
    site.add("pushed", nothing)
    assert served.go_on(site, [(int, (), {}, ())])[::3] == (
        "failed",
        "list.append() takes exactly one argument (0 given)",
    )


def test_a_graph_that_raises_does_so_once_more_in_its_mock_but_actions_are_not_repeated():
    calls = []

    def run(x):
        calls.append("run")
        raise ValueError("graph")

    def mock(bound, run):
        calls.append("mock")
        return run(*bound)

    bound = ((0, None),)
    site, served = Site(), Served()
    site.add("pushed", Record(None, mock, None, run, native=native(1, direct=(bound, 1, (OUT, 0)))))
    assert served.go_on(site, [(int, (), {}, ())])[3] == "graph" and calls == ["run", "mock", "run"]
    calls.clear()

    def act(x):
        calls.append("act")
        raise ValueError("action")

    guard = native(1, direct=(bound, 1, (OUT, 0), ((act, ((OUT, 0),)),)))
    site.add("pushed", Record(None, mock, None, lambda x: (x,), native=guard))
    site.when_false = site.ways["pushed"]
    assert served.go_on(site, [(int, (), {}, ())])[3] == "action" and calls == ["act"]


def test_the_first_segment_of_a_call():
    site, served = Site(), Served()
    site.add("pushed", Record(everything, lambda bound, run: bound))
    first = Record(None, lambda bound, run: (str, bound, {}, bound), site, native=native(1))
    served.cache.records = (first,)
    assert served.dispatch((5,), {}) == (5, "5") and (first.hits, served.statistics.hits) == (1, 1)
    served.call_failed = None
    first.mock = lambda bound, run: 1 / 0
    Served.call_failed = lambda self, record, args, kwargs, error: (record, args, kwargs, type(error))
    del served.call_failed
    assert served.dispatch((5,), {}) == (first, (5,), {}, ZeroDivisionError) and first.hits == 1


def test_signals_and_threads_interrupt_a_chain_without_end():
    site, served = Site(TESTED), Served()
    site.add(True, Record(None, None, site, native=native(1, direct=((), 0, (TUPLE, again()), ()))))
    site.caches[True].records[0].mock = everything
    site.ways[True] = Way(("point", True), site.caches[True])
    started = []
    other = threading.Thread(target=lambda: (time.sleep(0.05), started.append(1), signal.raise_signal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        other.start()
        with pytest.raises(KeyboardInterrupt):
            served.go_on(site, [(bool, (1,), {}, ("slot",))])
    finally:
        signal.signal(signal.SIGINT, before)
    other.join()
    assert started == [1] and site.taken > 64


def again():
    """What a segment leaves that ends at the boundary at which it starts."""
    one = (TUPLE, ((OBJ, (-1, 1)),))
    return ((OBJ, (-1, bool)), one, (MAPPING, (), ()), (TUPLE, ((OBJ, (0, None)),)))


def test_wrong_uses_are_refused():
    served, site = Served(), Site()
    for args in ((), (site,), (site, (1,)), (site, []), (site, [1, 2])):
        with pytest.raises(TypeError):
            served.go_on(*args)
    for left in (None, (), (1, 2, 3), (int, [], {}, ()), (int, (), [], ()), (int, (), {}, [])):
        with pytest.raises(TypeError):
            served.go_on(site, [left])
    with pytest.raises(TypeError):
        served.go_on("no boundary", [(int, (), {}, ())])
    with pytest.raises(TypeError):
        Way("point", "no cache")
    site.go_on = lambda *given: "nonsense"
    with pytest.raises(TypeError):
        served.go_on(site, [(int, (), {}, ())])
    site = Site()
    site.add("pushed", "no record")
    assert served.go_on(site, [(int, (), {}, ())])[0] == "guard"
    served.serve_segment = lambda *given: None
    site.add("pushed", Record(everything, None, plain=False))
    site.when_false = site.ways["pushed"]
    with pytest.raises(TypeError):
        served.go_on(site, [(int, (), {}, ())])


def test_boundaries_and_ways_are_collected():
    site = Site()
    record = Record(everything, None, site)
    way = site.add("pushed", record)
    site.when_false = way
    gone = weakref.ref(type("Slot", (), {})())
    holder = type("Holder", (), {})()
    record.mock, gone = holder, weakref.ref(holder)
    del site, record, way, holder
    gc.collect()
    assert gone() is None
