"""Parts at run time: one that XLA runs, for each set of shapes that it meets, and one that torch runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from . import _jax
from ._jax import jax, jnp
from ._kept import Keeper
from ._layouts import Output, contiguous, inverse, order_of
from ._program import LoweringError, Node, Program, is_static


class OutOfRangeError(IndexError):
    """An operator met values for which eager raises: an index out of range, a division of integers by zero."""


class Executable:
    """A program that XLA has compiled for shapes and memory layouts.

    Args:
        program: what to compute.
        inputs: for each input its size and memory order, or a plain number.
        strides: of each output, None for those that are plain numbers.
        device: JAX's.
    """

    def __init__(
        self, program: Program, inputs: Sequence[Any], dtypes: Sequence[torch.dtype | None], device: Any
    ) -> None:
        started = time.perf_counter()
        self._program, self._inputs, self._device = program, inputs, device
        self._numbers = [n for n, each in enumerate(inputs) if isinstance(each, tuple)]
        self.outputs: list[Output | None] = []
        self.plain: list[Any] = []
        self._checks = False
        shapes = []
        for n in self._numbers:
            size, order = inputs[n]
            dtype = dtypes[n]
            assert dtype is not None
            shapes.append((tuple(size[k] for k in order) if order else size, dtype))
        self._run = _jax.compile_function(self._function, shapes, device)
        self._give = _jax.conversions(device)[1]
        self.seconds = time.perf_counter() - started

    def _function(self, *arrays: Any) -> tuple[Any, ...]:
        """What is traced: from arrays in memory order to the outputs in theirs, and whether eager would raise."""
        given = list(self._inputs)
        for n, array in zip(self._numbers, arrays, strict=True):
            order = self._inputs[n][1]
            given[n] = jnp.transpose(array, inverse(order)) if order else array
        found, problems = self._program.trace(given)
        self.outputs, self.plain, results = [], [], []
        for node, value in zip(self._program.outputs, found, strict=True):
            if is_static(node):
                self.outputs.append(None)
                self.plain.append(value)
                continue
            output = Output(tuple(value.shape), _strides(node, value.shape))
            for dim in output.repeated:
                value = value[(slice(None),) * dim + (slice(0, 1),)]
            if output.order:
                value = jnp.transpose(value, output.order)
            # A result that is an input must not become the same memory, nor one that comes twice.
            results.append(jnp.copy(value))
            self.outputs.append(output)
            self.plain.append(None)
        self._checks = bool(problems)
        if problems:
            wrong = problems[0]
            for each in problems[1:]:
                wrong = jnp.logical_or(wrong, each)
            results.append(wrong)
        return tuple(results)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Outputs as tensors and plain numbers.

        Raises:
            OutOfRangeError: eager would raise.
        """
        found = _jax.call(self._run, [arrays[n] for n in self._numbers], self._device)
        # Dispatch is asynchronous: what runs may still read memory that the program is free to change after this.
        for each in found:
            each.block_until_ready()
        if self._checks:
            *found, wrong = found
            if self._give(wrong).item():
                raise OutOfRangeError("an index is out of range, or an integer was divided by zero")
        results, give = iter(found), self._give
        return [
            plain if output is None else output.tensor(give(next(results)))
            for output, plain in zip(self.outputs, self.plain, strict=True)
        ]


