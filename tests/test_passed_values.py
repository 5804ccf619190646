"""Plain values that pass through a call: a hit gives the object that came, not an equal one that the record knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from serving import Served

import magpy
import magpy_runtime

VALUES = ("some text", 3.25, 10**30, 1000, b"bytes", 2.5 + 1j, range(3, 9))


class Box:
    """An object with one attribute."""

    shared: Any = None

    def __init__(self, content: Any) -> None:
        self.content = content


GLOBAL: Any = None


def fresh(value: Any) -> Any:
    """Another object that is equal to a plain value."""
    match value:
        case str() | bytes():
            return value[:1] + value[1:]
        case range():
            return range(value.start, value.stop)
        case complex():
            return complex(value.real, value.imag)
    return type(value)(repr(value))


def _append(value: Any, found: list[Any]) -> None:
    found.append(value)


def _store(value: Any, box: Box) -> None:
    box.content = value


def _item(value: Any, found: dict[str, Any]) -> None:
    found["a"] = value


def _global() -> Any:
    return GLOBAL


def _unpacked(pair: Any) -> Any:
    one, other = pair
    return other, one


def _called(value: Any) -> Any:
    return _identity(value)


def _identity(value: Any) -> Any:
    return value


def _keyword(*, value: Any) -> Any:
    return value


def _behind(value: Any, x: torch.Tensor) -> Any:
    kept = value
    return kept if x.sum().item() > 0 else None


def _raised(value: Any) -> Any:
    raise ValueError(value)


def _new(value: Any) -> Any:
    return Box(value)


class Once:
    """A way to call a function with a value, and to find that value in what became of it."""

    def __init__(
        self, function: Callable[..., Any], give: Callable[[Any], Any], find: Callable[[Any, Any], Any]
    ) -> None:
        self.function = function
        self.give = give
        self.find = find


WAYS = {
    "returned": Once(_identity, lambda v: (v,), lambda r, a: [r]),
    "in containers": Once(lambda v: ([v], (v, v), {"k": v}), lambda v: (v,), lambda r, a: [r[0][0], *r[1], r[2]["k"]]),
    "in a new object": Once(_new, lambda v: (v,), lambda r, a: [r.content]),
    "through a call": Once(_called, lambda v: (v,), lambda r, a: [r]),
    "appended": Once(_append, lambda v: (v, []), lambda r, a: a[1]),
    "as an attribute": Once(_store, lambda v: (v, Box(None)), lambda r, a: [a[1].content]),
    "as an item": Once(_item, lambda v: (v, {}), lambda r, a: [a[1]["a"]]),
    "of a global": Once(_global, lambda v: (), lambda r, a: [r]),
    "of an attribute": Once(lambda box: box.content, lambda v: (Box(v),), lambda r, a: [r]),
    "of a class": Once(lambda box: box.shared, lambda v: (Box(None),), lambda r, a: [r]),
    "of a list": Once(lambda found: [*found], lambda v: ([v, v],), lambda r, a: r),
    "of a dictionary": Once(lambda found: (found["k"], found.get("k")), lambda v: ({"k": v},), lambda r, a: r),
    "of a tuple": Once(_unpacked, lambda v: ((v, v),), lambda r, a: r),
    "beside a tensor": Once(lambda v, x: (x + 1, v), lambda v: (v, torch.ones(3)), lambda r, a: [r[1]]),
    "behind a boundary": Once(_behind, lambda v: (v, torch.ones(3)), lambda r, a: [r]),
    "raised": Once(_raised, lambda v: (v,), lambda r, a: r),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_object_that_came(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = WAYS[way]
    served = Served(magpy.compile(once.function, backend="eager"))
    for value in VALUES:
        for attempt in range(3):
            own = fresh(value)
            monkeypatch.setitem(globals(), "GLOBAL", own)
            monkeypatch.setattr(Box, "shared", own)
            args = once.give(own)
            hits = magpy.info(served.compiled).hits
            try:
                result = served.compiled(*args)
            except ValueError as error:
                result = error.args
            found = [*once.find(result, args)]
            assert found and all(each is own for each in found), (value, attempt)
            assert not attempt or magpy.info(served.compiled).hits == hits + 1


def test_a_keyword_argument() -> None:
    served = Served(magpy.compile(_keyword, backend="eager"))
    served.monitored(value="some text")
    own = fresh("some text")
    assert served.hit(value=own) is own


def test_two_places_of_one_object() -> None:
    served = Served(magpy.compile(lambda one, other: (other, one), backend="eager"))
    both = fresh("some text")
    served.monitored(both, both)
    one, other = fresh("some text"), fresh("some text")
    found = served.monitored(one, other)
    for _ in range(3):
        assert found[0] is other
        assert found[1] is one
        one, other = fresh("some text"), fresh("some text")
        found = served.hit(one, other)
    found = served.hit(both, both)
    assert found[0] is found[1] is both


def test_a_saved_record(tmp_path: Any) -> None:
    served = Served(magpy.compile(_append, backend="eager"))
    served.monitored("some text", [])
    magpy.save(served.compiled, tmp_path / "saved")
    loaded = magpy_runtime.load(tmp_path / "saved", _append)
    own = fresh("some text")
    found: list[Any] = []
    loaded(own, found)
    assert found[0] is own
    assert magpy_runtime.info(loaded).hits == 1


def test_many_values() -> None:
    def function(found: list[str]) -> list[str]:
        return [*found]

    served = Served(magpy.compile(function, backend="eager"))
    names = [f"name {number}" for number in range(100)]
    served.monitored(names)
    assert served.hit([fresh(name) for name in names]) == names


@pytest.mark.parametrize("value", [(1.5, "some text"), frozenset({1.5}), (("some text",),)])
def test_constants_of_constants(value: Any) -> None:
    served = Served(magpy.compile(_identity, backend="eager"))
    served.monitored(value)
    own = type(value)([*value])
    assert served.hit(own) is own
