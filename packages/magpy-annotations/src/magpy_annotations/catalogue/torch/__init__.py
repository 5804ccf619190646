"""The annotations of torch: derived from torch itself for its operators, and a text file for what surrounds them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from magpy_annotations._model import Annotation, OpNode

if TYPE_CHECKING:
    from magpy_annotations._registry import Registry
    from magpy_annotations.catalogue.torch._operators import Operators


LOADED_WITH = "torch.overrides"
"""The module that shows that torch is there, and its own import far enough."""


class _Late:
    """Imports what needs torch when it is asked for the first time after somebody has imported torch."""

    def __init__(self) -> None:
        self._operators: Operators | None = None

    def __call__(self, func: Any) -> OpNode | None:
        operators = self._operators or self._load()
        return None if operators is None else operators(func)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode | None:
        operators = self._operators or self._load()
        return None if operators is None else operators.call(func, args, kwargs)

    def _load(self) -> Operators | None:
        if LOADED_WITH in sys.modules:
            from magpy_annotations.catalogue.torch._operators import Operators

            self._operators = Operators()
        return self._operators


def register(registry: Registry, owner: str) -> None:
    """Adds the annotations of torch's operators, to be made once torch has been imported."""

    def source() -> Iterable[Annotation]:
        from magpy_annotations.catalogue.torch._operators import derive, derive_overload
        from magpy_annotations.catalogue.torch._torch import OVERLOADS

        for tp in OVERLOADS:
            registry.add_family(tp, partial(derive_overload, owner=owner))
        return derive(owner)

    registry.add_source(LOADED_WITH, source)
    registry.add_operators(_Late())
