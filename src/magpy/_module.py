"""Compiled modules: an instance of a subclass that shares the original's `__dict__`.

State, parameters, hooks and `training` are therefore one and the same; `isinstance` holds; and methods that call
`self(...)` or `self.forward(...)` run compiled. The monitored run itself works on the original.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ._compiled import Compiled, Config

_classes: dict[type, type] = {}


class _State:
    """What a compiled module has besides the original's attributes."""

    def __init__(self, module: torch.nn.Module, config: Config) -> None:
        self.module = module
        self.config = config
        self.call = Compiled(module, config)
        self.forward: Compiled | None = None

    def forward_entry(self) -> Compiled:
        """The entry of direct calls of `forward`, which run no hooks."""
        if self.forward is None:
            self.forward = Compiled(self.module.forward, self.config)
        return self.forward


def compile_module(module: torch.nn.Module, config: Config) -> torch.nn.Module:
    """A compiled twin of a module."""
    state = getattr(type(module), "__magpy_state__", None)
    if state is not None:
        module = state.__get__(module).module
    twin: torch.nn.Module = object.__new__(compiled_class(type(module)))
    object.__setattr__(twin, "__dict__", module.__dict__)
    type(twin).__magpy_state__.__set__(twin, _State(module, config))  # type: ignore[attr-defined]
    return twin


def entries_of_module(compiled: Any) -> list[Compiled] | None:
    """The entries of a compiled module, None if it is none."""
    slot = getattr(type(compiled), "__magpy_state__", None)
    if slot is None:
        return None
    state = slot.__get__(compiled)
    return [state.call] + ([state.forward] if state.forward is not None else [])


def compiled_class(cls: type) -> type:
    """The subclass of a module class whose instances are compiled."""
    found = _classes.get(cls)
    if found is not None:
        return found

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        return slot.__get__(self).call.serve(args, kwargs)

    @functools.wraps(cls.forward)  # type: ignore[attr-defined]
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return slot.__get__(self).forward_entry().serve(args, kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: N807
        state = slot.__get__(self)
        return compile_again, (state.module, state.config)

    def target(self: Any) -> Any:
        return slot.__get__(self).module

    namespace = {
        "__slots__": ("__magpy_state_slot",),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": __call__,
        "forward": forward,
        "__reduce_ex__": __reduce_ex__,
        "__magpy_target__": staticmethod(target),
    }
    made = type(cls)(cls.__name__, (cls,), namespace)
    slot = next(value for name, value in vars(made).items() if name.endswith("__magpy_state_slot"))
    made.__magpy_state__ = slot  # type: ignore[attr-defined]
    _classes[cls] = made
    return made


def compile_again(module: torch.nn.Module, config: Config) -> torch.nn.Module:
    """Compile a copy of a module as the original was; pickling and deep copies come here."""
    return compile_module(module, config)
