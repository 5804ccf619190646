"""Iterators of builtin containers, also half consumed: rebuilt the way `copy` rebuilds them, by `__reduce__`."""

from __future__ import annotations

from typing import Any

from magpy_codegen._mock import Builder, MockWriter, Unbuildable


def build_iterator(writer: MockWriter, obj: Any) -> str:
    """`iter` of the container, set to the position; an exhausted one is an iterator over nothing."""
    reduced = obj.__reduce__()
    if reduced[0] not in (iter, reversed, enumerate):
        raise Unbuildable(obj)
    if reduced[0] is iter and type(obj) is _REVERSED:  # exhausted
        reduced = (reversed, ([],))
    args = ", ".join([writer.value(arg) for arg in reduced[1]])
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {reduced[0].__name__}({args})")
    if len(reduced) > 2 and reduced[2] is not None:
        writer.add(f"{name}.__setstate__({reduced[2]!r})")
    return name


_REVERSED: type = type(reversed([]))

BUILDERS: dict[type, Builder] = {
    type(iter([])): build_iterator,
    type(iter(())): build_iterator,
    _REVERSED: build_iterator,
    type(iter(range(0))): build_iterator,
    type(iter("")): build_iterator,
}
