#!/usr/bin/env python3
"""Lowerings of the XLA backend against eager, on torch's own samples of each operator (OpInfo).

    python packages/magpy-runtime/tests/xla_opinfo.py [--only add,mul] [--samples 6] [--gradients] [--json FILE]

Each sample becomes a graph of one operator, is compiled by `backend="xla"` as any graph is (AOTAutograd, core ATen, table,
XLA), run, and compared with eager: values, element types, sizes and strides; with `--gradients` the gradients, too. At the
end it prints how often each lowering of the table was used, and which never. `test_xla.py` runs a part of it.

Needs torch's test utilities (`pip install expecttest`). Exits 1 where something differs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
TOLERANCES = {torch.float32: (2e-4, 2e-5), torch.float64: (1e-7, 1e-7), torch.float16: (2e-3, 2e-3)}
SEED = 42  # the one that samples of random operators set themselves
STATES = ("ok", "by torch", "refused", "differs")


@dataclasses.dataclass(slots=True)
class Result:
    """What came of one sample: "ok", "by torch" (no lowering), "refused" (no graph at all) or "differs"."""

    name: str
    dtype: str
    state: str
    detail: str = ""


def graph_of(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[torch.Tensor]]:
    """A graph of one call, its tensors as inputs, all tensors of its result as outputs."""
    graph, tensors = torch.fx.Graph(), []
    nodes: dict[int, torch.fx.Node] = {}

    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in nodes:
            tensors.append(value)
            nodes[id(value)] = graph.placeholder(f"x{len(tensors)}")
        return nodes[id(value)]

    args, kwargs = pytree.tree_map(convert, (list(args), dict(kwargs)))

    def call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(
            value for value in pytree.tree_leaves(function(*args, **kwargs)) if isinstance(value, torch.Tensor)
        )

    node = graph.call_function(call, tuple(args), kwargs)
    graph.output(node)
    return torch.fx.GraphModule({}, graph), tensors


def close(expected: torch.Tensor, found: torch.Tensor, what: str) -> None:
    """Raise where two tensors differ."""
    if expected.dtype != found.dtype or expected.shape != found.shape:
        raise AssertionError(f"{what}: {found.dtype}{list(found.shape)} for {expected.dtype}{list(expected.shape)}")
    rtol, atol = TOLERANCES.get(expected.dtype.to_real(), (0, 0)) if _inexact(expected) else (0, 0)
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}"
    )
    if expected.stride() != found.stride() and expected.numel() > 1:
        raise AssertionError(f"{what}: strides {found.stride()} for {expected.stride()}")


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def run_sample(function: Callable[..., Any], args: Any, kwargs: Any, gradients: bool = False) -> tuple[str, str]:
    """Compile and run one call. Returns the state, and what differs."""
    from magpy_runtime import resolve

    module, tensors = graph_of(function, args, kwargs)
    if gradients:
        tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    torch.manual_seed(SEED)
    try:
        expected = module(*(tensors if gradients else copy.deepcopy(tensors)))  # memory's layout is kept
    except Exception as error:
        return "refused", f"eager: {error}"
    torch.manual_seed(SEED)
    try:
        run = resolve("xla")(module, [t.detach().requires_grad_(t.requires_grad) for t in tensors])
    except Exception as error:
        text = " ".join(str(error).split())
        return ("differs" if "Lowering" in type(error).__name__ or "Lowering" in text else "refused"), text[:300]
    try:
        torch.manual_seed(SEED)
        found = run(*(tensors if gradients else copy.deepcopy(tensors)))
        for n, (one, other) in enumerate(zip(expected, found, strict=True)):
            close(one.detach(), other.detach(), f"result {n}")
        if gradients:
            _compare_gradients(tensors, expected, found)
    except Exception as error:
        return "differs", f"{type(error).__name__}: " + " ".join(str(error).split())[:300]
    reports = run.reports
    refused = [f"{name} ({why})" for report in reports for name, why in report.refused.items()]
    if any("lowering failed" in each for each in refused):
        return "differs", ", ".join(refused)
    return ("by torch", ", ".join(refused)) if refused else ("ok", "")


def _compare_gradients(tensors: list[torch.Tensor], expected: Any, found: Any) -> None:
    wanted = [t for t in tensors if t.requires_grad]
    pairs = [(a, b) for a, b in zip(expected, found, strict=True) if a.requires_grad]
    if not pairs or not wanted:
        return
    seeds = [torch.linspace(-1, 1, a.numel(), dtype=a.dtype).reshape(a.shape) for a, _ in pairs]
    first = torch.autograd.grad([a for a, _ in pairs], wanted, seeds, allow_unused=True)
    second = torch.autograd.grad([b for _, b in pairs], wanted, seeds, allow_unused=True)
    for n, (a, b) in enumerate(zip(first, second, strict=True)):
        if a is not None:
            b = torch.zeros_like(a) if b is None else b
            torch.testing.assert_close(
                b, a, rtol=1e-3, atol=1e-4, equal_nan=True, msg=lambda text: f"gradient {n}: {text}"
            )


def operators() -> list[Any]:
    """Torch's descriptions of its operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    found: list[Any] = op_db
    return [info for info in found if not info.name.startswith(("empty", "new_empty"))]  # whatever was in memory


