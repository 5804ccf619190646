"""What the C functions of `xxhash` do to the objects that they get, for MagPy.

The entries are text, in `xxhash.ann` beside this file. The entry point group `magpy.annotations` names `register`.
"""

from __future__ import annotations

import importlib.resources
from functools import partial

from magpy_annotations import Registry, parse_catalogue

__all__ = ["register"]

OWNER = "magpy-annotations-demo"
FILE = "xxhash.ann"


def register(registry: Registry) -> None:
    """Adds the entries to a registry, once the program has imported xxhash: an annotation imports nothing itself.

    Args:
        registry: MagPy's, or one made for a test.
    """
    text = importlib.resources.files(__name__).joinpath(FILE).read_text(encoding="utf-8")
    registry.add_source("xxhash", partial(parse_catalogue, text, owner=OWNER, source=FILE))
