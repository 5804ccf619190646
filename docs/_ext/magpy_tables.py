"""Directives that render the program's own tables, so that a page cannot disagree with the code.

``magpy-catalogue``
    All annotations that ``magpy_annotations.default_registry()`` knows, module by module, in their text form.
``magpy-annotation``
    An example of the text form; what the parser refuses fails the build.
``magpy-reasons``
    The catalogue of reasons for which something is not compiled.
``magpy-command``
    The usage of the command ``magpy`` and of each of its commands.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# Imported so that the registry can resolve the parts of the catalogue that speak of them.
OPTIONAL_MODULES = ("torch", "numpy", "itertools", "collections", "functools", "operator", "math", "re", "copy")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _not_yet(what: str) -> list[nodes.Node]:
    return [nodes.paragraph("", f"{what} is not part of this checkout yet.")]


class CatalogueDirective(SphinxDirective):
    """Sections with one literal block for each module that has annotated operations."""

    def run(self) -> list[nodes.Node]:
        """Render the registry."""
        if not _is_there("magpy_annotations.catalogue"):
            return _not_yet("The catalogue")
        annotations = importlib.import_module("magpy_annotations")
        for module in OPTIONAL_MODULES:
            if importlib.util.find_spec(module) is not None:
                importlib.import_module(module)
        registry = annotations.default_registry()
        groups: dict[str, list[str]] = defaultdict(list)
        for target in registry.targets():
            groups[_owner_type(target)].append(annotations.render(registry.annotation(target)))
        found: list[nodes.Node] = [
            nodes.paragraph("", f"{sum(map(len, groups.values()))} operations of {len(groups)} modules and types.")
        ]
        for owner, lines in sorted(groups.items()):
            section = nodes.section(ids=[nodes.make_id(f"catalogue-{owner}")], names=[f"catalogue {owner}"])
            section += nodes.title("", owner)
            section += nodes.literal_block("\n".join(lines), "\n".join(lines), language="text")
            found.append(section)
        return found


def _owner_type(target: str) -> str:
    """The module or type that a target belongs to: all but its last name."""
    return target.rpartition(".")[0] or target


class AnnotationDirective(SphinxDirective):
    """An example in the text form of annotations, one entry or a catalogue file."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Show the example once the parser has taken it."""
        text = "\n".join(self.content)
        if _is_there("magpy_annotations._parse"):
            annotations = importlib.import_module("magpy_annotations")
            try:
                annotations.parse_catalogue(text)
            except annotations.AnnotationError as error:
                raise self.error(f"the example is no annotation: {error}") from error
        return [nodes.literal_block(text, text, language="text")]


class ReasonsDirective(SphinxDirective):
    """A section for each reason."""

    def run(self) -> list[nodes.Node]:
        """Render the table in ``magpy._reasons``."""
        if not _is_there("magpy._reasons"):
            return _not_yet("The catalogue of reasons")
        reasons = importlib.import_module("magpy._reasons").REASONS
        found: list[nodes.Node] = []
        for slug, reason in sorted(reasons.items()):
            section = nodes.section(ids=[nodes.make_id(f"reason-{slug}")], names=[f"reason {slug}"])
            section += nodes.title("", slug)
            message = reason.message.replace("{detail}", "…")
            section += nodes.paragraph("", "", nodes.strong("", "Message: "), nodes.literal("", message))
            section += nodes.paragraph("", "", nodes.strong("", "What you can do: "), nodes.Text(reason.advice))
            found.append(section)
        return found


class CommandDirective(SphinxDirective):
    """A section for each command, with what ``--help`` prints."""

    def run(self) -> list[nodes.Node]:
        """Render the argument parser's own help."""
        parser = importlib.import_module("magpy.cli._main").parser()
        text = parser.format_help()
        found: list[nodes.Node] = [nodes.literal_block(text, text, language="text")]
        return found + list(_commands(parser))


def _commands(parser: argparse.ArgumentParser) -> Iterator[nodes.Node]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                section = nodes.section(
                    ids=[nodes.make_id(f"command-{command.prog}")], names=[f"command {command.prog}"]
                )
                section += nodes.title("", command.prog)
                text = command.format_help()
                section += nodes.literal_block(text, text, language="text")
                yield section
                yield from _commands(command)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("magpy-catalogue", CatalogueDirective)
    app.add_directive("magpy-annotation", AnnotationDirective)
    app.add_directive("magpy-reasons", ReasonsDirective)
    app.add_directive("magpy-command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
