"""Samples for an annotation, found by trying: arguments from a pool, kept when the call works."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from magpy_annotations._model import Annotation, Input, Read
from magpy_annotations._targets import UnknownTargetError, resolve
from magpy_annotations.conformance._check import Sample, operation_of
from magpy_annotations.conformance._pool import BY_NAME, POOL, SELVES, Maker

_WANTED = 8
_TRIES = 400
_PRODUCT = 4000


def samples(annotation: Annotation) -> tuple[Sample, ...]:
    """Calls that the operation takes; a few that it refuses when it takes none of the pool's."""
    try:
        live = operation_of(annotation.target)
    except UnknownTargetError:
        return ()
    if not callable(live):
        return ()
    taken: list[Sample] = []
    refused: list[Sample] = []
    for sample in itertools.islice(_candidates(annotation), _TRIES):
        try:
            live(*sample.make())
        except (Exception, SystemExit):
            refused.append(sample)
        else:
            taken.append(sample)
            if len(taken) >= _WANTED:
                break
    return tuple(taken or refused[:2])


def _candidates(annotation: Annotation) -> Iterator[Sample]:
    owner = annotation.target.rpartition(".")[0]
    for form in (annotation, *annotation.overloads):
        places = [each for each in form.inputs if not each.keyword_only]
        required = [each for each in places if not each.optional]
        for count in dict.fromkeys((len(required), min(len(required) + 1, 3), len(places) if len(places) <= 3 else 0)):
            chosen: list[Input] = places[:count]
            if len(chosen) < count and form.rest is not None:
                chosen += [form.rest] * (count - len(chosen))
            if form.bind(len(chosen)) is None:
                continue
            pools = [_pool(each, owner) for each in chosen]
            for combination in itertools.islice(_diagonal(pools), _TRIES):
                makers = tuple(maker for _, maker in combination)
                text = ", ".join(name for name, _ in combination)
                yield Sample(make=functools.partial(_make, makers), text=text)


def _make(makers: tuple[Maker, ...]) -> tuple[Any, ...]:
    return tuple(maker() for maker in makers)


def _pool(each: Input, owner: str) -> tuple[tuple[str, Maker], ...]:
    if each.name == "self":
        return SELVES.get(owner) or _made(owner)
    if each.name in BY_NAME:
        return BY_NAME[each.name]
    if each.name in {"type", "cls"}:
        return ((owner, lambda: resolve(owner)), *POOL[16:17])
    if each.called:
        return (POOL[15], POOL[14], POOL[16], POOL[5])
    if each.value_read is Read.NONE:
        return (POOL[13], POOL[1], POOL[0])
    return POOL


def _made(owner: str) -> tuple[tuple[str, Maker], ...]:
    """What the owner makes of itself, as exceptions do."""
    tp = resolve(owner) if "." in owner else None
    if not (isinstance(tp, type) and issubclass(tp, BaseException)):
        return POOL
    return ((f"{tp.__name__}([1])", functools.partial(_construct, tp)),)


def _construct(tp: type) -> Any:
    for arguments in (
        ([1],),
        ("a", [ValueError([1])]),
        ("u8", b"a", 0, 1, "a"),
        ("u8", "a", 0, 1, "a"),
        ("a", 0, 1, "a"),
    ):
        try:
            return tp(*arguments)
        except TypeError:
            continue
    return tp()


def _diagonal(pools: list[tuple[tuple[str, Maker], ...]]) -> Iterator[tuple[tuple[str, Maker], ...]]:
    """The product of the pools, combinations of likely members first."""
    if not pools:
        yield ()
        return
    while math.prod(len(pool) for pool in pools) > _PRODUCT:
        longest = max(pools, key=len)
        pools = [pool[:-1] if pool is longest else pool for pool in pools]
    ranked = sorted(itertools.product(*(range(len(pool)) for pool in pools)), key=lambda places: (sum(places), places))
    for places in ranked:
        yield tuple(pool[place] for pool, place in zip(pools, places, strict=True))
