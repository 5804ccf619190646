#!/usr/bin/env python3
"""Batch sizes, sequence lengths and numbers that vary: monitored runs, equality with eager, and call times.

    python benchmarks/dynamic_shapes.py [--size full|reduced|quick] [--backend inductor|eager] [--only bert-batch,...]
                                        [--rounds 3] [--out FILE] [--no-torch]

Each model is called with each size in turn: in the first round records are made, and every result is compared with eager's.
Then each size is timed, the kinds in turn, after one call of each that does not count. A ratio is the median over the sizes
of the median of a call's time divided by that of `torch.compile(model, dynamic=None)`, or of eager, in the same process, with
the same sizes in the same order. The table names each monitored run beyond the second: a question that the program itself
asks of a size and that came out otherwise. `reduced` models have the real widths and fewer layers, and smaller pictures, for
a compiler that takes minutes for a whole one; `quick` ones are toys.
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
    worst_against_torch: float | None = None
    torch_graphs: int | None = None
    torch_first: float | None = None
    later: int = 0
    lifted: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def resnet(scale: str) -> nn.Module:
    """ResNet-50, or one with fewer blocks."""
    from models.resnet import ResNet, resnet50

    return resnet50() if scale == "full" else ResNet((1, 1, 1, 1))


def densenet(scale: str) -> nn.Module:
    """DenseNet-121, or one with fewer layers."""
    from models.densenet import DenseNet, densenet121

    if scale == "full":
        return densenet121()
    return DenseNet(32, (3, 3, 3), 64) if scale == "reduced" else DenseNet(8, (2, 2), 16)


_SMALL: dict[str, dict[str, int]] = {
    "full": {},
    "reduced": {"num_hidden_layers": 2},
    "quick": {
        "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128
    },
}  # fmt: skip


def bert(scale: str) -> nn.Module:
    """BERT, base or less, from transformers."""
    from transformers import BertConfig, BertModel

    config: Any = BertConfig(**_SMALL[scale])
    return BertModel(config)


def deberta(scale: str) -> nn.Module:
    """DeBERTa, base or less, from transformers."""
    from transformers import DebertaConfig, DebertaModel

    relative = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=-1)
    config: Any = DebertaConfig(**relative, **_SMALL[scale])
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


SERIES: dict[str, tuple[Callable[[str], nn.Module], Any, tuple[int, ...]]] = {
    "resnet-batch": (resnet, lambda scale: pictures(224 if scale == "full" else 64), BATCHES),
    "densenet-batch": (densenet, lambda scale: pictures(224 if scale == "full" else 64), BATCHES),
    "bert-batch": (bert, lambda scale: tokens(None, _WORDS[scale]), BATCHES),
    "deberta-batch": (deberta, lambda scale: tokens(None, _WORDS[scale]), BATCHES),
    "bert-length": (bert, lambda scale: tokens(2, None), LENGTHS),
    "deberta-length": (deberta, lambda scale: tokens(2, None), LENGTHS),
}
_WORDS = {"full": 128, "reduced": 64, "quick": 24}


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


def timed(targets: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], rounds: int) -> dict[str, float]:
    """Seconds of a call of each, medians of so many rounds in which they take turns, after one that does not count."""
    found: dict[str, list[float]] = {kind: [] for kind in targets}
    for turn in range(rounds + 1):
        for kind, target in targets.items():
            started = time.perf_counter()
            target(*args, **kwargs)
            if turn:
                found[kind].append(time.perf_counter() - started)
    return {kind: statistics.median(each) for kind, each in found.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def sizes_series(name: str, scale: str, backend: str, with_torch: bool, rounds: int) -> Row:
    """One model, called with each size."""
    build, make_inputs, sizes = SERIES[name]
    torch.manual_seed(0)
    model = build(scale).eval()
    inputs = make_inputs(scale)
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
    targets: dict[str, Any] = {"magpy": compiled, "eager": model}
    if with_torch:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        targets["torch"] = other = torch.compile(model, backend=backend, dynamic=None)
        started = time.perf_counter()
        for args, kwargs in calls.values():
            other(*args, **kwargs)
        row.torch_first = time.perf_counter() - started
        row.torch_graphs = int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    seconds = {size: timed(targets, *calls[size], rounds) for size in sizes}
    row.against_eager = statistics.median(each["magpy"] / each["eager"] for each in seconds.values())
    if with_torch:
        row.against_torch = statistics.median(each["magpy"] / each["torch"] for each in seconds.values())
        row.worst_against_torch = max(each["magpy"] / each["torch"] for each in seconds.values())
    after = magpy.info(compiled)
    row.later = after.monitored + after.native - row.monitored - row.native
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
    lines = [
        f"{'series':16} calls monitored native later equal   worst  /torch (worst)  /eager  torch's graphs  first s torch's"
    ]
    for row in rows:
        ratio = "-" if row.against_torch is None else f"{row.against_torch:.2f} ({row.worst_against_torch:.2f})"
        theirs = "-" if row.torch_first is None else f"{row.torch_first:.1f}"
        eager = "-" if row.against_eager is None else f"{row.against_eager:.2f}"
        graphs = "-" if row.torch_graphs is None else str(row.torch_graphs)
        lines.append(
            f"{row.name:16} {row.calls:5} {row.monitored:9} {row.native:6} {row.later:5} {row.equal!s:5} {row.worst:7.1e} "
            f"{ratio:>14} {eager:>7} {graphs:>15} {row.first:8.1f} {theirs:>7}"
        )
        lines += [f"    beyond two: {each}" for each in row.beyond]
        lines += [f"    lifted: {each}" for each in row.lifted]
        lines += [f"    not compiled: {each}" for each in row.reasons]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run what the options ask for; 1 if a series is not equal, or was not served from records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="full", choices=("full", "reduced", "quick"), help="of the models")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--only", default="", help="names of series, by commas")
    parser.add_argument("--out", "--json", dest="json", default="", help="also write the figures to this file")
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
                with_torch = not options.no_torch
                rows.append(sizes_series(name, options.size, options.backend, with_torch, options.rounds))
            print(show(rows[-1:]), flush=True)
    print(show(rows))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(f"{options.size} models, backend {options.backend}, torch {torch.__version__}, {options.threads} thread(s)")
    geometric = [row.against_torch for row in rows if row.against_torch is not None]
    if geometric:
        print(f"geometric mean of the ratios to torch.compile: {statistics.geometric_mean(geometric):.2f}")
    return int(any(not row.equal or row.native or row.later or row.monitored > 2 + len(row.beyond) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
