"""All annotations as text, with who registered them."""

from __future__ import annotations

from magpy_annotations._registry import Registry
from magpy_annotations._text import render


def dump(registry: Registry) -> str:
    """The registry's annotations, one a line and sorted by target, under a comment for each owner."""
    by_owner: dict[str, list[str]] = {}
    for annotation in registry:
        by_owner.setdefault(annotation.owner, []).append(render(annotation))
    parts = [
        f"# registered by {owner or 'nobody named'}\n" + "\n".join(lines) for owner, lines in sorted(by_owner.items())
    ]
    return "\n\n".join(parts) + ("\n" if parts else "")
