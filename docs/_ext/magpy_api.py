"""The API reference: a directive for one package, and references that lead to public names.

Implementation modules are private, so Python's own annotations name ``magpy_x._model.Thing`` where the page documents
``magpy_x.Thing``. References are led there. What belongs to other projects has no page here and stays plain text.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

PACKAGES = ("magpy", "magpy_refgraph", "magpy_annotations", "magpy_codegen", "magpy_runtime")


class ApiDirective(SphinxDirective):
    """``magpy-api:: magpy_refgraph``: everything in the package's ``__all__``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Document the package, or say that it is not there."""
        name = self.arguments[0]
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            text = f"The package `{name}` is not part of this checkout yet."
        else:
            text = f"```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n   :show-inheritance:\n```\n"
        return self.parse_text_to_nodes(text)


def resolve_reference(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Lead a reference to a private module's name to where the package documents it."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    parts = target.split(".")
    objects = env.get_domain("py").objects
    candidates = [f"{package}.{target}" for package in (node.get("py:module") or "", *PACKAGES)]
    if parts[0] in PACKAGES:
        public = [part for part in parts if not part.startswith("_")]
        candidates = [".".join(public), *(".".join([parts[0], *public[i:]]) for i in range(1, len(public)))]
    for candidate in candidates:
        if candidate in objects:
            entry = objects[candidate]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, candidate)
    is_ours_and_public = parts[0] in PACKAGES and not any(part.startswith("_") for part in parts)
    return None if is_ours_and_public else contnode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("magpy-api", ApiDirective)
    app.connect("missing-reference", resolve_reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
