"""Guards, mocks and operator graphs, generated from a RefGraph."""

from ._direct import direct_form
from ._facts import FactKind, HeldFact, render
from ._guard import Check, GuardWriter
from ._mock import Builder, Leave, MockWriter, Unbuildable
from ._operators import OperatorGraph, missed
from ._questions import question_parts
from ._raising import Raised, links, raised
from ._source import Namespace, forget_source, make_function, one_line
from ._steps import Comparison, Operand, Step, StepKind
from ._symbols import (
    Computed,
    Condition,
    Expression,
    Lifted,
    Measured,
    NumberNodes,
    NumberWriter,
    UnknownNumber,
    plain,
)
from .kinds import builder, mock_parts

__version__ = "0.1.0"

__all__ = [
    "Builder",
    "Check",
    "Comparison",
    "Computed",
    "Condition",
    "Expression",
    "FactKind",
    "GuardWriter",
    "HeldFact",
    "Leave",
    "Lifted",
    "Measured",
    "MockWriter",
    "Namespace",
    "NumberNodes",
    "NumberWriter",
    "Operand",
    "OperatorGraph",
    "Raised",
    "Step",
    "StepKind",
    "Unbuildable",
    "UnknownNumber",
    "builder",
    "direct_form",
    "forget_source",
    "links",
    "make_function",
    "missed",
    "mock_parts",
    "one_line",
    "plain",
    "question_parts",
    "raised",
    "render",
]
