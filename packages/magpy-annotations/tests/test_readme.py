import doctest
import pathlib
import re

import pytest

from magpy_annotations import OpKind, Read, Relation, default_registry, parse, render

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_examples_run() -> None:
    assert doctest.testfile(str(README), module_relative=False).failed == 0


def test_the_entries_shown_are_the_catalogues() -> None:
    registry = default_registry()
    shown = re.findall(r"^(?:builtins|_operator)\.[\w.]+\(.*$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) > 5
    for line in shown:
        said = render(registry.annotation(parse(line).target))
        assert said.startswith(line), line


def test_every_word_is_explained() -> None:
    text = README.read_text(encoding="utf-8")
    for word in (*Relation, *OpKind, *(each for each in Read if each is not Read.DEEP)):
        assert f"`{word.value}" in text, word


def test_the_manual_explains_every_word() -> None:
    manual = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "annotation-format.md"
    if not manual.is_file():
        pytest.skip("the package stands alone: the manual is in MagPy's repository")
    text = manual.read_text(encoding="utf-8")
    words = ["inplace", "called", "iterated", "hashed", "alike", "on", "each"]
    words += ["impure", "effect", "optional", "note", "node", "random", "mutates", "why"]
    words += [each.value for each in (*Relation, *Read)]
    for word in (*words, *(kind.value for kind in OpKind)):
        assert f"`{word}" in text, word
    for word in words:
        assert f'"{word}"' in text, f"the grammar does not have {word}"
