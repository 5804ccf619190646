"""JAX: the only module here that imports it, and that knows names of its private parts.

JAX is an extra (`magpy-runtime[xla]`) and is imported when the backend is first used. Everything from it is `Any` for type
checkers, so that they say the same with and without it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.utils.dlpack

from magpy_runtime import _torch


def _load(name: str) -> Any:
    return importlib.import_module(name)


class MissingJaxError(ImportError):
    """JAX is not installed."""


try:
    jax: Final[Any] = importlib.import_module("jax")
except ImportError as error:
    raise MissingJaxError("backend='xla' needs JAX: pip install 'magpy-runtime[xla]'") from error

jnp: Final[Any] = _load("jax.numpy")
lax: Final[Any] = _load("jax.lax")

DTYPES: Final[dict[torch.dtype, Any]] = {
    torch.bool: jnp.dtype("bool"),
    torch.uint8: jnp.dtype("uint8"),
    torch.int8: jnp.dtype("int8"),
    torch.int16: jnp.dtype("int16"),
    torch.int32: jnp.dtype("int32"),
    torch.int64: jnp.dtype("int64"),
    torch.float16: jnp.dtype("float16"),
    torch.bfloat16: jnp.dtype("bfloat16"),
    torch.float32: jnp.dtype("float32"),
    torch.float64: jnp.dtype("float64"),
    torch.complex64: jnp.dtype("complex64"),
    torch.complex128: jnp.dtype("complex128"),
}
"""Element types that both sides have, bit by bit."""


def device_for(kind: str, index: int | None) -> Any:
    """JAX's device for one of torch's.

    Raises:
        RuntimeError: JAX has no such device.
    """
    return jax.devices(kind)[index or 0]


@contextlib.contextmanager
def settings(device: Any) -> Any:
    """The settings under which graphs are traced and compiled, whatever the program has set; only in this thread."""
    with contextlib.ExitStack() as stack:
        if hasattr(jax, "enable_x64"):
            stack.enter_context(jax.enable_x64(True))
        else:
            stack.enter_context(_load("jax.experimental").enable_x64(True))
        stack.enter_context(jax.numpy_dtype_promotion("standard"))
        stack.enter_context(jax.numpy_rank_promotion("allow"))
        stack.enter_context(jax.default_matmul_precision("highest"))
        stack.enter_context(jax.debug_nans(False))
        stack.enter_context(jax.debug_infs(False))
        stack.enter_context(jax.disable_jit(False))
        stack.enter_context(jax.transfer_guard("allow"))
        stack.enter_context(jax.default_device(device))
        yield


def call(compiled: Any, arrays: list[Any], device: Any) -> Any:
    """Run what `compile_function` gave, whatever the program has set."""
    config = jax.config
    if config.jax_disable_jit or config.jax_debug_nans or config.jax_debug_infs:
        with settings(device):
            return compiled(*arrays)
    return compiled(*arrays)


def compile_function(
    function: Callable[..., Any], shapes: list[tuple[tuple[int, ...], torch.dtype]], device: Any
) -> Any:
    """A function of arrays, compiled by XLA for these shapes. The result is called with arrays and gives a tuple of them."""
    with settings(device):
        wanted = [jax.ShapeDtypeStruct(shape, DTYPES[dtype]) for shape, dtype in shapes]
        return jax.jit(function, keep_unused=True).lower(*wanted).compile()


def _by_protocol(device: Any) -> tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]:
    """Conversions by the public protocol, which also makes the two sides' streams wait for each other."""
    from_dlpack = jax.dlpack.from_dlpack

    def to_array(tensor: torch.Tensor) -> Any:
        with settings(device):
            return from_dlpack(tensor.detach())

    return to_array, torch.utils.dlpack.from_dlpack


@functools.cache
def conversions(device: Any) -> tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]:
    """From tensor to array and back, without copies where memory is aligned.

    On the CPU through jaxlib's own functions (4 and 1 µs), where they are as known; else by the public protocol (33 and 5).
    """
    if device.platform != "cpu":
        return _by_protocol(device)
    try:
        private = _load("jaxlib._jax")
        take, give = private.dlpack_managed_tensor_to_buffer, private.buffer_to_dlpack_managed_tensor
        export, load = _torch.to_dlpack, _torch.from_dlpack

        def to_array(tensor: torch.Tensor) -> Any:
            return take(export(tensor), device, None)

        def to_tensor(array: Any) -> torch.Tensor:
            return load(give(array))

        sample = torch.arange(16, dtype=torch.int64)
        array = to_array(sample)
        if array.unsafe_buffer_pointer() != sample.data_ptr() or to_tensor(array).data_ptr() != sample.data_ptr():
            return _by_protocol(device)
    except Exception:
        return _by_protocol(device)
    return to_array, to_tensor


conversions(device_for("cpu", None))  # now, since graphs are compiled under a fake mode, in which nothing can be tried


__all__ = [
    "DTYPES",
    "MissingJaxError",
    "call",
    "compile_function",
    "conversions",
    "device_for",
    "jax",
    "jnp",
    "lax",
    "settings",
]
