"""The compilers that can be measured, behind one small interface."""

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """How calls were served, as the compiler itself says; None where it does not say.

    Attributes:
        monitored: Calls that were watched.
        hits: Calls that a record answered.
        native: Calls that ran as they are.
        records: Records that exist.
        graphs: Operator graphs that exist.
        boundaries: Operations at which a graph had to end.
        reasons: Why something was not compiled, in words.
        timings_s: Seconds of the first call by phase (`run`, `rules`, `codegen`, `backend`).
    """

    monitored: int | None = None
    hits: int | None = None
    native: int | None = None
    records: int | None = None
    graphs: int | None = None
    boundaries: int | None = None
    reasons: tuple[str, ...] = ()
    timings_s: dict[str, float] = field(default_factory=dict)


class FrontEnd(ABC):
    """A graph capturer."""

    name: str

    @abstractmethod
    def compile(self, model: Callable[..., Any], backend: Any) -> Callable[..., Any]:
        """The compiled model."""

    @abstractmethod
    def served(self, compiled: Callable[..., Any]) -> Served:
        """The compiler's own books."""

    def reset(self) -> None:
        """Forgets what earlier models left in the process."""


class MagPy(FrontEnd):
    name = "magpy"

    def compile(self, model: Callable[..., Any], backend: Any) -> Callable[..., Any]:
        magpy: Any = importlib.import_module("magpy")
        compiled: Callable[..., Any] = magpy.compile(model, backend=backend)
        return compiled

    def served(self, compiled: Callable[..., Any]) -> Served:
        magpy: Any = importlib.import_module("magpy")
        info: Any = magpy.info(compiled)
        timings = info.timings
        if dataclasses.is_dataclass(timings) and not isinstance(timings, type):
            timings = dataclasses.asdict(timings)
        return Served(
            monitored=info.monitored,
            hits=info.hits,
            native=info.native,
            records=_count(info.records),
            graphs=_count(info.graphs),
            boundaries=_count(info.boundaries),
            reasons=tuple(map(str, info.reasons)),
            timings_s={str(k).removesuffix("_s"): float(v) for k, v in dict(timings).items()},
        )


class TorchCompile(FrontEnd):
    """torch.compile, for comparison: it keeps no such books, and its first call's backend time is not known."""

    name = "torch.compile"

    def compile(self, model: Callable[..., Any], backend: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=False)
        return compiled

    def served(self, compiled: Callable[..., Any]) -> Served:
        return Served()

    def reset(self) -> None:
        torch._dynamo.reset()


def _count(value: Any) -> int:
    return value if isinstance(value, int) else len(value)
