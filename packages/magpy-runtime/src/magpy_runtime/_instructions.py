"""What single instructions do to the value stack and to the order of execution, on each supported CPython.

Numbers are code units (two bytes). An *index* names the instruction itself, after its EXTENDED_ARG prefixes; where
execution goes on is named by its first code unit, which may be a prefix.
"""

import dis
import weakref
from array import array
from collections.abc import Callable, Iterator
from opcode import opmap, opname
from types import CodeType

from magpy_runtime._stackdepth import exception_entries, stack_depths, stack_effect

_EXTENDED_ARG = dis.EXTENDED_ARG
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_BACKWARD = frozenset(op for name, op in opmap.items() if "JUMP_BACKWARD" in name)
_NO_FALLTHROUGH = frozenset(
    opmap[name]
    for name in ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
    + ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
    if name in opmap
)
_PRECALL = opmap.get("PRECALL", -1)
_PUSH_EXC_INFO = opmap["PUSH_EXC_INFO"]
_POP_EXCEPT = opmap["POP_EXCEPT"]
_END_FOR = opmap.get("END_FOR", -1)
_POP_TOP = opmap["POP_TOP"]

# The values that an instruction takes off the stack. One that it only looks at (FOR_ITER's iterator, the list of
# LIST_APPEND) stays, and is not among them.
_TAKES_NONE = """
    CACHE COPY COPY_FREE_VARS DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME EXTENDED_ARG
    FOR_ITER GET_ANEXT GET_LEN IMPORT_FROM JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD KW_NAMES
    LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST
    LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_LOCALS LOAD_NAME MAKE_CELL MATCH_KEYS
    MATCH_MAPPING MATCH_SEQUENCE NOP PUSH_NULL RESERVED RESUME RETURN_CONST RETURN_GENERATOR SETUP_ANNOTATIONS
    WITH_EXCEPT_START
"""
_TAKES_ONE = """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BEFORE_WITH CALL_INTRINSIC_1 CHECK_EXC_MATCH CONVERT_VALUE DELETE_ATTR
    DICT_MERGE DICT_UPDATE EXIT_INIT_CHECK FORMAT_SIMPLE GET_AITER GET_AWAITABLE GET_ITER GET_YIELD_FROM_ITER
    IMPORT_STAR INTERPRETER_EXIT JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_APPEND LIST_EXTEND LIST_TO_TUPLE
    LOAD_ATTR LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_METHOD POP_EXCEPT POP_TOP PRINT_EXPR
    PUSH_EXC_INFO RERAISE RETURN_VALUE SEND SET_ADD SET_UPDATE STORE_DEREF STORE_FAST STORE_FAST_LOAD_FAST
    STORE_GLOBAL STORE_NAME TO_BOOL UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE
    YIELD_VALUE
"""
_TAKES_TWO = """
    BINARY_OP BINARY_SUBSCR CALL_INTRINSIC_2 CHECK_EG_MATCH COMPARE_OP CONTAINS_OP DELETE_SUBSCR END_ASYNC_FOR
    END_SEND FORMAT_WITH_SPEC IMPORT_NAME IS_OP MAP_ADD PREP_RERAISE_STAR SET_FUNCTION_ATTRIBUTE STORE_ATTR
    STORE_FAST_STORE_FAST
"""
_TAKES_THREE = "BINARY_SLICE CLEANUP_THROW LOAD_SUPER_ATTR MATCH_CLASS STORE_SUBSCR"


def _always(number: int) -> Callable[[int], int]:
    return lambda arg: number


def _takes() -> dict[int, Callable[[int], int]]:
    takes: dict[str, Callable[[int], int]] = {
        "BUILD_CONST_KEY_MAP": lambda arg: arg + 1,
        "BUILD_LIST": lambda arg: arg,
        "BUILD_MAP": lambda arg: 2 * arg,
        "BUILD_SET": lambda arg: arg,
        "BUILD_SLICE": lambda arg: 3 if arg == 3 else 2,
        "BUILD_STRING": lambda arg: arg,
        "BUILD_TUPLE": lambda arg: arg,
        "CALL": lambda arg: arg + 2,
        "CALL_FUNCTION_EX": lambda arg: 3 + (arg & 1),
        "CALL_KW": lambda arg: arg + 3,
        "END_FOR": lambda arg: 1 if "CALL_KW" in opmap else 2,
        "FORMAT_VALUE": lambda arg: 2 if arg & 4 else 1,
        # From 3.13 on, SET_FUNCTION_ATTRIBUTE adds what MAKE_FUNCTION takes before.
        "MAKE_FUNCTION": lambda arg: 1 if "CALL_KW" in opmap else 1 + (arg & 15).bit_count(),
        "PRECALL": lambda arg: arg + 2,
        "RAISE_VARARGS": lambda arg: arg,
        "STORE_SLICE": lambda arg: 4,
        "SWAP": lambda arg: arg,
    }
    for number, names in enumerate((_TAKES_NONE, _TAKES_ONE, _TAKES_TWO, _TAKES_THREE)):
        takes.update(dict.fromkeys(names.split(), _always(number)))
    takes.update(dict.fromkeys((name for name in opmap if name.startswith("POP_JUMP_")), _always(1)))
    return {op: takes[name] for name, op in opmap.items() if name in takes}


_TAKES = _takes()


