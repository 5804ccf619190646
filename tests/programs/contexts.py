"""Context managers, torch's modes among them."""

import contextlib
import warnings

import torch
from torch import nn

from .model import Program, calls, program


class Scope:
    def __init__(self, log, name, swallow=()):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append("+" + self.name)
        return self

    def __exit__(self, kind, value, trace):
        self.log.append("-" + self.name + ("!" if kind else ""))
        return kind is not None and issubclass(kind, self.swallow)


@program
def class_based():
    log = []

    def f(x):
        with Scope(log, "a") as a, Scope(log, "b", KeyError):
            x = x * len(a.name)
            {}["missing"]
        with Scope(log, "c"):
            return x + 1

    return Program(target=f, calls=calls(3), observe=lambda: log)


@program
def generator_based():
    state = {"depth": 0}

    @contextlib.contextmanager
    def deeper(by):
        old = state["depth"]
        state["depth"] = by
        try:
            yield by * 2
        finally:
            state["depth"] = old

    def f(x):
        with deeper(3) as k:
            x = x * k + state["depth"]
            with deeper(5):
                x = x + state["depth"]
        return x

    return Program(target=f, calls=calls(3), observe=lambda: state)


@program
def contextlib_tools():
    log = []

    def f(x):
        with contextlib.suppress(ZeroDivisionError, KeyError):
            1 // 0
        with contextlib.nullcontext(4) as four, contextlib.ExitStack() as stack:
            stack.enter_context(Scope(log, "in"))
            stack.callback(log.append, "called")
            x = x * four
        with contextlib.closing(Closable(log)):
            return x

    class Closable:
        def __init__(self, log):
            self.log = log

        def close(self):
            self.log.append("closed")

    return Program(target=f, calls=calls(3), observe=lambda: log)


@program
def no_grad_inside():
    torch.manual_seed(0)
    lin = nn.Linear(3, 3)

    def f(x):
        with torch.no_grad():
            target = lin(x).sigmoid()
        y = lin(x)
        return y, target, target.requires_grad, torch.is_grad_enabled()

    return Program(target=f, calls=calls(2, 3), grad=True, observe=lambda: [p.grad for p in lin.parameters()])


@program
def grad_mode_decorators():
    w = torch.ones(3, requires_grad=True)

    @torch.no_grad()
    def frozen(x):
        return x * w

    @torch.enable_grad()
    def live(x):
        return x * w

    def f(x):
        with torch.set_grad_enabled(False):
            a = x * w
        return frozen(x), live(x), a, a.requires_grad

    return Program(target=f, calls=calls(3), grad=True, observe=lambda: w.grad)


@program
def autocast_inside():
    torch.manual_seed(0)
    lin = nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = lin(x)
            with torch.autocast("cpu", enabled=False):
                z = lin(x)
        return y, z, y.dtype, torch.is_autocast_enabled("cpu")

    return Program(target=f, calls=calls(2, 4))


@program
def inference_mode_inside():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y.is_inference(), x + 1

    return Program(target=f, calls=calls(2), served="any")


@program
def default_dtype_inside():
    def f(x):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            y = torch.ones(3)
        finally:
            torch.set_default_dtype(before)
        return x + y, y.dtype

    return Program(target=f, calls=calls(3), observe=torch.get_default_dtype, served="any")


@program
def warnings_inside():
    def f(x):
        warnings.warn("this is old", DeprecationWarning, stacklevel=2)
        if x.dim() < 3:
            warnings.warn("few dims")
        return x * 2

    return Program(target=f, calls=calls(3), served="any")


@program
def warnings_caught():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("silent")
            return x * 2

    return Program(target=f, calls=calls(3), served="any")


@program
def exceptions_through_contexts():
    log = []

    def f(x):
        for i in range(3):
            try:
                with Scope(log, str(i), ValueError):
                    if i == 1:
                        raise ValueError(i)
                    if i == 2:
                        raise KeyError(i)
                    x = x + 1
            except KeyError:
                x = x * 10
        return x

    return Program(target=f, calls=calls(3), observe=lambda: log)


@program
def profiler_annotations():
    def f(x):
        with torch.profiler.record_function("block"):
            return x.relu() + 1

    return Program(target=f, calls=calls(3), served="any")
