"""Graphs built ahead of time, kept on disk beside torch's own caches, so that a second process need not even import Inductor."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.fx

from . import _torch
from ._env import TORCH

_BUILT: Final = "6"
"""How MagPy has packages built; another text where that changes."""


class PackageCache:
    """The packages of this user and machine.

    Attributes:
        folder: where they lie: `magpy` in torch's cache directory.
        enabled: whether files outlive the process; torch's own switch turns this off, too.
    """

    def __init__(self) -> None:
        root = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        if root is None:
            with contextlib.suppress(Exception):
                root = os.path.join(tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}")
        self.folder = Path(root or tempfile.gettempdir()) / "magpy"
        self.enabled = os.environ.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "0") != "1"

    def key(self, module: torch.fx.GraphModule, inputs: list[Any], settings: dict[str, Any]) -> str | None:
        """What decides over the code: graph, metadata of the inputs, settings, torch, processor. None if that is unclear."""
        devices = {each.device.type for each in inputs if isinstance(each, torch.Tensor)}
        if any(torch.is_autocast_enabled(each) for each in devices | {"cpu"}):
            return None
        parts: list[str] = [_BUILT, TORCH, torch.backends.cpu.get_cpu_capability(), str(torch.get_num_threads())]
        parts += [str(torch.get_default_dtype()), str(torch.are_deterministic_algorithms_enabled())]
        parts += [str(torch.is_grad_enabled()), str(torch.is_inference_mode_enabled())]
        parts += [repr(sorted(settings.items(), key=lambda item: item[0])), _torch.changed_settings()]
        parts += [
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if name.startswith("TORCHINDUCTOR_") and name != "TORCHINDUCTOR_CACHE_DIR"
        ]
        for each in inputs:
            if not isinstance(each, torch.Tensor) or each.layout is not torch.strided:
                return None
            parts.append(
                f"{each.dtype} {each.device} {tuple(each.shape)} {each.stride()} {each.is_conj()} {each.is_neg()}"
            )
        try:
            for node in module.graph.nodes:
                parts.append(f"{node.name} {node.op} {_named(node.target)} {_text((node.args, node.kwargs))}")
        except _Unclear:
            return None
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]

    def has(self, key: str) -> bool:
        """Whether there is a package."""
        return self.enabled and self._path(key).is_file()

    def rejected(self, key: str) -> bool:
        """Whether building this graph ahead of time was found not to pay."""
        return self.enabled and self._path(key, ".no").exists()

    def reject(self, key: str) -> None:
        """Remember that it does not pay."""
        if self.enabled:
            with contextlib.suppress(OSError):
                self._path(key, ".no").touch()

    def new(self, key: str) -> str:
        """A file to build in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return str(self._path(key, f".{os.getpid()}.pt2"))

    def keep(self, key: str) -> None:
        """Put what was built where other processes find it."""
        with contextlib.suppress(OSError):
            built = Path(self.new(key))
            built.replace(self._path(key)) if self.enabled else built.unlink()

    def read(self, key: str) -> bytes:
        """The file of a package."""
        return self._path(key).read_bytes()

    def take(self, key: str) -> bytes:
        """What was built, which is not kept."""
        built = Path(self.new(key))
        data = built.read_bytes()
        built.unlink()
        return data

    def load(self, key: str) -> Callable[..., Any]:
        """The code of a package: takes a list of inputs."""
        return self.load_file(str(self._path(key)))

    def load_file(self, path: str) -> Callable[..., Any]:
        """The code of a package in a file."""
        run: Callable[..., Any] = _torch.load_package(path, single_threaded=False, device=-1)
        return run

    def _path(self, key: str, suffix: str = ".pt2") -> Path:
        return self.folder / f"{key}{suffix}"


class _Unclear(Exception):
    """An argument whose text does not say what it is."""


_CLEAR = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)


def _named(target: Any) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, _torch.operator_types):
        return f"op {target}"
    if isinstance(target, (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)):
        owner = getattr(target, "__self__", None)
        return f"{getattr(owner, '__name__', type(owner).__name__)}.{target.__module__}.{target.__qualname__}"
    raise _Unclear


def _text(value: Any) -> str:
    if value is None or value is Ellipsis or isinstance(value, (torch.fx.Node, *_CLEAR)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(name)}: {_text(each)}' for name, each in value.items())}}}"
    if isinstance(value, slice):
        return f"slice{_text((value.start, value.stop, value.step))}"
    raise _Unclear


__all__ = ["PackageCache"]
