"""What is said of single instructions, against real runs."""

import argparse
import contextlib
import dis
import inspect
import json.decoder
import sys
import typing

import pytest

from magpy_runtime._stackdepth import stack_depths
from magpy_runtime.capture import Recorder, in_handler, jump_target, next_index, pops, pushes


def instructions(code):
    """The index of each instruction that some path reaches."""
    depths = stack_depths(code)
    skip = ("CACHE", "EXTENDED_ARG")
    return {i.offset // 2: i for i in dis.get_instructions(code) if i.opname not in skip and depths[i.offset // 2] >= 0}


class Check:
    """Runs a function and holds what each instruction does against what is said of it."""

    def __init__(self):
        self.checked = set()
        self.wrong = []
        self.recorder = Recorder(self.plan_for)

    def plan_for(self, code):
        if code.co_filename != __file__:
            return None
        depths = stack_depths(code)
        plan = [None] * len(depths)
        for index, instruction in instructions(code).items():
            # `after` cannot know the depth beforehand: what stays is checked, with what must be there at least.
            low = depths[index] - pops(code, index)
            plan[index] = (self.before, self.after, depths[index], 0, (code, index, instruction, low))
        return plan

    def before(self, inputs, arg):
        code, index, instruction, low = arg
        handling = sys.exc_info()[0] is not None
        if handling and not in_handler(code, index):
            self.wrong.append(("in_handler", instruction))
        return inputs

    def after(self, state, outputs, arg):
        code, index, instruction, low = arg
        if outputs is None:
            return
        self.checked.add(instruction.opname)
        depths = stack_depths(code)
        same, place = self.recorder.position()
        if place == index:
            return  # the frame is left
        following, target = next_index(code, index), jump_target(code, index)
        if place not in (following, target):
            self.wrong.append(("goes on", instruction, place, following, target))
        if place == following and place != target and instruction.opname != "PRECALL":
            if depths[place] != low + pushes(code, index):
                self.wrong.append(("pushes", instruction, depths[place], low, pushes(code, index)))
            if low > depths[place] or low < 0:
                self.wrong.append(("pops", instruction, low, depths[place]))


def broken(x):
    raise ValueError(x)


def many(*args, a=1, **rest):
    with contextlib.suppress(KeyError), open(__file__) as file:
        line = file.readline()
    out = [line[1:3], *args, a, {**rest, "k": -a}, {1, *args}, f"{a!r:>{3}}", not a, a is None, a in (1, 2), a < 2 < 3]
    out[0] = out[1]
    out[1:2] = [5]
    del out[0]
    for i, x in enumerate(args):
        if x == 2:
            continue
        while a < 5:
            a += x
            if a > 3:
                break
        try:
            broken(x)
        except (TypeError, ValueError) as error:
            out.append(repr(error))
            try:
                raise KeyError(i) from error
            except KeyError:
                out.append(sys.exc_info()[0])
            finally:
                out.append("finally")
        else:
            out.append(i)
        finally:
            out.append(x or a and i)
    try:
        with contextlib.suppress(ValueError):
            broken(2)
        try:
            return [many_inner(y) for y in out if y] + [lambda z=a: (z, out)] + list(map(str, (x for x in args)))
        finally:
            del x
    finally:
        import math as m

        m.floor(2.5)


def many_inner(y):
    match y:
        case {"k": value}:
            return value
        case [first, *_]:
            return first
        case str(real):
            return real
        case _:
            return y


def test_against_a_run():
    check = Check()
    check.recorder.run(many, (1, 2, 3), {"b": 4})
    assert check.recorder.error is None
    assert not check.wrong, check.wrong[:5]
    assert len(check.checked) > 50


def codes(code):
    """A code object and those in it."""
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes(constant)


@pytest.mark.parametrize("module", [argparse, inspect, json.decoder, typing], ids=lambda m: m.__name__)
def test_every_instruction_is_known(module):
    with open(module.__file__) as file:
        code = compile(file.read(), module.__file__, "exec")
    for each in codes(code):
        depths = stack_depths(each)
        for index in instructions(each):
            assert 0 <= pops(each, index) <= depths[index]
            assert pushes(each, index) >= 0
            assert next_index(each, index) > index
            in_handler(each, index)


def handled(call):
    try:
        call("tried")
    except ValueError:
        call("handler")
    except KeyError:
        call("another handler")
    else:
        call("else")
    finally:
        call("finally")
    with contextlib.nullcontext():
        call("with")
    call("after")


def test_in_handler():
    code = handled.__code__
    names = {}
    loaded = None
    for index, instruction in instructions(code).items():
        if instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str):
            loaded = instruction.argval
        if instruction.opname == "CALL" and loaded is not None:
            names.setdefault(loaded, set()).add(in_handler(code, index))
            loaded = None
    assert names.pop("finally") == {False, True}
    assert {name for name, found in names.items() if found == {True}} == {"handler", "another handler"}
    assert {name for name, found in names.items() if found == {False}} == {"tried", "else", "with", "after"}


def branching(flag):
    if flag:
        return 1
    return 2


def test_jump_target():
    code = branching.__code__
    jumps = {i: jump_target(code, i) for i in instructions(code) if jump_target(code, i) is not None}
    index, target = next(iter(jumps.items()))
    assert target > next_index(code, index)
    assert jump_target(code, target) is None


def test_prefixes_belong_to_their_instruction():
    source = "def f(x):\n" + "".join(f"    v{i} = x\n" for i in range(300)) + "    return x(v299)\n"
    space = {}
    exec(source, space)
    code = space["f"].__code__
    prefix = next(i.offset // 2 for i in dis.get_instructions(code) if i.opname == "EXTENDED_ARG")
    assert pops(code, prefix) == pops(code, prefix + 1) == 1
    assert next_index(code, prefix) == next_index(code, prefix + 1) == prefix + 2
    with pytest.raises(IndexError):
        pops(code, len(code.co_code))
