"""Generated Python as real source."""

from __future__ import annotations

import inspect
import keyword
import linecache
import traceback

import pytest

from magpy_codegen import Namespace, forget_source, make_function
from magpy_codegen._source import Source, literal, one_line


def test_each_object_has_one_name():
    space = Namespace()
    one, other = [], []
    assert space.constant(one, "list") == space.constant(one, "other hint")
    assert space.constant(other, "list") != space.constant(one, "list")
    assert sorted(map(id, space.values.values())) == sorted([id(one), id(other)])


@pytest.mark.parametrize(
    "hint",
    ["", "_", "<lambda>", "1st", "class", "None", "len", "args", "v3", "n12", "o0", "x", "guard", "held", "mock", "run",
     "held_facts", "tensors_match", "modes_match", "x\u00b2", "\ufb01", "\u540d", "a b", "a.b", "\n", "\ud800"],
)  # fmt: skip
def test_names_are_identifiers_that_hide_nothing(hint):
    space = Namespace()
    name = space.constant(object(), hint)
    assert name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    found = make_function(f"def f(args, kwargs):\n    return {name}\n", "f", dict(space.values), "test")
    assert found((), {}) is space.values[name]
    assert name not in {"args", "kwargs", "guard", "held", "mock", "run", "bound", "len", "held_facts", "tensors_match"}
    assert not (name[0] in "vno" and name[1:].isdigit())


def test_many_objects_of_one_hint_get_numbers():
    space = Namespace()
    names = [space.constant(object(), "thing") for _ in range(100)]
    assert len(set(names)) == 100 and names[:3] == ["thing", "thing_2", "thing_3"]


def test_a_number_does_not_take_a_name_that_is_there():
    space = Namespace()
    space.values["thing_2"] = "a helper"
    names = [space.constant(object(), "thing") for _ in range(3)]
    assert names == ["thing", "thing_3", "thing_4"] and space.values["thing_2"] == "a helper"


def test_comments_stay_on_their_line():
    out = Source("def f():")
    out.add("return 1", "a\nb\rc\x00d\u2028e\ud800f")
    assert make_function(out.text(), "f", {}, "test")() == 1
    assert len(out.text().splitlines()) == 2
    assert one_line("plain: text") == "plain: text"


def test_literals_are_short():
    assert literal(12) == "12" and literal("a'b") == repr("a'b") and literal(b"x") == "b'x'"
    assert literal(10**5000) is None, "repr would raise"
    assert literal("x" * 100) is None and literal("\x00" * 50) is None
    assert literal(True) is literal(1.5) is literal(None) is None


def test_functions_have_source_until_it_is_forgotten():
    function = make_function("def f():\n    raise KeyError(1)\n", "f", space := {}, "some title")
    assert "some title" in function.__code__.co_filename and "f" not in space
    assert inspect.getsource(function) == "def f():\n    raise KeyError(1)\n"
    with pytest.raises(KeyError) as caught:
        function()
    assert "raise KeyError(1)" in "".join(traceback.format_exception(caught.value))
    forget_source(function)
    assert function.__code__.co_filename not in linecache.cache
    forget_source(function)


def test_file_names_are_unique():
    one, other = (make_function("def f(): pass\n", "f", {}, "same") for _ in range(2))
    assert one.__code__.co_filename != other.__code__.co_filename
