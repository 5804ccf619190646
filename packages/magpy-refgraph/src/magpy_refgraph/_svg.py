"""A drawing of a RefGraph that any browser shows: boxes in columns, by how far an object is from the external state."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from ._model import EdgeKind, Key, Node, RefGraph
from ._text import Writer

_WIDTH: Final = 190  # of a box
_GAP: Final = 90  # between columns, where the arrows run
_ROW: Final = 13
_SPACE: Final = 12  # between the boxes of a column
_CHARACTERS: Final = 30  # that fit into a box
_ROWS: Final = 8  # of a box; what is left out is counted
_SWEEPS: Final = 4

_STYLE: Final = "".join(
    f".refgraph {rule}"
    for rule in (
        "text{font:10px monospace;fill:#222}",
        ".box{fill:#fff;stroke:#555}",
        ".root{fill:#e8eef7}",
        ".changed{fill:#fdf0d5}",
        ".new{fill:#eaf6ea}",
        ".head{font-weight:bold}",
        ".edge{fill:none;stroke:#777}",
        ".alias{stroke-dasharray:4 3}",
        ".past{stroke:#ccc}",
    )
)  # for drawings alone, also inside of a page that has a style of its own


def to_svg(graph: RefGraph, *, limit: int = 150) -> str:
    """Draw a graph as one SVG element, without any other program.

    A box is an object: its number and type, the plain values that were read of it, and how many updates it saw. Its colour
    tells the external state, objects of the program's that were updated, and objects made during the run. An arrow is a
    reference: dashed where it is a second way to an object, pale where an update has overwritten it.

    Args:
        graph: the graph.
        limit: how many objects are drawn at most, the nearest first; the drawing says how many are left out.

    Returns:
        The element, without an XML declaration.
    """
    return _Layout(graph, limit).text()


@dataclass(slots=True)
class _Box:
    node: Node
    layer: int
    title: str
    rows: list[str]
    x: float = 0.0
    y: float = 0.0
    order: float = 0.0
    before: list[_Box] = field(default_factory=list)

    @property
    def height(self) -> int:
        return (len(self.rows) + 1) * _ROW + 8


@dataclass(frozen=True, slots=True)
class _Arrow:
    start: _Box
    end: _Box
    label: str
    alias: bool
    past: bool


class _Layout:
    def __init__(self, graph: RefGraph, limit: int) -> None:
        self.graph = graph
        self.writer = Writer(graph, ranked=False)
        self.arrows: list[_Arrow] = []
        self.boxes: dict[int, _Box] = {}
        for node, layer in self._nearest(limit):
            title = f"{self.writer.number(node)} {_short(self._name(node))}"
            self.boxes[node.index] = _Box(node, layer, title, self._rows(node))
        self.left_out = len(graph.nodes) - len(self.boxes)
        self._connect()
        self._place()

    def _nearest(self, limit: int) -> list[tuple[Node, int]]:
        """Nodes and their columns, breadth first from #0; then those made during the run that nothing leads to."""
        found: dict[int, tuple[Node, int]] = {self.graph.root.index: (self.graph.root, 0)}
        queue = [self.graph.root]
        for start in (None, *self.graph.nodes):
            if len(found) >= limit:
                break
            if start is not None:
                if start.index in found:
                    continue
                found[start.index] = (start, 1)
                queue = [start]
            for node in queue:
                for _, _, target in _references(node):
                    if target.index not in found and len(found) < limit:
                        found[target.index] = (target, found[node.index][1] + 1)
                        queue.append(target)
        return list(found.values())

    def _name(self, node: Node) -> str:
        if node is self.graph.root:
            return "external state"
        return self.writer.heading(node).split(" ", 2)[1]

    def _rows(self, node: Node) -> list[str]:
        rows: list[str] = []
        for key, target in node.initial.items():
            if not isinstance(target, Node) and key.kind is not EdgeKind.TENSOR:
                rows.append(f"{self.writer.key(key)} {self.writer.target(target)}")
        if node.mutated:
            rows.insert(0, f"updated {len(node.versions) - 1} times" if len(node.versions) > 2 else "updated once")
        if len(rows) > _ROWS:
            rows[_ROWS - 1 :] = [f"and {len(rows) - _ROWS + 1} more"]
        return [_short(row) for row in rows]

    def _connect(self) -> None:
        found: set[int] = {self.graph.root.index}
        for box in self.boxes.values():
            for number, key, target in _references(box.node):
                end = self.boxes.get(target.index)
                if end is None:
                    continue
                first = target.index not in found
                found.add(target.index)
                past = number < len(box.node.versions) - 1 and box.node.current(key) is not target
                self.arrows.append(_Arrow(box, end, self.writer.key(key), not first, past))
                if end.layer > box.layer:
                    end.before.append(box)

    def _place(self) -> None:
        columns: dict[int, list[_Box]] = defaultdict(list)
        for box in self.boxes.values():
            columns[box.layer].append(box)
        for _ in range(_SWEEPS):
            for layer in sorted(columns):
                for position, box in enumerate(columns[layer]):
                    above = [each.order for each in box.before]
                    box.order = sum(above) / len(above) if above else float(position)
                columns[layer].sort(key=lambda box: box.order)
                for position, box in enumerate(columns[layer]):
                    box.order = position / len(columns[layer])
        for layer, boxes in columns.items():
            y = float(_SPACE)
            for box in boxes:
                box.x, box.y = _SPACE + layer * (_WIDTH + _GAP), y
                y += box.height + _SPACE

    def text(self) -> str:
        width = max(box.x + _WIDTH for box in self.boxes.values()) + _SPACE
        height = max(box.y + box.height for box in self.boxes.values()) + _SPACE + (_ROW if self.left_out else 0)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="refgraph" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>RefGraph: {len(self.graph.nodes)} objects, {len(self.graph.effects)} updates</title>",
            f"<style>{_STYLE}</style>",
        ]
        parts += [_arrow(arrow) for arrow in self.arrows]
        parts += [_box(box) for box in self.boxes.values()]
        if self.left_out:
            parts.append(
                f'<text x="{_SPACE}" y="{height - _SPACE / 2:.0f}">and {self.left_out} more objects further away</text>'
            )
        return "\n".join([*parts, "</svg>"])


