"""Functions that are called inside of what runs natively have records of their own."""

import gc
import inspect
import subprocess
import sys
import threading
import traceback
import weakref

import pytest
import torch

import magpy

X = torch.arange(6.0)


def compile_(function, **options):
    return magpy.compile(function, backend="eager", **options)


def ran(codes, call):
    """How many frames of these codes a call starts, seen by a trace function."""
    seen = []

    def trace(frame, event, arg):
        if frame.f_code in codes:
            seen.append(frame.f_code.co_name)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


class Opaque:
    """What cannot be built by a record: a call that returns it runs natively."""

    def __init__(self, value):
        self.value = value
        self.lock = threading.Lock()


def inner(x, scale=2.0, *more, key=1, **rest):
    y = x * scale + key
    for each in more:
        y = y + each
    return y.sin() + rest.get("bias", 0)


def outer(x):
    return inner(x), (value for value in [inner(x, 3.0, x, key=2, bias=x)])


def warm(compiled, *args, times=9):
    for _ in range(times):
        compiled(*args)


def only(compiled, name):
    found = [each for each in magpy.info(compiled).nested if each.name.rpartition(".")[2] == name]
    assert len(found) == 1, magpy.info(compiled)
    return found[0].info


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_inner_function_of_an_unbuildable_result():
    compiled = compile_(outer)
    warm(compiled, X)
    assert magpy.info(compiled).hits == 0
    before = only(compiled, "inner")
    assert before.records == 2
    expected, generator = outer(X)
    assert ran({inner.__code__, outer.__code__}, lambda: compiled(X)) == ["outer"]
    found, other = compiled(X)
    assert torch.equal(found, expected)
    assert torch.equal(next(other), next(generator))
    after = only(compiled, "inner")
    assert after.hits - before.hits == 4
    assert after.native == before.native
    assert "inside of native parts: inner at " in magpy.explain(compiled)


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_mutations():
    state = {"factor": 2.0, "log": []}

    def step(x, memo):
        memo.append(len(memo))
        state["log"].append(float(state["factor"]))
        return x * state["factor"] + len(memo)

    def program(x, memo):
        return step(x, memo), (each for each in ())

    compiled = compile_(program)
    memos = [], []
    for number in range(20):
        state["factor"] = 2.0 if number % 5 < 3 else 3.0
        results = []
        for function, memo in zip((program, compiled), memos, strict=True):
            state["log"].clear()
            results.append((function(X + number, memo)[0].tolist(), list(memo), list(state["log"])))
        assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_closures_of_one_code():
    def make(factor):
        def scaled(x):
            return (x * factor).cos()

        return scaled

    def program(x, factor):
        return make(factor)(x), (each for each in ())

    compiled = compile_(program)
    for factor in [2.0, 2.0, 3.0, 2.0, 3.0, 2.0, 3.0, 3.0, 2.0, 4.0, 2.0, 3.0, 4.0, 4.0] * 2:
        assert torch.equal(compiled(X, factor)[0], (X * factor).cos())
    assert only(compiled, "scaled").hits > 8


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_callbacks_of_c_code():
    table = {}

    def weight(x):
        return float((x * 2).sum()) + table.get("shift", 0)

    def program(xs):
        found = sorted(xs, key=weight)
        return found, (each for each in ())

    compiled = compile_(program)
    xs = [X + 3, X, X - 1]
    warm(compiled, xs)
    for shift in (0, 1, 0):
        table["shift"] = shift
        assert [each.tolist() for each in compiled(xs)[0]] == [each.tolist() for each in program(xs)[0]]
    table.clear()
    warm(compiled, xs, times=3)
    assert ran({weight.__code__}, lambda: compiled(xs)) == []


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_modules_inside():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.linear(x).relu() + 1

    block = Block()
    stack = torch.nn.Sequential(Block(), torch.nn.ReLU())

    def program(x):
        return block(x) + stack(x), (each for each in ())

    compiled = compile_(program)
    with torch.no_grad():
        for _ in range(12):
            assert torch.equal(compiled(X)[0], program(X)[0])
    assert block.calls == 24
    names = sorted(each.name for each in magpy.info(compiled).nested)
    assert [name.rpartition(".")[2] for name in names] == ["forward", "forward"]
    assert "Sequential.forward" in names


