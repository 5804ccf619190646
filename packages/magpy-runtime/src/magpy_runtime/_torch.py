"""Every private name of torch that the runtime uses, in one place. Checked against torch 2.11 to 2.14."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch._C

from . import _copies, _kept

function_mode_depth: Final = torch._C._len_torch_function_stack
dispatch_mode_depth: Final = torch._C._len_torch_dispatch_stack


def global_state_check(state: str | None = None) -> Any:
    """A callable that tells whether grad mode, autocast, default dtype and the like are as they are now, or were then.

    Args:
        state: what `global_state` gave; the number of threads is that of now all the same.
    """
    from torch._C._dynamo.guards import GlobalStateGuard

    guard = GlobalStateGuard()
    if state is not None:
        guard.__setstate__(  # type: ignore[attr-defined]
            json.dumps({**json.loads(state), "num_threads": torch.get_num_threads()})
        )
    return guard.check


def global_state(check: Any) -> str:
    """What a check of `global_state_check` compares with."""
    return str(check.__self__.__getstate__())


def tensor_guards(tensors: list[torch.Tensor], free: list[frozenset[int]] | None = None) -> Any:
    """A callable that compares tensors' metadata with those of the given ones; it also wants them distinct.

    Args:
        tensors: what has to come.
        free: for each the dimensions whose size may be any; of a tensor that has one, strides may be any, too.
    """
    from torch._C._dynamo.guards import TensorGuards

    if free is None or not any(free):
        return TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    sizes: Any = [
        [None if dim in dims else size for dim, size in enumerate(tensor.size())]
        for tensor, dims in zip(tensors, free, strict=True)
    ]
    strides: Any = [
        [None] * tensor.dim() if dims or tensor.layout is not torch.strided else list(tensor.stride())
        for tensor, dims in zip(tensors, free, strict=True)
    ]
    return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def dispatch_keys(tensor: torch.Tensor) -> Any:
    """A tensor's dispatch key set."""
    return torch._C._dispatch_keys(tensor)


_AUTOCAST_DEVICES: Final = ("cpu", "cuda")


def modes() -> tuple[Any, ...]:
    """Grad mode and autocast, to be put back by `restore_modes`."""
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return (
        torch.is_grad_enabled(),
        tuple([(each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _AUTOCAST_DEVICES]),
        torch.is_autocast_cache_enabled(),
        nesting,
    )


def restore_modes(state: tuple[Any, ...]) -> None:
    """Put modes back."""
    grad, autocast, cache, nesting = state
    torch._C._set_grad_enabled(grad)
    for device, enabled, dtype in autocast:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)
    while torch.autocast_decrement_nesting() >= nesting:
        pass
    while torch.autocast_increment_nesting() < nesting:
        pass


def lookup_backend(name: str) -> Any:
    """A backend of torch's registry."""
    from torch._dynamo.backends.registry import lookup_backend as lookup

    return lookup(name)


def list_backends() -> list[str]:
    """The names of all backends in torch's registry."""
    from torch._dynamo.backends.registry import list_backends as listing

    return list(listing(exclude_tags=()))


def compile_fx(module: Any, inputs: list[Any], config_patches: dict[str, Any]) -> Any:
    """Inductor's general entry."""
    import_inductor()
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx as entry

    if torch.is_grad_enabled() and config.custom_partitioner_fn is None:
        config_patches = {"custom_partitioner_fn": partitioner(), **config_patches}
    with _quiet_about_shims():
        return entry(module, inputs, config_patches=_with_first_pass(config_patches))


@contextlib.contextmanager
def _quiet_about_shims() -> Iterator[None]:
    """Wrappers in C++ reach what raises for values through torch's dispatcher, which Inductor warns about."""

    def is_told(record: logging.LogRecord) -> bool:
        return assert_true.name() not in record.getMessage().replace("aten.", "aten::")

    logger = logging.getLogger("torch._inductor.ir")
    logger.addFilter(is_told)
    try:
        yield
    finally:
        logger.removeFilter(is_told)


def _with_first_pass(settings: dict[str, Any]) -> dict[str, Any]:
    from torch._inductor import config

    name = "joint_custom_pre_pass"
    theirs = settings.get(name, getattr(config, name))
    others = [*theirs] if isinstance(theirs, (list, tuple)) else [] if theirs is None else [theirs]
    return {**settings, name: [first_pass(), *others] if others else first_pass()}


@functools.cache
def first_pass() -> Any:
    """What changes a graph before Inductor's own passes, see `_copies.py`."""
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

    identity: Any = get_hash_for_files((_copies.__file__, __file__))

    class FirstPass(CustomGraphPass):  # type: ignore[misc,unused-ignore]
        def __call__(self, graph: Any) -> None:
            _copies.calculate_first(graph, torch.ops._inductor_test.realize.default)
            for node in graph.find_nodes(op="call_function", target=assert_true):
                node.meta["should_fallback"] = True

        def uuid(self) -> Any:
            return identity

        def __reduce__(self) -> Any:
            return first_pass, ()

    return FirstPass()