def _references(node: Node) -> list[tuple[int, Key, Node]]:
    """What a node refers to, with the version that says so."""
    return [
        (number, key, target)
        for number, version in enumerate(node.versions)
        for key, target in version.refs.items()
        if isinstance(target, Node)
    ]


def _arrow(arrow: _Arrow) -> str:
    x, y = arrow.start.x + _WIDTH, arrow.start.y + arrow.start.height / 2
    end_x, end_y = arrow.end.x, arrow.end.y + arrow.end.height / 2
    bend = max(_GAP / 2, abs(end_x - x) / 2)
    kind = "edge" + " alias" * arrow.alias + " past" * arrow.past
    path = f"M{x:.0f},{y:.0f} C{x + bend:.0f},{y:.0f} {end_x - bend:.0f},{end_y:.0f} {end_x:.0f},{end_y:.0f}"
    return f'<path class="{kind}" d="{path}"><title>{_xml(arrow.label)}</title></path>'


def _box(box: _Box) -> str:
    kind = "root" if box.node.index == 0 else "new" if not box.node.external else "changed" if box.node.mutated else ""
    lines = [f'<g transform="translate({box.x:.0f},{box.y:.0f})">']
    lines.append(f'<rect class="box {kind}" width="{_WIDTH}" height="{box.height}" rx="4"/>')
    lines.append(f'<text class="head" x="6" y="{_ROW}">{_xml(box.title)}</text>')
    lines += [f'<text x="6" y="{_ROW * (at + 2)}">{_xml(row)}</text>' for at, row in enumerate(box.rows)]
    return "".join([*lines, "</g>"])


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"


def _xml(text: str) -> str:
    """Text for XML, which knows no control characters and no lone surrogates."""
    return escape("".join(each if each.isprintable() and not "\ud800" <= each <= "\udfff" else "?" for each in text))
