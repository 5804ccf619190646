"""`magpy.explain`: everything that is known of a compiled callable, readable."""

from __future__ import annotations

from typing import Any

from ._api import info, states
from ._reasons import REASONS


def explain(compiled: Any) -> str:
    """Say how a compiled callable is served: records, guarded facts, guard and mock source, operator graph, effects, reasons.

    Args:
        compiled: what `magpy.compile` returned.

    Raises:
        TypeError: it was not made by `magpy.compile`.
    """
    found = info(compiled)
    lines = [
        f"{found.monitored} monitored, {found.hits} served from records, {found.native} native",
        f"{found.records} records, {found.graphs} graphs, {found.ops} operators",
    ]
    if found.timings:
        lines.append("seconds: " + ", ".join(f"{name} {value:.3f}" for name, value in found.timings.items()))
    for reason in found.reasons:
        place = f" at {reason.file}:{reason.line}" if reason.file else ""
        lines.append(f"not compiled [{reason.slug}] {reason.message}{place} ({reason.count} calls)")
        lines.append(f"    {REASONS[reason.slug].advice}")
        lines += [f"    {line}" for line in reason.details.splitlines()]
    for boundary in found.boundaries:
        place = f" at {boundary.file}:{boundary.line}" if boundary.file else ""
        outcomes = ", ".join(f"{where} ({count})" for where, count in boundary.outcomes.items())
        lines.append(
            f"boundary [{boundary.reason}] {boundary.operation}{place}: {boundary.taken} times; then {outcomes}"
        )
        if boundary.unmerged:
            lines.append(f"    its ways were not merged: {boundary.unmerged}")
    for nested in found.nested:
        inner = nested.info
        lines.append(
            f"inside of native parts: {nested.name} at {nested.file}:{nested.line}: {inner.monitored} monitored, "
            f"{inner.hits} served from {inner.records} records, {inner.native} native"
        )
    for state in states(compiled):
        for number, record in enumerate(state.records()):
            checks = len(record.checks) + len(record.held)
            lines += [
                "",
                f"record {number}: {record.hits} hits, {checks} checks, {record.operators} operators{_entry_of(record)}",
            ]
            if record.boundary is not None:
                lines.append(f"ends at the boundary {record.boundary.text}, line {record.boundary.line}")
            lines += [f"lifted {each}" for each in record.lifted]
            lines += ["", record.guard_source, record.held_source()[0], record.mock_source]
            if record.effects:
                lines.append("effects:")
                lines += [f"    {effect}" for effect in record.effects]
            if record.graph is not None:
                lines += [line for report in record.graph.meta.get("reports", ()) for line in report.text()]
                lines += ["operator graph:", record.graph.print_readable(print_output=False)]
    return "\n".join(lines)


def _entry_of(record: Any) -> str:
    """Which of the backend's entries runs a record's graph, where the backend says so."""
    run = record.run
    while run is not None:
        if hasattr(run, "entry"):
            return f", entry {run.entry}"
        run = getattr(run, "run", None)
    return ""
