"""The catalogue as a whole: it parses, names what exists, and says nothing twice."""

import importlib
from collections import Counter

import pytest

from magpy_annotations import Registry, parse, render
from magpy_annotations._parse import parse_catalogue
from magpy_annotations.catalogue import files, register
from magpy_annotations.conformance import EXEMPT_FROM_ANNOTATION, MODULES, unannotated


@pytest.fixture(scope="module")
def registry() -> Registry:
    for module in (*MODULES, "_codecs", "_io", "_datetime", "posix", "_weakref"):
        importlib.import_module(module)
    made = Registry()
    register(made)
    return made


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, _, text in files()])
def test_each_file_parses_and_says_nothing_twice(name: str, text: str) -> None:
    targets = Counter(each.target for each in parse_catalogue(text, source=name))
    assert [target for target, count in targets.items() if count > 1] == []
    assert text.startswith("#"), "a catalogue file opens with what it is about"


def test_every_target_exists(registry: Registry) -> None:
    assert registry.unresolved() == ()
    assert registry.conflicts() == ()


def test_two_names_of_one_object_do_not_disagree(registry: Registry) -> None:
    for alias, target in registry.aliases().items():
        said = [render(registry.annotation(each)).partition("(")[2] for each in (alias, target)]
        assert said[0] == said[1], (alias, target)


def test_every_annotation_survives_its_text(registry: Registry) -> None:
    for annotation in registry:
        assert parse(render(annotation), owner=annotation.owner) == annotation


def test_every_c_callable_is_annotated_or_exempt(registry: Registry) -> None:
    assert unannotated(registry, MODULES, EXEMPT_FROM_ANNOTATION) == []


def test_impure_operations_say_why(registry: Registry) -> None:
    silent = [
        each.target
        for each in registry
        if not each.pure_closure
        and not each.note
        and not each.overloads
        and not each.target.startswith(("torch.", "numpy."))
        and each.target.rpartition(".")[0].split(".")[0] in {"math", "itertools", "collections", "functools"}
    ]
    assert silent == []
