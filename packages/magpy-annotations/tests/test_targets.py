import collections
import functools
import re
import sys
from typing import Any

import pytest

from magpy_annotations import UnknownTargetError, resolve, unbind
from magpy_annotations._targets import module_of


class Stack(list[int]):
    def append(self, item: int) -> None:
        super().append(item)

    def bound_append(self) -> Any:
        return super().append


def test_targets_name_raw_members() -> None:
    assert resolve("builtins.len") is len
    assert resolve("builtins.list.append") is list.append
    assert resolve("builtins.dict.fromkeys") is vars(dict)["fromkeys"]
    assert resolve("builtins.str.maketrans") is str.maketrans
    assert resolve("builtins.slice.start") is vars(slice)["start"]


def test_nothing_is_imported_for_a_target() -> None:
    assert "this" not in sys.modules
    with pytest.raises(UnknownTargetError, match="not imported"):
        resolve("this.s")
    assert module_of("this.s") is None
    with pytest.raises(UnknownTargetError, match="there is no 'nothing'"):
        resolve("builtins.list.nothing")


@pytest.mark.parametrize(
    ("bound", "target"),
    [
        ([].append, "builtins.list.append"),
        (dict.fromkeys, "builtins.dict.fromkeys"),
        (collections.OrderedDict.fromkeys, "collections.OrderedDict.fromkeys"),
        ((1).__add__, "builtins.int.__add__"),
        (int.from_bytes, "builtins.int.from_bytes"),
        (re.compile("a").match, "re.Pattern.match"),
        (Stack().bound_append(), "builtins.list.append"),
    ],
)
def test_bound_callables_come_apart(bound: Any, target: str) -> None:
    unbound, front = unbind(bound)
    assert unbound is resolve(target)
    assert front[0] is bound.__self__ and len(front) == 1


def test_methods_of_methods() -> None:
    stack = Stack()
    unbound, front = unbind(stack.append)
    assert unbound is Stack.append and front == (stack,)


@pytest.mark.parametrize("plain", [len, int, list.append, object.__new__, functools.partial(int), Stack.append])
def test_what_is_not_bound_stays(plain: Any) -> None:
    assert unbind(plain) == (plain, ())
