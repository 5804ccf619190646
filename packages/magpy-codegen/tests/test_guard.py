"""Guards of graphs built by hand: they pass on what was recorded, and name the check that a change breaks."""

from __future__ import annotations

import collections
import functools
import types
import weakref

import pytest
import torch

from magpy_refgraph import ABSENT, EdgeKind


class Box:
    """A plain instance."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("a",)


class Base:
    def method(self):
        pass


class Derived(Base):
    def method(self):
        pass


def test_the_call_itself(bench):
    bench.arg(1)
    bench.keyword("flag", True)
    bench.keyword("name", "x")
    guard = bench.guard()
    assert guard(1, flag=True, name="x") == ()
    assert bench.failed(guard(flag=True, name="x")) == "1 positional arguments"
    assert bench.failed(guard(1, 2, flag=True, name="x")) == "1 positional arguments"
    assert bench.failed(guard(1)) == bench.failed(guard(1, name="x", flag=True)) == "keyword arguments flag, name"
    assert bench.failed(guard(1, flag=1, name="x")) == "keyword 'flag'"
    assert bench.failed(guard(2, flag=True, name="x")) == "argument 0 is 1"


def test_no_keywords(bench):
    guard = bench.guard()
    assert guard() == ()
    assert bench.failed(guard(a=1)) == "no keyword arguments"


def test_modes_come_before_everything_that_is_looked_at(bench):
    bench.arg(1)
    guard = bench.guard()
    bench.namespace.values["modes_match"] = lambda: False
    assert bench.failed(guard(1)) == bench.failed(guard(2)) == "modes of torch"


PLAIN = [0, 1, -5, 10**40, 10**5000, "", "text", "x" * 200, b"bytes", True, False, None, 1.5, 0.0, -0.0, float("inf"),
         float("-inf"), float("nan"), 2j, complex(-0.0, 0.0), range(3), range(0)]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PLAIN)))
def test_plain_values(make_bench, number):
    bench = make_bench()
    bench.arg(PLAIN[number])
    guard = bench.guard()
    for other, value in enumerate(PLAIN):
        found = guard(value)
        assert (found == ()) is (other == number), value
        assert found == () or bench.failed(found).startswith("argument 0")


def test_types_are_compared_before_values(bench, hostile):
    bench.arg(5)
    bench.arg("text")
    guard = bench.guard()
    assert guard(5, "text") == ()
    for base, wrong in ((int, 0), (str, 1), (object, 0), (object, 1), (float, 0)):
        kind = hostile(base)
        odd = base.__new__(kind)
        args = [5, "text"]
        args[wrong] = odd
        assert bench.failed(guard(*args)).startswith(f"argument {wrong}")


def attribute_case(bench):
    box = Box(a=1, b=[1, 2])
    node = bench.arg(box)
    names = bench.read(node, EdgeKind.DICT, None, box.__dict__)
    bench.read(names, EdgeKind.ITEM, "a", 1)
    items = bench.read(names, EdgeKind.ITEM, "b", box.b)
    bench.read(items, EdgeKind.TYPE, None, list)
    bench.read(items, EdgeKind.LENGTH, None, 2)
    bench.read(items, EdgeKind.ITEM, 1, 2)
    bench.read(names, EdgeKind.ITEM, "c", ABSENT)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (lambda box: None, None),
        (lambda box: setattr(box, "d", 1), None),
        (lambda box: box.b.__setitem__(0, 9), None),
        (lambda box: setattr(box, "a", 2), "item 'a' of dict is 1"),
        (lambda box: setattr(box, "a", True), "item 'a' of dict is 1"),
        (lambda box: delattr(box, "a"), "item 'a' of dict is 1"),
        (lambda box: setattr(box, "c", 1), "no item 'c' of dict"),
        (lambda box: box.b.append(3), "length None of list"),
        (lambda box: box.b.__setitem__(1, 9), "item 1 of list is 2"),
        (lambda box: setattr(box, "b", (1, 2)), "type list"),
        (lambda box: delattr(box, "b"), "type list"),
        (lambda box: setattr(box, "__class__", Base), "type Box"),
    ],
)
def test_what_hangs_off_an_argument(bench, change, failed):
    attribute_case(bench)
    guard = bench.guard()
    again = Box(a=1, b=[1, 2])
    change(again)
    found = guard(again)
    assert (type(found) is tuple) if failed is None else (bench.failed(found) == failed)
    if failed is None:
        assert found[0] is again


@pytest.mark.parametrize(
    ("base", "full", "other"),
    [
        (list, [1, 2], [1]),
        (tuple, (1, 2), (1,)),
        (dict, {1: 1}, {1: 1, 2: 2}),
        (set, {1}, {1, 2}),
        (frozenset, frozenset([1]), frozenset([1, 2])),
        (collections.deque, collections.deque([1]), collections.deque()),
    ],
)
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("odd", [False, True])
def test_lengths_and_truth_of_containers(make_bench, hostile, base, full, other, pinned, odd):
    kind = hostile(base) if odd else base

    def make(content):
        if not odd:
            return base(content)
        made = base.__new__(kind, content) if base in (tuple, frozenset) else base.__new__(kind)
        if base is dict:
            dict.update(made, content)
        elif base is not tuple and base is not frozenset:
            base.__init__(made, content)
        return made

    for asked in (EdgeKind.LENGTH, EdgeKind.TRUTH):
        bench, obj = make_bench(), make(full)
        node = bench.pin(obj) if pinned else bench.arg(obj)
        if pinned and base in (tuple, frozenset):
            continue  # cannot change
        bench.read(node, asked, None, len(full) if asked is EdgeKind.LENGTH else True)
        guard = bench.guard()
        args = () if pinned else (obj,)
        assert type(guard(*args)) is tuple
        if pinned:
            base.clear(obj)
        empty = () if pinned else (make(()),)
        assert bench.failed(guard(*empty)).startswith(asked.value)
        if not pinned and asked is EdgeKind.LENGTH:
            assert bench.failed(guard(make(other))).startswith("length")


@pytest.mark.parametrize("pinned", [False, True])
def test_keys_in_order(make_bench, pinned):
    bench, table = make_bench(), {"a": 1, 2.0: 2}
    node = bench.pin(table) if pinned else bench.arg(table)
    from magpy_refgraph import Atom

    bench.read(node, EdgeKind.KEYS, None, Atom(tuple(table)))
    guard = bench.guard()

    def ask(changed):
        if not pinned:
            return guard(changed)
        table.clear()
        table.update(changed)
        return guard()

    assert type(ask({"a": 5, 2.0: 6})) is tuple
    for changed in ({2.0: 2, "a": 1}, {"a": 1}, {"a": 1, 2: 2}, {"a": 1, 2.0: 2, 3: 3}, {"b": 1, 2.0: 2}):
        assert bench.failed(ask(changed)).startswith("keys")


def test_classes_and_their_lookups(bench):
    made = type("Made", (Derived,), {})
    node = bench.pin(made)
    bench.read(node, EdgeKind.CLASS, "method", Derived.method)
    bench.read(node, EdgeKind.CLASS, "missing", ABSENT)
    bench.read(node, EdgeKind.SUPER, (Derived, "method"), Base.method)
    guard = bench.guard()
    assert guard() == ()
    made.missing = 1
    assert bench.failed(guard()) == "class 'missing' of type"
    del made.missing
    made.method = Base.method
    assert bench.failed(guard()) == "class 'method' of type"
    del made.method
    assert guard() == ()
    made.__bases__ = (Base,)
    assert type(guard()) is int


def function_parts():
    def function(a=1, *, b=2):
        return a + b + outer

    outer = [1]
    return function


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("__code__", lambda f: setattr(f, "__code__", function_parts().__code__.replace(co_name="g"))),
        ("__defaults__", lambda f: setattr(f, "__defaults__", tuple([1]))),
        ("__kwdefaults__", lambda f: setattr(f, "__kwdefaults__", {"b": 2})),
    ],
)
@pytest.mark.parametrize("pinned", [False, True])
def test_parts_of_functions(make_bench, part, change, pinned):
    bench, function = make_bench(), function_parts()
    node = bench.pin(function) if pinned else bench.arg(function)
    bench.read(node, EdgeKind.MEMBER, part, getattr(function, part))
    guard = bench.guard()
    args = () if pinned else (function,)
    assert type(guard(*args)) is tuple
    change(function)
    found = guard(*args)
    if pinned or part == "__code__":  # found by path, the parts of the parts would be compared
        assert pinned is False or bench.failed(found) == f"member {part!r} of function"
    assert pinned is False or type(found) is int


def test_cells(bench):
    cell = types.CellType(box := Box())
    empty = types.CellType()
    bench.read(bench.pin(cell), EdgeKind.CELL, None, box)
    bench.read(bench.pin(empty), EdgeKind.CELL, None, ABSENT)
    guard = bench.guard()
    assert guard() == ()
    empty.cell_contents = None
    assert bench.failed(guard()) == "cell None of cell" and guard() == -2
    del empty.cell_contents, cell.cell_contents
    assert guard() == -1


def test_weak_references(bench):
    box = Box()
    reference = weakref.ref(box)
    bench.read(bench.pin(reference), EdgeKind.REFERENT, None, ABSENT)
    guard = bench.guard.__func__
    bench.graph.nodes[-1].versions[0].refs.clear()
    bench.read(bench.graph.nodes[-1], EdgeKind.REFERENT, None, bench.pin(box))
    check = guard(bench)
    assert check() == ()


def test_slots(bench):
    obj = Slotted()
    obj.a = 1
    node = bench.arg(obj)
    bench.read(node, EdgeKind.MEMBER, "a", 1)
    guard = bench.guard()
    assert guard(obj) == (obj,)
    again = Slotted()
    assert bench.failed(guard(again)) == "member 'a' of Slotted is 1"
    again.a = True
    assert bench.failed(guard(again)) == "member 'a' of Slotted is 1"
    again.a = 1
    assert guard(again) == (again,)


def test_values_of_subclasses(bench, hostile):
    kind = hostile(int)
    node = bench.arg(int.__new__(kind, 5))
    bench.read(node, EdgeKind.VALUE, None, 5)
    guard = bench.guard()
    assert type(guard(int.__new__(kind, 5))) is tuple
    assert bench.failed(guard(int.__new__(kind, 6))) == "value None of Hostileint is 5"
    assert bench.failed(guard(5)) == "type Hostileint"


def test_elements_of_a_deque(make_bench, hostile):
    for kind in (collections.deque, hostile(collections.deque)):
        for pinned in (False, True):
            bench, queue = make_bench(), collections.deque.__new__(kind)
            collections.deque.extend(queue, [7, 8])
            node = bench.pin(queue) if pinned else bench.arg(queue)
            bench.read(node, EdgeKind.LENGTH, None, 2)
            bench.read(node, EdgeKind.ITEM, 1, 8)
            guard = bench.guard()
            args = () if pinned else (queue,)
            assert type(guard(*args)) is tuple
            collections.deque.__setitem__(queue, 1, 9)
            assert bench.failed(guard(*args)).startswith("item 1 of")
            collections.deque.clear(queue)
            assert bench.failed(guard(*args)).startswith("length")


def test_aliases_must_stay_aliases(bench):
    shared = []
    bench.arg(shared)
    bench.arg(shared, typed=False)
    guard = bench.guard()
    assert guard(shared, shared) == (shared,)
    assert bench.failed(guard([], [])) == "argument 1 is the same object"


def test_distinct_objects_must_stay_distinct(bench):
    bench.arg([])
    bench.arg([])
    guard = bench.guard()
    one = []
    assert guard(one, other := []) == (one, other) and guard(one, other)[1] is other
    assert bench.failed(guard(one, one)) == "arguments are distinct objects"


def test_immutable_arguments_need_not_be_distinct(bench):
    bench.arg((1,))
    bench.arg((2,))
    same = (3,)
    assert bench.guard()(same, same) == (same, same)


def test_an_argument_is_no_changed_object(bench):
    held, given = [1], [2]
    node = bench.pin(held)
    bench.arg(given)
    bench.effect(node, list.append, 1)
    guard = bench.guard()
    assert guard([5]) == ([5],)
    assert bench.failed(guard(held)) == "an argument is none of the changed objects"


def test_identity_that_was_compared(bench):
    one, other = Box(), Box()
    first, second = bench.arg(one), bench.pin(other)
    bench.read(first, EdgeKind.SAME, second.index, False)
    guard = bench.guard()
    assert guard(one) == (one,)
    assert bench.failed(guard(other)) == "two objects are distinct"


def test_a_mode(bench):
    state = [False]

    def enabled(name):
        return state[0] if name == "grad" else None

    bench.read(bench.graph.root, EdgeKind.MODE, (enabled, ("grad",)), False)
    guard = bench.guard()
    assert guard() == ()
    state[0] = True
    assert bench.failed(guard()).startswith("mode")


def test_metadata_of_tensors_are_checked_together(bench):
    one, other = torch.ones(2), torch.zeros(3)
    from magpy_refgraph import Atom

    for tensor in (one, other):
        bench.read(bench.arg(tensor), EdgeKind.TENSOR, None, Atom("metadata"))
    seen = []
    bench.namespace.values["tensors_match"] = lambda *tensors: seen.append(tensors) or len(seen) < 2
    guard = bench.guard()
    assert len(guard(one, other)) == 2 and seen[0][0] is one and seen[0][1] is other
    assert bench.failed(guard(one, other)) == "metadata of tensors"


def test_what_cannot_change_is_not_checked(bench):
    items, partial = (Box(), 1), functools.partial(len, 1)
    node = bench.pin(items)
    bench.read(node, EdgeKind.LENGTH, None, 2)
    bench.read(node, EdgeKind.ITEM, 0, items[0])
    method = Base().method
    bench.read(bench.pin(method), EdgeKind.MEMBER, "__func__", method.__func__)
    bench.read(bench.pin(Box), EdgeKind.TYPE, None, type)
    bench.guard()
    assert bench.held == [] and partial


def test_a_held_fact_has_a_path_where_it_led_to_the_object(bench):
    names = bench.pin({"a": (found := Box()), "b": found})
    first = bench.read(names, EdgeKind.ITEM, "a", found)
    bench.read(names, EdgeKind.ITEM, "b", found)
    bench.guard()
    assert [fact.path for fact in bench.held] == [("path", first.index), None]


def test_no_user_code_runs(bench, hostile):
    """Everything that a guard looks at refuses whatever Python code could be called."""
    odd, items, table = (base.__new__(hostile(base)) for base in (object, list, dict))
    list.append(items, odd)
    dict.__setitem__(table, "k", odd)
    names = bench.helpers["instance_dict"](odd)
    nodes = [bench.pin(each) for each in (items, table)] + [bench.arg(each) for each in (odd,)]
    bench.read(nodes[0], EdgeKind.LENGTH, None, 1)
    bench.read(nodes[0], EdgeKind.ITEM, 0, odd)
    bench.read(nodes[1], EdgeKind.ITEM, "k", odd)
    bench.read(nodes[1], EdgeKind.TRUTH, None, True)
    bench.read(nodes[2], EdgeKind.DICT, None, names)
    again = bench.arg(list.__new__(hostile(list)))
    bench.read(again, EdgeKind.TRUTH, None, False)
    guard = bench.guard()
    found = guard(*bench.args)
    assert type(found) is tuple and found[0] is odd
    list.clear(items)
    assert type(guard(*bench.args)) is int
    assert type(guard(1, 2)) is type(guard(odd, odd)) is int


def test_an_object_that_is_neither_held_nor_found(bench):
    node = bench.arg(Box())
    with pytest.raises(KeyError, match="is not bound"):
        bench.writer.name(node)


def test_checks_can_be_added(bench):
    bench.guard()
    count = len(bench.writer.checks)
    bench.writer.add_check("inputs share memory")
    assert bench.failed(count) == "inputs share memory"
