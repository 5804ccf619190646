"""The monitored run is the user's run, and hits give its bits: fast paths, random numbers, gradients, tracers, exceptions."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import traceback
import warnings
from typing import Any

import pytest
import torch
from serving import Served, agree, equal
from torch import nn
from torch.nn import functional as F

import magpy

compile_ = functools.partial(magpy.compile, backend="eager")


def seeded(make: Any) -> Any:
    def made() -> Any:
        torch.manual_seed(1)
        return make()

    return made


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.options = options

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.attention(x, x, x, key_padding_mask=mask, **self.options)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[False, False, False, True, True], [False, False, False, False, True]])
IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("make", "args", "train"),
    [
        (Encoder, (X, MASK), False),
        (Encoder, (X, MASK), True),
        (Attention, (X, MASK), False),
        (Attention, (X, MASK), True),
        (lambda: Attention(need_weights=False), (X, MASK), False),
        (lambda: nn.Dropout(0.5), (X,), True),
        (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2)), (X,), True),
        (lambda: nn.LSTM(8, 4, batch_first=True), (X,), False),
        (lambda: nn.GRU(8, 4, num_layers=2, bidirectional=True, dropout=0.2), (X,), True),
        (lambda: nn.RNN(8, 4), (X,), True),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (IMAGE,), True),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (IMAGE,), False),
        (lambda: nn.Embedding(5, 4, padding_idx=0), (torch.tensor([[0, 1], [2, 4]]),), True),
        (lambda: nn.LayerNorm(8), (X,), True),
    ],
)
@pytest.mark.parametrize("grad", [True, False])
def test_models(make: Any, args: Any, train: bool, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        agree(seeded(lambda: make().train(train)), *args)


def test_the_encoders_fast_path_is_taken() -> None:
    """The values of the fast path differ from the slow one's, so a mode that shows would be seen."""
    torch.manual_seed(0)
    model = Encoder().eval()
    with torch.no_grad():
        compiled = compile_(model)
        expected = model(X, MASK)
        served = Served(compiled)
        assert equal(served.monitored(X, MASK), expected)
        assert equal(served.hit(X, MASK), expected)


