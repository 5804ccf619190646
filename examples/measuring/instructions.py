"""Counts the bytecode instructions of user Python that a call executes.

The rule, frame by frame:

1. *MagPy's own* frames do not count: files of its packages, and the guards and mocks that it generates (`<magpy ...>`).
2. *The compiled graph's own* frames do not count: torch's compiler stack (`torch/_inductor`, `torch/_functorch`, `torch/fx`,
   ...) and the code that it generates (files in Inductor's cache, `<eval_with_key>`, ...).
3. The measuring code's own frames, and frames that ran already when counting began, do not count.
4. The standard library, torch's remaining Python and other generated code (`<string>`) count as the frame that called them.
5. Everything else counts: the model's file, `transformers`, and `torch/nn` with the rest of torch's Python front end.

The counter is its own: `sys.settrace` with opcode events on CPython 3.11, `sys.monitoring` from 3.12 on (where opcode events
of `settrace` miss frames). Only the thread that enters the block is counted.
"""

import collections
import importlib.util
import os
import sys
import sysconfig
import tempfile
import threading
from types import CodeType, FrameType
from typing import Any

import torch

MAGPY_PACKAGES = ("magpy", "magpy_annotations", "magpy_codegen", "magpy_refgraph", "magpy_runtime")

TORCH_COMPILER = (
    "_C", "_compile.py", "_decomp", "_dispatch", "_dynamo", "_functorch", "_guards.py", "_higher_order_ops", "_inductor",
    "_library", "_logging", "_ops.py", "_prims", "_prims_common", "_refs", "_subclasses", "compiler", "fx", "monitor",
    "profiler",
)  # fmt: skip
"""What of torch runs a compiled graph."""

TORCH_USER = ("nn", "_tensor.py", "functional.py", "overrides.py", "distributions", "jit", "_jit_internal.py")
"""What of torch is the Python that a model is made of."""

GENERATED_BY_COMPILER = ("<eval_with_key>", "<aot", "<inductor", "<torch")


class InstructionCounter:
    """Counts user instructions between `__enter__` and `__exit__`.

    Attributes:
        total: How many instructions counted.
        by_file: How many in each file.
    """

    def __init__(self) -> None:
        self.by_file: collections.Counter[str] = collections.Counter()
        self._by_code: dict[CodeType, bool | None] = {}
        self._rule = _Rule()
        self._thread = threading.get_ident()
        self._previous: Any = None
        self._tool = -1
        self._outer: list[FrameType] = []

    @property
    def total(self) -> int:
        return self.by_file.total()

    def counts(self, frame: FrameType | None) -> bool:
        """Whether the frame's instructions count, by the rule in this module's head."""
        while frame is not None:
            code = frame.f_code
            if code in self._by_code:
                answer = self._by_code[code]
            else:
                answer = self._by_code[code] = self._rule.of_file(code.co_filename)
            if answer is not None:
                return answer
            frame = frame.f_back
        return True

    def __enter__(self) -> "InstructionCounter":
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            self._outer.append(frame)
            frame = frame.f_back
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            self._previous = sys.gettrace()
            sys.settrace(self._on_call)
        return self

    def __exit__(self, *_problem: object) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(self._tool, 0)
            sys.monitoring.free_tool_id(self._tool)
        else:
            sys.settrace(self._previous)
        self._outer.clear()

    def _on_call(self, frame: FrameType, event: str, _arg: object) -> Any:
        if not self.counts(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        name = frame.f_code.co_filename

        def on_event(_frame: FrameType, event: str, _arg: object) -> Any:
            if event == "opcode":
                self.by_file[name] += 1
            return on_event

        return on_event

    def _monitor(self) -> None:
        if sys.version_info >= (3, 12):  # for mypy
            monitoring = sys.monitoring
            self._tool = next(n for n in range(6) if monitoring.get_tool(n) is None)
            monitoring.use_tool_id(self._tool, "instruction counter")

            def on_instruction(code: CodeType, _offset: int) -> None:
                frame = sys._getframe(1)
                if threading.get_ident() == self._thread and frame not in self._outer and self.counts(frame):
                    self.by_file[code.co_filename] += 1

            monitoring.register_callback(self._tool, monitoring.events.INSTRUCTION, on_instruction)
            monitoring.set_events(self._tool, monitoring.events.INSTRUCTION)


class _Rule:
    """True: counts; False: does not; None: as the caller."""

    def __init__(self) -> None:
        self.torch = os.path.dirname(torch.__file__) + os.sep
        self.stdlib = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
        self.site = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
        self.own = (
            os.path.dirname(__file__) + os.sep,
            os.path.join(os.path.dirname(os.path.dirname(__file__)), "demo.py"),
        )
        self.inductor = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or f"{tempfile.gettempdir()}{os.sep}torchinductor_"
        self.magpy: tuple[str, ...] = ()
        for name in MAGPY_PACKAGES:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin:
                self.magpy += (os.path.dirname(spec.origin) + os.sep,)

    def of_file(self, name: str) -> bool | None:
        if name.startswith("<magpy") or name.startswith(self.magpy) or name.startswith(self.own):
            return False
        if name.startswith(GENERATED_BY_COMPILER) or name.startswith(self.inductor):
            return False
        if name.startswith(self.torch):
            head = name.removeprefix(self.torch).split(os.sep)[0]
            return True if head in TORCH_USER else False if head in TORCH_COMPILER else None
        if name.startswith("<") or (name.startswith(self.stdlib) and not name.startswith(self.site)):
            return None
        return True
