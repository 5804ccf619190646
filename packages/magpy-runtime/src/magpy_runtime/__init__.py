"""MagPy's runtime: capture of native runs, the records that are made of them, and the backends that run their graphs.

`magpy_runtime.capture` needs no torch; the names below are loaded at first use, since they do.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magpy_runtime._abstract import AbstractAnswers
    from magpy_runtime._archive import ArchiveError, ArchiveMismatch
    from magpy_runtime._backends import UnknownBackendError, compile_with, names, resolve
    from magpy_runtime._checking import GraphDiffersError
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
    from magpy_runtime._own import own_files
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
    from magpy_runtime._running import (
        Damage,
        is_in_graph,
        raise_again,
        raise_built,
        raise_damage,
        strip,
        wrap,
    )
    from magpy_runtime._serving import LoadedInfo, RecordMiss, info, load
    from magpy_runtime._symbolic import NotSymbolic, SymbolicGraph, Varying
    from magpy_runtime._torch import modes, restore_modes
    from magpy_runtime._trying import as_on_entry

__version__ = "0.1.0"

_MODULES = {
    "ABSENT": "_checks",
    "AbstractAnswers": "_abstract",
    "ArchiveError": "_archive",
    "ArchiveMismatch": "_archive",
    "CountSlots": "_record",
    "Damage": "_running",
    "Dispatcher": "_record",
    "FrozenCheck": "_freezing",
    "GraphDiffersError": "_checking",
    "Hints": "_graph_facts",
    "LoadedInfo": "_serving",
    "ModeCheck": "_checks",
    "NativeGuard": "_record",
    "NotSymbolic": "_symbolic",
    "Record": "_record",
    "RecordCache": "_record",
    "RecordMiss": "_serving",
    "RecordingFlag": "_record",
    "SymbolicGraph": "_symbolic",
    "TensorCheck": "_checks",
    "TwinCall": "_record",
    "TwinSlots": "_record",
    "UnknownBackendError": "_backends",
    "Varying": "_symbolic",
    "as_on_entry": "_trying",
    "compile_with": "_backends",
    "fact_table": "_checks",
    "guard_helpers": "_checks",
    "info": "_serving",
    "is_in_graph": "_running",
    "load": "_serving",
    "may_freeze": "_freezing",
    "memory_places": "_checks",
    "metadata": "_checks",
    "modes": "_torch",
    "names": "_backends",
    "native_guard": "_checks",
    "own_files": "_own",
    "raise_again": "_running",
    "raise_built": "_running",
    "raise_damage": "_running",
    "resolve": "_backends",
    "restore_modes": "_torch",
    "strip": "_running",
    "worker": "_worker",
    "wrap": "_running",
}

__all__ = [
    "ABSENT",
    "AbstractAnswers",
    "ArchiveError",
    "ArchiveMismatch",
    "CountSlots",
    "Damage",
    "Dispatcher",
    "FrozenCheck",
    "GraphDiffersError",
    "Hints",
    "LoadedInfo",
    "ModeCheck",
    "NativeGuard",
    "NotSymbolic",
    "Record",
    "RecordCache",
    "RecordMiss",
    "RecordingFlag",
    "SymbolicGraph",
    "TensorCheck",
    "TwinCall",
    "TwinSlots",
    "UnknownBackendError",
    "Varying",
    "as_on_entry",
    "compile_with",
    "fact_table",
    "guard_helpers",
    "info",
    "is_in_graph",
    "load",
    "may_freeze",
    "memory_places",
    "metadata",
    "modes",
    "names",
    "native_guard",
    "own_files",
    "raise_again",
    "raise_built",
    "raise_damage",
    "resolve",
    "restore_modes",
    "strip",
    "worker",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
