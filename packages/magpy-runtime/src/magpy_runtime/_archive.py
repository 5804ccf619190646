"""Files that hold records: one zip file, written atomically, refused as a whole when a single bit of it differs.

The file ends with a zip comment that holds the SHA-256 of everything before it, and its manifest has the SHA-256 of each
member; nothing in a file is looked at any further before both were verified. That protects from damage, not from
whoever can write the file: an archive is code, and only `digest`, kept elsewhere, says whose.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import types
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 2
"""Version of the format; a file of another one is refused."""

MANIFEST: Final = "manifest.json"
_COMMENT: Final = b"magpy record archive, sha256 "
_TAIL: Final = len(_COMMENT) + 64
_LARGEST: Final = 1 << 32


class ArchiveError(RuntimeError):
    """A file is no record archive, or not one as it was written."""


class ArchiveMismatch(ArchiveError):
    """A record archive does not fit this process or this target.

    Attributes:
        differences: what differs, in words; never empty.
    """

    def __init__(self, path: str, differences: list[str]) -> None:
        super().__init__(path, differences)
        self.path = path
        self.differences = differences

    def __str__(self) -> str:
        shown = "; ".join(self.differences[:5])
        more = f"; and {len(self.differences) - 5} more" if len(self.differences) > 5 else ""
        return f"{self.path} does not fit: {shown}{more}"


def pack(manifest: Mapping[str, Any], members: Mapping[str, bytes]) -> bytes:
    """The bytes of an archive; `manifest` is completed by the format and the members' digests."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    whole = {"format": FORMAT, **manifest, "members": digests}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        _add(file, MANIFEST, json.dumps(whole, indent=1).encode())
        for name, data in members.items():
            _add(file, name, data)
        file.comment = _COMMENT + b"0" * 64
    data = buffer.getvalue()[:-_TAIL]
    return data + _COMMENT + hashlib.sha256(data).hexdigest().encode()


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same records give the same file
    info.compress_type = zipfile.ZIP_STORED if name.endswith(".pt2") else zipfile.ZIP_DEFLATED
    file.writestr(info, data)


def unpack(data: bytes, path: str = "archive", digest: str | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Verify the bytes of an archive and take them apart.

    Args:
        data: the whole file.
        path: its name, for messages.
        digest: the SHA-256 that the file must have, in hexadecimal.

    Returns:
        The manifest and the other members.

    Raises:
        ArchiveError: it is not as it was written, of another format, or not the one of that digest.
    """
    if digest is not None and hashlib.sha256(data).hexdigest() != digest.lower():
        raise ArchiveError(f"{path} is not the file whose SHA-256 is {digest}")
    head, tail = data[:-_TAIL], data[-_TAIL:]
    if not tail.startswith(_COMMENT) or not data.startswith(b"PK"):
        raise ArchiveError(f"{path} is no record archive, or it is cut short")
    if tail[len(_COMMENT) :] != hashlib.sha256(head).hexdigest().encode():
        raise ArchiveError(f"{path} was altered after it was written")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if sum(each.file_size for each in file.infolist()) > _LARGEST:
                raise ArchiveError(f"{path} is too large")
            members = {each.filename: file.read(each) for each in file.infolist()}
        manifest: Any = _load_json(members.pop(MANIFEST))
        version, digests = manifest["format"], manifest["members"]
    except ArchiveError:
        raise
    except Exception as error:
        raise ArchiveError(f"{path} is no record archive: {type(error).__name__}: {error}") from None
    if version != FORMAT:
        raise ArchiveError(f"{path} has format {version}; this magpy-runtime reads format {FORMAT}")
    if {name: hashlib.sha256(each).hexdigest() for name, each in members.items()} != digests:
        raise ArchiveError(f"{path}: the manifest's digests are not those of the members")
    return manifest, members


def _load_json(data: bytes) -> Any:
    return json.loads(data)


def write(path: str | os.PathLike[str], data: bytes) -> str:
    """Write a file in one step: there is the old one or the new one, whole, whatever happens meanwhile.

    Returns:
        Its SHA-256.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    with contextlib.suppress(OSError):  # not every file system can
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return hashlib.sha256(data).hexdigest()


# -- what code is ------------------------------------------------------------------------------------------------------

_VOLATILE: Final = frozenset(
    {
        "__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__", "__module__",
        "__static_attributes__", "__weakref__", "_abc_impl", "__annotate__", "__annotations_cache__",
    }
)  # fmt: skip


def code_hash(code: types.CodeType) -> str:
    """A digest of what a code object does: not of its file and lines."""
    parts = (
        code.co_qualname, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_exceptiontable.hex(), [*map(_constant, code.co_consts)],
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return "code", code_hash(value)
    if type(value) is tuple:
        return "tuple", [*map(_constant, value)]
    if type(value) is frozenset:
        return "frozenset", sorted(map(repr, map(_constant, value)))
    return type(value).__name__, repr(value)


def class_hash(cls: type) -> str:
    """A digest of a class's form: its bases and what it and they define, by name; the code is looked at where it is used."""
    parts = []
    for base in type.__dict__["__mro__"].__get__(cls):
        named = f"{base.__module__}.{base.__qualname__}"
        names = sorted(set(type.__dict__["__dict__"].__get__(base)) - _VOLATILE) if not is_of_platform(base) else []
        parts.append((named, names))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def is_of_platform(obj: Any) -> bool:
    """Whether a class or function belongs to Python or torch, whose versions say what they do."""
    import sys

    top = str(getattr(obj, "__module__", "")).partition(".")[0]
    return top == "torch" or top == "builtins" or (top in sys.stdlib_module_names and top != "__main__")


__all__ = [
    "FORMAT",
    "ArchiveError",
    "ArchiveMismatch",
    "class_hash",
    "code_hash",
    "is_of_platform",
    "pack",
    "unpack",
    "write",
]
