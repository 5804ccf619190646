"""The report of a program's compiled parts as one HTML page."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import magpy
from magpy._reasons import REASONS
from magpy._refusals import NotCompiled
from magpy.cli._collect import RecordText, Summary
from magpy.cli._html import Content, Markup, page, tag
from magpy.cli._lines import Lines, Served
from magpy.cli._style import STYLE
from magpy.cli._text import KINDS, calls, count, duration, place

_LONGEST = 2000  # lines of one generated source
_CONTEXT = 2  # lines of a file shown around watched functions


def render(command: str, summaries: Sequence[Summary], seconds: float, status: int) -> str:
    """The page.

    Args:
        command: what was run.
        summaries: the compiled callables.
        seconds: how long the program ran.
        status: its exit status.
    """
    merged = Lines()
    for summary in summaries:
        merged.merge(summary.lines)
    versions = ", ".join(
        (
            f"magpy {magpy.__version__}",
            f"torch {importlib.metadata.version('torch')}",
            f"Python {sys.version.split()[0]}",
        )
    )
    head = (
        tag("h1", "MagPy report"),
        tag("p", tag("code", command), f" ran for {duration(seconds)} and ended with status {status}. {versions}."),
    )
    body: list[Content] = [tag("header", *head)]
    if not summaries:
        body.append(tag("p", "Nothing was compiled: the program did not call magpy.compile."))
    else:
        body.append(_overview(summaries, seconds))
        body += [_compiled(number, summary) for number, summary in enumerate(summaries)]
        body.append(_sources(merged))
    return page(f"MagPy: {command}", STYLE, tag("main", *body))


# -- all compiled objects ---------------------------------------------------------------------------------------------


def _overview(summaries: Sequence[Summary], seconds: float) -> Markup:
    rows = [
        (
            tag("a", summary.name, href=f"#compiled-{number}"),
            place(summary.file, summary.line),
            *(str(summary.served[kind].calls) if kind in summary.served else "" for kind in KINDS),
            str(summary.info.records),
            str(summary.info.ops),
            str(len(summary.info.reasons) + len(summary.info.boundaries)),
        )
        for number, summary in enumerate(summaries)
    ]
    titles = ("compiled", "defined at", *KINDS.values(), "records", "operators", "boundaries and reasons")
    return tag(
        "section", tag("h2", "Compiled objects"), _table(titles, rows), _times(summaries, seconds), id="overview"
    )


def _times(summaries: Sequence[Summary], seconds: float) -> Markup:
    """Where the time went: the parts add up to the whole run."""
    total: dict[str, float] = {}
    for summary in summaries:
        for name, value in summary.info.timings.items():
            total[name] = total.get(name, 0.0) + value
    hits, native = (sum(s.served[kind].seconds for s in summaries if kind in s.served) for kind in ("hit", "native"))
    parts = {
        "watched runs": total.get("run", 0.0),
        "generating guards and mocks": total.get("codegen", 0.0),
        "backend": total.get("backend", 0.0),
        "calls from records": hits,
        "native calls": native,
    }
    parts["the rest of the program"] = max(0.0, seconds - sum(parts.values()))
    whole = sum(parts.values()) or 1.0
    bar = [
        tag(
            "span",
            class_=f"part part{number}",
            style=f"width:{100 * value / whole:.3f}%",
            title=f"{name}: {duration(value)}",
        )
        for number, (name, value) in enumerate(parts.items())
    ]
    legend = [
        tag("li", tag("span", class_=f"key part{number}"), f" {name}: {duration(value)} ({100 * value / whole:.1f} %)")
        for number, (name, value) in enumerate(parts.items())
    ]
    return tag(
        "div", tag("h3", "Time"), tag("div", *bar, class_="bar"), tag("ul", *legend, class_="legend"), class_="times"
    )


# -- one compiled object ----------------------------------------------------------------------------------------------


def _compiled(number: int, summary: Summary) -> Markup:
    info = summary.info
    parts: list[Content] = [
        tag("h2", summary.name, " ", tag("small", place(summary.file, summary.line))),
        tag("p", calls(summary.served), "; ", count(info.records, "record"), ", ", count(info.ops, "operator"), "."),
    ]
    if info.timings:
        steps = (f"{name} {duration(value)}" for name, value in info.timings.items())
        parts.append(tag("p", "Time: ", ", ".join(steps), "."))
    if info.boundaries:
        parts += [tag("h3", "Boundaries"), _boundaries(info.boundaries)]
    if info.reasons:
        rows = [_reason(reason) for reason in info.reasons]
        parts += [tag("h3", "Not compiled"), _table(("reason", "what", "where", "calls", "what you can do"), rows)]
    if summary.failed:
        missed = sorted(summary.failed.items(), key=lambda item: -item[1])
        parts += [
            tag("h3", "Guards that missed"),
            _table(("fact", "times"), [(tag("code", f), str(n)) for f, n in missed]),
        ]
    parts += [_record(at, record) for at, record in enumerate(summary.records)]
    return tag("section", *parts, id=f"compiled-{number}", class_="compiled")


def _reason(reason: NotCompiled) -> tuple[Content, ...]:
    where, advice = place(reason.file, reason.line), REASONS[reason.slug].advice
    details = _fold("details", tag("pre", reason.details)) if reason.details else None
    return tag("code", reason.slug), [reason.message, details], where, str(reason.count), advice


def _boundaries(boundaries: Iterable[Any]) -> Content:
    """Boundaries, each with all its fields: place, outcomes, counts, times."""
    rows: list[dict[str, Any]] = []
    for boundary in boundaries:
        if dataclasses.is_dataclass(boundary):
            rows.append({field.name: getattr(boundary, field.name) for field in dataclasses.fields(boundary)})
        else:
            rows.append({"boundary": boundary})
    titles = list(dict.fromkeys(name for row in rows for name in row))
    return _table(titles, [tuple(_value(row.get(name)) for name in titles) for row in rows])


def _value(value: Any) -> Content:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return tag("ul", *(tag("li", f"{key}: ", _value(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tag("ul", *(tag("li", _value(each)) for each in value))
    return str(value)


def _record(number: int, record: RecordText) -> Markup:
    counts = (count(record.hits, "hit"), count(record.checks, "check"), count(record.operators, "operator"))
    title = f"record {number}: {', '.join(counts)}{'; ends at the boundary ' * bool(record.end)}{record.end}"
    parts: list[Content] = [tag("summary", title)]
    if record.effects:
        parts += [tag("h4", "Effects"), tag("ol", *(tag("li", effect) for effect in record.effects))]
    for name, source in (
        ("guard", record.guard),
        ("facts about held objects", record.held),
        ("mock", record.mock),
        ("operator graph", record.graph),
    ):
        if source:
            parts.append(_fold(name, tag("pre", _cut(source))))
    if record.drawing:
        parts.append(_fold("RefGraph", tag("div", Markup(record.drawing), class_="drawing")))
    return tag("details", *parts, class_="record")


def _cut(source: str) -> str:
    lines = source.splitlines()
    if len(lines) <= _LONGEST:
        return source
    return "\n".join([*lines[:_LONGEST], f"... and {len(lines) - _LONGEST} more lines"])


# -- the source -------------------------------------------------------------------------------------------------------


def _sources(lines: Lines) -> Markup:
    legend = [tag("li", tag("span", class_=f"key {each.name.lower()}"), f" {each.value}") for each in Served]
    files = sorted(lines.files(), key=_is_library)  # the program's own first
    parts = [_file(lines, file, open_=not _is_library(file)) for file in files]
    return tag("section", tag("h2", "Source"), tag("ul", *legend, class_="legend"), *parts, id="source")


def _is_library(file: str) -> bool:
    """Whether a file is the standard library's or an installed package's, or only has a name, such as `<string>`."""
    return file.startswith(("<", *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))))


def _file(lines: Lines, file: str, *, open_: bool) -> Markup:
    source = linecache.getlines(file)
    shown = _shown(lines, file, len(source))
    rows: list[Markup] = []
    last = 0
    for number in shown:
        if number != last + 1:
            rows.append(tag("tr", tag("td", "…", colspan=4), class_="gap"))
        rows.append(_line(lines, file, number, source[number - 1].rstrip("\n")))
        last = number
    table = tag("table", tag("tbody", *rows), class_="source") if rows else tag("p", "The source is not there.")
    return tag("details", tag("summary", place(file, 1).rpartition(":")[0]), table, open=open_)


def _shown(lines: Lines, file: str, last: int) -> list[int]:
    found: set[int] = set()
    for name, _, first, numbers in lines.functions:
        if name == file and numbers:
            found.update(range(min(first, *numbers) - _CONTEXT, max(numbers) + _CONTEXT + 1))
    return sorted(number for number in found if 1 <= number <= last)


def _line(lines: Lines, file: str, number: int, source: str) -> Markup:
    line = file, number
    served = lines.served(line)
    notes = [*_notes(lines, file, number)]
    return tag(
        "tr",
        tag("td", str(number), class_="number"),
        tag("td", str(lines.operators[line] or ""), class_="number", title="operators"),
        tag("td", str(lines.facts[line] or ""), class_="number", title="facts of guards"),
        tag("td", tag("code", source), *(tag("span", note, class_="note") for note in notes)),
        class_=None if served is None else served.name.lower(),
        title=None if served is None else served.value,
    )


def _notes(lines: Lines, file: str, number: int) -> Iterator[str]:
    yield from sorted(lines.stops.get((file, number), ()))


# -- pieces -----------------------------------------------------------------------------------------------------------


def _table(titles: Iterable[str], rows: Iterable[Iterable[Content]]) -> Markup:
    head = tag("thead", tag("tr", *(tag("th", title) for title in titles)))
    body = tag("tbody", *(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))
    return tag("div", tag("table", head, body), class_="wide")


def _fold(title: str, content: Content) -> Markup:
    return tag("details", tag("summary", title), content)
