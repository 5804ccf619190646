"""Runs an operation on samples and compares what happens with what its annotation says."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from magpy_annotations._model import Annotation, Input, Read, Relation
from magpy_annotations._targets import resolve
from magpy_annotations.conformance._perturb import Another, Other, perturb
from magpy_annotations.conformance._snapshot import DRAIN, is_empty, is_scalar, reachable, snapshot

DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call to try.

    Attributes:
        make: Makes fresh positional arguments, equal ones each time.
        text: How the sample is named in messages.
    """

    make: Callable[[], tuple[Any, ...]]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An annotation that claims less than its operation does.

    Attributes:
        target: The annotation's target.
        rule: ``signature``, ``in_place``, ``relation`` or ``value_read``.
        message: What was seen.
        sample: The call that showed it.
    """

    target: str
    rule: str
    message: str
    sample: str

    def __str__(self) -> str:
        return f"{self.target}: {self.rule}: {self.message} [{self.sample}]"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call gave: a value or an exception."""

    value: Any
    error: str | None


def check(annotation: Annotation, samples: Iterable[Sample], operation: Any = None) -> list[Violation]:
    """Runs the operation on samples; what it mutates, aliases and reads must be within what the annotation says.

    Args:
        annotation: The annotation to check.
        samples: Calls that the operation should take. One that it refuses is compared as well: exceptions are outcomes.
        operation: The operation, when it is not what the annotation's target names.

    Returns:
        Every violation found; empty when there is none.
    """
    found: list[Violation] = []
    for sample in samples:
        live = operation_of(annotation.target) if operation is None else operation
        for rule, message in _violations(annotation, live, sample):
            found.append(Violation(target=annotation.target, rule=rule, message=message, sample=sample.text))
    return found


def operation_of(target: str) -> Any:
    """What a target's annotation describes: the callable, or reading the attribute that a descriptor stands for."""
    live = resolve(target)
    return live.__get__ if isinstance(live, DESCRIPTORS) else live


def _violations(annotation: Annotation, live: Any, sample: Sample) -> Iterator[tuple[str, str]]:
    arguments = sample.make()
    form = annotation.for_call(len(arguments))
    bound = None if form is None else form.bind(len(arguments))
    if form is None or bound is None:
        yield "signature", f"no form takes {len(arguments)} arguments"
        return
    before = _Before(form, bound, arguments, sample.make())
    outcome = _call(live, arguments)
    if outcome.error is None:
        yield from _relation(form, bound, arguments, before, outcome.value)
        yield from _freshness(form, bound, live, arguments, outcome.value)
    yield from _mutations(bound, arguments, sample.make())
    yield from _reads(form, bound, live, sample)


def _call(live: Any, arguments: tuple[Any, ...]) -> _Outcome:
    try:
        return _Outcome(live(*arguments), None)
    except (Exception, SystemExit) as error:
        return _Outcome(None, type(error).__name__)


class _Before:
    """What the output may be, noted down before the call."""

    def __init__(
        self, form: Annotation, bound: tuple[Input, ...], arguments: tuple[Any, ...], untouched: tuple[Any, ...]
    ) -> None:
        output = form.output
        self.held = {at: reachable(value) for at, value in enumerate(arguments)}
        self.of = [at for at, each in enumerate(bound) if each.name == output.of]
        self.default = [at for at, each in enumerate(bound) if each.name == output.default]
        self.elements: list[Any] = []
        self.item: list[Any] = []
        for at in self.of:
            value = arguments[at]
            variadic = form.rest is not None and output.of == form.rest.name
            self.elements += [value] if variadic else _elements(value, untouched[at])
        if output.relation is Relation.ITEM:
            key = next((arguments[at] for at, each in enumerate(bound) if each.name == output.key), output.key)
            try:
                self.item += [] if isinstance(key, slice) else [arguments[self.of[0]][key]]
            except Exception:
                self.item.clear()


def _elements(value: Any, twin: Any) -> list[Any]:
    """The items; those of an iterator are its twin's, since looking at them takes them."""
    try:
        return list(itertools.islice(twin if iter_is_self(value) else iter(value), DRAIN))
    except TypeError:
        return []


