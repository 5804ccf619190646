"""The parser of the text form: a structural graph for tests and tools, from what `to_text` wrote."""

from __future__ import annotations

import ast
import re
from typing import Any, NoReturn

from ._model import ABSENT, Atom, EdgeKind, Effect, Key, Location, Node, RefGraph, Target, Version
from ._text import NAMES, Written


def parse_text(text: str) -> RefGraph:
    """Read a graph that `to_text` wrote, for tests and tools.

    The graph is structural: each node has an object of its own, of a type that has only its name in common with the one
    that was written, and what is not a literal is a stand-in.  `to_text` of it gives the same text.  Graphs that `verify`
    refuses can be read, too.

    Raises:
        ValueError: a line is not of the grammar; the message has its number.
    """
    graph = RefGraph()
    graph.nodes.clear()
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    kinds: dict[str, type] = {}
    for number, line in lines:
        if line.startswith("#"):
            _declare(graph, _Reader(graph, line, number), kinds)
    node: Node | None = None
    version: Version | None = None
    in_effects = False
    for number, line in lines:
        reader = _Reader(graph, line, number)
        if line.startswith("#") and not in_effects:
            node, version = reader.heading(), None
        elif line == "effects":
            in_effects = True
        elif in_effects and reader.take("  (?=@)"):
            graph.effects.append(reader.effect())
        elif node is not None and not in_effects and reader.take("  (?=v)"):
            version = reader.version(node)
        elif node is not None and version is not None and not in_effects and reader.take("    "):
            reader.reference(node, version)
        else:
            reader.fail("a node, a version, a reference or an effect")
    times = [effect.time for effect in graph.effects]
    times += [version.born for node in graph.nodes for version in node.versions]
    graph.time = max(times, default=0)
    return graph


def _declare(graph: RefGraph, reader: _Reader, kinds: dict[str, type]) -> None:
    position = len(graph.nodes)
    number, name = reader.need(r"#(\d+) (\S+)", "#<number> <type>").groups()
    if int(number) != position:
        reader.fail(f"#{position}")
    if position == 0 and name == "external":
        graph.nodes.append(graph.root)
        return
    if name not in kinds:
        kinds[name] = type(name, (), {"__module__": "builtins", "__qualname__": name})
    stand_in = kinds[name]()
    node = Node(position, stand_in, None, None, 0)
    graph.nodes.append(node)
    graph._by_id[id(stand_in)] = node


class _Reader:
    """One line of the text and how far it has been read."""

    def __init__(self, graph: RefGraph, line: str, number: int) -> None:
        self.graph = graph
        self.line = line
        self.at = 0
        self.where = number

    def take(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(pattern).match(self.line, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def need(self, pattern: str, what: str) -> re.Match[str]:
        return self.take(pattern) or self.fail(what)

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"line {self.where}, column {self.at + 1}: expected {what}: {self.line!r}")

    def end(self) -> None:
        self.need("$", "the end of the line")

    def time(self) -> int:
        return int(self.need(r" ?@(\d+)", "@<time>")[1])

    def node(self) -> Node:
        digits = self.need(r"#(\d+|\?)", "#<number>")[1]
        if digits == "?":
            return RefGraph().root
        if int(digits) >= len(self.graph.nodes):
            self.fail(f"a node up to #{len(self.graph.nodes) - 1}")
        return self.graph.nodes[int(digits)]

    def heading(self) -> Node:
        node = self.node()
        if node is self.graph.root:
            self.need(" external", "external")
        else:
            self.need(r" \S+", "a type")
            if self.take(" from "):
                node.parent = self.node()
                self.need(" ", "a key")
                node.key = self.key()
            node.born = node.versions[0].born = self.time()
        self.end()
        return node

    def version(self, node: Node) -> Version:
        number = int(self.need(r"v(\d+)", "v<number>")[1])
        if number > 0 and number == len(node.versions):
            node.versions.append(Version(self.time()))
        elif number == 0:
            if self.at < len(self.line):
                node.versions[0].born = self.time()
        else:
            self.fail(f"v{len(node.versions)}")
        self.end()
        return node.versions[number]

    def reference(self, node: Node, version: Version) -> None:
        key = self.key()
        if key in version.refs:
            self.fail("a reference that this version does not have yet")
        version.refs[key] = self.target()
        location = self.location()
        if version is node.versions[0]:
            node.reads[key] = location
        elif location is not None:
            self.fail("no location: only references that were read have one")
        self.end()

    def key(self) -> Key:
        word = self.need(r"\w+", "a kind of reference")[0]
        try:
            kind = EdgeKind(word)
        except ValueError:
            self.fail("a kind of reference")
        if re.compile(r" (->|=|absent|@|;)|$").match(self.line, self.at) is not None:
            return Key(kind)
        self.need(" ", "a value")
        if kind is EdgeKind.SAME and self.line.startswith("#", self.at):
            return Key(kind, self.node().index if not self.take(r"#\?") else -1)
        return Key(kind, self.value())

    def target(self) -> Target:
        if self.take(" -> "):
            return self.node()
        if self.take(" = "):
            return Atom(self.value())
        self.need(" absent", "a target")
        return ABSENT

    def effect(self) -> Effect:
        time = self.time()
        self.need(" ", "a node")
        node = self.node()
        name = self.need(r" ([^\s(]+)\(", "<function>(")[1]
        args: list[object] = []
        keywords: dict[str, Any] = {}
        while not self.take(r"\)"):
            if args or keywords:
                self.need(", ", "a comma")
            match = self.take(r"([A-Za-z_]\w*)=")
            if match is None:
                args.append(self.value())
            else:
                keywords[match[1]] = self.value()
        key = self.key() if self.take(" sets ") else None
        location = self.location()
        self.end()
        return Effect(time, node, Written(name), tuple(args), keywords, location, key)

    def location(self) -> Location | None:
        if not self.take(" ; "):
            return None
        file, line, function = self.need(r"(.*):(-?\d+) in ?(.*)$", "<file>:<line> in <function>").groups()
        return Location(file, int(line), function)

    def value(self) -> object:
        if self.line.startswith("#", self.at):
            return self.node().obj()
        if self.take(r"\("):
            return self._tuple()
        if self.line.startswith("<", self.at):
            return self._description()
        if match := self.take(r"b?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"):
            literal: object = ast.literal_eval(match[0])
            return literal
        if match := self.take(r"nan\b|-?inf\b|-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)"):
            return float(match[0])
        if match := self.take(r"-?(?:0x[0-9a-f]+|\d+)"):
            return int(match[0], 0)
        match = self.need(r"\w+", "a value")
        if match[0] not in NAMES:
            self.fail("a value")
        return NAMES[match[0]]

    def _tuple(self) -> tuple[object, ...]:
        items: list[object] = []
        while not self.take(r",?\)"):
            if items:
                self.need(", ", "a comma")
            items.append(self.value())
        return tuple(items)

    def _description(self) -> Written:
        start, depth = self.at, 0
        while self.at < len(self.line):
            char = self.line[self.at]
            self.at += 1
            depth += (char == "<") - (char == ">")
            if depth == 0:
                return Written(self.line[start + 1 : self.at - 1])
        self.fail("a closing bracket")
