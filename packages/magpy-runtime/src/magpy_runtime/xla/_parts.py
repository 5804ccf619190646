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
from ._layouts import Output, inverse, order_of
from ._program import Node, Program, is_static


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
    if all(type(step) is int for step in stride) and tuple(fake.shape) == tuple(shape):
        return tuple(stride)
    # Dimensions vary: keep their order in memory.
    hints = [int(_hint(step)) for step in stride]
    order = sorted(range(len(shape)), key=lambda n: (-hints[n], n))
    steps, step = [0] * len(shape), 1
    for n in reversed(order):
        if hints[n]:
            steps[n] = step
            step *= max(shape[n], 1)
    return tuple(steps)


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
        constants: how many of the inputs at the end are constants of the graph.
    """

    def __init__(self, program: Program, fallback: Callable[..., Any], device: torch.device, limit: int) -> None:
        self.program, self.fallback, self.limit = program, fallback, limit
        self.device = _jax.device_for(device.type, device.index)
        self._is_cpu = device.type == "cpu"
        self._dtypes = [_dtype(node) for node in program.inputs]
        self._export = _jax.conversions(self.device)[0]
        self._keeper = Keeper(self._convert)
        self._known: dict[Any, Executable] = {}
        self._lock = threading.Lock()
        self.fallbacks = 0

    @property
    def executables(self) -> list[Executable]:
        """What has been compiled."""
        return list(self._known.values())

    def prepare(self) -> None:
        """Compile for the shapes of the example inputs, if all are known."""
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
        self._executable(tuple(key))

    def _executable(self, key: tuple[Any, ...]) -> Executable | None:
        found = self._known.get(key)
        if found is None:
            with self._lock:
                found = self._known.get(key)
                if found is None and len(self._known) < self.limit:
                    found = Executable(self.program, key, self._dtypes, self.device)
                    self._known[key] = found
        return found

    def _convert(self, tensor: torch.Tensor) -> tuple[Any, bool]:
        """An array, dimensions in memory order, and whether it shares the tensor's memory."""
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.requires_grad:
            tensor = tensor.detach()
        given = tensor
        if not tensor.is_contiguous():
            dense, order = order_of(tensor.shape, tensor.stride())
            tensor = (tensor.permute(order) if order else tensor) if dense else tensor.contiguous()
        array = self._export(tensor)
        return array, self._is_cpu and array.unsafe_buffer_pointer() == given.data_ptr()

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
        if not self._is_cpu:
            torch.cuda.current_stream().synchronize()
        return executable(self._keeper.arrays(inputs))

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
