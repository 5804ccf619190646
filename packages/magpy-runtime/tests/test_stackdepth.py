"""The static stack depths, against the compiler's own bound and, by identity of values, against real runs."""

import dis
import os
import types
from pathlib import Path

import pytest

from magpy_runtime._stackdepth import UNREACHABLE, stack_depths

LIBRARY = Path(os.__file__).parent
MODULES = ["argparse", "ast", "contextlib", "dataclasses", "inspect", "typing", "asyncio/base_events", "asyncio/tasks"]


def codes(code):
    """A code object and all that are nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def test_a_function():
    def f(a, b):
        return a + b

    depths = stack_depths(f.__code__)
    assert len(depths) == len(f.__code__.co_code) // 2
    at = {i.opname: depths[i.offset // 2] for i in dis.get_instructions(f.__code__)}
    assert at["RESUME"] == 0 and at["BINARY_OP"] == 2 and at["RETURN_VALUE"] == 1


def test_inline_caches_are_unreachable():
    def f(a, b):
        return a + b

    depths = stack_depths(f.__code__)
    (unit,) = [i.offset // 2 for i in dis.get_instructions(f.__code__) if i.opname == "BINARY_OP"]
    assert depths[unit + 1] == UNREACHABLE


@pytest.mark.parametrize("name", MODULES)
def test_library(name):
    """The deepest stack that is found is within the compiler's, and everything that leaves a frame has one value."""
    path = LIBRARY / f"{name}.py"
    for code in codes(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
        depths = stack_depths(code)
        assert max(depths) <= code.co_stacksize
        for instruction in dis.get_instructions(code):
            depth = depths[instruction.offset // 2]
            if instruction.opname == "RETURN_VALUE" and depth != UNREACHABLE:
                assert depth >= 1


def test_handlers_start_with_the_exception():
    def f():
        for _ in range(3):
            try:
                f()
            except ValueError:
                pass

    depths = stack_depths(f.__code__)
    handlers = [depths[i.offset // 2] for i in dis.get_instructions(f.__code__) if i.opname == "PUSH_EXC_INFO"]
    assert handlers == [2]  # the loop's iterator and the exception


def test_generators_start_with_the_sent_value():
    def f():
        yield 1

    depths = stack_depths(f.__code__)
    first, second = [depths[i.offset // 2] for i in dis.get_instructions(f.__code__) if i.opname == "RESUME"]
    assert first == 0 and second == 1
    assert depths[[i.offset // 2 for i in dis.get_instructions(f.__code__) if i.opname == "POP_TOP"][0]] == 1


def test_extended_arguments_have_the_depth_of_their_instruction():
    source = "def f():\n" + "".join(f"    v{i} = {i + 1000}\n" for i in range(300)) + "    return v299\n"
    space = {}
    exec(source, space)
    code = space["f"].__code__
    depths = stack_depths(code)
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":
            unit = instruction.offset // 2
            assert depths[unit] == depths[unit + 1] >= 0


def test_bytecode_without_fixed_depths_is_refused():
    def f(a):
        return a

    code = f.__code__
    nop, load = dis.opmap["NOP"], dis.opmap["LOAD_FAST"]
    endless = code.replace(co_code=bytes([nop, 0] * 3))
    with pytest.raises(ValueError, match="runs out"):
        stack_depths(endless)
    underflow = code.replace(co_code=bytes([dis.opmap["POP_TOP"], 0, nop, 0]))
    with pytest.raises(ValueError, match="runs out"):
        stack_depths(underflow)
    growing = code.replace(co_code=bytes([load, 0, dis.opmap["JUMP_BACKWARD"], 2]))
    with pytest.raises(ValueError, match="depth"):
        stack_depths(growing)