@functools.cache
def partitioner() -> Any:
    """What divides joint graphs for Inductor, see `_kept.py`."""
    from torch._inductor.custom_graph_pass import CustomPartitionerFn, get_hash_for_files

    identity: Any = get_hash_for_files((_kept.__file__, _copies.__file__))

    class Partitioner(CustomPartitionerFn):  # type: ignore[misc,unused-ignore]
        def __call__(self, gm: Any, joint_inputs: Any, **keywords: Any) -> Any:
            return _kept.cut(min_cut_partition, gm, joint_inputs, **keywords)

        def uuid(self) -> Any:
            return identity

        def __reduce__(self) -> Any:  # it is part of what caches' keys are made from
            return partitioner, ()

    return Partitioner()


saved_hooks: Final[Any] = functools.partial(torch._C._autograd._top_saved_tensors_default_hooks, False)
"""What packs and unpacks what autograd saves, None where nothing does."""


def hooks_saved() -> bool:
    """Whether someone packs and unpacks what autograd saves, as checkpoints do."""
    return saved_hooks() is not None


@contextlib.contextmanager
def hooks_aside() -> Iterator[None]:
    """Nobody packs what autograd saves: operators run that the program has not called."""
    hooks = []
    while (top := saved_hooks()) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


preserve_versions: Final[Any] = torch.autograd.grad_mode._unsafe_preserve_version_counter
"""A context manager: version counters of tensors are afterwards what they were."""


def is_wanted(node: Any) -> bool:
    """Whether the backward pass that runs goes on to a node; yes where that cannot be told."""
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return True


def compile_lock() -> Any:
    """The lock that torch.compile holds while it compiles."""
    from torch._dynamo.convert_frame import compile_lock as lock

    return lock


assert_true: Final[Any] = torch.ops.aten._assert_async.msg
"""Raises where a number is zero. Inductor may make it part of a loop of several threads, out of which nothing can be raised."""

check_errors: Final[Any] = torch.ops.aten._linalg_check_errors.default
"""Raises where a number is not zero; it is among the operators that compilers run as they are, and keep."""

operator_types: Final = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
version_counter: Final[Any] = torch.Tensor._version.__get__  # type: ignore[attr-defined]


def import_inductor() -> None:
    """Import Inductor without the warnings that torch gives of its own doing."""
    if "torch._inductor.compile_fx" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with _probing_the_processor():
                from torch._inductor import compile_fx  # noqa: F401


@contextlib.contextmanager
def _probing_the_processor() -> Iterator[None]:
    """Meanwhile, Inductor finds out what vector instructions there are: it waits for a second for processes that try them."""
    from torch._inductor import codecache, cpp_builder, cpu_vec_isa  # noqa: F401

    def probe() -> None:
        with contextlib.suppress(Exception):  # where it fails, it fails again where it is wanted
            cpu_vec_isa.valid_vec_isa_list()

    if cpu_vec_isa.valid_vec_isa_list.cache_info().currsize:
        yield
        return
    thread = threading.Thread(target=probe, name="magpy-vector-instructions", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def graphs_of_inductor() -> Iterator[list[Any]]:
    """Collects the graphs that Inductor makes, or takes from its caches, on this thread: its inner entry's results.

    AOTAutograd wraps them and hands out no more than the wrapper. Holds torch's compile lock.
    """
    import_inductor()
    from torch._inductor.output_code import CompiledFxGraph

    found: list[Any] = []
    thread = threading.get_ident()
    with compile_lock():
        original = CompiledFxGraph.post_compile

        def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
            result: Any = original(self, *args, **kwargs)
            if threading.get_ident() == thread and not any(each is self for each in found):
                found.append(self)
            return result

        CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign]
        try:
            yield found
        finally:
            CompiledFxGraph.post_compile = original  # type: ignore[method-assign]


def build_package(module: Any, inputs: list[Any], config_patches: dict[str, Any], path: str) -> None:
    """Compile a graph ahead of time into a package of AOTInductor's, a file at `path`."""
    from torch._inductor import aot_compile
    from torch._inductor.package.package import package_aoti

    options = _with_first_pass({"aot_inductor.package": True, **config_patches})
    with warnings.catch_warnings(), _quiet_about_shims():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 copies pytrees in a way that it deprecates
        files: Any = aot_compile(module, tuple(inputs), options=options)
    package_aoti(path, files)