def _instruction(code: CodeType, index: int) -> tuple[int, int, int]:
    """The instruction at an index or at one of its prefixes: its index, opcode and argument."""
    bytecode = code.co_code
    if not 0 <= index < len(bytecode) // 2:
        raise IndexError(f"{code!r} has no instruction {index}")
    start = index
    while start > 0 and bytecode[2 * start - 2] == _EXTENDED_ARG:
        start -= 1
    arg = 0
    while bytecode[2 * start] == _EXTENDED_ARG:
        arg = (arg | bytecode[2 * start + 1]) << 8
        start += 1
    return start, bytecode[2 * start], arg | bytecode[2 * start + 1]


def _call_of(code: CodeType, index: int) -> int:
    """The index of the CALL that a PRECALL (3.11) belongs to."""
    return _instruction(code, next_index(code, index))[0]


def pops(code: CodeType, index: int) -> int:
    """How many values the instruction takes off the stack; those that it only looks at are not counted.

    FOR_ITER takes none (the iterator stays), PRECALL takes what its CALL will.
    """
    _, op, arg = _instruction(code, index)
    takes = _TAKES.get(op)
    if takes is None:
        raise ValueError(f"nothing is known about {opname[op]}")
    return takes(arg)


def pushes(code: CodeType, index: int) -> int:
    """How many values the instruction leaves in place of those that it took, when it does not jump."""
    index, op, arg = _instruction(code, index)
    if op == _PRECALL:
        return 1
    return pops(code, index) + stack_effect(op, arg, False)


def next_index(code: CodeType, index: int) -> int:
    """Where the code goes on after the instruction and its inline caches, when it does not jump."""
    bytecode = code.co_code
    following = _instruction(code, index)[0] + 1
    while 2 * following < len(bytecode) and bytecode[2 * following] == 0:
        following += 1
    return following


def jump_target(code: CodeType, index: int) -> int | None:
    """Where the code goes on when the instruction jumps; None if it never does.

    FOR_ITER jumps when it is exhausted, and the iterator is off the stack then: from CPython 3.12 on, execution goes
    on behind the END_FOR (3.13: and the POP_TOP) that the bytecode names as its target.
    """
    index, op, arg = _instruction(code, index)
    if op not in _JUMPS:
        return None
    following = next_index(code, index)
    target = following - arg if op in _BACKWARD else following + arg
    bytecode = code.co_code
    if opname[op] == "FOR_ITER" and bytecode[2 * target] == _END_FOR:
        target += 1
        if "CALL_KW" in opmap and bytecode[2 * target] == _POP_TOP:
            target += 1
    return target


def stack_tables(code: CodeType) -> tuple["array[int]", "array[int]", "array[int]"]:
    """What the native module wants to know about each code unit of `code`.

    Returns:
        The stack's depth before it; the depth without what its instruction takes; and the index of its instruction,
        which is the CALL for a PRECALL. The depths are -1 where no path leads.
    """
    depths = stack_depths(code)
    kept = array("i", depths)
    indices = array("i", range(len(depths)))
    for unit, depth in enumerate(depths):
        if depth >= 0:
            index, op, arg = _instruction(code, unit)
            takes = _TAKES.get(op)
            kept[unit] = max(depth - takes(arg), 0) if takes is not None else 0
            indices[unit] = _call_of(code, index) if op == _PRECALL else index
    return depths, kept, indices


_handler_cache: "weakref.WeakKeyDictionary[CodeType, bytes]" = weakref.WeakKeyDictionary()


def in_handler(code: CodeType, index: int) -> bool:
    """Whether the value stack at an instruction holds the state of an exception handler.

    That is the case in the body of an `except` clause, in a `finally` clause that runs because of an exception, and
    where a `with` block is left by an exception; also in the hidden handlers that restore variables and raise again.
    Code that no path reaches counts as such.
    """
    marks = _handler_cache.get(code)
    if marks is None:
        marks = _handler_cache[code] = _mark_handlers(code)
    return bool(marks[_instruction(code, index)[0]])


_FOREVER = 1000


def _successors(code: CodeType, index: int, op: int) -> Iterator[int]:
    if op not in _NO_FALLTHROUGH:
        yield next_index(code, index)
    target = jump_target(code, index)
    if target is not None:
        yield target


def _mark_handlers(code: CodeType) -> bytes:
    """One byte a code unit: 1 in exception handlers.

    Follows every path with the number of exceptions that PUSH_EXC_INFO has put on the stack and POP_EXCEPT has not
    taken away yet. A handler that starts with something else cleans up and raises again; it stays one to its end.
    """
    length = len(code.co_code) // 2
    levels = [-1] * length
    marks = bytearray(b"\1") * length
    entries = list(exception_entries(code))
    todo = [(0, 0)]
    while todo:
        start, level = todo.pop()
        if not 0 <= start < length:
            continue
        index, op, _ = _instruction(code, start)
        if levels[index] >= 0:
            continue
        levels[index] = level
        for unit in range(start, index + 1):
            marks[unit] = level > 0
        for first, end, target, _ in entries:
            if first <= index < end:
                handler = _instruction(code, target)
                todo.append((target, level if handler[1] == _PUSH_EXC_INFO else _FOREVER))
                if handler[1] == _PUSH_EXC_INFO:
                    marks[target] = 1
                break
        if op == _PUSH_EXC_INFO:
            level += 1
            marks[index] = 1
        elif op == _POP_EXCEPT and 0 < level < _FOREVER:
            level -= 1
        todo.extend((successor, level) for successor in _successors(code, index, op))
    return bytes(marks)
