"""What C code does to the objects that it gets, for MagPy."""

from magpy_annotations._default import default_registry
from magpy_annotations._dump import dump
from magpy_annotations._model import (
    Annotation,
    AnnotationError,
    DuplicateAnnotationError,
    Input,
    OpKind,
    OpNode,
    Output,
    Read,
    Relation,
)
from magpy_annotations._parse import ParseError, parse, parse_catalogue
from magpy_annotations._registry import ENTRY_POINTS, Registry
from magpy_annotations._targets import UnknownTargetError, resolve, unbind
from magpy_annotations._text import render

__all__ = [
    "ENTRY_POINTS",
    "Annotation",
    "AnnotationError",
    "DuplicateAnnotationError",
    "Input",
    "OpKind",
    "OpNode",
    "Output",
    "ParseError",
    "Read",
    "Registry",
    "Relation",
    "UnknownTargetError",
    "default_registry",
    "dump",
    "parse",
    "parse_catalogue",
    "render",
    "resolve",
    "unbind",
]