def _relation(
    form: Annotation, bound: tuple[Input, ...], arguments: tuple[Any, ...], before: _Before, value: Any
) -> Iterator[tuple[str, str]]:
    if any(value is arguments[at] for at in before.default) or value is NotImplemented:
        return
    match form.output.relation:
        case Relation.SAME if not any(value is arguments[at] for at in before.of):
            yield "relation", f"the output is not {form.output.of}"
        case Relation.ITEM if before.item and not _is_or_equals(value, before.item):
            yield "relation", "the output is not the item"
        case Relation.ELEMENT if not _is_or_equals(value, before.elements) and not any(
            iter_is_self(arguments[at]) and snapshot(value) in map(snapshot, before.elements) for at in before.of
        ):
            yield "relation", f"the output is no item of {form.output.of}"
        case Relation.NEW if not is_scalar(value) and not is_empty(value):
            for at, held in before.held.items():
                itself = at in before.of and value is arguments[at]
                if id(value) in held and not itself:
                    yield "relation", f"the output is not new: {bound[at].name} holds it"
        case Relation.CONSTANT if not _constant(value):
            yield "relation", f"the output is no constant but a {type(value).__name__}"
        case _:
            pass


def _freshness(
    form: Annotation, bound: tuple[Input, ...], live: Any, arguments: tuple[Any, ...], value: Any
) -> Iterator[tuple[str, str]]:
    """Whether a new output is made again by the next call."""
    alone = is_scalar(value) or is_empty(value) or any(value is each for each in arguments)
    stable = not form.mutates and not any(iter_is_self(each) for each in arguments)
    if form.output.relation is Relation.NEW and stable and not alone and _call(live, arguments).value is value:
        yield "relation", "the output is not new: the next call gives it again"


def _constant(value: Any) -> bool:
    return is_scalar(value) or is_empty(value)


def _is_or_equals(value: Any, candidates: list[Any]) -> bool:
    return any(value is each or (is_scalar(value) and value == each) for each in candidates)


def _mutations(
    bound: tuple[Input, ...], arguments: tuple[Any, ...], untouched: tuple[Any, ...]
) -> Iterator[tuple[str, str]]:
    for each, value, other in zip(bound, arguments, untouched, strict=True):
        may_change = each.in_place or each.called or each.operators or (each.iterated and iter_is_self(value))
        if not may_change and not callable(value) and snapshot(value) != snapshot(other):
            yield "in_place", f"{each.name} is updated"


def iter_is_self(value: Any) -> bool:
    """Whether the value is an iterator, which whoever iterates it updates."""
    return hasattr(type(value), "__next__")


def _reads(form: Annotation, bound: tuple[Input, ...], live: Any, sample: Sample) -> Iterator[tuple[str, str]]:
    for at, each in enumerate(bound):
        if each.alone is Read.DEEP or each.called or _reads_more(form, each):
            continue
        first, second = _pair(form, bound, sample, at)
        if first is None or second is None:
            continue
        seen = [_observe(form, bound, live, arguments) for arguments in (first, second)]
        if seen[0] != seen[1]:
            yield "value_read", f"reads more of {each.name} than {each.value_read.value}: {seen[0]} against {seen[1]}"


def _reads_more(form: Annotation, each: Input) -> bool:
    """Whether not `value_read` alone says what is read: an attribute's relation does, or who is called with items."""
    attribute = form.output.relation is Relation.ATTRIBUTE and each.name == form.output.of
    return attribute or (each.value_read is Read.ITEMS and any(other.called for other in form.all_inputs()))


def _pair(
    form: Annotation, bound: tuple[Input, ...], sample: Sample, at: int
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    """Two argument lists that differ in what the input at `at` is not read for; Nones when nothing can be changed."""
    first, second = sample.make(), sample.make()
    read = bound[at].value_read
    if read is Read.NONE and bound[at].name not in {"self", "type", "cls"} and not callable(first[at]):
        return _put(first, at, Other()), _put(second, at, Another())
    key = next(
        (value for value, each in zip(first, bound, strict=True) if each.name == form.output.key), form.output.key
    )
    if read is Read.KEY and not isinstance(key, int | str | tuple):
        return None, None
    changed, value = perturb(second[at], read, key)
    return (first, _put(second, at, value)) if changed else (None, None)


def _put(arguments: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*arguments[:at], value, *arguments[at + 1 :])


def _observe(form: Annotation, bound: tuple[Input, ...], live: Any, arguments: tuple[Any, ...]) -> Any:
    """What the program can see of a call, inputs by their place."""
    labels: dict[int, Any] = {}
    for at, value in enumerate(arguments):
        for held, path in reachable(value).items():
            labels.setdefault(held, (at, path))
    outcome = _call(live, arguments)
    if outcome.error is not None:
        return "raises", outcome.error
    if form.output.relation in {Relation.ITEM, Relation.ELEMENT, Relation.ATTRIBUTE, Relation.SAME, Relation.UNKNOWN}:
        return form.output.relation.value
    return snapshot(outcome.value, labels)