def _strides(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that torch gives a result, for this shape."""
    fake = node.meta["val"]
    stride = fake.stride()
    if all(type(each) is int for each in (*stride, *fake.shape)):
        return tuple(stride)
    sizes = {symbol: n for each, n in zip(fake.shape, shape, strict=True) if (symbol := _symbol(each)) is not None}
    found: list[Any] = [step if type(step) is int else step.node.expr.xreplace(sizes) for step in stride]
    if all(type(step) is int or step.is_Integer for step in found):
        return tuple(int(step) for step in found)
    if any(type(step) is not int and not step.node.has_hint() for step in stride):
        raise LoweringError(f"{node.target}: the strides {tuple(stride)} depend on values")
    # Dimensions vary: keep their order in memory.
    hints = [int(_hint(step)) for step in stride]
    order = sorted(range(len(shape)), key=lambda n: (-hints[n], n))
    steps, step = [0] * len(shape), 1
    for n in reversed(order):
        if hints[n]:
            steps[n] = step
            step *= max(shape[n], 1)
    return tuple(steps)


def _symbol(size: Any) -> Any:
    """The symbol that a size is, if it is one and no expression."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return expression if expression is not None and expression.is_Symbol else None


def _hint(step: Any) -> int:
    hint = getattr(getattr(step, "node", None), "hint", None)
    return int(step) if hint is None else int(hint)


class XlaPart:
    """Operators that XLA runs, compiled anew for each set of shapes up to a limit; beyond it torch runs them.

    Args:
        program: the operators.
        fallback: the same, run by torch.
        device: torch's.
        limit: how many sets of shapes are compiled.

    Attributes:
        fallbacks: how many calls torch has run.
        failure: how a lowering failed for a set of shapes, if one did.
    """

    def __init__(self, program: Program, fallback: Callable[..., Any], device: torch.device, limit: int) -> None:
        self.program, self.fallback, self.limit = program, fallback, limit
        self.device = _jax.device_for(device.type, device.index)
        self._kind, self._torch_device = device.type, device
        self._dtypes = [_dtype(node) for node in program.inputs]
        self._export = _jax.conversions(self.device)[0]
        self._elsewhere = [
            (n, node.meta["val"].device)
            for n, node in enumerate(program.outputs)
            if not is_static(node) and node.meta["val"].device.type != device.type
        ]
        self._keeper = Keeper(self._convert)
        self._known: dict[Any, Executable | None] = {}
        self._lock = threading.Lock()
        self.fallbacks = 0
        self.failure = ""

    @property
    def executables(self) -> list[Executable]:
        """What has been compiled."""
        return [each for each in self._known.values() if each is not None]

    def prepare(self) -> None:
        """Compile for the shapes of the example inputs, if all are known.

        Raises:
            LoweringError: a lowering is wrong for them.
        """
        key: list[Any] = []
        for node in self.program.inputs:
            fake = node.meta["val"]
            if not isinstance(fake, torch.Tensor):
                if not isinstance(fake, int | float | bool):
                    return
                key.append(fake)
            elif not all(type(n) is int for n in (*fake.shape, *fake.stride())):
                return
            else:
                key.append((tuple(fake.shape), order_of(fake.shape, fake.stride())[1]))
        if self.limit:
            self._known[tuple(key)] = Executable(self.program, key, self._dtypes, self.device)

    def _executable(self, key: tuple[Any, ...]) -> Executable | None:
        """For inputs; None if torch runs them, as there are too many sets of shapes, or a lowering fails for these."""
        found = self._known.get(key)
        if found is None and key not in self._known:
            with self._lock:
                if key not in self._known and len(self._known) < self.limit:
                    try:
                        self._known[key] = Executable(self.program, key, self._dtypes, self.device)
                    except LoweringError as error:
                        self._known[key], self.failure = None, str(error)
                found = self._known.get(key)
        return found

    def _convert(self, tensor: torch.Tensor) -> tuple[Any, bool]:
        """An array, dimensions in memory order, and whether it shares the tensor's memory."""
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.requires_grad:
            tensor = tensor.detach()
        if tensor.device.type != self._kind:  # a number among tensors on an accelerator
            tensor = tensor.to(self._torch_device)
            return self._export(tensor), False
        given = tensor
        if not tensor.is_contiguous():
            dense, order = order_of(tensor.shape, tensor.stride())
            tensor = (tensor.permute(order) if order else tensor) if dense else tensor.contiguous()
        if (1 in tensor.shape or 0 in tensor.shape) and tensor.stride() != (plain := contiguous(tensor.shape)):
            tensor = tensor.as_strided(tensor.shape, plain)  # JAX takes layouts from the steps of such dimensions, too
        array = self._export(tensor)
        return array, array.unsafe_buffer_pointer() == given.data_ptr()

    def _key(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_contiguous():
            return (tuple(value.shape), None)
        return (tuple(value.shape), order_of(value.shape, value.stride())[1])

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Outputs for inputs."""
        executable = self._executable(tuple([self._key(value) for value in inputs]))
        if executable is None:
            self.fallbacks += 1
            return self._by_torch(inputs)
        if self._kind != "cpu":
            # XLA has streams of its own. It must neither read what torch still writes, nor write to memory of arrays that
            # died while torch was still to read it, on whichever stream.
            torch.accelerator.synchronize(self._torch_device)
        found = executable(self._keeper.arrays(inputs))
        for n, device in self._elsewhere:
            found[n] = found[n].to(device)
        return found

    def _by_torch(self, inputs: Sequence[Any]) -> Sequence[Any]:
        found: Sequence[Any] = self.fallback(*inputs)
        return found


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


class TorchPart:
    """Operators that torch runs one by one."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Outputs for inputs."""
        found: Sequence[Any] = self.module(*inputs)
        return found


__all__ = ["Executable", "OutOfRangeError", "TorchPart", "XlaPart", "jax"]
