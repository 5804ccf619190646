"""The parser of the text form: what it refuses, with line and column."""

from __future__ import annotations

import pytest

from magpy_refgraph import ABSENT, Atom, EdgeKind, Key, Location, parse_text, to_text

GRAPH = """\
#0 external
  v0
    argument 0 -> #1 ; program.py:2 in model
#1 program.Config from #0 argument 0 @1
  v0
    item None absent
  v1 @2
    item 'k' = (1, <type int>)
effects
  @2 #1 setattr('k', #1, value=3) sets item 'k' ; program.py:3 in model
"""


def test_structure():
    graph = parse_text(GRAPH)
    root, node = graph.nodes
    assert root is graph.root and graph.time == 2
    assert node.type.__qualname__ == "program.Config"
    assert node.parent is root and node.key == Key(EdgeKind.ARGUMENT, 0)
    assert root.initial == {node.key: node}
    assert root.reads == {node.key: Location("program.py", 2, "model")}
    assert node.initial == {Key(EdgeKind.ITEM, None): ABSENT}
    (target,) = node.versions[1].refs.values()
    assert isinstance(target, Atom) and target.value[0] == 1
    (effect,) = graph.effects
    assert effect.node is node and effect.time == 2 and effect.key == Key(EdgeKind.ITEM, "k")
    assert effect.args == ("k", node.obj()) and effect.keywords == {"value": 3}
    assert graph.find(node.obj()) is node


def test_blank_lines_do_not_count():
    assert to_text(parse_text("\n" + GRAPH.replace("\n", "\n\n"))) == GRAPH


def test_types_of_one_name_are_one_type():
    graph = parse_text("#0 external\n#1 list @1\n#2 list @2\n#3 dict @3\n")
    assert graph.nodes[1].type is graph.nodes[2].type is not graph.nodes[3].type


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        (1, "#1 external", "line 1, column 12: expected #0"),
        (1, "# external", "line 1, column 1: expected #<number> <type>"),
        (2, "  v1", "line 2, column 5: expected @<time>"),
        (2, "  v2 @1", "line 2, column 5: expected v1"),
        (2, "  v0 @1 x", "line 2, column 8: expected the end of the line"),
        (2, " v0", "line 2, column 1: expected a node, a version, a reference or an effect"),
        (3, "    argument 0 -> #7", "line 3, column 21: expected a node up to #1"),
        (3, "    argument 0 -> #", "line 3, column 19: expected #<number>"),
        (3, "    argument 0", "line 3, column 15: expected a target"),
        (3, "    argument = 1 2", "line 3, column 17: expected the end of the line"),
        (3, "    arguments 0 = 1", "line 3, column 14: expected a kind of reference"),
        (3, "    argument 0 = one", "line 3, column 21: expected a value"),
        (3, "    argument 0 = <int", "line 3, column 22: expected a closing bracket"),
        (3, "    argument 0 = (1 2)", "line 3, column 20: expected a comma"),
        (3, "    argument 0 = 1 ; nowhere", "line 3, column 22: expected <file>:<line> in <function>"),
        (4, "#1 list from #0 argument 0", "line 4, column 27: expected @<time>"),
        (6, "    item 'k' = 1\n    item 'k' = 2", "line 7, column 13: expected a reference that this version does not"),
        (8, "    item 'k' = 1 ; program.py:3 in model", "line 8, column 41: expected no location"),
        (10, "  @2 #1 setattr 'k'", "line 10, column 8: expected <function>("),
        (10, "  @2 #1 setattr('k'", "line 10, column 20: expected a comma"),
        (10, "#2 list @3", "line 10, column 1: expected a node, a version"),
        (10, "  v2 @3", "line 10, column 1: expected a node, a version"),
    ],
)
def test_errors_have_line_and_column(line, wrong, message):
    lines = GRAPH.splitlines()
    lines[line - 1] = wrong
    with pytest.raises(ValueError) as error:
        parse_text("\n".join(lines))
    assert str(error.value).startswith(message)
