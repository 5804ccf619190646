"""Record archives: what writing one takes. Reading is `magpy_runtime.load`; see `magpy_runtime._archive` for the file."""

from ._archive import (
    FORMAT,
    ArchiveError,
    ArchiveMismatch,
    class_hash,
    code_hash,
    is_of_platform,
    pack,
    unpack,
    write,
)
from ._env import environment, environment_differs
from ._finding import HELPERS, SINGLETONS, TEXTS, is_subclass, resolve_name, type_name
from ._inductor import package
from ._restoring import attach, example

__all__ = [
    "FORMAT",
    "HELPERS",
    "SINGLETONS",
    "TEXTS",
    "ArchiveError",
    "ArchiveMismatch",
    "attach",
    "class_hash",
    "code_hash",
    "environment",
    "environment_differs",
    "example",
    "is_of_platform",
    "is_subclass",
    "pack",
    "package",
    "resolve_name",
    "type_name",
    "unpack",
    "write",
]
