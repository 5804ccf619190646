"""The native table of facts: each question, what it refuses, and that it keeps and frees what it holds. Needs no torch."""

import collections
import gc
import sys
import threading
import types
import weakref

import pytest

from magpy_runtime._native import FactTable
from magpy_runtime.capture import NULL

ITEM, DICT, TYPE, LENGTH, TRUTH, CLASS, ELEMENT, CELL, CODE, DEFAULTS, KWDEFAULTS, OTHER = range(12)
NEW = object()


class Box:
    attribute = 1


class Other:
    pass


class Empty(Other):
    pass


def same(one, other):
    return type(one) is type(other) and one == other


def table(*facts):
    return FactTable(list(facts), same)


def function(a=NEW, *, b=NEW):
    return a, b


def another():
    pass


def bare():
    return types.FunctionType(another.__code__, {})


def copied():
    made = types.FunctionType(function.__code__, {}, "f", function.__defaults__)
    made.__kwdefaults__ = dict(function.__kwdefaults__)
    return made


def put(name, value):
    return lambda obj: setattr(obj, name, value)


def set_item(obj):
    obj["k"] = 1


QUESTIONS = {
    "item": (ITEM, lambda: {"k": NEW}, "k", lambda obj: NEW, set_item),
    "item gone": (ITEM, lambda: {"k": NEW}, "k", lambda obj: NEW, dict.clear),
    "item by number": (ITEM, lambda: {5: NEW}, 5, lambda obj: NEW, dict.clear),
    "item by None": (ITEM, lambda: {None: NEW}, None, lambda obj: NEW, dict.clear),
    "no item": (ITEM, dict, "k", lambda obj: NULL, set_item),
    "dictionary": (DICT, Box, None, lambda obj: obj.__dict__, put("__dict__", {})),
    "type": (TYPE, Box, None, lambda obj: Box, put("__class__", Other)),
    "length": (LENGTH, lambda: [1], None, lambda obj: 1, list.clear),
    "length of a dictionary": (LENGTH, dict, None, lambda obj: 0, set_item),
    "length of a set": (LENGTH, lambda: {1}, None, lambda obj: 1, set.clear),
    "truth": (TRUTH, lambda: [1], None, lambda obj: True, list.clear),
    "no truth": (TRUTH, dict, None, lambda obj: False, set_item),
    "class": (CLASS, lambda: type("C", (Box,), {}), "attribute", lambda obj: 1, put("attribute", 2)),
    "class's base": (CLASS, lambda: type("C", (Box,), {}), "attribute", lambda obj: 1, put("__bases__", (Empty,))),
    "not in class": (CLASS, lambda: type("C", (), {}), "k", lambda obj: NULL, put("k", None)),
    "element": (ELEMENT, lambda: [1, NEW], 1, lambda obj: NEW, list.reverse),
    "element gone": (ELEMENT, lambda: [1, NEW], 1, lambda obj: NEW, list.pop),
    "no element": (ELEMENT, lambda: [1], 1, lambda obj: NULL, lambda obj: obj.append(1)),
    "cell": (CELL, lambda: types.CellType(NEW), None, lambda obj: NEW, put("cell_contents", 1)),
    "cell emptied": (CELL, lambda: types.CellType(NEW), None, lambda obj: NEW, lambda obj: delattr(obj, "cell_contents")),
    "empty cell": (CELL, types.CellType, None, lambda obj: NULL, put("cell_contents", None)),
    "code": (CODE, copied, None, lambda obj: function.__code__, put("__code__", another.__code__)),
    "defaults": (DEFAULTS, copied, None, lambda obj: obj.__defaults__, put("__defaults__", (1,))),
    "no defaults": (DEFAULTS, bare, None, lambda obj: None, put("__defaults__", ())),
    "keyword defaults": (KWDEFAULTS, copied, None, lambda obj: obj.__kwdefaults__, put("__kwdefaults__", None)),
    "function of it": (OTHER, lambda: {1}, set.__len__, lambda obj: 1, lambda obj: obj.add(2)),
    "nothing by a function": (OTHER, dict, lambda obj: obj.get("k", NULL), lambda obj: NULL, set_item),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question(name):
    kind, make, key, expected, change = QUESTIONS[name]
    obj = make()
    facts = [(TYPE, 1, None, int, False), (kind, obj, key, expected(obj), False), (TYPE, 1, None, int, False)]
    found = table(*facts)
    assert found() is None and len(found) == 3
    change(obj)
    assert found() == 1
    wrong = {LENGTH: 77, TRUTH: not expected(make()) if kind == TRUTH else None}.get(
        kind, NEW if expected(obj) is not NEW else 1
    )
    assert table((kind, make(), key, wrong, False))() == 0


def test_an_empty_table():
    assert table()() is None and len(table()) == 0


def test_plain_values_are_compared_by_value_when_asked():
    held = {"k": 10**30}
    assert table((ITEM, held, "k", 10**30 + 1 - 1, True))() is None
    assert table((ITEM, held, "k", int("1" + "0" * 30), False))() == 0
    assert table((ITEM, {"k": True}, "k", 1, True))() == 0, "another type"
    assert table((ITEM, {}, "k", 1, True))() == 0
    calls = []
    found = FactTable([(ITEM, {"k": 2j}, "k", 3j, True)], lambda *args: calls.append(args) or 1)
    assert found() == 0 and calls == [(2j, 3j)], "only True counts"


def test_an_answer_may_go_while_it_is_compared():
    held = {"k": complex("1e30")}

    def replace(one, other):
        held.clear()
        return one == other

    found = FactTable([(ITEM, held, "k", complex("1e30"), True)], replace)
    assert found() is None and found() == 0


def test_errors_come_out():
    def fail(*args):
        raise KeyError("a")

    for found in (
        table((TYPE, 1, None, int, False), (OTHER, 1, fail, 1, False)),
        FactTable([(ITEM, {"k": 1j}, "k", 2j, True)], fail),
        table((ITEM, {}, [], 1, False)),
    ):
        with pytest.raises((KeyError, TypeError)):
            found()


class Hostile(dict):
    def refuse(self, *args):
        raise AssertionError("user code runs")

    __len__ = __bool__ = __eq__ = __getitem__ = __getattribute__ = __contains__ = get = refuse
    __hash__ = None
    __class__ = property(refuse)


def test_no_user_code_runs():
    obj = dict.__new__(Hostile)
    dict.__setitem__(obj, "k", NEW)
    facts = [(ITEM, obj, "k", NEW, True), (LENGTH, obj, None, 1, False), (TRUTH, obj, None, True, False)]
    facts += [(TYPE, obj, None, Hostile, False), (CLASS, Hostile, "get", Hostile.refuse, False)]
    facts += [(ITEM, {"k": obj}, "k", obj, True)]
    assert table(*facts)() is None
    assert table((ITEM, {"k": obj}, "k", 1, True))() == 0
    assert table((ITEM, {"k": obj}, "k", dict.__new__(Hostile), False))() == 0


@pytest.mark.parametrize(
    "fact",
    [
        (ITEM, [], "k", 1, False),
        (DICT, Box, None, 1, False),
        (LENGTH, collections.deque(), None, 1, False),
        (LENGTH, "text", None, 1, False),
        (LENGTH, [], None, -1, False),
        (LENGTH, [], None, "1", False),
        (LENGTH, [], None, 1 << 80, False),
        (TRUTH, 5, None, True, False),
        (CLASS, Box(), "k", 1, False),
        (CLASS, Box, None, 1, False),
        (CLASS, Box, 5, 1, False),
        (CLASS, Box, type("S", (str,), {})("k"), 1, False),
        (ELEMENT, {}, 0, 1, False),
        (ELEMENT, [1], None, 1, False),
        (ELEMENT, [1], -1, 1, False),
        (ELEMENT, [1], "0", 1, False),
        (ELEMENT, [1], True, 1, False),
        (CELL, [], None, 1, False),
        (CODE, len, None, 1, False),
        (DEFAULTS, Box().__init__, None, 1, False),
        (KWDEFAULTS, 1, None, 1, False),
        (OTHER, 1, None, 1, False),
        (OTHER, 1, 5, 1, False),
        (-1, 1, None, 1, False),
        (12, 1, None, 1, False),
        (TYPE, 1, None, int),
        (TYPE, 1, None, int, False, 1),
        ("0", 1, None, int, False),
        [TYPE, 1, None, int, False],
        None,
    ],
)
def test_wrong_facts_are_refused(fact):
    before = sys.getrefcount(NEW)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        table((ITEM, {"k": NEW}, "k", NEW, False), fact)
    assert sys.getrefcount(NEW) == before


def test_wrong_arguments_are_refused():
    for args in ((), ([],), ((), same), ([], same, 1)):
        with pytest.raises(TypeError):
            FactTable(*args)
    with pytest.raises(TypeError):
        FactTable([], same, x=1)
    found = table()
    for call in (lambda: found(1), lambda: found(x=1)):
        with pytest.raises(TypeError, match="takes no arguments"):
            call()


def test_nothing_leaks():
    held, key, expected = {"k": 10**30}, sys.intern("k" + str(len(QUESTIONS))), object()
    held[key] = expected
    facts = [(ITEM, held, key, expected, False), (DICT, box := Box(), None, box.__dict__, False)]
    facts += [(ITEM, held, "k", int("1" + "0" * 30), True), (OTHER, expected, id, id(expected), True)]
    facts += [(ITEM, held, "k", 5, True)]

    def counts():
        return [sys.getrefcount(each) for each in (held, key, expected, box, box.__dict__, held["k"])]

    before = counts()
    for _ in range(50):
        found = table(*facts)
        for _ in range(20):
            assert found() == 4
        del found
    del _
    assert counts() == before


def test_what_it_holds_goes_with_it():
    box = Box()
    gone = weakref.ref(box)
    found = table((TYPE, box, None, Box, False))
    del box
    assert gone() is not None and found() is None
    del found
    assert gone() is None


def test_cycles_are_collected():
    box = Box()
    box.table = table((TYPE, box, None, Box, False))
    gone = weakref.ref(box)
    del box
    gc.collect()
    assert gone() is None


def test_a_table_that_is_dropped_while_another_thread_calls_it():
    """The caller's own reference keeps it until it has answered."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(obj):
        inside.set()
        assert go_on.wait(10)
        return obj

    box = Box()
    gone = weakref.ref(box)
    holder = [table((OTHER, NEW, slow, NEW, False), (TYPE, box, None, Box, False))]
    answers = []
    del box
    thread = threading.Thread(target=lambda: answers.append(holder[0]()))
    thread.start()
    assert inside.wait(10)
    holder.clear()
    gc.collect()
    go_on.set()
    thread.join()
    assert answers == [None] and gone() is None


def test_threads_share_a_table():
    held = {"k": 0}
    found = table((ITEM, held, "k", 0, True))
    answers = set()

    def ask():
        for _ in range(2000):
            answers.add(found())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        held["k"] = number % 2 * 10**30
    for thread in threads:
        thread.join()
    assert answers <= {None, 0}
