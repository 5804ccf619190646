import fnmatch
import importlib
import warnings

import pytest

from magpy_annotations import Annotation, Registry, parse
from magpy_annotations.catalogue import register
from magpy_annotations.conformance import EXEMPT_FROM_CHECKS, MODULES, Sample, check, samples


def _rules(text: str) -> set[str]:
    annotation = parse(text)
    return {each.rule for each in check(annotation, samples(annotation))}


@pytest.mark.parametrize(
    "text",
    [
        "builtins.list.append(self: none inplace, object: none) -> constant",
        "builtins.list.pop(self: items inplace, index?) -> element self",
        "builtins.dict.get(self: key, key: hashed, default?: none) -> item self[key] else default",
        "builtins.len(obj: length) -> constant",
        "builtins.tuple(iterable?: items iterated) -> new or iterable",
        "builtins.list.__iadd__(self: none inplace, value: items iterated) -> same self inplace",
    ],
)
def test_a_true_annotation_passes(text: str) -> None:
    assert _rules(text) == set()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("builtins.list.append(self: none, object: none) -> constant", "in_place"),
        ("builtins.list(iterable?: items) -> new", "in_place"),
        ("builtins.next(iterator: items, default?: none) -> element iterator else default", "in_place"),
        ("builtins.list.pop(self: none inplace, index?) -> new", "relation"),
        ("builtins.dict.get(self: none, key: hashed) -> constant", "relation"),
        ("builtins.dict.get(self: none, key: hashed) -> new", "relation"),
        ("builtins.dict.setdefault(self: none inplace, key: hashed, default?: none) -> same default", "relation"),
        ("builtins.tuple(iterable?: items iterated) -> new", "relation"),
        ("builtins.len(obj: type) -> constant", "value_read"),
        ("builtins.sorted(iterable: length iterated) -> new", "value_read"),
        ("builtins.list.copy(self: length) -> new", "value_read"),
        ("builtins.bytes.hex(self: length) -> constant", "value_read"),
        ("builtins.str.upper(self: length) -> constant", "value_read"),
        ("builtins.list.index(self: length, value) -> constant", "value_read"),
        ("builtins.list.count(self: items, value: type) -> constant", "value_read"),
        ("builtins.set.__contains__(self: none, key: hashed) -> constant", "value_read"),
        ("builtins.dict.__contains__(self: length, key: hashed) -> constant", "value_read"),
        ("builtins.type(object: none) -> constant", "value_read"),
    ],
)
def test_an_annotation_that_claims_less_is_found(text: str, rule: str) -> None:
    assert rule in _rules(text)


def test_an_annotation_that_takes_other_arguments_is_found() -> None:
    (violation,) = check(parse("builtins.len() -> constant"), [Sample(make=lambda: ([],), text="[]")])
    assert violation.rule == "signature"


def test_a_violation_names_the_call_that_shows_it() -> None:
    annotation = parse("builtins.list.reverse(self: none) -> constant")
    (violation,) = check(annotation, [Sample(make=lambda: ([1, 2],), text="[1, 2]")])
    assert str(violation) == "builtins.list.reverse: in_place: self is updated [[1, 2]]"


def _checked() -> list[Annotation]:
    for module in MODULES:
        importlib.import_module(module)
    registry = Registry()
    register(registry)
    return [
        each
        for each in registry
        if each.pure_closure
        and not each.effect
        and not any(fnmatch.fnmatchcase(each.target, pattern) for pattern in EXEMPT_FROM_CHECKS)
    ]


def test_the_catalogue_claims_no_less_than_what_happens() -> None:
    checked, violations = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for annotation in _checked():
            tried = samples(annotation)
            checked += bool(tried)
            violations += check(annotation, tried)
    assert [str(each) for each in violations] == []
    assert checked > 1500