def test_inside_of_boundary_operations():
    def helper(x):
        return (x * 3).exp() + 1

    def opaque(x):
        try:
            raise KeyError
        except KeyError:
            return helper(x) * float(x.sum())

    def program(x):
        y = x + 1
        z = opaque(y)
        return z * 2

    compiled = compile_(program)
    for number in range(12):
        x = X + number % 3
        assert torch.equal(compiled(x), program(x))
    info = magpy.info(compiled)
    assert info.hits > 5
    assert only(compiled, "helper").hits > 4
    assert ran({helper.__code__, program.__code__}, lambda: compiled(X)) == []


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_exceptions():
    def fails(x, flag):
        if flag:
            raise ValueError("flagged")
        return x.sin() + 1

    def program(x, flag):
        try:
            return fails(x, flag), (each for each in ())
        except ValueError as error:
            names = []
            entry = error.__traceback__
            while entry is not None:
                names.append(entry.tb_frame.f_code.co_name)
                entry = entry.tb_next
            return names, str(error), error.__context__

    compiled = compile_(program)
    warm(compiled, X, False)
    for _ in range(6):
        names, text, context = compiled(X, True)
        assert (text, context) == ("flagged", None)
        assert names[0] == "program"
        assert set(names) <= {"program", "fails"}
        assert torch.equal(compiled(X, False)[0], fails(X, False))


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_recursion():
    def down(x, depth):
        return x.sin() if depth == 0 else down(x + depth, depth - 1) * 2

    def program(x, depth):
        return down(x, depth), (each for each in ())

    compiled = compile_(program)
    for number in range(20):
        assert torch.equal(compiled(X, number % 3)[0], down(X, number % 3))
    assert only(compiled, "down").hits


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_what_is_disabled_stays_native():
    def quiet(x):
        return x.sin() + 1

    @magpy.disable
    def disabled(x):
        return quiet(x)

    def program(x):
        return disabled(x), (each for each in ())

    compiled = compile_(program)
    warm(compiled, X, times=12)
    assert [each for each in magpy.info(compiled).nested if "quiet" in each.name] == []


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_disabled_modules_stay_native():
    class Part(torch.nn.Module):
        def forward(self, x):
            return x.sin() + 1

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()

        def forward(self, x):
            return self.part(x) * 2

    whole = magpy.disable(Whole())

    def program(x):
        return whole(x), (each for each in ())

    compiled = compile_(program)
    warm(compiled, X, times=12)
    assert torch.equal(compiled(X)[0], program(X)[0])
    assert magpy.info(compiled).nested == ()


def test_full_graph_is_not_affected():
    compiled = compile_(outer, fullgraph=True)
    for _ in range(4):
        with pytest.raises(magpy.FullGraphError):
            compiled(X)
    assert magpy.info(compiled).nested == ()


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_threads():
    def helper(x):
        return (x * 2).cos() + 1

    def program(x):
        return helper(x), (each for each in ())

    compiled = compile_(program)
    wrong = []

    def work():
        for number in range(30):
            if not torch.equal(compiled(X + number)[0], helper(X + number)):
                wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_everything_is_freed():
    def make():
        def helper(x):
            return (x * 2).cos() + 1

        def program(x):
            return helper(x), (each for each in ())

        return compile_(program), weakref.ref(helper), weakref.ref(program)

    compiled, *functions = make()
    warm(compiled, X, times=12)
    assert only(compiled, "helper").hits
    states = [weakref.ref(compiled.__magpy__), weakref.ref(compiled.__magpy__.nested)]
    states += map(weakref.ref, compiled.__magpy__.nested.compiled())
    gc.collect()
    gc.disable()
    try:
        del compiled
        alive = [each() for each in (*states, *functions)]
    finally:
        gc.enable()
    assert alive == [None] * 5


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_reset():
    compiled = compile_(outer)
    warm(compiled, X)
    assert magpy.info(compiled).nested
    magpy.reset(compiled)
    assert magpy.info(compiled).nested == ()
    warm(compiled, X)
    assert only(compiled, "inner").hits


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_frames_that_look_at_their_callers():
    def looks(x):
        return x + 1, sys._getframe(1).f_code.co_name

    def program(x):
        return looks(x), (each for each in ())

    compiled = compile_(program)
    for _ in range(12):
        assert compiled(X)[0][1] == "program"


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_other_hooks_and_compiled_functions_inside():
    @magpy.compile(backend="eager")
    def own(x):
        return x.sin() * 2

    def program(x):
        return own(x), (each for each in ())

    compiled = compile_(program)
    for _ in range(12):
        assert torch.equal(compiled(X)[0], X.sin() * 2)
    assert magpy.info(own).hits
    assert magpy.info(compiled).nested == ()


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_generators():
    def helper(x):
        return (x * 2).cos() + 1

    log = []

    def program(x):
        try:
            while True:
                sent = yield helper(x)
                log.append(sys._getframe(1).f_code.co_name)
                if sent is None:
                    return "done"
                x = x + sent
        except KeyError as error:
            log.append([entry.name for entry in traceback.extract_tb(error.__traceback__)][-1:])
            yield helper(x)
            raise
        finally:
            log.append("over")

    compiled = compile_(program)

    def uses(function):
        log.clear()
        seen = []
        generator = function(X)
        seen.append((type(generator), generator.__name__, generator.__qualname__, inspect.getgeneratorstate(generator)))
        seen.append(next(generator).tolist())
        seen.append(generator.send(3).tolist())
        try:
            generator.send(None)
        except StopIteration as stop:
            seen.append(stop.value)
        generator = function(X)
        next(generator)
        generator.close()
        generator = function(X)
        next(generator)
        seen.append(generator.throw(KeyError("thrown")).tolist())
        try:
            next(generator)
        except KeyError as error:
            seen.append((str(error), error.__context__))
        function(X).close()
        generator = function(X)
        next(generator)
        del generator
        return seen, list(log)

    for _ in range(6):
        assert uses(compiled) == uses(program)
    before = only(compiled, "helper").hits
    generator = compiled(X)
    assert ran({helper.__code__}, lambda: next(generator)) == []
    assert only(compiled, "helper").hits == before + 1


