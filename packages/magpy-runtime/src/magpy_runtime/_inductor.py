"""Inductor: for each graph the cheapest of its entries that is right for it.

| entry | what it is | for which graphs |
| --- | --- | --- |
| `compile_fx` | AOTAutograd around Inductor's code | all: training, updated inputs, outputs that alias inputs, varying sizes |
| `inner` | Inductor's code without the wrapper | functions of their inputs' values, without gradients |
| `cpp` | the same with a wrapper in C++ | the same |
| `aoti` | one shared library, built by AOTInductor | the same, where many small operators make Python's part count |
| `eager` | the graph's operators one by one | those without gradients and updates whose code is slower than that |
"""

from __future__ import annotations

import contextlib
import copy
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, cast, get_args

import torch
import torch.fx

from . import _torch
from ._backends import gradients_of_eager, with_fake_inputs
from ._below_autograd import below_autograd, dispatched, is_torch_alone
from ._bias import biases_apart
from ._choosing import choosing, copied, may_choose
from ._graph_facts import GraphFacts, Hints, graph_facts
from ._measuring import compare, is_slower, keeping_random, takes_less
from ._packages import PackageCache
from ._risky import risk
from ._value_checks import with_value_checks

Entry = Literal["auto", "compile_fx", "inner", "cpp", "aoti"]
"""What can be asked for."""

Run = Callable[..., Any]

ENTRY_OPTION: Final = "magpy.entry"
CPP_WRAPPER: Final = {"cpp_wrapper": True, "cpp_wrapper_build_separate": True}
"""In one translation unit the wrapper of a big graph takes minutes to compile."""

_LAST_PASS: Final = "post_grad_custom_post_pass"

_FEW_LAUNCHES: Final = 48
_SHORT_LAUNCH_S: Final = 15e-6
_WORTH: Final = 0.9
_LAUNCH: Final = re.compile(
    r"^ {8,}(?:\w+ = )?(?:cpp_fused\w*|cpp_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.\w+)\(", re.M
)


