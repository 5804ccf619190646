import functools
import importlib.metadata
import sys
import types
from typing import Any

import pytest

from magpy_annotations import DuplicateAnnotationError, Registry, default_registry, dump, parse


def test_lookup_goes_by_identity() -> None:
    registry = Registry()
    entry = parse("builtins.len(obj: length) -> constant", owner="me")
    registry.add(entry)
    assert registry.lookup(len) is entry
    assert registry.lookup(abs) is None
    assert registry.owner_of("builtins.len") == "me"


def test_duplicates_are_refused_and_say_who() -> None:
    registry = Registry()
    registry.add(parse("builtins.len(obj: length) -> constant", owner="first"))
    with pytest.raises(DuplicateAnnotationError, match="annotated by first, and again by second"):
        registry.add(parse("builtins.len(obj) -> constant", owner="second"))


def test_a_late_duplicate_is_kept_out_of_the_program() -> None:
    registry = Registry()
    entry = parse("builtins.len(obj: length) -> constant", owner="first")
    registry.add(entry)
    registry.add_source("builtins", lambda: [parse("builtins.len(obj) -> constant", owner="second")])
    assert registry.lookup(len) is entry
    assert registry.conflicts() == ("builtins.len is annotated by first, and again by second",)


def test_targets_wait_for_their_module(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.add(parse("late_module.f(a) -> new"))
    asked: list[bool] = []
    registry.add_source("late_module", lambda: asked.append(True) or [parse("late_module.g(a) -> new")])  # type: ignore[func-returns-value]
    assert registry.lookup(len) is None and not asked

    late: Any = types.ModuleType("late_module")
    late.f, late.g = (lambda a: a), (lambda a: a)
    monkeypatch.setitem(sys.modules, "late_module", late)
    assert registry.lookup(late.f) is not None
    assert registry.lookup(late.g) is not None
    assert asked == [True]
    assert registry.unresolved() == ()


def test_a_second_name_of_the_same_object_is_an_alias() -> None:
    registry = Registry()
    registry.add(parse("builtins.OSError(*args: none) -> new"))
    registry.add(parse("builtins.IOError(*args: none) -> new"))
    assert registry.aliases() == {"builtins.IOError": "builtins.OSError"}


def test_a_family_annotates_what_has_no_target() -> None:
    registry = Registry()
    made: list[Any] = []

    def annotate(callable_: Any) -> Any:
        made.append(callable_)
        return parse("family.partial(*args: none) -> unknown")

    registry.add_family(functools.partial, annotate)
    one = functools.partial(int)
    assert registry.lookup(one) is registry.lookup(one)
    assert made == [one]


def test_find_follows_a_call_to_its_annotation() -> None:
    registry = default_registry()
    items: list[int] = []
    annotation, front = registry.find(items.append)
    assert annotation is registry.lookup(list.append) and front[0] is items
    annotation, front = registry.find(functools.partial(int))
    assert annotation is not None and annotation.target == "functools.partial.__call__" and len(front) == 1
    assert registry.find(len) == (registry.lookup(len), ())
    assert registry.find(test_find_follows_a_call_to_its_annotation) == (None, ())
    assert registry.find(type("Plain", (), {})) == (None, ())


def test_special_methods_are_found_along_the_mro() -> None:
    registry = default_registry()

    class Numbers(list[int]):
        def __len__(self) -> int:
            return 0

    method, annotation = registry.special(Numbers, "__getitem__")
    assert method is list.__getitem__ and annotation is registry.lookup(list.__getitem__)
    method, annotation = registry.special(Numbers, "__len__")
    assert method is Numbers.__len__ and annotation is None
    assert registry.special(int, "__len__") == (None, None)


def test_entry_points_register(monkeypatch: pytest.MonkeyPatch) -> None:
    def register(registry: Registry) -> None:
        registry.add(parse("builtins.len(obj: length) -> constant", owner="a plugin"))

    class EntryPoint:
        name = "plugin"

        @staticmethod
        def load() -> Any:
            return register

    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [EntryPoint()] if group == "magpy.annotations" else []
    )
    registry = Registry()
    assert registry.load_entry_points() == ("plugin",)
    assert dump(registry) == "# registered by a plugin\nbuiltins.len(obj: length) -> constant\n"


def test_sources_wait_for_their_module(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.add_source("late_module", list)
    registry.add_source("builtins", list)
    assert registry.waiting() == ("late_module",)
    monkeypatch.setitem(sys.modules, "late_module", types.ModuleType("late_module"))
    assert registry.waiting() == ()