@pytest.mark.filterwarnings("ignore::magpy.NotCompiledWarning")
def test_generators_hold_nothing_more():
    def program(xs):
        for x in xs:
            got = yield x * 2
            del got, x

    compiled = compile_(program)
    for _ in range(5):
        generator = compiled([X, X])
        value = next(generator)
        gone = weakref.ref(value)
        del value
        assert gone() is None
        sent = torch.ones(1)
        gone = weakref.ref(sent)
        generator.send(sent)
        del sent
        assert gone() is None


def _traced_by_torch(x, helper):
    return torch.jit.trace(helper, (x,))(x)


def _hook_of_autograd(x, helper):
    leaf = x.clone().requires_grad_()
    value = leaf * 2
    value.register_hook(helper)
    value.sum().backward()
    return leaf.grad


def _checkpointed(x, helper):
    leaf = x.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(helper, leaf, use_reentrant=False).sum().backward()
    return leaf.grad


def _vmapped(x, helper):
    return torch.vmap(lambda each: helper(each).sum())(x.reshape(2, 3))


def _differentiated(x, helper):
    return torch.func.grad(lambda each: helper(each).sum())(x)


def _under_a_mode(x, helper):
    class Mode(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            Mode.count += 1
            return function(*args, **(kwargs or {}))

    with Mode():
        value = helper(x)
    return value + Mode.count


def _in_inference_mode(x, helper):
    with torch.inference_mode():
        value = helper(x)
    return value + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "use",
    [
        _traced_by_torch, _hook_of_autograd, _checkpointed, _vmapped, _differentiated, _under_a_mode,
        _in_inference_mode,
    ],
)  # fmt: skip
def test_other_machinery_of_torch(use):
    def helper(x):
        return (x * 2).sin() + 1

    def program(x):
        return use(x, helper), (each for each in ())

    compiled = compile_(program)
    for number in range(12):
        x = X + number % 3
        assert torch.equal(compiled(x)[0], program(x)[0])


_COMPILED_BY_TORCH = """
import warnings
import torch, magpy

def helper(x):
    return (x * 2).sin() + 1

def program(x):
    return torch.compile(helper, backend="eager")(x), (each for each in ())

warnings.simplefilter("ignore")
compiled = magpy.compile(program, backend="eager")
for number in range(12):
    x = torch.arange(6.0) + number % 3
    assert torch.equal(compiled(x)[0], helper(x))
"""


def test_hooks_of_torch_compile():
    """In a process of its own: it leaves marks on classes of torch."""
    subprocess.run([sys.executable, "-c", _COMPILED_BY_TORCH], check=True, timeout=300)
