"""Copies of a graph's inputs, and what a run of the graph on them leaves behind."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ._checks import metadata
from ._graph_facts import storage_of

Run = Callable[..., Any]
Storages = dict[int, torch.UntypedStorage]

_MOST: Final = 1 << 30
"""Bytes of inputs that are copied. Of larger ones only those that the graph updates are."""

_CLASSES: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_DEVICES: Final = ("cpu", "cuda")
_NOISE: Final = 0.1
_MOST_ALONE: Final = 8
"""Results whose gradients are asked for one by one."""


class Untried(Exception):
    """A graph cannot be run on copies of its inputs."""


@dataclass(slots=True)
class World:
    """A graph's inputs, and what a run has made of them.

    Attributes:
        inputs: copies of them.
        storages: their memory.
        firsts: for each of these an input that lies there.
        leaves: those of autograd.
        outputs: what the run gave.
        grad: the grad mode that it left.
        gradients: of the leaves, for all that has gradients; None where there are none, or where autograd raised.
        present: for the first things that have gradients which of the leaves have one then.
        drew: whether it drew random numbers.
        error: what it raised.
        late: what its backward pass raised.
    """

    inputs: list[Any]
    storages: list[torch.UntypedStorage]
    firsts: list[torch.Tensor]
    leaves: list[torch.Tensor]
    outputs: list[Any] = field(default_factory=list)
    grad: bool = False
    gradients: list[torch.Tensor | None] = field(default_factory=list)
    present: list[list[bool]] = field(default_factory=list)
    drew: bool = False
    error: Exception | None = None
    late: Exception | None = None

    def run(self, function: Run, draws: bool) -> World:
        """Run something; the random generators and the grad mode stay as they were, and nobody is warned again.

        Args:
            function: what to run.
            draws: whether it may draw random numbers.
        """
        grad = torch.is_grad_enabled()
        with _own_random(draws) as states, _quiet():
            before = states()
            histories = [_history(each) for each in self.inputs]
            try:
                self.outputs = [*function(*self.inputs)]
                self.grad = torch.is_grad_enabled()
                torch.set_grad_enabled(grad)
                self._backward(histories)
            except Exception as error:
                self.error = error.with_traceback(None)
            finally:
                torch.set_grad_enabled(grad)
            self.drew = not all(map(torch.equal, before, states()))
        return self

    def _backward(self, histories: list[Any]) -> None:
        tensors = [each for each in self.outputs if isinstance(each, torch.Tensor)]
        tensors += [each for each, was in zip(self.inputs, histories, strict=True) if _history(each) is not was]
        ends = [each for each in tensors if each.requires_grad]
        self.gradients = [None] * len(self.leaves)
        if not (ends and self.leaves):
            return
        try:
            with torch.enable_grad():
                weights = [_weights(each) for each in ends]
                self.gradients = _gradients(ends, self.leaves, weights)
                for one, weight in zip(ends[:_MOST_ALONE], weights, strict=False) if len(ends) > 1 else ():
                    alone = _gradients([one], self.leaves, [weight])
                    self.present.append([each is not None for each in alone])
        except Exception as error:
            self.late = error.with_traceback(None)

    def updatable(self) -> list[bool]:
        """For each output that has a history whether it may be updated; to be asked last, since that updates it."""
        found = []
        with _quiet(), torch.enable_grad():
            for each in _with_history(self.outputs):
                try:
                    each.mul_(1)
                    found.append(True)
                except RuntimeError:
                    found.append(False)
        return found


def _gradients(ends: list[Any], leaves: list[Any], weights: list[Any]) -> list[torch.Tensor | None]:
    """The gradients of leaves, None where there is none, in a pass that keeps its graph."""
    return [*torch.autograd.grad(ends, leaves, weights, retain_graph=True, allow_unused=True)]


def _with_history(values: list[Any]) -> list[torch.Tensor]:
    return [each for each in values if isinstance(each, torch.Tensor) and each.requires_grad]


def _history(value: Any) -> Any:
    return value.grad_fn if isinstance(value, torch.Tensor) else None


def _weights(tensor: torch.Tensor) -> torch.Tensor:
    """Gradients of an output that are all different, so that what they are multiplied with cannot cancel out."""
    count = tensor.numel()
    weights = torch.linspace(0.5, 1.5, count, dtype=torch.float64, device=tensor.device)
    return weights.to(tensor.dtype).view(tensor.shape)


@contextlib.contextmanager
def _own_random(draws: bool) -> Iterator[Callable[[], list[torch.Tensor]]]:
    if not draws:
        yield list
        return
    if threading.current_thread() is not threading.main_thread():
        raise Untried("it draws random numbers, which other threads may do meanwhile")
    initialized = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if initialized else range(0)
    with torch.random.fork_rng(devices=devices):
        yield lambda: [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


def _quiet() -> contextlib.AbstractContextManager[Any]:
    """No warnings; which there are is known to all threads alike, so others than the main one leave that alone."""
    main = threading.current_thread() is threading.main_thread()
    return warnings.catch_warnings(action="ignore") if main else contextlib.nullcontext()


def two_worlds(inputs: list[Any], updated: tuple[int, ...], noise: bool) -> tuple[World, World]:
    """Copies of a graph's inputs that lie in memory and share it as these do, twice.

    Args:
        inputs: those of a call.
        updated: numbers of those that the graph may update.
        noise: whether other values take the place of those that are updated, or the same everywhere: a buffer of zeros
            hides that an element was not written, or written twice.

    Raises:
        Untried: some cannot be copied, or take too much memory.
    """
    tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
    for each in tensors:
        if type(each) not in _CLASSES or each.layout is not torch.strided or each.is_quantized or each.is_neg():
            raise Untried(f"there is an input of type {type(each).__qualname__}, layout {each.layout}")
        if each.device.type not in _DEVICES:
            raise Untried(f"there is an input on {each.device.type}")
    firsts = {storage_of(each): each for each in reversed(tensors)}
    written = {storage_of(inputs[number]) for number in updated if isinstance(inputs[number], torch.Tensor)}
    sizes = {key: each.untyped_storage().nbytes() for key, each in firsts.items()}
    copied = {*firsts} if sum(sizes.values()) <= _MOST else written
    if sum(sizes[key] for key in copied) > _MOST:
        raise Untried("it updates more than a gigabyte")
    generator = torch.Generator().manual_seed(0)
    once: Storages = {}
    for key, each in firsts.items():
        storage = each.untyped_storage()
        once[key] = storage.clone() if key in copied else storage  # type: ignore[no-untyped-call]
        if noise and key in copied:
            _disturb(once[key], each, key in written, generator)
    twice = {
        key: each.clone() if key in copied else each  # type: ignore[no-untyped-call]
        for key, each in once.items()
    }
    return _world(inputs, once, firsts), _world(inputs, twice, firsts)


def _disturb(storage: torch.UntypedStorage, like: torch.Tensor, updated: bool, generator: torch.Generator) -> None:
    if like.is_complex() or (like.element_size() < 2 and like.is_floating_point()):
        return
    with torch.inference_mode(False), torch.no_grad():
        flat = flat_on(storage, like)
        is_constant = flat.numel() > 1 and bool((flat == flat[0]).all())
        if not like.is_floating_point():
            if updated and is_constant:
                added = torch.randint(0, 2, (flat.numel(),), generator=generator, device="cpu")
                flat.copy_((flat + added.to(flat.device, flat.dtype)).to(flat.dtype))
            return
        if not flat.numel() or not (updated or is_constant):
            return
        largest = min(_largest(flat) or 1.0, 1e3)
        noise = torch.rand(flat.numel(), generator=generator, device="cpu").add_(0.1)
        flat.add_(noise.to(flat.device, flat.dtype), alpha=_NOISE * largest)


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0.0, 0.0, 0.0).max())


def flat_on(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """All of a storage's elements, of a tensor's type."""
    empty = torch.empty(0, dtype=like.dtype, device=like.device)
    return empty.set_(storage, 0, (storage.nbytes() // like.element_size(),), (1,))


def _world(inputs: list[Any], storages: Storages, firsts: dict[int, torch.Tensor]) -> World:
    leaves: list[torch.Tensor] = []
    made = [_copy(each, storages, leaves) if isinstance(each, torch.Tensor) else each for each in inputs]
    return World(made, [*storages.values()], [*firsts.values()], leaves)


def _copy(tensor: torch.Tensor, storages: Storages, leaves: list[torch.Tensor]) -> torch.Tensor:
    def on_copy() -> torch.Tensor:
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        place = (tensor.storage_offset(), tensor.size(), tensor.stride())
        made: torch.Tensor = empty.set_(storages[storage_of(tensor)], *place)
        return made.conj() if tensor.is_conj() else made

    with torch.inference_mode(tensor.is_inference()):
        if not tensor.requires_grad:
            with torch.no_grad():
                return on_copy()
        with torch.enable_grad():
            if tensor.is_leaf:
                leaves.append(on_copy().requires_grad_())
                return leaves[-1]
            leaves.append(_anywhere(tensor, tensor.shape))
            return _WithHistory.apply(leaves[-1], on_copy)  # type: ignore[no-untyped-call, no-any-return]


def as_on_entry(tensor: torch.Tensor, was: tuple[Any, ...] | None) -> torch.Tensor:
    """A tensor as it was before a run, as far as that can be had; its values are those that it has now.

    Args:
        tensor: a graph's input after the run.
        was: its `metadata` before, None where they are not known.
    """
    if was is None or tensor.layout is not torch.strided or was[3] is not torch.strided or metadata(tensor) == was:
        return tensor
    shape, strides, offset, requires_grad, is_leaf = was[4:9]
    now = tensor.storage_offset()
    if not offset and not now % 16:
        offset = now
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    storage = tensor.untyped_storage()
    if (last + 1) * tensor.element_size() > storage.nbytes():
        return tensor

    def make() -> torch.Tensor:
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(storage, offset, shape, strides)

    if tensor.is_inference() or tensor.is_conj() or tensor.is_neg() or tensor.dtype is not was[1]:
        return tensor
    with torch.inference_mode(False), torch.enable_grad():
        if not requires_grad or is_leaf:
            return make().requires_grad_(requires_grad)
        return _WithHistory.apply(_anywhere(tensor, shape), make)  # type: ignore[no-untyped-call, no-any-return]


def _anywhere(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    """A leaf of a shape that takes no memory."""
    return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(shape).requires_grad_()


class _WithHistory(torch.autograd.Function):
    """A tensor on memory of its own that is no leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        return make()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


__all__ = ["Untried", "World", "as_on_entry", "flat_on", "two_worlds"]
