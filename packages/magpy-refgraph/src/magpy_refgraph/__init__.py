"""The RefGraph: references between runtime objects over time, observed in one run of a program."""

from ._dot import to_dot
from ._model import (
    ABSENT,
    Atom,
    Disagreement,
    EdgeKind,
    Effect,
    Key,
    Location,
    Node,
    RefGraph,
    Target,
    Version,
    same_target,
    same_value,
)
from ._parse import parse_text
from ._search import Fact, guard_facts, mock_nodes
from ._svg import to_svg
from ._text import to_text
from ._verify import verify

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "Atom",
    "Disagreement",
    "EdgeKind",
    "Effect",
    "Fact",
    "Key",
    "Location",
    "Node",
    "RefGraph",
    "Target",
    "Version",
    "guard_facts",
    "mock_nodes",
    "parse_text",
    "same_target",
    "same_value",
    "to_dot",
    "to_svg",
    "to_text",
    "verify",
]
