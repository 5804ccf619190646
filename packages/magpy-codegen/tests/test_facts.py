"""Facts about held objects: the native table and the generated Python say the same of right, changed and hostile objects."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest
import torch

from magpy_codegen import FactKind, HeldFact, StepKind, make_function, render
from magpy_codegen._direct import Made
from magpy_runtime import ABSENT, fact_table, guard_helpers

HELPERS = guard_helpers()


def both(facts):
    """What table and Python say, which must be the same."""
    text, namespace = render(facts, HELPERS, ABSENT, lambda where: where)
    python = make_function(text, "held", namespace, "held facts")
    table = fact_table([fact.entry() for fact in facts])

    def ask():
        native = table()
        assert native == python(), text
        return native

    return ask


def fact(kind, obj, key, expected, plain=False):
    return HeldFact(kind, obj, key, expected, plain, kind.name.lower(), None, None)


class Slotted:
    __slots__ = ("a",)


class Plain:
    attribute = 1


class Other:
    pass


def with_defaults(a=1, *, b=2):
    return a, b


def other_function(a=1, *, b=2):
    return b


def cell(value):
    return (lambda: value).__closure__[0]


NEW = object()


def changes():
    """For each kind: the object, the key, the expected answer, and what makes it wrong."""
    table, plain, function, items, box = {"k": NEW}, Plain(), _copy(with_defaults), [NEW, 1], cell(NEW)
    classes = type("C", (Plain,), {})
    yield FactKind.ITEM, table, "k", NEW, lambda: table.__setitem__("k", 0)
    absent = {}
    yield FactKind.ITEM, absent, "k", ABSENT, lambda: absent.__setitem__("k", 0)
    owner = Plain()
    yield FactKind.DICT, owner, None, owner.__dict__, lambda: setattr(owner, "__dict__", {})
    yield FactKind.TYPE, plain, None, Plain, lambda: setattr(plain, "__class__", Other)
    yield FactKind.LENGTH, items, None, 2, lambda: items.append(1)
    filled = {1}
    yield FactKind.TRUTH, filled, None, True, filled.clear
    empty = set()
    yield FactKind.TRUTH, empty, None, False, lambda: empty.add(1)
    yield FactKind.CLASS, classes, "attribute", 1, lambda: setattr(classes, "attribute", 3)
    elements = [NEW, 1]
    yield FactKind.ELEMENT, elements, 0, NEW, lambda: elements.__setitem__(0, 1)
    short = [1, NEW]
    yield FactKind.ELEMENT, short, 1, NEW, short.pop
    yield FactKind.CELL, box, None, NEW, lambda: setattr(box, "cell_contents", 1)
    emptied = cell(NEW)
    yield FactKind.CELL, emptied, None, NEW, lambda: delattr(emptied, "cell_contents")
    code = _copy(with_defaults)
    yield FactKind.CODE, code, None, code.__code__, lambda: setattr(code, "__code__", other_function.__code__)
    yield FactKind.DEFAULTS, function, None, function.__defaults__, lambda: setattr(function, "__defaults__", None)
    keywords = _copy(with_defaults)
    yield FactKind.KWDEFAULTS, keywords, None, keywords.__kwdefaults__, lambda: setattr(keywords, "__kwdefaults__", {})
    queue = collections.deque([1])
    yield FactKind.OTHER, queue, collections.deque.__len__, 1, lambda: queue.append(1)
    keyed = {"a": 1, "b": 2}
    yield (
        FactKind.KEYS,
        keyed,
        lambda found: [*found] == ["a", "b"],
        True,
        lambda: keyed.__setitem__("a", keyed.pop("a")),
    )
    derived = type("D", (classes,), {})
    slotted = Slotted()
    slotted.a = NEW
    yield FactKind.MEMBER, slotted, "a", NEW, lambda: setattr(slotted, "a", 1)
    unset = Slotted()
    yield FactKind.MEMBER, unset, "a", ABSENT, lambda: setattr(unset, "a", 1)
    part = torch.ones(4)[2:]
    yield FactKind.MEMBER, part, "storage_offset", 2, lambda: part.set_(torch.ones(3))
    base = lambda cls: HELPERS["super_lookup"](cls, derived, "attribute")
    yield FactKind.SUPER, derived, base, 1, lambda: setattr(classes, "attribute", 4)


def _copy(function):
    import types

    made = types.FunctionType(function.__code__, {}, "f", function.__defaults__)
    made.__kwdefaults__ = dict(function.__kwdefaults__)
    return made


@pytest.mark.parametrize("number", range(len(list(changes()))))
def test_each_kind_holds_until_its_answer_changes(number):
    kind, obj, key, expected, change = list(changes())[number]
    plain = type(expected) is int
    ask = both(
        [fact(FactKind.TYPE, 1, None, int), fact(kind, obj, key, expected, plain), fact(FactKind.TYPE, 1, None, int)]
    )
    assert ask() is None
    change()
    assert ask() == 1


def test_every_kind_is_tried():
    assert {kind for kind, *_ in changes()} == set(FactKind)


def test_numbers_are_those_of_the_native_table():
    assert native_names("facts.h", "Question", "ASK") == [*(kind.name for kind in FactKind), "KINDS"]
    assert native_names("dispatch.h", "StepKind", "STEP") == [*(kind.name for kind in StepKind), "KINDS"]
    assert native_names("dispatch.h", "MakeKind", "MAKE") == [kind.name for kind in Made]
    for kinds in (FactKind, StepKind, Made):
        assert [kind.value for kind in kinds] == list(range(len(kinds)))


def native_names(file, enumeration, prefix):
    source = (Path(__file__).parents[2] / "magpy-runtime" / "native" / file).read_text(encoding="utf-8")
    names = re.search(r"typedef enum \{([^}]*?)\} " + enumeration + ";", source, re.DOTALL).group(1)
    return re.findall(prefix + r"_(\w+)", re.sub(r"/\*.*?\*/", "", names, flags=re.DOTALL))


@pytest.mark.parametrize("number", range(5))
def test_the_first_that_fails_is_named(number):
    held = [{"k": NEW} for _ in range(5)]
    ask = both([fact(FactKind.ITEM, each, "k", NEW) for each in held])
    for each in held[number:]:
        each.clear()
    assert ask() == number


VALUES = [0, 1, -1, 10**30, 10**5000, "", "a", "a\n'\"", "x" * 200, b"", b"\x00", 0.0, -0.0, 1.5, float("nan"), float("inf"),
          1j, complex(0.0, -0.0), range(3), range(0, 3, 2), torch.device("cpu"), torch.finfo(torch.float32)]  # fmt: skip


@pytest.mark.parametrize("one", range(len(VALUES)))
def test_plain_values_are_compared_by_type_and_value(one):
    for other, value in enumerate(VALUES):
        table = {"k": VALUES[one]}
        ask = both([fact(FactKind.ITEM, table, "k", value, plain=True)])
        assert ask() == (None if one == other else 0), (VALUES[one], value)
    assert both([fact(FactKind.ITEM, {"k": True}, "k", 1, plain=True)])() == 0


@pytest.mark.parametrize("value", [None, True, False])
def test_singletons(value):
    for other in (None, True, False, 0, 1):
        assert both([fact(FactKind.ITEM, {"k": other}, "k", value)])() == (None if other is value else 0)


KEYS = [1, "a", b"a", None, True, 1.5, (1, 2), 10**5000, "x" * 100, Plain, torch.float32]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_any_key(key):
    table = {key: NEW}
    ask = both([fact(FactKind.ITEM, table, key, NEW)])
    assert ask() is None
    del table[key]
    assert ask() == 0


@pytest.mark.parametrize("base", [dict, list, tuple, set, frozenset])
def test_subclasses_run_no_code(hostile, base):
    kind = hostile(base)
    obj = base.__new__(kind) if base not in (tuple, frozenset) else base.__new__(kind, (5,))
    {dict: lambda: dict.__setitem__(obj, 5, 5), list: lambda: list.append(obj, 5), set: lambda: set.add(obj, 5)}.get(
        base, list
    )()
    facts = [
        fact(FactKind.TYPE, obj, None, kind),
        fact(FactKind.LENGTH, obj, None, 1),
        fact(FactKind.TRUTH, obj, None, True),
    ]
    facts.append(fact(FactKind.DICT, obj, None, HELPERS["instance_dict"](obj)))
    if base in (list, tuple):
        facts += [fact(FactKind.ELEMENT, obj, 0, 5, plain=True)]
    if base is dict:
        facts += [fact(FactKind.ITEM, obj, 5, 5, plain=True), fact(FactKind.ITEM, obj, 6, ABSENT)]
    assert both(facts)() is None
    for number, each in enumerate(facts):
        wrong = fact(each.kind, obj, each.key, 0 if each.kind in (FactKind.LENGTH, FactKind.TRUTH) else NEW)
        assert both([*facts[:number], wrong, *facts])() == number


def test_answers_run_no_code(hostile):
    odd = object.__new__(hostile())
    assert both([fact(FactKind.ITEM, {"k": odd}, "k", odd)])() is None
    assert both([fact(FactKind.ITEM, {"k": odd}, "k", 1, plain=True)])() == 0
    assert both([fact(FactKind.ITEM, {"k": 1}, "k", odd)])() == 0


def test_objects_named_like_what_the_source_uses():
    def held():
        pass

    facts = [fact(FactKind.CODE, held, None, held.__code__)]
    for name in ("dict_len", "list_getitem", "dict_get", "same_value", "ABSENT", "type", "len", "held"):
        made = type(name, (list,), {})
        facts += [fact(FactKind.CLASS, made, "missing", ABSENT), fact(FactKind.LENGTH, made(), None, 0)]
    assert both(facts)() is None


def test_lines_say_what_and_where():
    from magpy_refgraph import Location

    where = Location("/src/program.py", 12, "f")
    text, _ = render(
        [HeldFact(FactKind.LENGTH, [], None, 0, False, "length None\nof list", where, None)],
        HELPERS,
        ABSENT,
        lambda at: at,
    )
    assert "if len(c_list) != 0: return 0  # length None of list: program.py:12\n    return None\n" in text
