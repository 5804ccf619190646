"""The annotations against the live functions, by MagPy's own test helper."""

from __future__ import annotations

import pytest
import xxhash

from magpy_annotations import Annotation, DuplicateAnnotationError, Registry, default_registry, parse
from magpy_annotations.conformance import Sample, check, unannotated
from magpy_annotations_demo import OWNER, register

SAMPLES = (
    Sample(make=lambda: (b"",), text="b''"),
    Sample(make=lambda: (b"magpie",), text="b'magpie'"),
    Sample(make=lambda: ("magpie",), text="'magpie'"),
    Sample(make=lambda: (b"magpie", 7), text="b'magpie', 7"),
    Sample(make=lambda: (bytearray(b"magpie"), 7), text="bytearray(b'magpie'), 7"),
    Sample(make=lambda: (3.5,), text="3.5"),  # refused: an exception is an outcome, too
)
EXEMPT = {
    "xxhash._xxhash.xxh*.*": "methods of the hash objects, whose state cannot be read",
    "xxhash._xxhash.xxh32": "makes a hash object",
    "xxhash._xxhash.xxh64": "makes a hash object",
    "xxhash._xxhash.xxh3_64": "makes a hash object",
    "xxhash._xxhash.xxh3_128": "makes a hash object",
}


def _entries() -> list[Annotation]:
    registry = Registry()
    register(registry)
    return list(registry)


@pytest.mark.parametrize("annotation", _entries(), ids=lambda annotation: annotation.target)
def test_an_entry_claims_no_less_than_what_happens(annotation: Annotation) -> None:
    assert [str(each) for each in check(annotation, SAMPLES)] == []


def test_an_entry_that_claims_less_is_found() -> None:
    wrong = parse("xxhash.xxh32_intdigest(input: length, seed?) -> constant")
    assert {each.rule for each in check(wrong, SAMPLES)} == {"value_read"}


def test_every_c_function_is_annotated_or_exempt() -> None:
    registry = Registry()
    register(registry)
    assert unannotated(registry, ("xxhash._xxhash",), EXEMPT) == []


def test_magpy_finds_the_entries_by_the_entry_point() -> None:
    annotation = default_registry().lookup(xxhash.xxh64_hexdigest)
    assert annotation is not None
    assert annotation.owner == OWNER


def test_a_second_annotation_of_a_target_is_refused() -> None:
    registry = Registry()
    register(registry)
    assert registry.targets()
    with pytest.raises(DuplicateAnnotationError, match=OWNER):
        registry.add(parse("xxhash.xxh32_digest(input) -> constant", owner="another"))
