"""MagPy's runtime: capture of native runs, the records that are made of them, and the backends that run their graphs.

`magpy_runtime.capture` needs no torch; the names below are loaded at first use, since they do.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magpy_runtime._backends import UnknownBackendError, names, resolve
    from magpy_runtime._checks import (
        ABSENT,
        ModeCheck,
        TensorCheck,
        fact_table,
        guard_helpers,
        memory_places,
        metadata,
        native_guard,
    )
    from magpy_runtime._freezing import FrozenCheck, may_freeze
    from magpy_runtime._graph_facts import Hints
    from magpy_runtime._record import (
        CountSlots,
        Dispatcher,
        NativeGuard,
        Record,
        RecordCache,
        RecordingFlag,
        TwinCall,
        TwinSlots,
    )
    from magpy_runtime._symbolic import NotSymbolic, SymbolicGraph, Varying

__version__ = "0.1.0"

_MODULES = {
    "ABSENT": "_checks",
    "CountSlots": "_record",
    "Dispatcher": "_record",
    "FrozenCheck": "_freezing",
    "Hints": "_graph_facts",
    "ModeCheck": "_checks",
    "NativeGuard": "_record",
    "NotSymbolic": "_symbolic",
    "Record": "_record",
    "RecordCache": "_record",
    "RecordingFlag": "_record",
    "SymbolicGraph": "_symbolic",
    "TensorCheck": "_checks",
    "TwinCall": "_record",
    "TwinSlots": "_record",
    "UnknownBackendError": "_backends",
    "Varying": "_symbolic",
    "fact_table": "_checks",
    "guard_helpers": "_checks",
    "may_freeze": "_freezing",
    "memory_places": "_checks",
    "metadata": "_checks",
    "names": "_backends",
    "native_guard": "_checks",
    "resolve": "_backends",
    "worker": "_worker",
}

__all__ = [
    "ABSENT",
    "CountSlots",
    "Dispatcher",
    "FrozenCheck",
    "Hints",
    "ModeCheck",
    "NativeGuard",
    "NotSymbolic",
    "Record",
    "RecordCache",
    "RecordingFlag",
    "SymbolicGraph",
    "TensorCheck",
    "TwinCall",
    "TwinSlots",
    "UnknownBackendError",
    "Varying",
    "fact_table",
    "guard_helpers",
    "may_freeze",
    "memory_places",
    "metadata",
    "names",
    "native_guard",
    "resolve",
    "worker",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
