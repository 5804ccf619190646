"""Well-formed HTML from nested calls: text is escaped, and every element is closed."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Iterable["Content"] | None
"""What an element holds: markup, text, or several of these."""


def tag(name: str, *content: Content, **attributes: str | int | bool | None) -> Markup:
    """An element.

    Args:
        name: its name.
        content: what it holds; plain text is escaped.
        attributes: its attributes, `class_` for `class`; None and False leave one out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            attribute = key.rstrip("_").replace("_", "-")
            words.append(f'{attribute}="{text(attribute if value is True else str(value))}"')
    return Markup(f"<{' '.join(words)}>{''.join(map(markup, content))}</{name}>")


def markup(content: Content) -> str:
    """Content as HTML."""
    if content is None:
        return ""
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return text(content)
    return "".join(map(markup, content))


def text(plain: str) -> str:
    """Text for HTML that is read as XML, too: without control characters and lone surrogates."""
    kept = "".join(each if _is_allowed(each) else "\ufffd" for each in plain)
    return escape(kept)


def _is_allowed(character: str) -> bool:
    if character < " ":
        return character in "\t\n\r"
    return not ("\ud800" <= character <= "\udfff" or character in "\ufffe\uffff")


def page(title: str, style: str, *body: Content) -> str:
    """A whole document, which needs nothing else and may load nothing else."""
    head = tag(
        "head",
        Markup('<meta charset="utf-8"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Markup(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>"
        ),
        tag("title", title),
        tag("style", Markup(style)),
    )
    document = tag("html", head, tag("body", *body), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"
