"""compile_async=True: the first result comes before the backend has compiled, and calls run natively until it has."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch

import magpy
from magpy._api import states


class Held:
    """A backend that waits until it is let go."""

    def __init__(self, error=None):
        self.gate = threading.Event()
        self.started = threading.Event()
        self.error = error
        self.calls = []

    def __call__(self, module, inputs):
        self.calls.append((threading.current_thread(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
        self.started.set()
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return module.forward


def double(x):
    return x * 2 + 1


def slugs(compiled):
    return {reason.slug: reason.count for reason in magpy.info(compiled).reasons}


def test_calls_run_natively_until_the_backend_is_done():
    backend = Held()
    compiled = magpy.compile(double, backend=backend, compile_async=True)
    x = torch.randn(3)
    assert torch.equal(compiled(x), double(x))
    assert backend.started.wait(60)
    for _ in range(3):
        assert torch.equal(compiled(x), double(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native, info.records) == (1, 0, 3, 0)
    assert slugs(compiled) == {"compiling": 3}
    assert not magpy.wait(compiled, 0.01)
    backend.gate.set()
    assert magpy.wait(compiled, 60)
    assert torch.equal(compiled(x), double(x))
    info = magpy.info(compiled)
    assert (info.monitored, info.hits, info.native, info.records) == (1, 1, 3, 1)
    assert info.timings["backend"] > 0
    assert backend.calls[0][0] is not threading.main_thread() and backend.calls[0][0].daemon


def test_another_kind_of_call_is_recorded_meanwhile():
    backend = Held()
    compiled = magpy.compile(double, backend=backend, compile_async=True)
    compiled(torch.randn(3))
    compiled(torch.randn(4).double())
    assert magpy.info(compiled).monitored == 2
    backend.gate.set()
    assert magpy.wait(compiled, 60)
    assert magpy.info(compiled).records == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_the_worker_has_the_modes_of_the_call(mode):
    backend = Held()
    backend.gate.set()
    compiled = magpy.compile(double, backend=backend, compile_async=True)
    with mode():
        compiled(torch.randn(3))
        expected = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        assert magpy.wait(compiled, 60)
        compiled(torch.randn(3))
    assert magpy.info(compiled).hits == 1
    assert backend.calls[0][1:] == expected


def test_an_error_is_reported_once():
    backend = Held(RuntimeError("no such operator"))
    compiled = magpy.compile(double, backend=backend, compile_async=True)
    x = torch.randn(3)
    compiled(x)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("magpy._compiled.warn", lambda name, boundary: seen.append(str(boundary)))
        backend.gate.set()
        assert magpy.wait(compiled, 60)
    assert len(seen) == 1 and "no such operator" in seen[0]
    assert torch.equal(compiled(x), double(x))
    assert slugs(compiled)["backend-failed"] >= 1


def test_with_fullgraph_an_error_is_raised_by_the_next_call():
    backend = Held(RuntimeError("no such operator"))
    compiled = magpy.compile(double, backend=backend, compile_async=True, fullgraph=True)
    x = torch.randn(3)
    assert torch.equal(compiled(x), double(x))
    backend.gate.set()
    assert magpy.wait(compiled, 60)
    with pytest.raises(magpy.FullGraphError, match="no such operator"):
        compiled(x)


def test_reset_drops_what_is_being_compiled():
    backend = Held()
    compiled = magpy.compile(double, backend=backend, compile_async=True)
    compiled(torch.randn(3))
    assert backend.started.wait(60)
    magpy.reset(compiled)
    assert magpy.wait(compiled, 0)
    backend.gate.set()
    assert magpy.info(compiled).records == 0


def test_a_compiled_function_that_goes_is_not_held():
    backend = Held()

    def local(x):
        return x + 3

    compiled = magpy.compile(local, backend=backend, compile_async=True)
    compiled(torch.randn(3))
    assert backend.started.wait(60)
    reference = weakref.ref(states(compiled)[0])
    del compiled
    gc.collect()
    assert reference() is None
    backend.gate.set()


def test_with_inductor_and_a_module():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    compiled = magpy.compile(model, compile_async=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
        assert magpy.wait(compiled, 300)
        torch.testing.assert_close(compiled(x), model(x))
    assert magpy.info(compiled).hits == 1
    assert slugs(compiled) == {}


EXITS = {
    "while it compiles": "",
    "with more to come": "g(torch.ones(3)); h(torch.ones(3))",
    "with an exception": "raise SystemExit(3)",
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_ends(name):
    program = textwrap.dedent("""
        import time
        import torch
        import magpy

        def backend(module, inputs):
            print("started", flush=True)
            for _ in range(3000):
                time.sleep(0.01)
            return module.forward

        def make(number):
            return magpy.compile(lambda x: x * number, backend=backend, compile_async=True)

        f, g, h = make(2), make(3), make(4)
        f(torch.ones(3))
        time.sleep(0.3)
    """)
    done = subprocess.run([sys.executable, "-c", program + EXITS[name]], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (3 if "Exit" in EXITS[name] else 0, "started\n", "")
