"""The depth of the value stack before each instruction of a code object, found without running it.

From CPython 3.12 on, a frame does not say how deep its stack is while an instruction event runs. For code that CPython
compiles the depth at an instruction is the same on every path, so one walk along the paths finds it:
`dis.stack_effect` says what an instruction does, the exception table how deep a handler starts. Where the two are
not to be believed is in `_EFFECTS`.
"""

import dis
from array import array
from collections.abc import Callable, Iterator
from opcode import opmap
from types import CodeType

UNREACHABLE = -1
"""The depth of inline caches, and of instructions that no path reaches."""

_CACHE = 0
_EXTENDED_ARG = dis.EXTENDED_ARG
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_BACKWARD = frozenset(op for name, op in opmap.items() if "JUMP_BACKWARD" in name)
_ALWAYS_JUMPS = frozenset(op for name, op in opmap.items() if name in ("JUMP_FORWARD", "JUMP_ABSOLUTE")) | frozenset(
    op for name, op in opmap.items() if name in ("JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
)
_LEAVES = frozenset(
    op for name, op in opmap.items() if name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
)
_HAS_ARGUMENT = dis.HAVE_ARGUMENT


def _effects() -> dict[int, Callable[[int], int]]:
    """What an instruction really does to the stack, where `dis.stack_effect` says something else."""
    # The generator's frame goes on with the value that was first sent (None) on its stack; 3.11 says 0.
    effects: dict[int, Callable[[int], int]] = {opmap["RETURN_GENERATOR"]: lambda arg: 1}
    if "PRECALL" in opmap:
        # 3.11 charges PRECALL with the arguments, but CALL takes them.
        effects[opmap["PRECALL"]] = lambda arg: 0
        effects[opmap["CALL"]] = lambda arg: -arg - 1
    return effects


_EFFECTS = _effects()


def stack_effect(op: int, arg: int, jump: bool) -> int:
    """What one instruction does to the stack's depth, when it jumps or when it does not."""
    special = _EFFECTS.get(op)
    if special is not None:
        return special(arg)
    return dis.stack_effect(op, arg if op >= _HAS_ARGUMENT else None, jump=jump)


def exception_entries(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """The exception table: first code unit, end, the handler's code unit, and the depth there.

    The table's format is described in CPython's `Objects/exception_handling_notes.txt`.
    """
    numbers: list[int] = []
    value = 0
    for byte in code.co_exceptiontable:
        value = (value << 6) | (byte & 63)
        if not byte & 64:
            numbers.append(value)
            value = 0
    for at in range(0, len(numbers), 4):
        start, size, target, depth_and_lasti = numbers[at : at + 4]
        # The stack is cut to the depth; then the last instruction's index if asked for, and the exception.
        yield start, start + size, target, (depth_and_lasti >> 1) + (depth_and_lasti & 1) + 1


def _argument(bytecode: bytes, unit: int) -> tuple[int, int, int]:
    """The instruction that starts at a code unit, maybe with prefixes: its own unit, its opcode and its argument."""
    arg = 0
    while bytecode[2 * unit] == _EXTENDED_ARG:
        arg = (arg | bytecode[2 * unit + 1]) << 8
        unit += 1
    return unit, bytecode[2 * unit], arg | bytecode[2 * unit + 1]


def stack_depths(code: CodeType) -> "array[int]":
    """The stack's depth before each code unit of `code`.

    Args:
        code: what CPython compiled; bytecode from elsewhere may have no fixed depths.

    Returns:
        [code units] C ints; `UNREACHABLE` for inline caches and for code that no path reaches.

    Raises:
        ValueError: two paths reach an instruction with different depths, or one leaves the bytecode.
    """
    bytecode = code.co_code
    length = len(bytecode) // 2
    depths = array("i", [UNREACHABLE]) * length
    todo = [(0, 0), *((target, depth) for _, _, target, depth in exception_entries(code))]
    while todo:
        start, depth = todo.pop()
        while True:
            if not 0 <= start < length or depth < 0:
                raise ValueError(f"bytecode of {code!r} runs out of its bounds at code unit {start}")
            if depths[start] != UNREACHABLE:
                if depths[start] != depth:
                    raise ValueError(f"{code!r}: depth {depths[start]} or {depth} at code unit {start}")
                break
            unit, op, arg = _argument(bytecode, start)
            for prefix in range(start, unit + 1):
                depths[prefix] = depth
            following = unit + 1
            while following < length and bytecode[2 * following] == _CACHE:
                following += 1
            if op in _JUMPS:
                target = following - arg if op in _BACKWARD else following + arg
                todo.append((target, depth + stack_effect(op, arg, True)))
            if op in _ALWAYS_JUMPS or op in _LEAVES:
                break
            depth += stack_effect(op, arg, False)
            start = following
    return depths
