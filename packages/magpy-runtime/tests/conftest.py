"""What the tests of capture share: a watcher that reports every instruction and checks the protocol while it does."""

import dis
import gc
from types import CodeType

import pytest

from magpy_runtime._stackdepth import stack_depths
from magpy_runtime.capture import NULL, Recorder

# Opcodes whose second successor is another place than the next instruction, and that always leave the frame.
JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
JUMPS_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "YIELD_VALUE")


def full_plan(code, before, after):
    """A plan that reports each instruction with all of its stack, before and after."""
    plan = [None] * (len(code.co_code) // 2)
    depths = stack_depths(code)
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for instruction, following in zip(instructions, [*instructions[1:], None]):
        unit = instruction.offset // 2
        if depths[unit] < 0:
            continue
        n_out = 0
        extra = ()
        if instruction.opname == "FOR_ITER":
            n_out = depths[following.offset // 2]
            extra = (following.offset // 2,)
        elif instruction.opname not in LEAVES:
            after_units = [] if instruction.opname in JUMPS_ALWAYS else [following.offset // 2]
            if instruction.opcode in JUMPS:
                after_units.append(instruction.argval // 2)
            n_out = min([depths[u] for u in after_units if depths[u] >= 0], default=0)
        plan[unit] = (before, after, depths[unit], n_out, (code, unit, instruction), *extra)
    return plan


class Watch:
    """Runs a function under capture with everything reported, and checks what is reported.

    Attributes:
        events: one tuple for each callback: ("enter", name, args, kind), ("exit", name, value, kind),
            ("before", name, unit, opname, inputs) and ("after", name, unit, opname, outputs).
    """

    def __init__(self, wanted=None, keep=True):
        self.wanted = wanted or (lambda code: True)
        self.keep = keep
        self.events = []
        self.problems = []
        self.frames = []
        self.befores = self.afters = 0
        self.recorder = Recorder(self.plan_for, self.on_enter, self.on_exit)

    def plan_for(self, code):
        if not isinstance(code, CodeType) or not self.wanted(code):
            return None
        return full_plan(code, self.before, self.after)

    def log(self, *event):
        if self.keep:
            self.events.append(event)

    def check(self, condition, *what):
        if not condition:
            self.problems.append(what)

    def on_enter(self, code, function, args, kind):
        self.log("enter", code.co_name, args, kind)
        self.check(self.recorder.code() is code, "code() at entry", code)
        self.check(function is None or function.__code__ is code, "function", code)
        self.frames.append([code, None])
        self.check(self.recorder.depth() == len(self.frames), "depth", code)

    def on_exit(self, code, value, kind):
        self.log("exit", code.co_name, value, kind)
        if self.frames:
            entered, pending = self.frames.pop()
            self.check(entered is code, "exit of another frame", code, entered)
            self.check(pending is None, "exit before after", code, pending)
        else:
            self.check(False, "exit without entry", code)

    def before(self, inputs, arg):
        code, unit, instruction = arg
        self.befores += 1
        self.log("before", code.co_name, unit, instruction.opname, inputs)
        self.check(self.recorder.code() is code and self.recorder.offset() == unit, "place", arg)
        self.check(self.frames[-1] == [code, None], "before in another frame", arg, self.frames[-1])
        self.frames[-1][1] = arg
        state = object()
        self.state = state
        return (arg, state, inputs)

    def after(self, state, outputs, arg):
        code, unit, instruction = arg
        self.afters += 1
        self.log("after", code.co_name, unit, instruction.opname, outputs)
        self.check(state[0] is arg, "state of another instruction", state, arg)
        self.check(self.recorder.offset() == unit, "place after", arg)
        self.check(self.frames[-1] == [code, arg], "after without before", arg, self.frames[-1])
        self.frames[-1][1] = None
        if outputs is not None:
            self.check_outputs(state[2], outputs, instruction, code)

    def check_outputs(self, inputs, outputs, instruction, code):
        """The instructions whose outputs are known show whether the stack was read at the right place."""
        name = instruction.opname
        if name == "LOAD_FAST":
            self.check(outputs[-1] is self.recorder.local(instruction.arg), name, instruction, outputs[-1])
        elif name in ("LOAD_CONST", "KW_NAMES"):
            if name == "LOAD_CONST":
                self.check(outputs[-1] is code.co_consts[instruction.arg], name, instruction, outputs[-1])
        elif name == "COPY":
            self.check(outputs[-1] is inputs[-instruction.arg], name, instruction)
        elif name == "SWAP":
            self.check(outputs[-1] is inputs[-instruction.arg], name, instruction)
        elif name == "PUSH_NULL":
            self.check(outputs[-1] is NULL, name, instruction)
        elif name in ("POP_TOP", "STORE_FAST"):
            self.check(all(a is b for a, b in zip(outputs, inputs)), name, instruction)
        elif name in ("BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP", "BUILD_SET"):
            kind = {"BUILD_LIST": list, "BUILD_TUPLE": tuple, "BUILD_MAP": dict, "BUILD_SET": set}[name]
            self.check(type(outputs[-1]) is kind, name, instruction)

    def run(self, function, *args, **kwargs):
        """The function's result; asserts that nothing was wrong."""
        collecting = gc.isenabled()
        gc.disable()  # finalizers of other tests' garbage would run inside
        try:
            return self.recorder.run(function, args, kwargs)
        finally:
            if collecting:
                gc.enable()
            self.assert_sound()

    def assert_sound(self):
        if self.recorder.error is not None:
            raise AssertionError("capture failed") from self.recorder.error
        assert not self.problems, self.problems[:5]
        assert self.befores == self.afters
        assert not self.frames, self.frames

    def of(self, name, kind):
        """The events of one kind in frames of one name, without these two."""
        return [event[2:] for event in self.events if event[0] == kind and event[1] == name]

    def outputs(self, opname, name=None):
        """What an opcode gave, each time, as (unit, outputs)."""
        return [(e[2], e[4]) for e in self.events if e[0] == "after" and e[3] == opname and name in (None, e[1])]


@pytest.fixture
def make_watch():
    """The class `Watch`."""
    return Watch


@pytest.fixture
def watch():
    """A watcher of everything."""
    return Watch()


def outcome(call):
    """What a call gives, in a form that can be compared."""
    try:
        return ("value", call())
    except BaseException as error:
        frames = []
        traceback = error.__traceback__.tb_next
        while traceback is not None:
            frames.append((traceback.tb_frame.f_code.co_name, traceback.tb_lineno, traceback.tb_lasti))
            traceback = traceback.tb_next
        cause = (type(error.__context__), type(error.__cause__))
        return ("error", type(error), repr(error.args), frames, cause)


@pytest.fixture
def same_as_native(make_watch):
    """Checks that a function gives under capture what it gives natively, and that each before has its after."""

    def check(function):
        native = outcome(function)
        watch = make_watch(keep=False)
        captured = outcome(lambda: watch.run(function))
        if native[0] == "error":
            # `run` and the watcher are in between: compare what is inside of the program.
            assert captured[:3] == native[:3] and captured[4] == native[4]
            assert captured[3][-len(native[3]) :] == native[3]
        else:
            assert captured == native
        watch.assert_sound()
        assert watch.befores >= 2
        # Once more, warm: specialised bytecode must look the same.
        for _ in range(20):
            outcome(function)
        again = make_watch(keep=False)
        assert outcome(lambda: again.run(function))[:3] == native[:3]
        assert again.befores == watch.befores or function.__name__ in (
            "asyncio_runs",
            "async_generator_protocol",
            "imports",
        )

    return check


@pytest.fixture
def same_without_a_plan():
    """Checks that a function runs as ever where its frames have an empty plan, or none."""

    def check(function):
        native = outcome(function)
        for plan_for in (lambda code: None, lambda code: [None] * (len(code.co_code) // 2)):
            recorder = Recorder(plan_for)
            captured = outcome(lambda: recorder.run(function))
            assert captured[:3] == native[:3]
            assert recorder.error is None

    return check
