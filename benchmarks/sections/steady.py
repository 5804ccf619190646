"""Steady state: calls of the eight models at batch size 1, inference; with and without frozen parameters."""

import copy
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, compare, geometric_mean, table
from benchmarks.models import MODELS, build
from benchmarks.sections.tiny import Kept, entry_of

import magpy


def measure(settings: Settings, *, freeze: bool = False) -> dict[str, Any]:
    """Milliseconds of a call of each model, and ratios."""
    models = {}
    for name in settings.only or MODELS:
        if name not in MODELS:
            continue
        print(f"   {name}", file=sys.stderr, flush=True)
        try:
            models[name] = _one(name, settings, freeze)
        except Exception as error:  # a front end that fails on a model is a figure, too
            models[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        torch._dynamo.reset()
        gc.collect()
    done = [each for each in models.values() if "error" not in each]
    return {
        "freeze": freeze,
        "models": models,
        "mean_of_torch_compile": geometric_mean(each["magpy_of_torch_compile"] for each in done),
        "mean_of_torch_compile_frozen": geometric_mean(
            each["magpy_of_torch_compile_frozen"] for each in done if "magpy_of_torch_compile_frozen" in each
        ),
        "worst_of_torch_compile": max((each["magpy_of_torch_compile"] for each in done), default=float("nan")),
    }


def _one(name: str, settings: Settings, freeze: bool) -> dict[str, Any]:
    model, inputs = build(name, settings)
    args, kwargs = inputs(SEED)
    options = dict(settings.options or {})
    found: dict[str, Any] = {}
    with torch.no_grad():
        torch._dynamo.reset()
        theirs = torch.compile(copy.deepcopy(model), dynamic=False, options=options or None)
        backend = Stubbed(options)
        # The same parameters, which a compiled module shares with its original.
        ours = magpy.compile(model, options=options, freeze=True) if freeze else magpy.compile(model, backend=backend)
        calls: dict[str, Callable[[], Any]] = {"eager": lambda: model(*args, **kwargs)}
        calls["torch.compile"] = lambda: theirs(*args, **kwargs)
        if freeze:
            frozen = torch.compile(copy.deepcopy(model), dynamic=False, options=options or None)
            calls["torch.compile frozen"] = _globally_frozen(lambda: frozen(*args, **kwargs))
        calls["magpy"] = lambda: ours(*args, **kwargs)
        first = {}
        for which, call in calls.items():
            started = time.perf_counter()
            call()
            first[which] = time.perf_counter() - started
        if len(backend.calls) == 1:
            calls["graph alone"] = backend.calls[0]
        times = compare(calls, device=settings.device, budget_s=settings.budget_s)
        if len(backend.calls) == 1 and settings.device == "cpu" and backend.kept is not None:
            found["guards_and_dispatch_us"] = 1e6 * _dispatch_s(calls["magpy"], backend)
            found["guards_and_dispatch_share"] = found["guards_and_dispatch_us"] / (1e6 * times.median_s["magpy"])
        served = magpy.info(ours)
        found["difference"] = _difference(model(*args, **kwargs), ours(*args, **kwargs))
    found.update(
        ms={which: 1e3 * seconds for which, seconds in times.median_s.items()},
        of_eager=times.ratios,
        rounds=times.rounds,
        first_call_s=first,
        magpy_of_torch_compile=times.ratio("magpy", "torch.compile"),
        entry=entry_of(ours),
        operators=served.ops,
        graphs=served.graphs,
    )
    if freeze:
        found["magpy_of_torch_compile_frozen"] = times.ratio("magpy", "torch.compile frozen")
    return found


class Stubbed(Kept):
    """A backend whose graph can be put out of action: it then gives at once what it gave before."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.stubbed = False
        self.kept: list[Any] | None = None

    def _kept(self, run: Any, inputs: list[Any]) -> Any:
        run = super()._kept(run, inputs)
        code = getattr(run, "boxed", None)

        def boxed(inputs: list[Any]) -> Any:
            if self.stubbed and self.kept is not None:
                return [*self.kept]
            results = run(*inputs) if code is None else code(inputs)
            self.kept = [*results]
            return results

        def call(*inputs: Any) -> Any:
            return boxed([*inputs])

        call.__dict__.update(run.__dict__)
        if code is not None:
            call.boxed = boxed  # type: ignore[attr-defined]
        return call


def _dispatch_s(call: Callable[[], Any], backend: Stubbed) -> float:
    """Seconds of a call without its graph, each right after a whole call, which leaves the caches as calls do."""
    times = []
    for _ in range(51):
        call()
        backend.stubbed = True
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
        backend.stubbed = False
    return statistics.median(times)


def _globally_frozen(call: Callable[[], Any]) -> Callable[[], Any]:
    """torch.compile freezes only where the setting stands globally, while compiling and while running."""
    config = torch._inductor.config

    def frozen() -> Any:
        config.freezing = True
        try:
            return call()
        finally:
            config.freezing = False

    return frozen


def _difference(expected: Any, found: Any) -> float:
    """The largest difference of two results, by the largest number there."""
    tensors = [
        [each for each in torch.utils._pytree.tree_leaves(_plain(one)) if isinstance(each, torch.Tensor)]
        for one in (expected, found)
    ]
    worst = [
        float((one.double() - two.double()).abs().max() / one.double().abs().max().clamp(min=1e-12))
        for one, two in zip(*tensors, strict=True)
        if one.numel() and one.is_floating_point()
    ]
    return max(worst, default=0.0)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "to_tuple") else value


def show(found: dict[str, Any]) -> str:
    """A table, and the means."""
    rows = []
    for name, each in found["models"].items():
        title = MODELS[name].title
        if "error" in each:
            rows.append([title, "-", "-", "-", "-", "-", "-", each["error"][:60]])
            continue
        ms = each["ms"]
        last = (
            each["magpy_of_torch_compile_frozen"]
            if found["freeze"]
            else 100 * each.get("guards_and_dispatch_share", float("nan"))
        )
        rows.append(
            [
                title,
                ms["eager"],
                ms["torch.compile"],
                ms["magpy"],
                each["of_eager"]["magpy"],
                each["magpy_of_torch_compile"],
                last,
                each["entry"],
            ]
        )
    head = ["model", "eager ms", "torch.compile ms", "magpy ms", "of eager", "of torch.compile"]
    head += ["of frozen torch.compile" if found["freeze"] else "guard+dispatch %", "entry"]
    lines = [table(head, rows), f"geometric mean of torch.compile's time: {found['mean_of_torch_compile']:.3f}"]
    if found["freeze"]:
        lines.append(f"of torch.compile's with freezing set globally: {found['mean_of_torch_compile_frozen']:.3f}")
    return "\n".join(lines)
