#!/usr/bin/env python3
"""Batch sizes, sequence lengths and numbers that vary: monitored runs, equality with eager, and call times.

    python benchmarks/dynamic_shapes.py [--quick] [--backend inductor|eager] [--only bert-batch,...] [--json FILE] [--no-torch]

Each model is called with each size in turn, twice over: in the first round records are made, in the second each call is
timed, after one that is not. Times are medians over the sizes of a call's time divided by that of `torch.compile(model,
dynamic=None)` in the same process, called with the same sizes in the same order; `eager` likewise. The table names each
monitored run beyond the second: a question that the program itself asks of a size and that came out otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import magpy

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

TOLERANCE = 2e-4
BATCHES = tuple(range(2, 17))
LENGTHS = tuple(range(32, 257, 16))


@dataclass(kw_only=True, slots=True)
class Row:
    """What the table says of one series of calls."""

    name: str
    calls: int = 0
    monitored: int = 0
    native: int = 0
    records: int = 0
    worst: float = 0.0
    equal: bool = True
    first: float = 0.0
    against_torch: float | None = None
    against_eager: float | None = None
    torch_graphs: int | None = None
    lifted: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def resnet(quick: bool) -> nn.Module:
    """ResNet-50, or a small one."""
    from models.resnet import ResNet, resnet50

    return ResNet((1, 1, 1, 1)) if quick else resnet50()


def densenet(quick: bool) -> nn.Module:
    """DenseNet-121, or a small one."""
    from models.densenet import DenseNet, densenet121

    return DenseNet(8, (2, 2), 16) if quick else densenet121()


def bert(quick: bool) -> nn.Module:
    """BERT, base or small, from transformers."""
    from transformers import BertConfig, BertModel

    small = dict(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    config: Any = BertConfig(**(small if quick else {}))
    return BertModel(config)


def deberta(quick: bool) -> nn.Module:
    """DeBERTa, base or small, from transformers."""
    from transformers import DebertaConfig, DebertaModel

    small = dict(vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    relative = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=-1)
    config: Any = DebertaConfig(**relative, **(small if quick else {}))
    return DebertaModel(config)


def pictures(size: int) -> Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]:
    """So many pictures."""
    return lambda batch: ((torch.rand(batch, 3, size, size),), {})


def tokens(batch: int | None, length: int | None) -> Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Sentences, of which the batch size or the length varies."""

    def make(size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        ids = torch.randint(5, 500, (batch or size, length or size))
        return (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


SERIES: dict[str, tuple[Callable[[bool], nn.Module], Any, tuple[int, ...]]] = {
    "resnet-batch": (resnet, lambda quick: pictures(64 if quick else 224), BATCHES),
    "densenet-batch": (densenet, lambda quick: pictures(64 if quick else 224), BATCHES),
    "bert-batch": (bert, lambda quick: tokens(None, 24 if quick else 128), BATCHES),
    "deberta-batch": (deberta, lambda quick: tokens(None, 24 if quick else 128), BATCHES),
    "bert-length": (bert, lambda quick: tokens(2, None), LENGTHS),
    "deberta-length": (deberta, lambda quick: tokens(2, None), LENGTHS),
}


def difference(one: Any, other: Any) -> float:
    """The largest difference between two results, in parts of each tensor's largest number; infinite where they differ."""
    if isinstance(one, torch.Tensor):
        if not isinstance(other, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return float("inf")
        if not one.numel():
            return 0.0
        return float((one - other).abs().max() / one.abs().max().clamp_min(1e-6))
    if isinstance(one, dict):
        if list(one) != list(other):
            return float("inf")
        return max((difference(one[key], other[key]) for key in one), default=0.0)
    if isinstance(one, (tuple, list)):
        if len(one) != len(other):
            return float("inf")
        return max((difference(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other and type(one) is type(other) else float("inf")


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call, the best of three after one that does not count."""
    call()
    found = []
    for _ in range(3):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return min(found)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def sizes_series(name: str, quick: bool, backend: str, with_torch: bool) -> Row:
    """One model, called with each size."""
    build, make_inputs, sizes = SERIES[name]
    torch.manual_seed(0)
    model = build(quick).eval()
    inputs = make_inputs(quick)
    calls = {size: inputs(size) for size in sizes}
    row = Row(name=name, calls=len(sizes))
    compiled = magpy.compile(model, backend=backend)
    before = magpy.info(compiled)
    started = time.perf_counter()
    for size, (args, kwargs) in calls.items():
        expected = model(*args, **kwargs)
        got = compiled(*args, **kwargs)
        found = difference(_plain(expected), _plain(got))
        row.worst = max(row.worst, found)
        after = magpy.info(compiled)
        if after.monitored - before.monitored and after.monitored > 2:
            row.beyond.append(f"{size}: {_what_failed(compiled)}")
        before = after
    row.first = time.perf_counter() - started
    _fill(row, compiled, backend)
    mine = {size: timed(lambda a=args, k=kwargs: compiled(*a, **k)) for size, (args, kwargs) in calls.items()}
    eager = {size: timed(lambda a=args, k=kwargs: model(*a, **k)) for size, (args, kwargs) in calls.items()}
    row.against_eager = statistics.median(mine[size] / eager[size] for size in sizes)
    if with_torch:
        torch._dynamo.reset()
        other = torch.compile(model, backend=backend, dynamic=None)
        for args, kwargs in calls.values():
            other(*args, **kwargs)
        theirs = {size: timed(lambda a=args, k=kwargs: other(*a, **k)) for size, (args, kwargs) in calls.items()}
        row.against_torch = statistics.median(mine[size] / theirs[size] for size in sizes)
        row.torch_graphs = int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return row


def numbers_series(backend: str) -> Row:
    """A hundred calls with a learning rate, a step counter and a log that grows."""

    class Trainer:
        """What changes from call to call."""

        def __init__(self) -> None:
            self.steps, self.rate = 0, 0.1
            self.log: list[tuple[int, float]] = []

        def step(self, w: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, int]:
            """One step of gradient descent with momentum, written down."""
            self.steps += 1
            w = w - self.rate * gradient
            self.log.append((self.steps, self.rate))
            return w, len(self.log)

    def run(make: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        trainer = Trainer()
        step = make(trainer.step)
        torch.manual_seed(0)
        w, seen = torch.randn(1000), []
        for number in range(100):
            trainer.rate = 0.1 / (1 + number)
            w, count = step(w, torch.randn(1000))
            seen.append((w, count, trainer.steps))
        return seen, trainer.log, step

    row = Row(name="numbers", calls=100)
    expected, log, _ = run(lambda function: function)
    started = time.perf_counter()
    got, mine, compiled = run(lambda function: magpy.compile(function, backend=backend))
    row.first = time.perf_counter() - started
    row.worst = max(difference(expected, got), difference(log, mine))
    _fill(row, compiled, backend)
    return row


def _plain(result: Any) -> Any:
    return dict(result) if hasattr(result, "keys") else result


def _what_failed(compiled: Any) -> str:
    failed = magpy.explain(compiled).partition("\n\n")[0]
    for state in magpy._api.states(compiled):
        failed = "; ".join(f"{text} ({count})" for text, count in [*state.cache.failed.items()][-3:])
    return failed


def _fill(row: Row, compiled: Any, backend: str) -> None:
    info = magpy.info(compiled)
    row.monitored, row.native, row.records = info.monitored, info.native, info.records
    row.equal = row.worst == 0.0 if backend == "eager" else row.worst <= TOLERANCE
    row.reasons = [f"{reason.slug}: {reason.message}" for reason in info.reasons]
    row.lifted = list(info.lifted)


def show(rows: list[Row]) -> str:
    """The table."""
    lines = [f"{'series':16} calls monitored native equal   worst  /torch  /eager  torch's graphs  first s"]
    for row in rows:
        ratio = "-" if row.against_torch is None else f"{row.against_torch:.2f}"
        eager = "-" if row.against_eager is None else f"{row.against_eager:.2f}"
        graphs = "-" if row.torch_graphs is None else str(row.torch_graphs)
        lines.append(
            f"{row.name:16} {row.calls:5} {row.monitored:9} {row.native:6} {row.equal!s:5} {row.worst:7.1e} "
            f"{ratio:>7} {eager:>7} {graphs:>15} {row.first:8.1f}"
        )
        lines += [f"    beyond two: {each}" for each in row.beyond]
        lines += [f"    lifted: {each}" for each in row.lifted]
        lines += [f"    not compiled: {each}" for each in row.reasons]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run what the options ask for; 1 if a series is not equal, or was not served from records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--only", default="", help="names of series, by commas")
    parser.add_argument("--json", default="", help="also write the figures to this file")
    parser.add_argument("--no-torch", action="store_true", help="do not compare with torch.compile")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    chosen = options.only.split(",") if options.only else [*SERIES, "numbers"]
    rows = []
    with quiet(), torch.no_grad():
        for name in chosen:
            if name == "numbers":
                rows.append(numbers_series(options.backend))
            else:
                rows.append(sizes_series(name, options.quick, options.backend, not options.no_torch))
            print(show(rows[-1:]), flush=True)
    print(show(rows))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(any(not row.equal or row.native or row.monitored > 2 + len(row.beyond) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