def load_package(path: str, *, single_threaded: bool, device: int) -> Any:
    """What runs a package: `f([*inputs]) -> outputs`. Imports nothing of Inductor's."""
    return torch._C._aoti.AOTIModelPackageLoader(path, "model", single_threaded, 1, device).boxed_run


def changed_settings() -> str:
    """Inductor's settings that are not its defaults; nothing where it was not imported yet."""
    config: Any = sys.modules.get("torch._inductor.config")
    if config is None:
        return ""
    changed = []
    for line in config.codegen_config().splitlines():  # these were set at some time, maybe only for a while
        name, _, value = line.removeprefix("torch._inductor.config.").partition(" = ")
        entry = config._config.get(name)
        if entry is None or repr(entry.default) != value:
            changed.append(line)
    return "\n".join(sorted(changed))


@contextlib.contextmanager
def _no_grad_warning() -> Iterator[None]:
    """Looking at a tensor that is no leaf, torch warns that its gradient is not kept: nobody asked for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor that is not a leaf")
        yield


def fake(mode: Any, tensor: torch.Tensor) -> Any:
    """A fake tensor with the same metadata."""
    with _no_grad_warning():
        return mode.from_tensor(tensor, static_shapes=True)


def is_symbolic(value: Any) -> bool:
    """Whether an input stands for many: a fake tensor, or a number that varies."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and isinstance(value, fakes.FakeTensor)


_imported: list[bool] = []


def unbacked_ignored(mode: Any) -> contextlib.AbstractContextManager[Any]:
    """Sizes that depend on values and turn up here need not turn up in a graph that is traced under the same mode."""
    return mode.shape_env.ignore_fresh_unbacked_symbols()  # type: ignore[no-any-return]


def fake_mode() -> Any:
    """A mode that makes fake tensors with a shape environment, without which torch's disk caches are bypassed."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    if not _imported:  # what fails to be imported leaves cycles that hold the frames of the importing thread
        importer = threading.Thread(target=ShapeEnv)
        importer.start()
        importer.join()
        _imported.append(True)
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def symbolic_tensor(mode: Any, tensor: torch.Tensor, name: str, dims: set[int]) -> Any:
    """A fake tensor of which some dimensions are symbols, strides what they are in terms of sizes."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    sizes = [DimDynamic.DYNAMIC if dim in dims else DimDynamic.STATIC for dim in range(tensor.dim())]
    context: Any = StatelessSymbolicContext(dynamic_sizes=sizes)
    with _no_grad_warning():
        return mode.from_tensor(tensor, source=ConstantSource(name), symbolic_context=context)


def symbolic_number(env: Any, number: float, name: str) -> Any:
    """A symbol for an int or a float; nothing is assumed of it."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = ConstantSource(name)
    if isinstance(number, int):
        return env.create_unspecified_symint_and_symbol(number, source, DimDynamic.DYNAMIC)
    symbol = env.create_unspecified_symbol(number, source, DimDynamic.DYNAMIC)
    return env.create_symfloatnode(symbol, hint=number, source=source)


def bounds(env: Any, symbol: Any) -> tuple[int | None, int | None]:
    """What the environment takes for the least and the greatest value of a symbol, None where that is no limit."""
    if not symbol.is_integer:
        return None, None
    found = env.var_to_range[symbol]
    lower, upper = (int(each) if each.is_Integer else None for each in (found.lower, found.upper))
    if symbol.is_positive:
        lower = max(lower or 1, 1)
    return lower, upper


def guards(env: Any) -> list[Any]:
    """What was assumed of symbols, as sympy's expressions."""
    return [each.expr for each in env.guards]


@contextlib.contextmanager
def convolutions_by_hint() -> Iterator[None]:
    """How a convolution on fake tensors would run is decided for the sizes of now.

    It only says in which order memory is laid out, and asks whether a batch has less than 16 pictures. Holds torch's
    compile lock.
    """
    original = torch._C._select_conv_backend

    def hinted(each: Any) -> Any:
        if not isinstance(each, torch.Tensor) or not any(isinstance(size, torch.SymInt) for size in each.shape):
            return each
        sizes, strides = ([getattr(n, "node", n) for n in numbers] for numbers in (each.shape, each.stride()))
        plain = [[getattr(n, "hint", n) for n in numbers] for numbers in (sizes, strides)]
        mode: Any = each.fake_mode  # type: ignore[attr-defined]
        with mode:
            made = torch.empty_strided(*plain, dtype=each.dtype, device=each.device)
        return made.requires_grad_(each.requires_grad)

    def select(*args: Any, **kwargs: Any) -> Any:
        return original(*map(hinted, args), **{name: hinted(each) for name, each in kwargs.items()})

    with compile_lock():
        torch._C._select_conv_backend = select
        try:
            yield
        finally:
            torch._C._select_conv_backend = original


