"""Objects of this process in words that find them in another one: the questions that led to them, or names."""

from __future__ import annotations

import enum
import functools
import re
import sys
import types
from typing import Any, Final

import torch

from magpy_codegen import FactKind, mock_parts, question_parts
from magpy_runtime.archive import SINGLETONS, TEXTS, class_hash, code_hash, is_of_platform, resolve_name, type_name
from magpy_runtime.capture import instance_dict

from . import _torch

_DESCRIPTORS: Final = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_ANSWERS: Final = frozenset({*_DESCRIPTORS, types.BuiltinFunctionType, object, *TEXTS})
"""Types of atoms that are known by where they are found; what they say is compared, too."""

_OWN: Final = re.compile(r"magpy(_codegen|_refgraph|_annotations)?(\.|$)")


class Unnameable(Exception):
    """An object cannot be found in another process."""


class Names:
    """The objects that the records of one compiled callable rest on, each with a way to find it.

    Attributes:
        entries: for each object how it is found, parts first.
        classes: the numbers of classes.
    """

    def __init__(self, target: Any) -> None:
        self.entries: list[dict[str, Any]] = []
        self.classes: dict[int, type] = {}
        self._target = target
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._found: dict[int, tuple[Any, FactKind, Any]] = {}
        self._answers: dict[int, tuple[Any, FactKind, Any]] = {}
        self._instances: dict[int, Any] = {}
        self._owners: dict[int, types.FunctionType] = {}
        self._pending: set[int] = set()
        self._failed: dict[int, Unnameable] = {}
        self._pinned: dict[int, Any] = {}
        self._held: dict[int, tuple[str, str]] | None = None
        if isinstance(target, types.MethodType):
            self._found[id(target.__func__)] = (target, FactKind.OTHER, _Attribute("__func__"))
            self._found[id(target.__self__)] = (target, FactKind.OTHER, _Attribute("__self__"))

    def learn(self, parts: Any) -> None:
        """Take note of what one record says about where objects were found."""
        for obj, origin in parts.found:
            self._found.setdefault(id(obj), origin)
        for obj in parts.pinned:
            self._pinned[id(obj)] = obj
            self._instances.setdefault(id(type(obj)), obj)
        for fact in (*parts.facts, *parts.implied):
            if type(fact.expected) in _ANSWERS or isinstance(fact.expected, type):
                self._answers.setdefault(id(fact.expected), (fact.obj, fact.kind, fact.key))
            if fact.kind is FactKind.CODE:
                self._owners.setdefault(id(fact.expected), fact.obj)

    # -- objects ------------------------------------------------------------------------------------------------------

    def number(self, obj: Any) -> int:
        """The number of an object.

        Raises:
            Unnameable: it cannot be found.
        """
        found = self._numbers.get(id(obj))
        if found is not None:
            return found
        if id(obj) in self._failed:
            raise self._failed[id(obj)]
        if id(obj) in self._pending:
            raise Unnameable(f"a {type_name(type(obj))} is only found through itself")
        self._pending.add(id(obj))
        try:
            entry = self._entry(obj)
        except Unnameable as problem:
            if not self._pending - {id(obj)}:
                self._failed[id(obj)] = problem
                self._kept.append(obj)
            raise
        finally:
            self._pending.discard(id(obj))
        return self._add(entry, obj)

    def _add(self, entry: dict[str, Any], obj: Any) -> int:
        number = self._numbers[id(obj)] = len(self.entries)
        self._kept.append(obj)
        self.entries.append(entry)
        if isinstance(obj, (tuple, frozenset, types.CodeType, types.BuiltinFunctionType, *_DESCRIPTORS)):
            entry["shared"] = True
        if isinstance(obj, type):
            self.classes[number] = obj
            if obj.__flags__ & (1 << 9) and not is_of_platform(obj):
                entry["form"] = class_hash(obj)
        elif type(obj) in TEXTS:
            entry["text"] = TEXTS[type(obj)](obj)
        elif isinstance(obj, types.FunctionType) and entry["kind"] != "built":
            entry["code"] = code_hash(obj.__code__)
        elif isinstance(obj, types.CodeType):
            entry["code"] = code_hash(obj)
        if entry["kind"] in ("ask", "bound"):
            entry["type"] = type_name(type(obj))
            if isinstance(obj, (type, types.BuiltinFunctionType, *_DESCRIPTORS)):
                entry["named"] = obj.__qualname__
        return number

    def _entry(self, obj: Any) -> dict[str, Any]:
        if obj is self._target:
            return {"kind": "target", "type": type_name(type(obj))}
        if isinstance(obj, types.ModuleType) and sys.modules.get(obj.__name__) is obj:
            return {"kind": "module", "what": obj.__name__}
        if isinstance(obj, types.CodeType):
            return self._code(obj)
        if isinstance(obj, type) and (entry := _by_name(obj)) is not None:
            return entry
        if isinstance(obj, enum.Enum) and type(obj).__members__.get(obj.name) is obj:
            return {"kind": "enum", "what": [self.number(type(obj)), obj.name]}
        if (parts := mock_parts(obj)) is not None:
            return {"kind": "built", "what": [parts[0], [*map(self.value, parts[1])]], "shared": True}
        entry = self._asked(obj)
        if entry is None:
            entry = self._by_name(obj)
        if entry is None and (origin := self._answers.get(id(obj))) is not None:
            entry = self._asked(obj, origin)
        if entry is None:
            entry = self._in_a_module(obj)
        if entry is None:
            raise Unnameable(f"nothing leads from the target to {_words(obj)}")
        return entry

    def _asked(self, obj: Any, origin: tuple[Any, FactKind, Any] | None = None) -> dict[str, Any] | None:
        origin = origin or self._found.get(id(obj))
        if origin is None:
            return None
        parent, kind, key = origin
        try:
            return {"kind": "ask", "what": [self.number(parent), int(kind), self.question(kind, key)]}
        except Unnameable:
            return None

    def _by_name(self, obj: Any) -> dict[str, Any] | None:
        if isinstance(obj, _DESCRIPTORS):
            described: Any = obj
            if vars(described.__objclass__).get(described.__name__) is obj:
                return {"kind": "member", "what": [self.number(described.__objclass__), described.__name__]}
        operators: tuple[type, ...] = _torch.OPERATORS
        if isinstance(obj, operators):
            text = str(obj)
            if functools.reduce(getattr, text.split("."), torch.ops) is obj:
                return {"kind": "operator", "what": text}
        if (owner := _owner(obj)) is not None:
            with _ignoring():
                return {"kind": "bound", "what": [self.number(owner), obj.__name__], "shared": True}
        if (entry := _by_name(obj)) is not None:
            return entry
        if isinstance(obj, type):
            instance = self._instances.get(id(obj))
            if instance is not None and type(instance) is obj:
                with _ignoring():
                    return {"kind": "class", "what": self.number(instance)}
        if type(obj) is dict:
            named = obj.get("__name__")
            module = sys.modules.get(named) if type(named) is str else None
            if module is not None and instance_dict(module) is obj:
                return {"kind": "namespace", "what": self.number(module)}
            for each in self._pinned.values():
                if type(each) is types.FunctionType and each.__globals__ is obj:
                    with _ignoring():
                        entry = self._asked(obj, (each, FactKind.OTHER, _Attribute("__globals__")))
                        if entry is not None:
                            return entry
        return None

    def _in_a_module(self, obj: Any) -> dict[str, Any] | None:
        """An object that some module holds, under a name."""
        if isinstance(obj, (str, int, float, tuple, frozenset, bytes)):
            return None
        if self._held is None:
            self._held = {}
            for name, module in [*sys.modules.items()]:
                if type(module) is types.ModuleType and not _OWN.match(name) and name != "__main__":
                    for key, value in [*vars(module).items()]:
                        self._held.setdefault(id(value), (name, key))
        found = self._held.get(id(obj))
        if found is None or vars(sys.modules[found[0]]).get(found[1]) is not obj:
            return None
        return {"kind": "name", "what": [*found], "type": type_name(type(obj))}

    def _code(self, code: types.CodeType) -> dict[str, Any]:
        owner = self._owners.get(id(code))
        if owner is not None:
            with _ignoring():
                return {"kind": "code", "what": self.number(owner)}
        for known in [*self._owners.values()]:
            for number, constant in enumerate(known.__code__.co_consts):
                if constant is code:
                    with _ignoring():
                        return {"kind": "constant", "what": [self.number(known.__code__), number]}
        function = self._function_of(code)
        if function is not None:
            return {"kind": "code", "what": self.number(function)}
        raise Unnameable(f"nothing leads from the target to the code of {code.co_qualname}")

    def _function_of(self, code: types.CodeType) -> Any:
        """A function of that code: the target, or one that a module has under its name."""
        target = self._target
        if isinstance(target, types.MethodType):
            target = target.__func__
        if isinstance(target, types.FunctionType) and target.__code__ is code:
            return target
        for obj in self._pinned.values():
            if type(obj) is types.FunctionType and obj.__code__ is code:
                return obj
        for module in [*sys.modules.values()]:
            if getattr(module, "__file__", None) == code.co_filename:
                with _ignoring(Exception):
                    found = resolve_name(module.__name__, code.co_qualname)
                    if getattr(found, "__code__", None) is code:
                        return found
        return None

    def ids(self, found: frozenset[int]) -> int:
        """The ids of some pinned objects."""
        numbers = []
        for each in found:
            if each not in self._pinned:
                raise Unnameable("an object that is known by its id only")
            with _ignoring():
                numbers.append(self.number(self._pinned[each]))
        return self._add({"kind": "ids", "what": sorted(numbers), "shared": True}, found)

    def token(self) -> dict[str, Any]:
        """The state of abstract base classes' registrations, as it will be there."""
        return {"at": self._add({"kind": "abc token", "shared": True}, object())}

    def answer(self, fact: Any) -> Any:
        """The answer to a fact, which must be that very object if it is a tuple: then it is what is found, and compared."""
        expected = fact.expected
        if type(expected) is not tuple or fact.plain or id(expected) in self._found or id(expected) in self._numbers:
            return self.value(expected)
        what = [self.number(fact.obj), int(fact.kind), self.question(fact.kind, fact.key)]
        return {"at": self._add({"kind": "ask", "what": what, "items": [*map(self.value, expected)]}, expected)}

    def question(self, kind: FactKind, key: Any) -> Any:
        """What is asked, beside its kind."""
        if kind not in (FactKind.OTHER, FactKind.KEYS, FactKind.SUPER):
            return self.value(key)
        parts = ("attribute", (key.name,)) if isinstance(key, _Attribute) else question_parts(key)
        if parts is None:
            return self.value(key)
        name, args = parts
        what = [name, [self.value(each) for each in args]]
        return {"at": self._add({"kind": "question", "what": what, "shared": True}, key)}

    # -- values -------------------------------------------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """Any value: plain ones as they are, objects by number.

        Raises:
            Unnameable: it cannot be found.
        """
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if abs(value) < 1 << 53 else {"int": str(value)}
        if kind is float:
            return {"float": value.hex()}
        if id(value) not in self._numbers and (plain := self._plain(kind, value)) is not None:
            return plain
        return {"at": self.number(value)}

    def _plain(self, kind: type, value: Any) -> Any:
        for name, single in SINGLETONS.items():
            if value is single:
                return {"is": name}
        if kind is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if kind is torch.Size:
            return {"size": [*value]}
        if kind in (torch.dtype, torch.layout, torch.memory_format):
            return {"torch": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": str(value)}
        if kind in (torch.finfo, torch.iinfo):
            return {kind.__name__: str(value.dtype).removeprefix("torch.")}
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind is slice:
            return {"slice": [self.value(value.start), self.value(value.stop), self.value(value.step)]}
        if kind in (tuple, frozenset) and id(value) not in self._found:
            parts = sorted(value, key=repr) if kind is frozenset else value
            return {kind.__name__: [self.value(each) for each in parts]}
        return None


def _owner(obj: Any) -> Any:
    """The module or class of which a C function is a method."""
    owner = obj.__self__ if type(obj) is types.BuiltinFunctionType else None
    found = isinstance(owner, (types.ModuleType, type)) and getattr(owner, obj.__name__, None) == obj
    return owner if found else None


class _Attribute:
    def __init__(self, name: str) -> None:
        self.name = name


class _ignoring:  # noqa: N801 - used like `contextlib.suppress`
    def __init__(self, kind: type[Exception] = Unnameable) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        return isinstance(error, self.kind)


def _by_name(obj: Any) -> dict[str, Any] | None:
    """A class or function under the name that it goes by in its module."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if type(module) is not str or type(name) is not str or _OWN.match(module):
        return None
    if not isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)) and not callable(obj):
        return None
    if module not in sys.modules:
        return None
    try:
        return {"kind": "name", "what": [module, name]} if resolve_name(module, name) is obj else None
    except Exception:
        return None


def _words(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) if callable(obj) else None
    return f"{getattr(obj, '__module__', '?')}.{name}" if type(name) is str else f"a {type_name(type(obj))}"


__all__ = ["Names", "Unnameable"]
