"""One thread that compiles while the program goes on, and that is out of the way when the interpreter ends."""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import os
import threading
import traceback
from collections.abc import Callable
from typing import Final

_PATIENCE_S: Final = 10.0


class _Stopped(BaseException):
    """Raised in the thread when the interpreter is about to end."""


class Worker:
    """A queue of jobs and a daemon thread, started with the first job, that runs them one by one."""

    def __init__(self) -> None:
        self._jobs: collections.deque[Callable[[], None]] = collections.deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def submit(self, job: Callable[[], None]) -> bool:
        """Run a job later. It must catch its own exceptions. False when the interpreter is about to end."""
        with self._wake:
            if self._stopping:
                return False
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="magpy-compile", daemon=True)
                self._thread.start()
                atexit.register(self.stop)
            self._wake.notify()
        return True

    def stop(self) -> None:
        """Drop the jobs that wait, interrupt the one that runs, and wait a little for the thread."""
        with self._wake:
            self._stopping = True
            self._jobs.clear()
            self._wake.notify()
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stopped))
        thread.join(_PATIENCE_S)

    def forget(self) -> None:
        """In a forked child the thread does not exist."""
        self._jobs = collections.deque()
        self._wake = threading.Condition()
        self._thread = None

    def _run(self) -> None:
        with contextlib.suppress(_Stopped):
            while True:
                with self._wake:
                    while not self._jobs and not self._stopping:
                        self._wake.wait()
                    if self._stopping:
                        return
                    job = self._jobs.popleft()
                try:
                    job()
                except Exception:
                    traceback.print_exc()
                del job


worker: Final = Worker()
os.register_at_fork(after_in_child=worker.forget)

__all__ = ["Worker", "worker"]
