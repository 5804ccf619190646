"""The report of a program's compiled parts as text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from magpy._reasons import REASONS
from magpy.cli._collect import Summary, Times

KINDS = {
    "hit": "from records",
    "monitored": "watched",
    "native": "native",
    "inlined": "inside of another compiled call",
}
"""How calls are served, in words."""


def report(summaries: Iterable[Summary], seconds: float) -> str:
    """What `magpy run` prints at the end: a few lines for each compiled callable.

    Args:
        summaries: the compiled callables.
        seconds: how long the program ran.
    """
    found = list(summaries)
    if not found:
        return f"magpy: nothing was compiled in {seconds:.2f} s: the program did not call magpy.compile"
    lines = [f"magpy: {count(len(found), 'compiled object')}, {seconds:.2f} s in total"]
    for summary in found:
        lines += _of_one(summary)
    return "\n".join(lines)


def count(number: int, word: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def calls(served: dict[str, Times]) -> str:
    """How many calls were served in which way, and the mean time of each."""
    parts = [
        f"{served[kind].calls} {words} ({duration(served[kind].seconds / served[kind].calls)} each)"
        for kind, words in KINDS.items()
        if kind in served
    ]
    return f"{count(sum(times.calls for times in served.values()), 'call')}{': ' * bool(parts)}{', '.join(parts)}"


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.2f} s"


def place(file: str, line: int) -> str:
    """A place in the source, below the working directory where it is there."""
    if not file:
        return ""
    near = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if near.startswith('..') else near}:{line}"


def _of_one(summary: Summary) -> Iterator[str]:
    info = summary.info
    yield f"  {summary.name}  {place(summary.file, summary.line)}".rstrip()
    yield f"    {calls(summary.served)}"
    yield f"    {count(info.records, 'record')}, {count(info.graphs, 'graph')}, {count(info.ops, 'operator')}"
    if info.timings:
        yield "    seconds: " + ", ".join(f"{name} {value:.3f}" for name, value in info.timings.items())
    for boundary in info.boundaries:
        where = f" at {place(boundary.file, boundary.line)}" if boundary.file else ""
        outcomes = ", ".join(f"{name} ({times})" for name, times in boundary.outcomes.items())
        took = "" if boundary.seconds is None else f", {duration(boundary.seconds)}"
        taken = f"{count(boundary.taken, 'time')}{took}"
        yield f"    boundary [{boundary.reason}] {boundary.operation}{where}: {taken}; then {outcomes}"
    for reason in info.reasons:
        where = f" at {place(reason.file, reason.line)}" if reason.file else ""
        yield f"    not compiled [{reason.slug}] {reason.message}{where} ({count(reason.count, 'call')})"
        yield f"        {REASONS[reason.slug].advice}"
    for fact, times in sorted(summary.failed.items(), key=lambda item: -item[1]):
        yield f"    guard missed {count(times, 'time')}: {fact}"
