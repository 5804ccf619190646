"""Sphinx configuration. The build is a gate: ``make docs`` runs it with ``-n -W``, and it reaches no network."""

from __future__ import annotations

import sys
from pathlib import Path

_DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(_DOCS / "_ext"), str(_DOCS.parent / "tools")]

import layout  # noqa: E402

_META = next(package for package in layout.packages() if package.folder == layout.ROOT)

project = "MagPy"
author = "The MagPy developers"
copyright = "The MagPy developers"  # noqa: A001
version = release = _META.version

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "magpy_api",
    "magpy_tables",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"MagPy {version}"
html_copy_source = False
highlight_language = "python"