def test_autocast() -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, x).relu()

    agree(lambda: inside, X[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(seeded(lambda: nn.Linear(8, 3)), X)


def test_modes_are_facts() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    compiled = compile_(model)
    contexts: list[Any] = [
        contextlib.nullcontext, torch.no_grad, torch.inference_mode, functools.partial(torch.autocast, "cpu", torch.bfloat16)
    ]  # fmt: skip
    for _ in range(2):
        for context in contexts:
            with context():
                one, other = compiled(X), model(X)
                assert equal(one, other) and one.is_inference() == other.is_inference()
    assert magpy.info(compiled).hits == 4


def test_seeds_give_the_same_numbers() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(8)

    agree(lambda: draw, X, calls=4)


# -- exceptions --------------------------------------------------------------------------------------------------------


def raises(x: torch.Tensor, log: list[int]) -> torch.Tensor:
    log.append(1)
    y = x + 1
    try:
        raise KeyError("inner")
    except KeyError:
        raise ValueError(f"no {len(log)}")  # noqa: B904
    return y


def portrait(error: BaseException) -> Any:
    chain = []
    seen: Any = error
    while seen is not None:
        frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(seen.__traceback__)]
        chain.append((type(seen), seen.args, seen.__suppress_context__, frames[-2:] if seen is error else frames))
        assert seen.__cause__ is None
        seen = seen.__context__
    return chain


@pytest.mark.parametrize("handling", [False, True])
def test_exceptions_are_the_programs(handling: bool) -> None:
    def call(function: Any, log: list[int]) -> Any:
        try:
            function(X, log)
        except ValueError as error:
            return portrait(error)

    def caller(function: Any, log: list[int]) -> Any:
        if not handling:
            return call(function, log)
        try:
            raise OSError("outer")
        except OSError:
            return call(function, log)

    compiled = compile_(raises)
    one: list[int] = []
    other: list[int] = []
    for _ in range(6):
        assert caller(raises, one) == caller(compiled, other)
    assert one == other
    assert not magpy.info(compiled).reasons


def test_no_frames_of_magpy_in_tracebacks() -> None:
    def outer(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.relu(x) + inner(x)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3)

    for target in (outer, compile_(outer), nn.Sequential(nn.Linear(3, 3))):
        compiled: Any = compile_(target)
        for _ in range(5):  # while recording, then natively
            with pytest.raises(RuntimeError) as caught:
                compiled(X)
            files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
            assert not [file for file in files if "magpy" in file.rpartition("/src/")[2]]
            assert caught.value.__context__ is None and caught.value.__cause__ is None
            assert not caught.value.__suppress_context__


def test_exceptions_do_not_end_recording_for_good() -> None:
    def picky(x: torch.Tensor, ok: bool) -> torch.Tensor:
        if not ok:
            raise ValueError
        return x + 1

    compiled = compile_(picky)
    for _ in range(20):
        with pytest.raises(ValueError):
            compiled(X, False)
    monitored = magpy.info(compiled).monitored
    assert monitored < 8
    for _ in range(200):
        assert torch.equal(compiled(X, True), X + 1)
    assert magpy.info(compiled).hits > 100
    with pytest.raises(ValueError):
        compiled(X, False)
    Served(compiled).hit(X, True)


def test_an_operator_that_raises_on_a_hit() -> None:
    """The record's graph raises; the program runs and raises itself, or recovers, with its effects."""
    log: list[str] = []

    def look_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        log.append("called")
        try:
            return F.embedding(index, table)
        except IndexError:
            log.append("recovered")
            return table * 0

    compiled = compile_(look_up)
    table = torch.ones(3, 2)
    served = Served(compiled)
    served.monitored(table, torch.tensor([1]))
    served.hit(table, torch.tensor([2]))
    assert torch.equal(compiled(table, torch.tensor([7])), table * 0)
    assert log == ["called"] * 3 + ["recovered"]


def test_the_handled_exception_is_the_callers() -> None:
    seen: list[Any] = []

    def asks(x: torch.Tensor) -> torch.Tensor:
        seen.append(sys.exc_info()[0])
        return x + 1

    compiled = compile_(asks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.NotCompiledWarning)
        for _ in range(5):
            compiled(X)
    try:
        raise OSError
    except OSError:
        compiled(X)
    compiled(X)
    assert seen == [None] * 5 + [OSError, None]


# -- tracers, threads, state of the interpreter -------------------------------------------------------------------------


def traced(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return y * 2


@pytest.mark.parametrize("kind", ["trace", "profile"])
def test_tracers_go_on_working(kind: str) -> None:
    def watch(function: Any) -> list[Any]:
        events: list[Any] = []

        def tracer(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code is traced.__code__:
                events.append((event, frame.f_lineno))
            return tracer

        setter, getter = (sys.settrace, sys.gettrace) if kind == "trace" else (sys.setprofile, sys.getprofile)
        previous = getter()
        setter(tracer)
        try:
            function(X)
            assert getter() is tracer
            traced(X)
        finally:
            setter(previous)
        return events

    expected = watch(traced)
    compiled = compile_(traced)
    assert watch(compiled) == expected  # the monitored run
    assert watch(compiled) == expected[len(expected) // 2 :]  # a hit runs nothing of it
    assert magpy.info(compiled).hits == 1


def test_nothing_stays_behind() -> None:
    compiled = compile_(traced)
    refused = compile_(lambda x: (y for y in (x,)))
    before = (sys.gettrace(), sys.getprofile(), gc.isenabled(), torch.is_grad_enabled(), threading.active_count())
    with pytest.warns(magpy.NotCompiledWarning):
        for _ in range(3):
            compiled(X)
            refused(X)
    after = (sys.gettrace(), sys.getprofile(), gc.isenabled(), torch.is_grad_enabled(), threading.active_count())
    assert before == after
    assert torch._C._len_torch_function_stack() == 0 and not torch.compiler.is_compiling()
