"""The RefGraph: references between runtime objects over time, observed in one run of a program."""

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
from ._search import Fact, guard_facts, mock_nodes

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
    "same_target",
    "same_value",
]
