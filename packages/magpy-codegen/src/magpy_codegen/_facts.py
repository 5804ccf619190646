"""Facts about what a record holds by identity: a table for the native check, and the same as readable Python.

Such facts are absolute: they name objects, not paths. A model has thousands, so the Python is only written when somebody
wants to read or to run it (`explain`, strict mode); what both say is held to agree.
"""

from __future__ import annotations

import enum
import types
from dataclasses import dataclass
from typing import Any, Final

import torch

from ._source import Namespace, literal, one_line


class FactKind(enum.IntEnum):
    """What a fact asks of its object; the numbers are those of the native table."""

    ITEM = 0  # key: dictionary key
    DICT = 1  # the attribute dictionary
    TYPE = 2
    LENGTH = 3
    TRUTH = 4
    CLASS = 5  # key: name
    ELEMENT = 6  # key: index into a list or tuple
    CELL = 7
    CODE = 8
    DEFAULTS = 9
    KWDEFAULTS = 10
    OTHER = 11  # key: a function of the object
    KEYS = 12  # the same, of nothing but a container's keys
    SUPER = 13  # the same, of nothing but a class and its bases
    MEMBER = 14  # a C member, such as a slot; key: name


_VALUES: Final = frozenset({int, str, bytes, float, complex, range, torch.device, torch.finfo, torch.iinfo})


def compared_by_value(kind: type) -> bool:
    """Whether instances of a type, if they are not the same, are compared by value; numpy's scalars are, too."""
    return kind in _VALUES or kind.__module__ == "numpy"


@dataclass(frozen=True, slots=True)
class HeldFact:
    """One fact about an object that a record holds.

    Attributes:
        kind: what is asked.
        obj: of which object.
        key: see `FactKind`.
        expected: the answer; `absent` where nothing must be there.
        plain: compare the answer by type and value, not by identity.
        text: the fact in words.
        where: where the program read it.
        path: how the expected object was found, None where it cannot become a path.
    """

    kind: FactKind
    obj: Any
    key: Any
    expected: Any
    plain: bool
    text: str
    where: Any
    path: Any

    def entry(self) -> tuple[int, Any, Any, Any, bool]:
        """The fact for the native table."""
        return (self.kind, self.obj, self.key, self.expected, self.plain)


_QUESTIONS = {
    FactKind.ITEM: "dict_get({obj}, {key}, ABSENT)",
    FactKind.DICT: "instance_dict({obj})",
    FactKind.TYPE: "type({obj})",
    FactKind.LENGTH: "{base}len({obj})",
    FactKind.TRUTH: "{base}len({obj})",
    FactKind.CLASS: "type_lookup({obj}, {key})",
    FactKind.ELEMENT: "({base}getitem({obj}, {key}) if {base}len({obj}) > {key} else ABSENT)",
    FactKind.CELL: "cell_get({obj})",
    FactKind.CODE: "{obj}.__code__",
    FactKind.DEFAULTS: "{obj}.__defaults__",
    FactKind.KWDEFAULTS: "{obj}.__kwdefaults__",
    FactKind.OTHER: "{key}({obj})",
    FactKind.KEYS: "{key}({obj})",
    FactKind.SUPER: "{key}({obj})",
    FactKind.MEMBER: "member_get({obj}, {key})",
}


def render(facts: list[HeldFact], helpers: dict[str, Any], absent: Any, locate: Any) -> tuple[str, dict[str, Any]]:
    """The facts as the source of a function `held()`, which gives None or the number of the first that fails.

    Args:
        facts: in the order of the table.
        helpers: the names that generated code can use.
        absent: what stands for a missing answer.
        locate: turns `where` into a location.

    Returns:
        Source and the globals that it needs.
    """
    namespace = Namespace()
    namespace.values.update(helpers)
    for base in _CONTAINERS:
        namespace.values[f"{base.__name__}_len"] = base.__len__
        namespace.values[f"{base.__name__}_getitem"] = getattr(base, "__getitem__", None)
    lines = ["def held():"]
    for number, fact in enumerate(facts):
        name = namespace.constant(fact.obj, _hint(fact.obj))
        key = fact.key
        shown = repr(key) if key is None or type(key) is bool else literal(key)
        if shown is None:
            shown = namespace.constant(key, _hint(key))
        question = _question(fact, name, shown)
        expected = fact.expected
        if fact.kind is FactKind.LENGTH:
            condition = f"{question} != {expected}"
        elif fact.kind is FactKind.TRUTH:
            condition = f"({question} > 0) is not {bool(expected)}"
        elif expected is absent:
            condition = f"{question} is not ABSENT"
        elif expected is None or expected is True or expected is False:
            condition = f"{question} is not {expected}"
        elif fact.plain:
            plain = literal(expected) or namespace.constant(expected, type(expected).__name__)
            condition = f"not same_value({question}, {plain})"
        else:
            condition = f"{question} is not {namespace.constant(expected, _hint(expected))}"
        location = locate(fact.where) if fact.where is not None else None
        place = "" if location is None else f": {location.file.rpartition('/')[2]}:{location.line}"
        lines.append(f"    if {condition}: return {number}  # {one_line(fact.text + place)}")
    lines.append("    return None")
    return "\n".join(lines) + "\n", namespace.values


def _question(fact: HeldFact, name: str, key: str) -> str:
    text, kind = _QUESTIONS[fact.kind], type(fact.obj)
    if fact.kind is FactKind.ELEMENT and kind in _CONTAINERS:
        text = "({obj}[{key}] if len({obj}) > {key} else ABSENT)"
    prefix = ""
    if "{base}" in text and kind not in _CONTAINERS:  # a subclass may have a `__len__` of its own
        base = next(base for base in _CONTAINERS if issubclass(kind, base))
        prefix = f"{base.__name__}_"
    return text.format(obj=name, key=key, base=prefix)


_CONTAINERS = (dict, list, tuple, set, frozenset)


_NAMED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
"""Types that say their names without running code of the program."""


def _hint(obj: Any) -> str:
    kind = type(obj)
    if issubclass(kind, type):
        return str(type.__dict__["__name__"].__get__(obj))
    name = getattr(obj, "__name__", None) if kind in _NAMED else None
    return name if type(name) is str else kind.__name__.lower()
