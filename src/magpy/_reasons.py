"""The catalogue of reasons why something was not compiled.

Code raises by slug, counters are keyed by it, and the documentation's page is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One way in which a program is not compiled.

    Attributes:
        slug: its name, stable across versions.
        message: what happened; `{detail}` is filled in.
        advice: what the user can do.
    """

    slug: str
    message: str
    advice: str


_TABLE = (
    Reason(
        slug="array-contents",
        message="the contents of an array that is not a tensor were read: {detail}",
        advice="Pass the data as a tensor; numpy arrays and buffers may change between calls without being seen.",
    ),
    Reason(
        slug="autograd-function",
        message="a custom autograd.Function ran with gradients at stake: {detail}",
        advice="Call it outside of the compiled function, or under torch.no_grad() where no gradient is needed.",
    ),
    Reason(
        slug="backend-differs",
        message="the backend's code does something else than the operators, which run one by one instead: {detail}",
        advice="Nothing needs to be done. Out-of-place operators in the place of those that update memory may be compiled.",
    ),
    Reason(
        slug="backend-failed",
        message="the backend could not compile the operator graph, or the graph raised: {detail}",
        advice="Nothing needs to be done where the program handles an operator's error; the call is recorded anew. Else try "
        "backend='eager' to see whether the graph itself is sound, and report the backend's error.",
    ),
    Reason(
        slug="backend-operator",
        message="the backend cannot take an operator, which runs eagerly between compiled parts: {detail}",
        advice="Nothing needs to be done; an operator with a fixed result shape may be taken where one without is not.",
    ),
    Reason(
        slug="builtins-changed",
        message="a builtin was replaced while the call ran: {detail}",
        advice="Replace builtins outside of the compiled function; a record, and MagPy itself, call them too.",
    ),
    Reason(
        slug="class-changed",
        message="a class attribute was set that other lookups of the run may have gone through: {detail}",
        advice="Set class attributes outside of the compiled function.",
    ),
    Reason(
        slug="compiling",
        message="the backend is still compiling: {detail}",
        advice="Calls run natively until it is done; `magpy.wait` waits for it, compile_async=False compiles in the first call.",
    ),
    Reason(
        slug="disabled",
        message="a function was called that magpy.disable keeps out of compiled regions: {detail}",
        advice="Calls of disabled functions run natively; call it outside of the compiled function.",
    ),
    Reason(
        slug="dynamic-shape",
        message="the shape of an operator's result depends on tensor values: {detail}",
        advice="Use an operator with a fixed result shape (torch.where instead of a boolean mask) where possible.",
    ),
    Reason(
        slug="exception",
        message="the call raised {detail}",
        advice="Calls that raise run natively.",
    ),
    Reason(
        slug="external-iterator",
        message="an iterator that existed before the call was advanced: {detail}",
        advice="Pass the container instead of an iterator over it.",
    ),
    Reason(
        slug="foreign-write",
        message="an object was changed by somebody that was not observed: {detail}",
        advice="Do not change objects that the compiled function reads from other threads or finalizers while it runs.",
    ),
    Reason(
        slug="function-mode",
        message="a torch mode, or hooks for what autograd saves, were active on entry: {detail}",
        advice="Call the compiled function outside of the mode; compile what calls a checkpoint, not what the checkpoint calls.",
    ),
    Reason(
        slug="impure-call",
        message="a call whose outcome does not depend on its inputs alone: {detail}",
        advice="Move clocks, random numbers, printing and input or output out of the compiled function.",
    ),
    Reason(
        slug="internal-error",
        message="MagPy itself failed: {detail}",
        advice="The program ran natively and its result is right. Please report this.",
    ),
    Reason(
        slug="opaque-object",
        message="the state of an object was read that cannot be guarded: {detail}",
        advice="Keep such objects out of the compiled function.",
    ),
    Reason(
        slug="record-limit",
        message="the record cache is full; the facts that kept failing: {detail}",
        advice="Raise record_limit, or keep the values named here from changing at every call.",
    ),
    Reason(
        slug="recursion-limit",
        message="the interpreter's recursion limit left no room to observe the call: {detail}",
        advice="Keep data that are nested as deeply out of the compiled function, or raise sys.setrecursionlimit.",
    ),
    Reason(
        slug="tensor-attribute",
        message="a tensor's attribute was set or read in a way that a graph cannot hold: {detail}",
        advice="Set .data, .grad and hooks outside of the compiled function.",
    ),
    Reason(
        slug="tensor-subclass",
        message="a tensor subclass that is not understood: {detail}",
        advice="Call the compiled function with plain tensors.",
    ),
    Reason(
        slug="tensor-value",
        message="the value of a tensor was read: {detail}",
        advice="Keep the decision in tensor operators (torch.where), or read the value outside of the compiled function.",
    ),
    Reason(
        slug="unannotated-call",
        message="a C function without an annotation was called: {detail}",
        advice="Annotate it (see the manual of the annotation format), or call it outside of the compiled function.",
    ),
    Reason(
        slug="unbuildable",
        message="an object that leaves the call cannot be built again: {detail}",
        advice="Return plain containers, numbers, strings and tensors.",
    ),
    Reason(
        slug="unexplained-frame",
        message="Python code ran that no observed instruction explains: {detail}",
        advice="Finalizers, signal handlers and weak reference callbacks that run during the call prevent a record.",
    ),
    Reason(
        slug="unknown-tensor",
        message="a tensor appeared that no observed operator made: {detail}",
        advice="Use tensor operators that torch's function mode reports.",
    ),
    Reason(
        slug="unsupported-instruction",
        message="an instruction that is not understood: {detail}",
        advice="Please report this with the line that it names.",
    ),
    Reason(
        slug="update-then-raise",
        message="an operator that may raise runs in a graph that updates an input which could not be put back: {detail}",
        advice="Update inputs in place outside of the compiled function, or after the operator that may raise.",
    ),
    Reason(
        slug="unverified",
        message="a hit could not be verified: {detail}",
        advice="The call was served like any other; see the page on verifying for what can be verified.",
    ),
    Reason(
        slug="varying-value",
        message="what a boundary operation gave was used by code that is not followed: {detail}",
        advice="Nothing needs to be done: what uses it runs eagerly between compiled parts.",
    ),
    Reason(
        slug="value-identity",
        message="the identity of a plain value was used: {detail}",
        advice="Compare numbers and strings with == instead of `is`; do not use id() or hash() of objects.",
    ),
    Reason(
        slug="verification-failed",
        message="a record gave something else than the program itself: {detail}",
        advice="The user got what the program gave, and the record was dropped. Please report this.",
    ),
)

REASONS: dict[str, Reason] = {reason.slug: reason for reason in _TABLE}
"""All reasons, by slug."""


class Boundary(Exception):
    """Something dynamic turned up: the region ends here.

    Attributes:
        slug: a key of `REASONS`.
        detail: what it was.
        file: where, file name of the innermost user frame.
        line: where, line number.
    """

    def __init__(self, slug: str, detail: str = "", file: str = "", line: int = 0) -> None:
        if slug not in REASONS:
            raise KeyError(slug)
        super().__init__(slug, detail)
        self.slug = slug
        self.detail = detail
        self.file = file
        self.line = line

    def __str__(self) -> str:
        return REASONS[self.slug].message.format(detail=self.detail)