@contextlib.contextmanager
def counted() -> Iterator[collections.Counter[str]]:
    """Counts how often each lowering is used."""
    from magpy_runtime.xla import TABLE

    counts: collections.Counter[str] = collections.Counter()
    before = dict(TABLE)

    def wrap(name: str, function: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return function(*args, **kwargs)

        return counting

    for target, entry in before.items():
        TABLE[target] = dataclasses.replace(entry, function=wrap(str(target), entry.function))
    try:
        yield counts
    finally:
        TABLE.update(before)


def results(
    infos: list[Any],
    dtypes: tuple[torch.dtype, ...],
    samples: int,
    gradients: bool,
    seconds: float = float("inf"),
    progress: bool = False,
) -> Iterator[Result]:
    """Run samples of operators."""
    end = time.perf_counter() + seconds
    for info in infos:
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if progress:
            print(name, file=sys.stderr, flush=True)
        for dtype in dtypes:
            if time.perf_counter() > end:
                return
            if dtype not in info.supported_dtypes("cpu") or (gradients and not dtype.is_floating_point):
                continue
            torch.manual_seed(0)
            try:
                taken = []
                for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
                    taken.append(sample)
                    if len(taken) == samples:
                        break
            except Exception as error:
                yield Result(name, str(dtype), "refused", f"no samples: {error}")
                continue
            for sample in taken:
                args = (sample.input, *sample.args)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    state, detail = run_sample(info.op, args, sample.kwargs, gradients)
                yield Result(name, str(dtype), state, detail)


def main(argv: list[str] | None = None) -> int:
    """The long run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--start", default="", help="leave out the operators before this one")
    parser.add_argument("--samples", type=int, default=6, help="samples of each operator and element type")
    parser.add_argument("--dtypes", default="", help="names of element types, with commas")
    parser.add_argument("--gradients", action="store_true", help="compare gradients as well")
    parser.add_argument("--json", help="write all results to this file")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    only = {name for name in options.only.split(",") if name}
    dtypes = tuple(getattr(torch, name) for name in options.dtypes.split(",") if name) or DTYPES
    infos = [info for info in operators() if not only or info.name in only]
    names = [info.name for info in infos]
    infos = infos[names.index(options.start) :] if options.start else infos
    kept: list[Result] = []
    with counted() as counts:
        for result in results(infos, dtypes, options.samples, options.gradients, progress=True):
            kept.append(result)
            if result.state == "differs":
                print(f"{result.name} {result.dtype}: {result.detail}", flush=True)
    totals = collections.Counter(result.state for result in kept)
    print(", ".join(f"{state} {totals[state]}" for state in STATES), f"of {len(kept)} samples")
    by_torch = collections.Counter(each for r in kept if r.state == "by torch" for each in {r.detail})
    for detail, count in by_torch.most_common():
        print(f"by torch ({count}): {detail}")
    from magpy_runtime.xla import TABLE

    print("never used:", ", ".join(sorted(str(target) for target in TABLE if not counts[str(target)])))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"results": [dataclasses.asdict(r) for r in kept], "used": counts}, file, indent=1)
    return int(totals["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