def forget_floats(env: Any) -> None:
    """Symbols of floats are in the graph no more: Inductor would want them to be constants."""
    for symbol in [each for each in env.backed_var_to_val if not each.is_integer]:
        del env.backed_var_to_val[symbol]


def print_expression(expression: Any, names: dict[Any, str]) -> str:
    """An expression as Python.

    Raises:
        KeyError: a symbol has no name.
    """
    from torch.fx.experimental.symbolic_shapes import SymExprPrinter

    class Printer(SymExprPrinter):
        def _print_Symbol(self, expr: Any) -> str:  # noqa: N802
            return names[expr]

    return str(Printer().doprint(expression))


@contextlib.contextmanager
def tracing(mode: Any) -> Iterator[None]:
    """The tracing context under which backends expect to be called; what AOTAutograd keeps is told by `_kept.py`.

    Backward code reuses no memory of what was saved, for any pass may want to keep its graph; see `let_keep_graph`.
    """
    from torch._functorch import config
    from torch._guards import TracingContext
    from torch._guards import tracing as enter

    before: Any = config.joint_custom_pass
    patch: Any = config.patch
    keeping = before if getattr(before, "_of_magpy", False) else _keeping(before)
    grad = torch.is_grad_enabled()
    try:
        with patch(joint_custom_pass=keeping, donated_buffer=False), enter(TracingContext(mode)):
            yield
    finally:
        torch.set_grad_enabled(grad)  # a graph that changes it has done so when it was traced


def is_compiled(node: Any) -> bool:
    """Whether a node of a backward pass is AOTAutograd's, which takes the place of a graph's history."""
    return type(node).__name__ == "CompiledFunctionBackward"


def let_keep_graph(node: Any) -> None:
    """Let the backward pass of AOTAutograd's node keep its graph.

    Code that was compiled under `tracing` reuses no memory of what was saved. torch only takes an empty list for that.
    """
    facts = getattr(getattr(node, "_forward_cls", None), "metadata", None)
    if getattr(facts, "bw_donated_idxs", ()) is None:
        facts.bw_donated_idxs = []  # type: ignore[union-attr]


def _keeping(before: Any) -> Any:
    def change(joint: Any, inputs: Any) -> Any:
        joint = joint if before is None else before(joint, inputs)
        inductor = sys.modules.get("torch._inductor.config")
        if inductor is not None and inductor.custom_partitioner_fn is partitioner():
            _kept.mark(joint)
        else:
            _kept.ban(joint)
        return joint

    change._of_magpy = True  # type: ignore[attr-defined]
    return change


def aot_autograd(**keywords: Any) -> Any:
    """AOTAutograd as a backend `(module, fakes) -> callable`."""
    from torch._dynamo.backends.common import aot_autograd as make

    return make(**keywords)


def core_decompositions() -> dict[Any, Any]:
    """Decompositions into core ATen, without those that draw random numbers in another way than eager."""
    from torch._decomp import core_aten_decompositions

    random = ("aten::bernoulli", "aten::rrelu", "aten::native_dropout", "aten::normal", "aten::uniform")
    table: dict[Any, Any] = core_aten_decompositions()
    return {target: made for target, made in table.items() if not str(target.name()).startswith(random)}


def min_cut_partition(*args: Any, **keywords: Any) -> Any:
    """Cut a joint graph into forward and backward so that little is kept in between."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(*args, **keywords)


below_autograd: Final[Any] = getattr(torch._C, "_AutoDispatchBelowADInplaceOrView", None)
"""A context manager: operators are dispatched as if no tensor had anything to do with autograd."""

to_dlpack: Final = torch._C._to_dlpack
from_dlpack: Final = torch._C._from_dlpack


__all__ = [
    "aot_autograd",
    "below_autograd",
    "bounds",
    "build_package",
    "changed_settings",
    "compile_fx",
    "compile_lock",
    "convolutions_by_hint",
    "core_decompositions",
    "dispatch_keys",
    "dispatch_mode_depth",
    "fake_mode",
    "forget_floats",
    "from_dlpack",
    "function_mode_depth",
    "global_state",
    "global_state_check",
    "graphs_of_inductor",
    "guards",
    "hooks_saved",
    "import_inductor",
    "is_compiled",
    "is_symbolic",
    "is_wanted",
    "let_keep_graph",
    "list_backends",
    "load_package",
    "lookup_backend",
    "min_cut_partition",
    "modes",
    "operator_types",
    "partitioner",
    "preserve_versions",
    "print_expression",
    "restore_modes",
    "symbolic_number",
    "symbolic_tensor",
    "tensor_guards",
    "to_dlpack",
    "tracing",
    "version_counter",
]
