"""The drawing: rows, ports, aliases, numbered effects, slices.  Golden drawings lie in `cases/`."""

from __future__ import annotations

import re

import pytest

from magpy_refgraph import Atom, EdgeKind, Effect, Key, RefGraph, parse_text, to_dot


def key(arg: object) -> Key:
    return Key(EdgeKind.ITEM, arg)


@pytest.fixture
def graph() -> RefGraph:
    return parse_text("""\
#0 external
  v0
    argument 0 -> #1
    argument 1 -> #1
#1 dict from #0 argument 0 @1
  v0
    item 'k' -> #2
  v1 @4
    item 'k' -> #3
  v2 @6
    item 'l' -> #2
#2 list from #1 item 'k' @2
#3 list @3
#4 set @5
effects
  @4 #1 dict.__setitem__('k', #3) sets item 'k'
  @6 #1 dict.__setitem__('l', #2) sets item 'l'
""")


def arrows(source: str) -> list[str]:
    return [line.strip().rstrip(";") for line in source.splitlines() if " -> " in line and ":head" in line]


def labels(source: str) -> dict[str, str]:
    return dict(re.findall(r'^  (\w+) \[(?:shape=note, )?label="((?:[^"\\]|\\.)*)"', source, flags=re.M))


def test_an_empty_graph():
    assert list(labels(to_dot(RefGraph()))) == ["n0"]


def test_every_arrow_starts_at_a_row_and_ends_at_a_box(graph):
    source = to_dot(graph)
    boxes = labels(source)
    assert len(arrows(source)) == 5
    for start, port, end in re.findall(r"(n\d+):(\w+) -> (n\d+):head", source):
        assert f"<{port}>" in boxes[start]
        assert "<head>" in boxes[end]


def test_aliases_are_dashed_and_overwritten_references_grey(graph):
    assert arrows(to_dot(graph)) == [
        "n0:v0_0 -> n1:head",
        'n0:v0_1 -> n1:head [style=dashed, label="alias"]',
        "n1:v0_0 -> n2:head [color=grey]",
        "n1:v1_0 -> n3:head",
        'n1:v2_0 -> n2:head [style=dashed, label="alias"]',
    ]


def test_versions_are_rows_with_their_effect_s_number(graph):
    rows = labels(to_dot(graph))["n1"].split("|{")
    assert [row.partition("|")[0] for row in rows[1:] if row.startswith("v")] == [
        "v0",
        r"v1 @4\ne1 dict.__setitem__",
        r"v2 @6\ne2 dict.__setitem__",
    ]


def test_effects_are_listed_in_order(graph):
    listed = labels(to_dot(graph))["effects"].split(r"\l")
    assert [line.split(" ")[0] for line in listed] == ["e1", "e2", ""]


def test_objects_made_during_the_run_are_round(graph):
    rounded = re.findall(r"^  (n\d+) .*style=rounded", to_dot(graph), flags=re.M)
    assert rounded == ["n3", "n4"]


@pytest.mark.parametrize(
    ("time", "boxes", "versions", "effects"),
    [(0, 1, 0, 0), (1, 2, 1, 0), (3, 4, 2, 0), (4, 4, 3, 1), (5, 5, 3, 1), (6, 5, 4, 2)],
)
def test_slices(graph, time, boxes, versions, effects):
    source = to_dot(graph, time)
    found = labels(source)
    listed = found.pop("effects", "")
    assert len(found) == boxes
    assert sum(len(re.findall(r"\{v\d", label)) for label in found.values()) == versions
    assert listed.count(r"\l") == effects
    assert all(int(end) < boxes for end in re.findall(r"-> n(\d+)", source))


def test_a_slice_does_not_grey_what_is_overwritten_later(graph):
    assert "grey" not in to_dot(graph, 3)
    assert "grey" in to_dot(graph, 4)


def test_times_are_the_graph_s_own():
    graph = RefGraph()
    for _ in range(9):
        graph.tick()
    graph.add([])
    assert r"@10" in to_dot(graph)
    assert "list" in to_dot(graph, 10) and "list" not in to_dot(graph, 9)


def test_special_characters_are_escaped():
    graph = RefGraph()
    node = graph.add({})
    graph.read(node, key('{|}<>"\\ '), Atom("\n"))
    graph.write(Effect(graph.tick(), node, dict.pop, ('"',)), {})
    boxes = labels(to_dot(graph))
    assert r"item\ '\{\|\}\<\>\"\\\\\ '\ =\ '\\n'\l" in boxes["n1"]
    unescaped = re.sub(r"\\.", "", boxes["n1"])
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("<") == unescaped.count(">")


def test_a_node_of_another_graph_is_named_but_not_drawn():
    graph = RefGraph()
    graph.root.initial[Key(EdgeKind.ARGUMENT, 0)] = RefGraph().add([])
    source = to_dot(graph)
    assert arrows(source) == []
    assert r"argument\ 0\ -\>\ #?" in source
