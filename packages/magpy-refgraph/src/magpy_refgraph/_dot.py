"""A drawing of a RefGraph, as source for Graphviz; Graphviz itself is not needed."""

from __future__ import annotations

import re

from ._model import Effect, Node, RefGraph
from ._text import Writer, function_name


def to_dot(graph: RefGraph, time: int | None = None) -> str:
    """Draw a graph, or a slice of it.

    Each node is a box: its heading, and below a row for each version, with the number of the effect that made it.
    Boxes of objects made during the run are rounded.  Each reference to a node is an arrow.  An arrow is dashed when it
    is an alias, another way to a node than the one by which it was found, and grey when a later version has overwritten
    the reference.  Effects are listed in program order.  Times are the graph's own, as `time` is.

    Args:
        graph: the graph.
        time: the slice: what came into the graph later is left out; by default the end.
    """
    return "\n".join(_Drawing(graph, graph.time if time is None else time).lines()) + "\n"


class _Drawing:
    def __init__(self, graph: RefGraph, time: int) -> None:
        self.time = time
        self.writer = Writer(graph, ranked=False)
        self.nodes = [node for node in graph.nodes if node.born <= time]
        self.later = {id(node) for node in graph.nodes if node.born > time}
        self.positions = {id(node): position for position, node in enumerate(self.nodes)}
        self.effects = [effect for effect in graph.effects if effect.time <= time]
        self.first = self._first_ways()

    def _first_ways(self) -> set[tuple[int, int, object]]:
        """For each node the reference that found it: whose, in which version, by which key."""
        ways: set[tuple[int, int, object]] = set()
        found: set[int] = set()
        references = [
            (self._when(node, number), target.parent is not node or target.key != key, node, number, key, target)
            for node in self.nodes
            for number, version in enumerate(node.versions)
            if version.born <= self.time
            for key, target in version.refs.items()
            if isinstance(target, Node)
        ]
        for *_, node, number, key, target in sorted(references, key=lambda reference: reference[:2]):
            if id(target) not in found:
                found.add(id(target))
                ways.add((id(node), number, key))
        return ways

    @staticmethod
    def _when(node: Node, number: int) -> int:
        """When the references of a version came about: those of version 0 of an older object were there on entry."""
        return 0 if number == 0 and node.external else node.versions[number].born

    def lines(self) -> list[str]:
        lines = ["digraph refgraph {", "  rankdir=LR;", '  node [shape=record, fontname="monospace", fontsize=10];']
        lines.append('  edge [fontname="monospace", fontsize=9];')
        arrows: list[str] = []
        for position, node in enumerate(self.nodes):
            lines.append(
                f'  n{position} [label="{self._box(node, arrows)}"{"" if node.external else ", style=rounded"}];'
            )
        lines += arrows
        if self.effects:
            rows = (
                f"e{number} {_escape(self.writer.effect(effect))}\\l" for number, effect in enumerate(self.effects, 1)
            )
            lines.append(f'  effects [shape=note, label="{"".join(rows)}"];')
        return [*lines, "}"]

    def _box(self, node: Node, arrows: list[str]) -> str:
        parts = [f"<head> {_escape(self.writer.heading(node))}"]
        for number, version in enumerate(node.versions):
            if version.born > self.time:
                continue
            rows: list[str] = []
            for key, target in version.refs.items():
                if id(target) in self.later:
                    continue  # read after the slice
                port = f"v{number}_{len(rows)}"
                text = self.writer.key(key)
                end = self.positions.get(id(target))
                if end is None:
                    text += " " + self.writer.target(target)
                else:
                    alias = (id(node), number, key) not in self.first
                    past = node.at(key, self.time) is not target
                    style = ", ".join(["style=dashed"] * alias + ["color=grey"] * past)
                    label = f' [{style}, label="alias"]' if alias else f" [{style}]" if past else ""
                    arrows.append(f"  n{self.positions[id(node)]}:{port} -> n{end}:head{label};")
                rows.append(f"<{port}> {_escape(text)}\\l")
            if rows or number > 0:
                parts.append(f"{{{'|'.join([self._title(node, number), *filter(None, [_column(rows)])])}}}")
        return "|".join(parts)

    def _title(self, node: Node, number: int) -> str:
        if number == 0:
            return "v0"
        born = node.versions[number].born
        names = [f"e{i} {_name(effect)}" for i, effect in enumerate(self.effects, 1) if effect.time == born]
        return "\\n".join([f"v{number} {self.writer.time(born)}", *names])


def _column(rows: list[str]) -> str:
    return f"{{{'|'.join(rows)}}}" if rows else ""


def _name(effect: Effect) -> str:
    return _escape(function_name(effect.function))


def _escape(text: str) -> str:
    r"""The text inside a quoted record label, where `\`, quotes, braces, bars, angle brackets and blanks are special."""
    return re.sub(r'([\\"{}|<> ])', r"\\\1", text)
