"""The registry that MagPy uses unless it is given another."""

from __future__ import annotations

import functools

from magpy_annotations import catalogue, hidden
from magpy_annotations._registry import Registry

__all__ = ["default_registry", "hidden"]


@functools.cache
def default_registry() -> Registry:
    """The catalogue, then what installed packages register through the entry point group ``magpy.annotations``."""
    registry = Registry()
    catalogue.register(registry)
    registry.load_entry_points()
    return registry
