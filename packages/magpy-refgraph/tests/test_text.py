"""The text form: what it shows of values, that it does not depend on the run, and that it round-trips."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magpy_refgraph import (
    ABSENT,
    Atom,
    EdgeKind,
    Effect,
    Key,
    Location,
    RefGraph,
    parse_text,
    same_value,
    to_text,
    verify,
)


class Color(enum.Enum):
    RED = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Meta:
    dtype: object
    shape: tuple[int, ...]


class Name(str):
    pass


class Loud:
    """Its user code must not run."""

    def __repr__(self) -> str:
        raise AssertionError("user code ran")

    __hash__ = None  # type: ignore[assignment]


class LoudMeta(type):
    @property
    def __module__(cls) -> str:
        raise AssertionError("user code ran")

    def __getattribute__(cls, name: str) -> object:
        raise AssertionError("user code ran")


Point = collections.namedtuple("Point", "x y")

for named in (Color, Access, Meta, Name, Loud, Point, Loud.__repr__):
    named.__module__ = "program"


def one_value(value: object) -> str:
    """How the text shows the value of an Atom."""
    graph = RefGraph()
    graph.read(graph.root, Key(EdgeKind.ARGUMENT, 0), Atom(value))
    text = to_text(graph)
    assert to_text(parse_text(text)) == text
    return text.splitlines()[2].removeprefix("    argument 0 = ")


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [0, -7, 2**70, True, None, Ellipsis, NotImplemented, 1.5, -0.0, 1e300, 1e-7, 1e16, float("inf"), -float("inf")]
        + ["", "a", "it's", '"', "\n\t\\", "\u2028\ud800é", "<>", " ; x:1 in y", b"", b"\x00'\""]
        + [(), (1,), (1, (2.0, "a"), None)],
        ids=repr,
    )
    def test_literals_are_read_back(self, value):
        text = one_value(value)
        graph = parse_text(f"#0 external\n  v0\n    argument 0 = {text}\n")
        assert same_value(graph.root.initial[Key(EdgeKind.ARGUMENT, 0)].value, value)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (float("nan"), "nan"),
            (ABSENT, "ABSENT"),
            (1 + 2j, "<(1+2j)>"),
            (int, "<type int>"),
            (collections.OrderedDict, "<type collections.OrderedDict>"),
            (Color.RED, "<program.Color.RED>"),
            (Access.READ | Access.WRITE, "<program.Access.READ|WRITE>"),
            (Meta(int, (2, 3)), "<program.Meta(dtype=<type int>, shape=(2, 3))>"),
            (Point(1, "x"), "<program.Point(1, 'x')>"),
            (Name("n"), "<program.Name 'n'>"),
            (frozenset({"b", "a"}), "<frozenset('a', 'b')>"),
            (range(3), "<range(0, 3, 1)>"),
            (slice(None, 2), "<slice(None, 2, None)>"),
            (len, "<function len>"),
            (operator.setitem, "<function _operator.setitem>"),
            (list.append, "<function list.append>"),
            ([].append, "<function list.append>"),
            (list.__add__, "<function list.__add__>"),
            (dict.__dict__["fromkeys"], "<function dict.fromkeys>"),
            (types, "<module types>"),
            ([1], "<list>"),
            ({}, "<dict>"),
            (collections.deque([Loud()]), "<collections.deque>"),
            (functools.partial(Loud), "<functools.partial>"),
            (Loud(), "<program.Loud>"),
            (object(), "<object>"),
            (types.CellType(Loud()), "<cell>"),
            (ValueError(Loud()), "<ValueError>"),
            (iter([]), "<list_iterator>"),
            (types.SimpleNamespace, "<type types.SimpleNamespace>"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_descriptions(self, value, text):
        assert one_value(value) == text

    def test_very_long_integers_are_hexadecimal(self):
        assert one_value(10**5000) == hex(10**5000)
        assert one_value(-(1 << 256)) == hex(-(1 << 256))

    def test_no_user_code_of_metaclasses(self):
        kind = LoudMeta("Kind", (), {"__module__": "program"})
        assert one_value(kind) == "<type program.Kind>"
        assert one_value(kind()) == "<program.Kind>"

    def test_odd_names_stay_on_their_line(self):
        kind = type("a b>\n#1 {x}", (), {"__module__": "program"})
        assert one_value(kind) == "<type program.a?b???1??x?>"
        graph = RefGraph()
        graph.add(kind())
        text = to_text(graph)
        assert to_text(parse_text(text)) == text

    def test_long_descriptions_are_cut(self):
        text = one_value(Name("x" * 500))
        assert len(text) == 122 and text.endswith("...>")

    def test_local_functions(self):
        def inner():
            pass

        inner.__module__ = "program"
        assert one_value(inner) == "<function program.TestValues.test_local_functions.<locals>.inner>"
        inner.__qualname__ = "<lambda>"
        assert one_value(inner) == "<function program.<lambda>>"

    def test_an_object_with_a_node_is_its_number(self):
        graph = RefGraph()
        kept: list[object] = []
        graph.add(kept)
        graph.read(graph.root, Key(EdgeKind.ARGUMENT, 0), Atom((kept, [])))
        assert "argument 0 = (#1, <list>)" in to_text(graph)


class TestForm:
    def build(self, ticks: int = 0) -> RefGraph:
        graph = RefGraph()
        for _ in range(ticks):
            graph.tick()
        obj: list[object] = [0]
        key = Key(EdgeKind.ARGUMENT, 0)
        node = graph.add(obj, graph.root, key)
        where = Location("/some/where/program.py", 7, "model.<locals>.inner")
        graph.read(graph.root, key, node, where)
        for _ in range(ticks):
            graph.tick()
        graph.read(node, Key(EdgeKind.ITEM, 0), Atom(0), ("code", 3))
        effect = Effect(
            graph.tick(), node, list.insert, (0, obj), {"not a name": 1, "2": 2}, where, Key(EdgeKind.LENGTH)
        )
        graph.write(effect, {Key(EdgeKind.LENGTH): Atom(2)})
        return graph

    def test_the_whole_of_a_small_graph(self):
        assert to_text(self.build()) == (
            "#0 external\n"
            "  v0\n"
            "    argument 0 -> #1 ; program.py:7 in model.<locals>.inner\n"
            "#1 list from #0 argument 0 @1\n"
            "  v0\n"
            "    item 0 = 0\n"
            "  v1 @2\n"
            "    length = 2\n"
            "effects\n"
            "  @2 #1 list.insert(0, #1, not_a_name=1, _2=2) sets length ; program.py:7 in model.<locals>.inner\n"
        )

    def test_a_location_may_be_a_code_object_and_a_line(self):
        graph = self.build()
        code = compile("def inner(): pass", "/some/where/module.py", "exec").co_consts[0]
        graph.nodes[1].reads[Key(EdgeKind.ITEM, 0)] = (code, 12)
        assert "    item 0 = 0 ; module.py:12 in inner\n" in to_text(graph)

    def test_times_are_ranks(self):
        assert to_text(self.build(ticks=40)) == to_text(self.build())

    def test_nodes_are_renumbered(self):
        graph = self.build()
        dropped = graph.add({})
        last = graph.add([])
        graph.read(last, Key(EdgeKind.SAME, last.index), Atom(True))
        graph.nodes.remove(dropped)
        assert "#2 list @3\n  v0\n    same #2 = True\n" in to_text(graph)

    def test_a_released_graph_still_shows_its_references(self):
        graph = self.build()
        text = to_text(graph)
        graph.release()
        assert text.startswith(to_text(graph))

    def test_a_parsed_graph_can_be_searched_but_not_run(self):
        graph = parse_text(to_text(self.build()))
        assert verify(graph) == []
        effect = graph.effects[0]
        assert effect.args == (0, graph.nodes[1].obj())
        assert repr(effect.function) == "<list.insert>"
        with pytest.raises(TypeError, match=r"list\.insert stands in a parsed graph"):
            effect.function([], 0)

    def test_what_is_written_is_one_line_a_thing(self):
        graph = RefGraph()
        graph.read(graph.root, Key(EdgeKind.ARGUMENT, 0), Atom("\n"), Location("a\nb", 1, ""))
        text = to_text(graph)
        assert text.count("\n") == 3
        assert to_text(parse_text(text)) == text


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
values = st.recursive(
    scalars | st.sampled_from([int, len, Color.RED, list.append, Loud, types]),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.frozensets(scalars, max_size=3) | st.builds(Meta, inner, inner)
    ),
    max_leaves=8,
)


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(st.dictionaries(scalars, values, max_size=4), st.lists(values, max_size=3), st.text(), st.text())
def test_any_values_round_trip(refs, args, file, function):
    graph = RefGraph()
    node = graph.add([])
    where = Location(file, 3, function)
    for key, value in refs.items():
        graph.read(node, Key(EdgeKind.ITEM, key), Atom(value), where)
    graph.write(Effect(graph.tick(), node, list.extend, tuple(args), {"key": refs and args}, where), {})
    text = to_text(graph)
    assert to_text(parse_text(text)) == text
    assert to_text(graph) == text


def test_a_class_without_a_module_has_a_name():
    space = {}
    exec("class C: pass", space)
    graph = RefGraph()
    graph.add(space["C"]())
    assert verify(graph) == [] and "C" in to_text(graph)
