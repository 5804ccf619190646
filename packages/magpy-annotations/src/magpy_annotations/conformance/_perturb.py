"""Changes everything of an object that lies below a level of reading."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

from magpy_annotations._model import Read
from magpy_annotations.conformance._snapshot import is_scalar


class Other:
    """Something that no sample holds."""


class Another:
    """Something else that no sample holds."""


_SCALARS: dict[type, Any] = {int: 7919, float: 7919.5, str: "7919", bytes: b"7919", complex: 7919j, bool: True}
_MUTABLE = (list, dict, set, deque, bytearray)


def perturb(value: Any, read: Read, key: Any = None) -> tuple[bool, Any]:
    """An object that cannot be told from `value` by who reads it to that level.

    Args:
        value: A freshly made sample; it may be changed and given back.
        read: The level.
        key: The key that is read, for KEY.

    Returns:
        Whether anything could be changed, and the object.
    """
    match read:
        case Read.NONE | Read.TYPE:
            return _contents(value)
        case Read.LENGTH:
            return _same_length(value)
        case Read.KEY:
            return _same_at(value, key)
        case Read.ITEMS:
            return _same_items(value)
        case Read.DEEP:
            return False, value


def _contents(value: Any) -> tuple[bool, Any]:
    tp = type(value)
    if tp in _SCALARS:
        return value != _SCALARS[tp], _SCALARS[tp]
    if tp in (list, tuple, deque, set, frozenset):
        return True, tp([7919, 7907, 7901, 7883, 7879])
    if tp in (dict, OrderedDict):
        return True, tp([(7919, Other()), (7907, Other())])
    if tp is defaultdict:
        return True, defaultdict(value.default_factory, {7919: Other()})
    if getattr(value, "__dict__", None) and not callable(value) and not isinstance(value, type):
        value.__dict__.clear()
        return True, value
    return False, value


def _same_length(value: Any) -> tuple[bool, Any]:
    tp = type(value)
    if tp in (list, tuple, deque):
        return len(value) > 0, tp([Other() for _ in value])
    if tp in (set, frozenset):
        return len(value) > 0, tp({Other() for _ in value})
    if tp in (dict, OrderedDict):
        return len(value) > 0, tp((Other(), Other()) for _ in value)
    if tp is str:
        return len(value) > 0, "".join(chr(ord(each) ^ 1) for each in value)
    if tp in (bytes, bytearray):
        return len(value) > 0, tp(each ^ 1 for each in value)
    return False, value


def _same_at(value: Any, key: Any) -> tuple[bool, Any]:
    tp = type(value)
    if tp in (list, tuple, deque) and isinstance(key, int):
        at = key + len(value) if key < 0 else key
        return len(value) > 1, tp([each if i == at else Other() for i, each in enumerate(value)])
    if tp in (dict, OrderedDict):
        kept = [(k, v) for k, v in value.items() if k == key]
        return True, tp([(Other(), Other()), *kept, (Other(), Other())])
    if tp in (set, frozenset):
        return True, tp([*(each for each in value if each == key), Other()])
    return False, value


def _same_items(value: Any) -> tuple[bool, Any]:
    """Changes what the items hold, not which they are."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list | tuple | deque):
        return False, value
    changed = False
    for each in items:
        if isinstance(each, list | deque):
            each.append(Other())
            changed = True
        elif isinstance(each, dict):
            each[7919] = Other()
            changed = True
        elif not is_scalar(each) and hasattr(each, "__dict__") and not callable(each):
            each.__dict__["perturbed"] = Other()
            changed = True
    return changed, value
