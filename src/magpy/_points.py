"""Where a record can end before its call does: boundary operations, and the points at which programs go on after them.

A *boundary operation* is one instruction, run eagerly between two segments. A *resume point* is the state of all frames of
the call chain right after it: their code objects and instructions. What differs from call to call, the frames' live
variables and stacks, are the point's *slots*.
"""

from __future__ import annotations

import dis
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magpy_annotations import unbind
from magpy_runtime.capture import NULL, instance_dict, type_lookup
from magpy_runtime.segments import (
    EXHAUSTED,
    Entry,
    enter,
    following,
    instruction_at,
    instructions,
    is_true,
    joined,
    lacks,
    next_element,
    spread,
    target_of,
    unpack,
)

from . import _env
from ._state import is_mutable_type


@dataclass(frozen=True, slots=True)
class Operation:
    """A boundary operation.

    Attributes:
        function: what runs it.
        args: its arguments.
        keywords: its keyword arguments.
        entry: how its outcome enters the frame.
        text: the operation in words.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    entry: Entry
    text: str


# -- what an instruction does, as a function ---------------------------------------------------------------------------


_BINARY: Final = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "@": operator.matmul,
    "*": operator.mul, "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift,
    "-": operator.sub, "/": operator.truediv, "^": operator.xor,
    "+=": operator.iadd, "&=": operator.iand, "//=": operator.ifloordiv, "<<=": operator.ilshift,
    "@=": operator.imatmul, "*=": operator.imul, "%=": operator.imod, "|=": operator.ior, "**=": operator.ipow,
    ">>=": operator.irshift, "-=": operator.isub, "/=": operator.itruediv, "^=": operator.ixor,
}  # fmt: skip
_COMPARE: Final = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_UNARY: Final[dict[str, Callable[..., Any]]] = {
    "UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
    "UNARY_NOT": operator.not_, "GET_ITER": iter, "TO_BOOL": bool,
}  # fmt: skip
_FORMATS: Final[tuple[Any, ...]] = (None, str, repr, ascii)


def operation(code: types.CodeType, index: int, inputs: tuple[Any, ...]) -> Operation | None:
    """The instruction at `index` as an operation on what it takes from the stack; None where that is not known.

    Args:
        code: the frame's code.
        index: the instruction's code unit.
        inputs: the values that it takes from the stack, deepest first.
    """
    found = instruction_at(code, index)
    name = found.opname
    if name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
        return _call(code, index, found, inputs)
    if name in _UNARY:
        return _made(_UNARY[name], inputs, Entry.PUSH, name)
    if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name):
        entry = Entry.JUMP_OR_POP if name.endswith("_OR_POP") else Entry.JUMP
        return _made(operator.truth, inputs, entry, "truth")
    if name == "BINARY_OP":
        return _made(_BINARY[found.argrepr], inputs, Entry.PUSH, found.argrepr)
    if name == "COMPARE_OP" and PLAIN_COMPARISONS:
        return _made(_COMPARE[found.argval], inputs, Entry.PUSH, found.argval)
    if name == "CONTAINS_OP":
        item, container = inputs
        return _made(lacks if found.arg else operator.contains, (container, item), Entry.PUSH, "in")
    if name == "BINARY_SUBSCR":
        return _made(operator.getitem, inputs, Entry.PUSH, "[]")
    if name == "STORE_SUBSCR":
        value, container, key = inputs
        return _made(operator.setitem, (container, key, value), Entry.NOTHING, "[] =")
    if name == "DELETE_SUBSCR":
        return _made(operator.delitem, inputs, Entry.NOTHING, "del []")
    if name == "LOAD_ATTR" and not _env.HAS_METHOD_LOADS:
        return _made(getattr, (*inputs, found.argval), Entry.PUSH, f".{found.argval}")
    if name == "LOAD_METHOD" and not _env.HAS_METHOD_LOADS:
        return _made(getattr, (*inputs, found.argval), Entry.METHOD, f".{found.argval}")
    if name == "STORE_ATTR":
        value, obj = inputs
        return _made(setattr, (obj, found.argval, value), Entry.NOTHING, f".{found.argval} =")
    if name == "DELETE_ATTR":
        return _made(delattr, (*inputs, found.argval), Entry.NOTHING, f"del .{found.argval}")
    if name == "UNPACK_SEQUENCE":
        return _made(unpack, (*inputs, found.arg), Entry.UNPACK, "unpacking")
    if name == "BUILD_STRING":
        return _made(joined, inputs, Entry.PUSH, "f-string")
    if name == "FOR_ITER":
        return _made(next_element, inputs, Entry.NEXT, "next")
    if name == "FORMAT_VALUE" and not (found.arg or 0) & 3:
        return _made(format, inputs, Entry.PUSH, "format")
    if name == "FORMAT_VALUE" and not (found.arg or 0) & 4:
        return _made(_FORMATS[(found.arg or 0) & 3], inputs, Entry.PUSH, "format")
    if name in ("FORMAT_SIMPLE", "FORMAT_WITH_SPEC"):
        return _made(format, inputs, Entry.PUSH, "format")
    return None


def is_operation(found: dis.Instruction) -> bool:
    """Whether an instruction can be a boundary operation, see `operation`."""
    name = found.opname
    return name in _OPERATIONS or name in _UNARY or ("JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name))


_OPERATIONS: Final = frozenset(
    """
    PRECALL CALL CALL_KW CALL_FUNCTION_EX BINARY_OP CONTAINS_OP BINARY_SUBSCR STORE_SUBSCR DELETE_SUBSCR STORE_ATTR
    DELETE_ATTR UNPACK_SEQUENCE BUILD_STRING FOR_ITER FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC
    """.split()  # noqa: SIM905 - a list that is read as prose
) | (frozenset() if _env.HAS_METHOD_LOADS else frozenset({"COMPARE_OP", "LOAD_ATTR", "LOAD_METHOD"}))

PLAIN_COMPARISONS: Final = not _env.HAS_TO_BOOL
"""From 3.13 on, a comparison may have to give an exact bool."""


def _made(function: Callable[..., Any], args: tuple[Any, ...], entry: Entry, text: str) -> Operation:
    return Operation(function, args, {}, entry, text)


def _call(code: types.CodeType, index: int, found: dis.Instruction, inputs: tuple[Any, ...]) -> Operation | None:
    name = found.opname
    keywords: dict[str, Any] = {}
    function: Any
    if _env.CALL_SELF_ABOVE_CALLABLE:
        function, first, *rest = inputs
    else:
        first, function, *rest = inputs
    if name == "CALL_FUNCTION_EX":
        mapping = rest[1] if (found.arg or 0) & 1 else {}
        if type(rest[0]) not in (tuple, list) or type(mapping) is not dict:  # looking into them may run the program
            return Operation(spread, (function, rest[0], mapping), {}, Entry.PUSH, _name(function))
        args = tuple(rest[0])
        keywords = dict(mapping)
        return Operation(function, args, keywords, Entry.PUSH, _name(function))
    if first is not NULL and not _env.CALL_SELF_ABOVE_CALLABLE:
        first, function = function, first
    args = tuple(rest) if first is NULL else (first, *rest)
    while isinstance(function, types.MethodType):
        function, args = function.__func__, (function.__self__, *args)
    if isinstance(function, types.BuiltinFunctionType):
        function, bound = unbind(function)
        args = bound + args
    names: tuple[str, ...] = ()
    if name == "CALL_KW":
        *args_, names = args
        args = tuple(args_)
    elif not _env.CALL_SELF_ABOVE_CALLABLE:
        names = _keyword_names(code, index)
    if names:
        split = len(args) - len(names)
        keywords = dict(zip(names, args[split:], strict=True))
        args = args[:split]
    return Operation(function, args, keywords, Entry.PUSH, _name(function))


def _keyword_names(code: types.CodeType, index: int) -> tuple[str, ...]:
    """The names that a KW_NAMES right before a call gives to its last arguments."""
    before = [each for unit, each in instructions(code).items() if unit < index][-3:]
    for each in reversed(before):
        if each.opname == "KW_NAMES":
            names: tuple[str, ...] = code.co_consts[each.arg or 0]
            return names
        if each.opname not in ("PRECALL", "EXTENDED_ARG", "CACHE"):
            break
    return ()


def _name(function: Any) -> str:
    kind = type(function)
    if not issubclass(kind, type) and is_mutable_type(kind):  # it may have a `__getattr__`
        names = instance_dict(function) or {}
        name, module = names.get("__qualname__"), names.get("__module__")
    else:
        name = getattr(function, "__qualname__", None) if callable(function) else None
        module = getattr(function, "__module__", None)
    if type(name) is not str:
        return f"a {kind.__qualname__}"
    return f"{module}.{name}" if type(module) is str and module not in ("builtins", "__main__") else name


def runs(function: Any) -> Any:
    """The Python function whose result a call of `function` gives, None where there is no such."""
    while True:
        kind = type(function)
        if kind is types.FunctionType:
            compiled = function.__dict__.get("__magpy__")
            if compiled is None:
                return function
            function = compiled.target
        elif kind is types.MethodType:
            function = function.__func__
        elif kind.__flags__ & (1 << 9) and not issubclass(kind, type):
            target = getattr(kind, "__magpy_target__", None)
            function = type_lookup(kind, "__call__") if target is None else target(function)
            if type(function) is not types.FunctionType and target is None:
                return None
        else:
            return None


# -- liveness ----------------------------------------------------------------------------------------------------------

_SEES_ALL: Final = frozenset(
    {"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "f_locals", "stack"}
)
_ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS"})


def live_variables(code: types.CodeType, index: int) -> tuple[int, ...]:
    """The local variables of a frame that is about to run, or to go on after, the instruction at `index` may still read.

    Cells and free variables always count; so do all variables where the code may ask for its namespace.
    """
    known = _live.get(code)
    if known is None:
        if len(_live) > 256:
            _live.clear()
        known = _live[code] = _liveness(code)
    return known[index]


_live: dict[types.CodeType, dict[int, tuple[int, ...]]] = {}


def _liveness(code: types.CodeType) -> dict[int, tuple[int, ...]]:
    found = instructions(code)
    count, plain = _variables(code)
    always = frozenset(range(count)) - plain
    if "__class__" in code.co_freevars and code.co_argcount:
        always |= {0}  # `super()` reads it behind the instructions' back
    if _SEES_ALL.intersection(code.co_names):
        return dict.fromkeys(found, tuple(range(count)))
    handlers = _handlers(code)
    after: dict[int, list[int]] = {}
    for unit, each in found.items():
        successors = []
        if each.opname not in _ENDS and each.opname not in (
            "JUMP_FORWARD",
            "JUMP_BACKWARD",
            "JUMP_BACKWARD_NO_INTERRUPT",
        ):
            following_unit = following(code, unit)
            if following_unit in found:
                successors.append(following_unit)
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            successors.append(target_of(each))
        successors += [target for start, end, target in handlers if start <= unit < end]
        after[unit] = successors
    live: dict[int, frozenset[int]] = dict.fromkeys(found, frozenset())
    changed = True
    while changed:
        changed = False
        for unit in reversed(found):
            reads, writes = _uses(found[unit])
            out: frozenset[int] = frozenset().union(*[live[each] for each in after[unit]])
            new = (out - writes) | reads
            if new != live[unit]:
                live[unit] = new
                changed = True
    return {unit: tuple(sorted(each | always)) for unit, each in live.items()}


def _variables(code: types.CodeType) -> tuple[int, frozenset[int]]:
    """How many local variables a frame has, and which of them are no cells."""
    cells = {*code.co_cellvars, *code.co_freevars}
    plain = frozenset(number for number, name in enumerate(code.co_varnames) if name not in cells)
    extra = [name for name in code.co_cellvars if name not in code.co_varnames]
    return len(code.co_varnames) + len(extra) + len(code.co_freevars), plain


def _uses(found: dis.Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """The variables that an instruction reads and writes."""
    name, arg = found.opname, found.arg or 0
    none: frozenset[int] = frozenset()
    if name in (
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "DELETE_FAST",
        "LOAD_CLOSURE",
        "LOAD_FAST_BORROW",
    ):
        return frozenset((arg,)), none
    if name in ("STORE_FAST", "STORE_FAST_MAYBE_NULL"):
        return none, frozenset((arg,))
    if name in ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"):
        return frozenset((arg >> 4, arg & 15)), none
    if name == "STORE_FAST_LOAD_FAST":
        return frozenset((arg & 15,)), none
    if name == "STORE_FAST_STORE_FAST":
        return none, frozenset((arg >> 4, arg & 15))
    return none, none


def _handlers(code: types.CodeType) -> list[tuple[int, int, int]]:
    """The exception table: first unit, unit behind the last, unit of the handler."""
    numbers: list[int] = []
    value = 0
    for byte in code.co_exceptiontable:
        value = (value << 6) | (byte & 63)
        if not byte & 64:
            numbers.append(value)
            value = 0
    return [(numbers[at], numbers[at] + numbers[at + 1], numbers[at + 2]) for at in range(0, len(numbers), 4)]


def handles_exception(code: types.CodeType, index: int) -> bool:
    """Whether an instruction runs while its frame handles an exception, which the thread then knows."""
    known = _handling.get(code)
    if known is None:
        if len(_handling) > 256:
            _handling.clear()
        known = _handling[code] = _handled(code)
    return index in known


_handling: dict[types.CodeType, frozenset[int]] = {}


def _handled(code: types.CodeType) -> frozenset[int]:
    """The instructions between a PUSH_EXC_INFO and the POP_EXCEPT or RERAISE that ends it, on any path."""
    found = instructions(code)
    handlers = _handlers(code)
    depths: dict[int, int] = {}
    todo = [(0, 0)] + [(target, 0) for _, _, target in handlers if found[target].opname == "PUSH_EXC_INFO"]
    while todo:
        unit, depth = todo.pop()
        while unit in found and depths.get(unit, -1) < depth:
            depths[unit] = depth
            each = found[unit]
            if each.opname == "PUSH_EXC_INFO":
                depth += 1
            elif each.opname == "POP_EXCEPT":
                depth = max(depth - 1, 0)
            if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
                todo.append((target_of(each), depth))
            if each.opname in _ENDS or each.opname in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"):
                break
            unit = following(code, unit)
    return frozenset(unit for unit, depth in depths.items() if depth)


__all__ = [
    "EXHAUSTED",
    "Entry",
    "Operation",
    "enter",
    "following",
    "handles_exception",
    "instruction_at",
    "is_operation",
    "is_true",
    "live_variables",
    "operation",
    "runs",
    "spread",
]
