"""Holds annotations against the live interpreter; for third parties' annotations too.

:func:`check` runs an operation on samples. :func:`samples` finds samples for an annotation by trying.
:func:`unannotated` lists the C callables of a module that nobody annotated.
"""

from magpy_annotations.conformance._check import Sample, Violation, check
from magpy_annotations.conformance._coverage import c_callables, unannotated
from magpy_annotations.conformance._exemptions import EXEMPT_FROM_ANNOTATION, EXEMPT_FROM_CHECKS, MODULES
from magpy_annotations.conformance._generate import samples

__all__ = [
    "EXEMPT_FROM_ANNOTATION",
    "EXEMPT_FROM_CHECKS",
    "MODULES",
    "Sample",
    "Violation",
    "c_callables",
    "check",
    "samples",
    "unannotated",
]
