"""The automatic disk cache: records are kept as archives, so that another process of the same program starts warm.

Each compiled callable has a *shelf*, a folder named by what the callable is and by what runs here. A process adds a file for
what it has recorded and reads those of others. Files are written atomically and never changed, so processes need no lock.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import types
import weakref
from pathlib import Path
from typing import Any, Final

from magpy_runtime import RecordCache, worker
from magpy_runtime.archive import (
    ArchiveError,
    attach,
    class_hash,
    code_hash,
    environment,
    environment_differs,
    unpack,
    write,
)
from magpy_runtime.capture import type_lookup
from magpy_runtime.segments import Tree

from ._env import CACHE_DIR, CACHE_SIZE

SUFFIX: Final = ".magpy"
_PATIENCE_S: Final = 300.0
_STALE_S: Final = 3600.0


class UnsafeCacheError(RuntimeError):
    """The cache's folder can be written by others, and what lies in it is code."""


def default_folder() -> str:
    """The user's own."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "magpy")


def cache_folder(options: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str | None]:
    """The backend's options, and the folder of the cache, if there is to be one.

    Raises:
        TypeError: the option is neither a path nor a bool nor None.
    """
    found: Any = CACHE_DIR or None
    if options and "cache" in options:
        options = dict(options)
        found = options.pop("cache")
        if not isinstance(found, (str, os.PathLike, bool, type(None))):
            raise TypeError(f"the option cache must be a folder or a bool, not {type(found).__qualname__} ({found!r})")
    if found is True:
        found = CACHE_DIR or default_folder()
    return options or None, os.path.abspath(os.fspath(found)) if found else None


class Shelf:
    """The records of one compiled callable on disk.

    Attributes:
        tried: whether they were read.
        written: the file that this process has written, None so far.
    """

    def __init__(self, state: Any, config: Any) -> None:
        self.root = Path(config.cache)
        self.folder = self.root / _key(state.target, config)
        self.tried = False
        self.written: Path | None = None
        self._state = weakref.ref(state)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._dirty = False
        self._kept: Any = None  # until its records are written, since the process may drop it before
        self._built: dict[int, Any] = {}

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, target: Any, cache: RecordCache, tree: Tree) -> bool:
        """Take records from the disk, the newest files first; whether there were any."""
        self.tried = True
        if not self.folder.is_dir():
            return False
        check_safe(self.root)
        found = False
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), key=_age):
            differences: list[str] = []
            try:
                data = path.read_bytes()
                manifest, members = unpack(data, str(path))
            except ArchiveError:
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            except OSError:
                continue
            if environment_differs(manifest):
                continue
            count = len(cache.records)
            attach(members, target, cache, tree, differences)
            found = found or len(cache.records) > count
            with contextlib.suppress(OSError):
                os.utime(path)
        for record in cache.records[cache.limit :]:
            cache.discard(record)
        return found

    # -- writing ------------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """There is a new record: it will be written by and by, at the latest when the process ends. Until then it lives."""
        with self._lock:
            if self._dirty:
                return
            self._dirty = True
            self._kept = self._state()
        _waiting.add(self)
        worker.submit(self.save)

    def save(self) -> None:
        """Write what this process has recorded."""
        from ._saving import Archive

        with self._writing:
            self._save(Archive)

    def _save(self, archive_of: Any) -> None:
        with self._lock:
            if not self._dirty:
                return
            self._dirty = False
        done = False
        try:
            self._write(archive_of)
            done = True
        except OSError as error:
            _say(f"records of {self.folder.name} were not kept: {error}")
            done = True
        except UnsafeCacheError as error:
            _say(str(error))
            done = True
        finally:
            with self._lock:
                self._dirty = self._dirty or not done  # the worker was stopped since the process ends
                if not self._dirty:
                    self._kept = None
                    _waiting.discard(self)

    def _write(self, archive_of: Any) -> None:
        state = self._state()
        if state is None:
            return
        archive = archive_of(state, self._built)
        archive.collect()
        if not archive.records:
            return
        data = archive.data()
        path = self.folder / (hashlib.sha256(data).hexdigest()[:32] + SUFFIX)
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        check_safe(self.root)
        self.folder.mkdir(exist_ok=True)
        write(path, data)
        before, self.written = self.written, path
        if before is not None and before != path:
            before.unlink(missing_ok=True)
        prune(self.root, CACHE_SIZE, keep=path)


_waiting: set[Shelf] = set()


def _finish() -> None:
    """What was not written yet is, before the process ends."""
    deadline = time.monotonic() + _PATIENCE_S
    worker.stop()
    for shelf in [*_waiting]:
        if time.monotonic() < deadline:
            try:
                shelf.save()
            except Exception as error:
                _say(f"records of {shelf.folder.name} were not kept: {type(error).__name__}: {error}")


# Inductor's pools end before the functions of `atexit` are called, and the compiler with them.
getattr(threading, "_register_atexit", atexit.register)(_finish)


def _say(text: str) -> None:
    print(f"magpy: {text}", file=sys.stderr)


def check_safe(root: Path) -> None:
    """Whether nobody else can put files there.

    Raises:
        UnsafeCacheError: another user owns the folder, or may write to it.
    """
    if not hasattr(os, "getuid"):
        return
    found = root.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UnsafeCacheError(f"{root} can be written by others; records in it are code, so it is not used")


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def files(root: Path) -> list[tuple[Path, os.stat_result]]:
    """All archives of a cache, the least recently used first."""
    found = []
    for path in root.glob(f"*/*{SUFFIX}"):
        with contextlib.suppress(OSError):
            found.append((path, path.stat()))
    return sorted(found, key=lambda each: each[1].st_mtime)


def prune(root: Path, limit: int, keep: Path | None = None) -> None:
    """Remove the least recently used archives until the others have no more bytes than `limit`; and what crashes left."""
    found = files(root)
    total = sum(status.st_size for _, status in found)
    for path, status in found:
        if total <= limit:
            break
        if path != keep:
            with contextlib.suppress(OSError):
                path.unlink()
            total -= status.st_size
    for path in root.glob("*/.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink()


def clear(root: Path) -> int:
    """Remove all archives; gives how many there were."""
    count = 0
    for path, _ in files(root):
        with contextlib.suppress(OSError):
            path.unlink()
            count += 1
    for folder in root.glob("*/"):
        for path in folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
    return count


def _key(target: Any, config: Any) -> str:
    """What a callable is, and what runs here."""
    function = target.__func__ if isinstance(target, types.MethodType) else target
    parts: list[Any] = [environment(), config.backend_name, repr(config.options), config.freeze, config.dynamic]
    if isinstance(function, types.FunctionType):
        name = function.__qualname__
        parts += [function.__module__, name, code_hash(function.__code__)]
    else:
        name = type(target).__qualname__
        parts += [type(target).__module__, name, class_hash(type(target))]
        for method in ("forward", "__call__"):
            found = type_lookup(type(target), method)
            parts.append(code_hash(found.__code__) if isinstance(found, types.FunctionType) else None)
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]
    readable = "".join(each if each.isalnum() else "_" for each in name)[:40]
    return f"{readable}-{digest}"


__all__ = ["Shelf", "UnsafeCacheError", "cache_folder", "clear", "default_folder", "files"]