@dataclass(frozen=True, slots=True)
class Inductor:
    """The backend `"inductor"`.

    Attributes:
        options: settings of Inductor's, and `"magpy.entry"`, one of `Entry`.
        freeze: whether inputs that are held by identity become constants.
    """

    options: dict[str, Any] = field(default_factory=dict)
    freeze: bool = False
    takes_hints: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.entry not in get_args(Entry):
            raise ValueError(f"{ENTRY_OPTION} must be one of {', '.join(get_args(Entry))}, not {self.entry!r}")

    @property
    def entry(self) -> Entry:
        """The entry that the user asked for."""
        return cast(Entry, self.options.get(ENTRY_OPTION, "auto"))

    @property
    def settings(self) -> dict[str, Any]:
        """What Inductor is told."""
        own = {name: value for name, value in self.options.items() if name != ENTRY_OPTION}
        return {"fallback_random": True, **own}

    def may_choose(self, inputs: list[Any]) -> bool:
        """Whether a graph of varying sizes may turn out to run operator by operator; its random numbers are the same then."""
        return self.entry == "auto" and bool(self.settings["fallback_random"]) and may_choose(inputs)

    def __call__(self, module: torch.fx.GraphModule, inputs: list[Any], hints: Hints | None = None) -> Run:
        """Compile a graph.

        Args:
            module: the graph; it is used up.
            inputs: its inputs in one call.
            hints: what is known about them.

        Returns:
            A function of the graph's inputs. It has an attribute `entry`. Where the code changes no input it has
            `functional`, which is true, and `boxed`, which is the code: it takes a list of the inputs that it may empty.
            `repeatable` tells whether it leaves all inputs and modes as they were.
        """
        if any(map(_torch.is_symbolic, inputs)):  # handed on by another backend, from a graph of varying sizes
            finish = gradients_of_eager(module, inputs)
            return labelled(finish(_torch.compile_fx(module, inputs, config_patches=self.settings)), "compile_fx")
        frozen = tuple(sorted(set(hints.held) - set(hints.updated))) if self.freeze and hints is not None else ()
        if frozen and hints is not None and not _needs_gradients(inputs):
            from ._freezing import compile_frozen

            return _or_eager(
                lambda module: compile_frozen(self, module, inputs, frozen, hints), module, inputs, hints, self.entry
            )
        return _or_eager(
            lambda module: compile_graph(module, inputs, hints, self.settings, self.entry),
            module, inputs, hints, self.entry,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What Inductor made of a graph: AOTAutograd's wrapper, the graphs inside of it, and facts about the graph."""

    general: Run
    graphs: list[Any]
    facts: GraphFacts
    of_torch: bool

    @property
    def inner(self) -> Run | None:
        """The code inside of the wrapper, where the wrapper has nothing to do."""
        if not self.facts.functional or len(self.graphs) != 1 or not is_inference(self.graphs[0]):
            return None
        return inner_code(self.graphs[0], self.facts, self.of_torch)


def compile_graph(
    module: torch.fx.GraphModule, inputs: list[Any], hints: Hints | None, settings: dict[str, Any], entry: Entry
) -> Run:
    """Compile a graph through the cheapest entry that is right for it."""
    if entry == "cpp":
        settings = {**settings, **CPP_WRAPPER}
    packages = PackageCache()
    size = len(module.graph.nodes)
    key = None
    if (entry == "aoti" or (entry == "auto" and size >= _FEW_LAUNCHES)) and hints is not None:
        key = None if hints.updated or _needs_gradients(inputs) else packages.key(module, inputs, settings)
        if key is not None and packages.has(key):  # it was built by a process that had looked at the facts
            with contextlib.suppress(Exception):
                return _packaged(packages.load(key), is_torch_alone(module))
    again = key is not None or (size < _FEW_LAUNCHES and entry != "compile_fx")
    original = copy.deepcopy(module) if again else None
    compiled = _compile(module, inputs, hints, settings)
    call = compiled.inner
    if call is None or entry == "compile_fx":
        return labelled(compiled.general, "compile_fx", compiled.facts.repeatable)
    run = direct(call, "cpp" if entry == "cpp" else "inner")
    if original is None:
        return run
    if key is None:
        return _without_asserts(original, run, inputs, hints, settings)
    if compiled.facts.devices != {"cpu"}:
        return run
    return _ahead_of_time(packages, key, original, compiled.graphs[0], run, inputs, hints, settings, entry)


def _or_eager(
    compile_it: Callable[[torch.fx.GraphModule], Run],
    module: torch.fx.GraphModule,
    inputs: list[Any],
    hints: Hints | None,
    entry: Entry,
) -> Run:
    """The graph as compiled code, or as it is where its operators by themselves are faster than the code."""
    if entry != "auto" or hints is None or hints.random:
        return compile_it(module)
    original = copied(module)
    run = compile_it(module)
    repeatable = getattr(run, "repeatable", False) and not hints.updated and not _needs_gradients(inputs)
    if not repeatable or not is_slower(run, original.forward, inputs):
        behind_wrapper = getattr(run, "entry", None) == "compile_fx" and may_choose(inputs)
        return choosing(run, original.forward) if behind_wrapper else run

    def eagerly(inputs: list[Any]) -> Any:
        return original.forward(*inputs)

    if getattr(run, "functional", False):
        count = sum(node.op.startswith("call_") for node in original.graph.nodes)
        return direct(below_autograd(eagerly, count) if is_torch_alone(original) else eagerly, "eager")
    return labelled(lambda *inputs: original.forward(*inputs), "eager", True)


def _compile(
    module: torch.fx.GraphModule, inputs: list[Any], hints: Hints | None, settings: dict[str, Any]
) -> _Compiled:
    facts: list[GraphFacts] = []
    graphs: list[Any] = []
    grad = torch.is_grad_enabled()
    of_torch = is_torch_alone(module)

    def note(gm: torch.fx.GraphModule, fakes: list[Any], versions: list[int], outputs: Any) -> None:
        facts.append(graph_facts(gm, fakes, versions, outputs, hints, grad))

    def compile_it(gm: torch.fx.GraphModule, fakes: list[Any]) -> Run:
        with _torch.graphs_of_inductor() as found, _no_grad_unless(facts[0].gradients):
            with_value_checks(gm)
            made: Any = _torch.compile_fx(gm, fakes, config_patches=settings)
        graphs.extend(found)
        return cast(Run, made)

    general = with_fake_inputs(compile_it, module, inputs, note, bool(settings.get("fallback_random")))
    return _Compiled(general, graphs, facts[0], of_torch)


_NO_ASSERTS: Final = {"size_asserts": False, "alignment_asserts": False}


def _without_asserts(
    module: torch.fx.GraphModule, run: Run, inputs: list[Any], hints: Hints | None, settings: dict[str, Any]
) -> Run:
    """The code of a small graph without its assertions on sizes and strides, which take half the time of a tiny one.

    What they are about depends on the inputs' metadata alone, which the guard checks: one call with them is enough.
    """
    if not _NO_ASSERTS.keys().isdisjoint(settings):
        return run
    try:
        keeping_random(lambda: run(*inputs), hints)
        call = _compile(module, inputs, hints, {**settings, **_NO_ASSERTS}).inner
    except Exception:  # the first call tells
        return run
    return run if call is None else direct(call, run.entry)  # type: ignore[attr-defined]


def _ahead_of_time(
    packages: PackageCache,
    key: str,
    module: torch.fx.GraphModule,
    graph: Any,
    run: Run,
    inputs: list[Any],
    hints: Hints | None,
    settings: dict[str, Any],
    entry: Entry,
) -> Run:
    """One library of the whole graph, where that is asked for or pays."""
    if entry == "auto" and (packages.rejected(key) or not _is_worth_trying(graph, run, inputs, hints)):
        return run
    try:
        package = build(packages, key, module, inputs, settings)
    except Exception:  # an operator without a C interface, a compiler that fails: the code that there is will do
        if entry == "aoti":
            raise
        packages.reject(key)
        return run
    if entry == "auto":
        times = compare({"inner": run, "aoti": package}, inputs, hints)
        if times["aoti"] > _WORTH * times["inner"]:
            packages.reject(key)
            return run
    packages.keep(key)
    return package


def build(
    packages: PackageCache, key: str, module: torch.fx.GraphModule, inputs: list[Any], settings: dict[str, Any]
) -> Run:
    """Build a graph ahead of time. It is kept under `key` only after `packages.keep`."""
    path = packages.new(key)
    of_torch = is_torch_alone(module)
    loaded: list[Run] = []

    def compile_it(gm: torch.fx.GraphModule, fakes: list[Any]) -> Run:
        _build_file(gm, fakes, settings, path)
        loaded.append(packages.load_file(path))
        return loaded[0]

    same = bool(settings.get("fallback_random"))
    with_fake_inputs(
        compile_it, module, inputs, None, same
    )  # what it gives takes care of gradients, too, and there are none
    return _packaged(loaded[0], of_torch)


def _build_file(module: Any, fakes: list[Any], settings: dict[str, Any], path: str) -> None:
    """AOTInductor's part, for inputs that are fake; who has a last pass of their own over the graph keeps it."""
    with_value_checks(module)
    with _torch.compile_lock(), torch.no_grad():
        _torch.build_package(module, fakes, {_LAST_PASS: biases_apart, **settings}, path)


def _packaged(call: Run, of_torch: bool) -> Run:
    """The code of a package; it is below autograd where all of its operators are torch's own."""
    return direct(below_autograd(call) if of_torch else call, "aoti")


class _NotFunctional(Exception):
    """AOTInductor would be wrong for a graph."""


def package(module: torch.fx.GraphModule, inputs: list[Any], hints: Hints, settings: dict[str, Any]) -> bytes | None:
    """A graph as a package of AOTInductor's.

    Args:
        module: the graph; it is left as it is.
        inputs: inputs like those of a call.
        hints: what is known about them.
        settings: what Inductor is told.

    Returns:
        The file, None where AOTInductor cannot take the graph or would be wrong for it: it updates an input, gives
        gradients, its outputs share memory, or it updates what it has made
        in a way that may be compiled wrongly.
    """
    if hints.updated or _needs_gradients(inputs):
        return None
    packages = PackageCache()
    key = packages.key(module, inputs, settings) or secrets.token_hex(20)
    if packages.has(key):
        return packages.read(key)
    module = copy.deepcopy(module)
    grad = torch.is_grad_enabled()

    def note(gm: torch.fx.GraphModule, fakes: list[Any], versions: list[int], outputs: Any) -> None:
        # The inputs are examples of no value: what would have to be tried on them is not packaged.
        if (
            not graph_facts(gm, fakes, versions, outputs, hints, grad).functional
            or risk(gm, outputs, aliases=False).at_all
        ):
            raise _NotFunctional

    def compile_it(gm: torch.fx.GraphModule, fakes: list[Any]) -> Run:
        _build_file(gm, fakes, settings, packages.new(key))
        return direct(packages.load_file(packages.new(key)), "aoti")

    try:
        with_fake_inputs(compile_it, module, inputs, note)
        return packages.take(key)
    except Exception:  # an operator without a C interface, a compiler that fails
        return None


def direct(call: Run, entry: str) -> Run:
    """A function of the inputs around code that takes them as a list."""

    def run(*inputs: Any) -> Any:
        return call([*inputs])

    run.entry = entry  # type: ignore[attr-defined]
    run.boxed = call  # type: ignore[attr-defined]
    run.functional = run.repeatable = True  # type: ignore[attr-defined]
    return run


def labelled(run: Run, entry: str, repeatable: bool = False) -> Run:
    """Say which entry made a callable, and whether running it changes nothing."""
    with contextlib.suppress(AttributeError):
        run.entry = entry  # type: ignore[attr-defined]
        run.repeatable = repeatable  # type: ignore[attr-defined]
    return run


def is_inference(graph: Any) -> bool:
    """Whether one of Inductor's graphs was made without a backward graph in mind."""
    return bool(graph.fx_kwargs.get("is_inference")) and graph.current_callable is not None


def inner_code(graph: Any, facts: GraphFacts, of_torch: bool) -> Run:
    """The code of one of Inductor's graphs. What triton finds out in its first call is written down by the graph itself.

    Args:
        graph: the graph, made for inference.
        facts: what is known about it; it is functional.
        of_torch: whether all of its operators are torch's own.
    """
    if facts.devices != {"cpu"}:
        return cast(Run, graph)
    call = cast(Run, graph.current_callable)
    return below_autograd(call, dispatched(graph.source_code or "")) if of_torch else call


def _no_grad_unless(gradients: bool) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if gradients else torch.no_grad()


def _needs_gradients(inputs: list[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)


def launches(graph: Any) -> int:
    """How many kernels one of Inductor's graphs launches from Python."""
    return len(_LAUNCH.findall(graph.source_code or ""))


def _is_worth_trying(graph: Any, run: Run, inputs: list[Any], hints: Hints | None) -> bool:
    """Whether a graph spends enough of its time between kernels that one library of all of them may pay."""
    count = launches(graph)
    return count >= _FEW_LAUNCHES and takes_less(run, inputs, count * _SHORT_LAUNCH_S, hints)


__all__ = ["Inductor", "build", "compile_graph", "direct", "keeping_random", "labelled", "launches", "package"]
