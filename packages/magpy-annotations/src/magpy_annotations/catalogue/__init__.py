"""The annotations that come with MagPy: one text file for each owner, and code where a whole family follows a rule.

A file below this folder is read once the module has been imported that its ``# module:`` line names; without such a
line it is read at once.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from functools import partial
from importlib.resources.abc import Traversable

from magpy_annotations._parse import parse_catalogue
from magpy_annotations._registry import Registry
from magpy_annotations.catalogue import _numpy, torch

OWNER = "magpy-annotations"
_MODULE = re.compile(r"^# module: ([\w.]+)$", re.MULTILINE)


def files() -> Iterator[tuple[str, str, str]]:
    """Name, module and text of each file, in a fixed order."""
    for path in _walk(importlib.resources.files(__name__)):
        text = path.read_text(encoding="utf-8")
        found = _MODULE.search(text)
        yield path.name, found.group(1) if found else "builtins", text


def register(registry: Registry) -> None:
    """Adds the whole catalogue to a registry."""
    for name, module, text in files():
        registry.add_source(module, partial(parse_catalogue, text, owner=OWNER, source=name))
    torch.register(registry, OWNER)
    _numpy.register(registry, OWNER)


def _walk(folder: Traversable) -> Iterator[Traversable]:
    for path in sorted(folder.iterdir(), key=lambda each: each.name):
        if path.is_dir():
            yield from _walk(path)
        elif path.name.endswith(".ann"):
            yield path
