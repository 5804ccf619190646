"""The drawing for browsers: well formed, every object once, no two boxes on top of each other."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from magpy_refgraph import Atom, EdgeKind, Key, RefGraph, parse_text, to_svg

SVG = "{http://www.w3.org/2000/svg}"


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
    length = 1
  v1 @4
    item 'k' -> #3
#2 list from #1 item 'k' @2
#3 list @3
#4 set @5
effects
  @4 #1 dict.__setitem__('k', #3) sets item 'k'
""")


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        x, y = map(float, re.findall(r"-?\d+", group.get("transform", "")))
        (rect,) = group.iter(f"{SVG}rect")
        found.append((x, y, float(rect.get("width", 0)), float(rect.get("height", 0))))
    return found


def heads(svg: str) -> list[str]:
    texts = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return [str(each.text) for each in texts if each.get("class") == "head"]


def test_an_empty_graph():
    assert heads(to_svg(RefGraph())) == ["#0 external state"]


def test_every_object_is_drawn_once(graph):
    assert sorted(heads(to_svg(graph))) == ["#0 external state", "#1 dict", "#2 list", "#3 list", "#4 set"]


def test_objects_stand_right_of_what_leads_to_them(graph):
    places = dict(zip(heads(to_svg(graph)), boxes(to_svg(graph)), strict=True))
    assert places["#0 external state"][0] < places["#1 dict"][0] < places["#2 list"][0]


def test_colours_tell_what_was_changed_and_what_is_new(graph):
    kinds = [rect.get("class") for rect in ElementTree.fromstring(to_svg(graph)).iter(f"{SVG}rect")]
    assert sorted(map(str, kinds)) == ["box ", "box changed", "box new", "box new", "box root"]


def test_aliases_are_dashed_and_overwritten_references_pale(graph):
    kinds = [str(path.get("class")) for path in ElementTree.fromstring(to_svg(graph)).iter(f"{SVG}path")]
    assert sorted(kinds) == ["edge", "edge", "edge alias", "edge past"]


def test_plain_values_are_rows(graph):
    assert ">length = 1<" in to_svg(graph)
    assert ">updated once<" in to_svg(graph)


def big_graph(count: int) -> RefGraph:
    graph = RefGraph()
    nodes = [graph.root]
    for number in range(count):
        parent = nodes[number // 3]
        key = Key(EdgeKind.ITEM, number)
        nodes.append(graph.add([number], parent, key))
        graph.read(parent, key, nodes[-1])
        graph.read(nodes[-1], Key(EdgeKind.LENGTH), Atom(number % 5))
    return graph


def test_boxes_do_not_overlap():
    found = boxes(to_svg(big_graph(100)))
    assert len(found) == 101
    for (ax, ay, aw, ah), (bx, by, bw, bh) in itertools.combinations(found, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay


def test_the_nearest_are_drawn_and_the_others_counted():
    svg = to_svg(big_graph(400), limit=50)
    assert len(boxes(svg)) == 50
    assert "and 351 more objects further away" in svg


def test_cycles_are_drawn():
    graph = RefGraph()
    one = graph.add([], graph.root, Key(EdgeKind.ARGUMENT, 0))
    graph.read(graph.root, Key(EdgeKind.ARGUMENT, 0), one)
    graph.read(one, Key(EdgeKind.ITEM, 0), one)
    assert len(boxes(to_svg(graph))) == 2


@pytest.mark.parametrize("text", ["<&>", "a\x00b\x1b", "\ud800", "]]>", "&amp;", "ä" * 100])
def test_any_text_is_well_formed(text):
    graph = RefGraph()
    graph.read(graph.root, Key(EdgeKind.KEYWORD, text), Atom(text))
    one = graph.add([], graph.root, Key(EdgeKind.ITEM, text))
    graph.read(graph.root, Key(EdgeKind.ITEM, text), one)
    ElementTree.fromstring(to_svg(graph))
