"""How each source line of a program was served."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

Line = tuple[str, int]
"""A file's name and a line's number."""

Function = tuple[str, str, int, tuple[int, ...]]
"""File, qualified name, first line, and all lines of a function that was watched."""


class Served(enum.Enum):
    """What became of a line; each value is its meaning in words."""

    GRAPH = "its operators run in the compiled graph"
    REPLACED = "replaced by a record: no Python runs for it on a hit"
    BOUNDARY = "a region ended here"
    NATIVE = "watched, but no record came of it: it runs natively"
    UNSEEN = "in a watched function, but no watched run came by"


@dataclass(slots=True)
class Lines:
    """What the watched runs of one compiled callable did, line by line.

    Attributes:
        recorded: lines of runs that gave a record.
        refused: lines of runs that gave none.
        functions: the functions that were watched.
        stops: lines at which a region ended, with the reasons' slugs.
        facts: how many facts of a guard each line was the first to read, at most in one record.
        operators: how many operators of a graph each line made, at most in one record.
    """

    recorded: set[Line] = field(default_factory=set)
    refused: set[Line] = field(default_factory=set)
    functions: set[Function] = field(default_factory=set)
    stops: defaultdict[Line, set[str]] = field(default_factory=lambda: defaultdict(set))
    facts: Counter[Line] = field(default_factory=Counter)
    operators: Counter[Line] = field(default_factory=Counter)

    def add_run(self, functions: Iterable[Function], seen: Iterable[Line], *, recorded: bool) -> None:
        """Add one watched run."""
        self.functions.update(functions)
        (self.recorded if recorded else self.refused).update(seen)

    def merge(self, other: Lines) -> None:
        """Add all of another callable's."""
        self.recorded |= other.recorded
        self.refused |= other.refused
        self.functions |= other.functions
        self.facts |= other.facts
        self.operators |= other.operators
        for line, slugs in other.stops.items():
            self.stops[line] |= slugs

    def served(self, line: Line) -> Served | None:
        """How a line was served; None when it belongs to no watched function."""
        if line in self.stops:
            return Served.BOUNDARY
        if line in self.operators and line in self.recorded:
            return Served.GRAPH
        if line in self.recorded:
            return Served.REPLACED
        if line in self.refused:
            return Served.NATIVE
        if any(line[0] == file and line[1] in numbers for file, _, _, numbers in self.functions):
            return Served.UNSEEN
        return None

    def files(self) -> list[str]:
        """The files that watched functions are in, the one with most lines first."""
        count: Counter[str] = Counter()
        for file, _, _, numbers in self.functions:
            count[file] += len(numbers)
        return [file for file, _ in count.most_common()]
