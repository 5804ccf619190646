"""Calls: three pointwise operations on 16 x 16, and a thousand modules; what is left of a call is the front end's cost."""

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, compare, table, to_device
from benchmarks.models import Pointwise, rows, squares, thousand

import magpy
from magpy_runtime import GraphDiffersError, resolve


def measure(settings: Settings) -> dict[str, Any]:
    """Microseconds of a call, and ratios."""
    pairs = 20 if settings.quick else 500
    found = {
        "pointwise": _calls(Pointwise(), squares(SEED), settings),
        f"{2 * pairs} modules": _calls(thousand(pairs), rows(SEED), settings),
    }
    return {"graphs": {name: each for name, each in found.items() if not settings.only or name in settings.only}}


def _calls(model: torch.nn.Module, arguments: Any, settings: Settings) -> dict[str, Any]:
    torch._dynamo.reset()
    model = model.eval().to(settings.device)
    args, kwargs = to_device(arguments, settings.device)
    options = dict(settings.options or {})
    theirs = torch.compile(model, dynamic=False, options=options or None)
    backend = Kept(options)
    ours = magpy.compile(model, backend=backend)
    calls: dict[str, Callable[[], Any]] = {
        "eager": lambda: model(*args, **kwargs),
        "torch.compile": lambda: theirs(*args, **kwargs),
        "magpy": lambda: ours(*args, **kwargs),
    }
    with torch.no_grad():
        for call in calls.values():
            call()
        if len(backend.calls) == 1:
            calls["graph alone"] = backend.calls[0]
        times = compare(calls, device=settings.device, budget_s=settings.budget_s)
    return {
        "us": {name: 1e6 * seconds for name, seconds in times.median_s.items()},
        "of_eager": times.ratios,
        "guards_and_dispatch_us": 1e6 * (times.median_s["magpy"] - times.median_s.get("graph alone", float("nan"))),
        "magpy_of_torch_compile": times.ratio("magpy", "torch.compile"),
        "entry": entry_of(ours),
    }


def entry_of(compiled: Any) -> str:
    """Which of Inductor's entries serves a compiled callable with one record."""
    run = _run_of(compiled)
    while run is not None:
        if hasattr(run, "entry"):
            return str(run.entry)
        run = getattr(run, "run", None)
    return "?"


class Kept:
    """The backend `"inductor"`, which keeps what it made and for which inputs."""

    takes_hints = True

    def __init__(self, options: dict[str, Any]) -> None:
        self._backend: Any = resolve("inductor", options)
        self.calls: list[Callable[[], Any]] = []

    def __call__(self, module: Any, inputs: list[Any], hints: Any = None) -> Any:
        try:
            return self._kept(self._backend(module, inputs, hints), inputs)
        except GraphDiffersError as error:  # its operators run one by one then
            raise GraphDiffersError(str(error), self._kept(error.operators, inputs)) from None

    def _kept(self, run: Any, inputs: list[Any]) -> Any:
        held = [*inputs]
        self.calls.append(lambda: run(*held))
        return run


def _run_of(compiled: Any) -> Any:
    from magpy._api import states

    records = [record for state in states(compiled) for record in state.records()]
    return records[0].run if len(records) == 1 else None


def show(found: dict[str, Any]) -> str:
    """Tables."""
    rows_ = []
    for name, each in found["graphs"].items():
        us = each["us"]
        rows_.append(
            [
                name,
                us["eager"],
                us["torch.compile"],
                us["magpy"],
                each["of_eager"]["magpy"],
                each["magpy_of_torch_compile"],
                each["guards_and_dispatch_us"],
                each["entry"],
            ]
        )
    head = [
        "graph",
        "eager us",
        "torch.compile us",
        "magpy us",
        "of eager",
        "of torch.compile",
        "guard+dispatch us",
        "entry",
    ]
    return table(head, rows_)
