"""Golden cases: a text file holds a graph and what is computed from it; `--update-cases` rewrites what differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magpy_refgraph import RefGraph, guard_facts, mock_nodes, parse_text, to_dot, to_text, verify
from magpy_refgraph._text import Writer

CASES = Path(__file__).parent / "cases"


def pytest_addoption(parser: pytest.Parser) -> None:
    try:
        parser.addoption("--update-cases", action="store_true", help="rewrite the golden cases that differ")
    except ValueError:
        pass  # the tests of another package have added it


def facts_section(graph: RefGraph, nodes: list[int], time: int | None) -> Iterator[str]:
    writer = Writer(graph)
    for fact in guard_facts(graph):
        alias = "" if fact.first or not writer.target(fact.target).startswith("->") else " alias"
        yield f"{writer.number(fact.node)} {writer.key(fact.key)} {writer.target(fact.target)}{alias}"


def mock_section(graph: RefGraph, nodes: list[int], time: int | None) -> Iterator[str]:
    writer = Writer(graph)
    outputs = [graph.nodes[index].obj() for index in nodes]
    for node in mock_nodes(graph, outputs, time):
        yield f"{writer.heading(node)} {'update' if node.external else 'make'}"


SECTIONS: dict[str, Callable[[RefGraph, list[int], int | None], Iterator[str]]] = {
    "graph": lambda graph, nodes, time: iter(to_text(graph).splitlines()),
    "errors": lambda graph, nodes, time: iter(verify(graph)),
    "facts": facts_section,
    "mock": mock_section,  # "mock #4 @7": with this output, of the slice at this time
    "dot": lambda graph, nodes, time: iter(to_dot(graph, time).splitlines()),
}


class Case:
    """One file: what it shows in free text, then sections, each after a line `--- name arguments`."""

    def __init__(self, path: Path, update: bool) -> None:
        self.path = path
        self.update = update
        self.about, *rest = re.split(r"(?m)^--- (.*)\n", path.read_text(encoding="utf-8") if path.exists() else "")
        self.sections = dict(zip(rest[::2], rest[1::2], strict=True)) or {"graph": "", "errors": "", "facts": ""}

    def parsed(self) -> RefGraph:
        return parse_text(self.sections["graph"])

    def check(self, graph: RefGraph) -> None:
        """Compute each section of the file from the graph and compare."""
        found = {}
        for title in self.sections:
            name, *arguments = title.split()
            nodes = [int(argument[1:]) for argument in arguments if argument[0] == "#"]
            times = [int(argument[1:]) for argument in arguments if argument[0] == "@"]
            lines = SECTIONS[name](graph, nodes, times[0] if times else None)
            found[title] = "".join(line + "\n" for line in lines)
        if self.update and found != self.sections:
            text = "".join(f"--- {title}\n{body}" for title, body in found.items())
            self.path.write_text(self.about + text, encoding="utf-8")
            self.sections = found
        assert found == self.sections


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Callable[[str], Case]:
    update = request.config.getoption("--update-cases", default=False)
    return lambda name: Case(CASES / f"{name}.txt", update)
