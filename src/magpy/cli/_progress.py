"""A line on the terminal that says what a long first call is doing."""

from __future__ import annotations

import _thread
import sys
import threading
import time
from typing import Any, TextIO

from magpy.cli._collect import Collector
from magpy.cli._text import count

_EVERY_S = 0.2
_AFTER_S = 1.0  # what takes less is not worth a line


class Progress(Collector):
    """A collector that shows the monitored run and the backend at work, where standard error is a terminal.

    Args:
        lines: as of `Collector`.
        stream: the terminal.
    """

    def __init__(self, *, lines: bool = False, stream: TextIO | None = None) -> None:
        super().__init__(lines=lines)
        self._stream = sys.stderr if stream is None else stream
        self._text = ""
        self._since = 0.0
        self._name = ""
        self._shown = False
        self._lock = threading.Lock()
        self._running = self._stream.isatty()
        if self._running:
            _thread.start_new_thread(self._show, ())  # not one of `threading`'s, which the program could see

    def watching(self, compiled: Any) -> None:
        self._name = getattr(compiled.target, "__qualname__", type(compiled.target).__qualname__)
        self._set(f"watching {self._name} run")

    def backend(self, operators: int) -> None:
        self._set(f"compiling {count(operators, 'operator')} of {self._name}")

    def recorded(self, compiled: Any, monitor: Any, run: Any, record: Any, failure: Any) -> None:
        self._set("")
        super().recorded(compiled, monitor, run, record, failure)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._set("")
        self._running = False

    def _set(self, text: str) -> None:
        with self._lock:
            self._text, self._since = text, time.perf_counter()
            if not text and self._shown:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._shown = False

    def _show(self) -> None:
        while self._running:
            time.sleep(_EVERY_S)
            with self._lock:
                seconds = time.perf_counter() - self._since
                if self._text and seconds > _AFTER_S:
                    self._stream.write(f"\r\x1b[Kmagpy: {self._text}, {seconds:.0f} s")
                    self._stream.flush()
                    self._shown = True
