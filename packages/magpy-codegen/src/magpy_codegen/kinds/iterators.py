"""Iterators of builtin containers, also half consumed: made anew and taken as far as they were."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from magpy_codegen._mock import Builder, MockWriter, Unbuildable


def advanced(iterator: Iterator[Any], steps: int) -> Iterator[Any]:
    """The same iterator, after so many steps; one more than it has elements exhausts it."""
    for _ in itertools.islice(iterator, steps):
        pass
    return iterator


def exhausted(iterator: Iterator[Any]) -> Iterator[Any]:
    """The same iterator, which has nothing left and knows it."""
    for _ in iterator:
        pass
    return iterator


def build_iterator(writer: MockWriter, obj: Any) -> str:
    """`iter` of the container, set to the position, the way `copy` does it; an exhausted one is over nothing."""
    reduced = obj.__reduce__()
    if reduced[0] not in _MAKERS:
        raise Unbuildable(obj)
    if reduced[0] is iter and type(obj) is _REVERSED:  # exhausted
        reduced = (reversed, ([],))
    if len(reduced) == 2 and reduced[0] is iter and type(obj) in _SAMPLES:
        name = writer.fresh(obj)
        shown = f"iter({_SAMPLES[type(obj)]!r})"
        writer.add(f"{name} = {writer.namespace.constant(exhausted, 'exhausted')}({shown})")
        return name
    args = ", ".join([writer.value(arg) for arg in reduced[1]])
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {reduced[0].__name__}({args})")
    if len(reduced) > 2 and reduced[2] is not None:
        writer.add(f"{name}.__setstate__({reduced[2]!r})")
    return name


def build_hashed(writer: MockWriter, obj: Any) -> str:
    """An iterator over a dictionary or a set, which keeps no index: a new one takes as many steps.

    Of a set only where that is older than the run: one that is built again may have another order.
    """
    view, owners = (
        _VIEWS[type(obj)],
        [each for each in gc.get_referents(obj) if isinstance(each, (dict, set, frozenset))],
    )
    shown = writer.namespace.constant(view, "iterator_of")
    if not owners:
        name = writer.fresh(obj)
        empty = "set()" if type(obj) is _SET else "{}"
        writer.add(f"{name} = {writer.namespace.constant(exhausted, 'exhausted')}({shown}({empty}))")
        return name
    owner = owners[0]
    steps = len(owner) - obj.__length_hint__()
    node = writer.graph.find(owner)
    if not isinstance(owner, dict) and (node is None or not node.external):
        raise Unbuildable(obj)
    try:
        if len(obj.__reduce__()[1][0]) != obj.__length_hint__():
            raise Unbuildable(obj)
    except RuntimeError as error:
        raise Unbuildable(obj, str(error)) from error
    container = writer.value(owner)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    made = f"{shown}({container})"
    if steps:
        made = f"{writer.namespace.constant(advanced, 'advanced')}({made}, {steps})"
    writer.add(f"{name} = {made}")
    return name


def _over(method: Callable[[Any], Any], turn: Callable[[Any], Any] = iter) -> Callable[[Any], Any]:
    def iterator_of(container: Any) -> Any:
        return turn(method(container))

    return iterator_of


_REVERSED: Final[type] = type(reversed([]))
_SET: Final[type] = type(iter(set()))
_MADE: Final[tuple[Any, ...]] = ([], (), "", "\u00e9", b"")
_SAMPLES: Final[dict[type, Any]] = {type(iter(made)): made for made in _MADE}
_MAKERS: Final = (iter, reversed, enumerate, zip, map, filter)
_VIEWS: Final[dict[type, Callable[[Any], Any]]] = {
    type(iter({})): _over(dict.keys),
    type(iter({}.values())): _over(dict.values),
    type(iter({}.items())): _over(dict.items),
    type(reversed({})): _over(dict.keys, reversed),
    type(reversed({}.values())): _over(dict.values, reversed),
    type(reversed({}.items())): _over(dict.items, reversed),
    type(iter(set())): lambda container: iter(container),
}

BUILDERS: dict[type, Builder] = {
    **dict.fromkeys((*_SAMPLES, type(iter(range(0))), type(iter(range(1 << 80)))), build_iterator),
    **dict.fromkeys((_REVERSED, enumerate, zip, map, filter), build_iterator),
    **dict.fromkeys(_VIEWS, build_hashed),
}
