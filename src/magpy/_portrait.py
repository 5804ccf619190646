"""A portrait of objects: what a program could see of them, as plain data that two processes can compare.

Nothing of the program runs for it. An object that was there before has the same number in both portraits; a new one is
numbered where it is met first. Of a tensor that was there before and was not written since, the values are left out.
"""

from __future__ import annotations

import collections
import random
import sys
import types
from dataclasses import dataclass
from typing import Any, Final

import torch

from magpy_runtime.capture import instance_dict
from magpy_runtime.iterators import PLAIN_ITERATORS, remaining

from . import _torch
from ._state import is_atom, is_library, is_mutable_type

_LIMIT: Final = 50_000
_BASES: Final[tuple[Any, ...]] = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque)
_SKIPPED: Final = ("__magpy__", "__weakref__", "__dict__", "__doc__", "__module__", "__wrapped__")


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that can be seen: where, what, and for a tensor its values."""

    path: str
    text: str
    values: torch.Tensor | None = None


class Known:
    """The objects that were there before, and how their tensors were."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.tensors: dict[int, tuple[int, int]] = {}
        self.kept: list[Any] = []

    def add(self, obj: Any) -> None:
        """Give an object its number, for good."""
        self.numbers[id(obj)] = len(self.kept)
        self.kept.append(obj)
        if issubclass(type(obj), torch.Tensor):
            self.tensors[id(obj)] = _written(obj)


def _written(tensor: torch.Tensor) -> tuple[int, int]:
    try:
        return tensor._version, tensor.data_ptr()
    except RuntimeError:
        return -1, -1


class Portrait:
    """Paints objects; `known` are those that were there before, None while they are being found."""

    def __init__(self, known: Known, *, first: bool) -> None:
        self.known = known
        self.first = first
        self.lines: list[Line] = []
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []
        self.cut = False

    def process(self) -> None:
        """What belongs to the process: random states and modes of torch."""
        self.line("random state of torch", str(hash(bytes(torch.get_rng_state().numpy()))))
        self.line("random state of Python", str(hash(random.getstate())))
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            state = numpy.get_state()
            self.line("random state of numpy", f"{state[0]} {hash(state[1].tobytes())} {state[2:]}")
        self.line("modes of torch", repr(_torch.modes()))

    def line(self, path: str, text: str, values: torch.Tensor | None = None) -> None:
        """Add a line."""
        self.lines.append(Line(path, text, values))

    def paint(self, obj: Any, path: str) -> None:
        """Paint an object, and what it leads to, breadth first."""
        queue: list[tuple[Any, str]] = [(obj, path)]
        for each, place in queue:
            if len(self.lines) > _LIMIT:
                self.cut = True
                return
            queue += self._one(each, place)

    def _one(self, obj: Any, path: str) -> list[tuple[Any, str]]:
        kind = type(obj)
        if is_atom(obj):
            shown = repr(obj) if kind.__module__ in ("builtins", "torch") and kind is not object else f"{id(obj)}"
            self.line(path, f"{kind.__qualname__} {shown[:200]}")
            return []
        number = self.seen.get(id(obj))
        if number is not None:
            self.line(path, f"is #{number}")
            return []
        old = self.known.numbers.get(id(obj))
        if self.first:
            self.known.add(obj)
            number = self.known.numbers[id(obj)]
        else:
            self.kept.append(obj)
            number = old if old is not None else len(self.known.kept) + len(self.seen)
        self.seen[id(obj)] = number
        if issubclass(kind, torch.Tensor):
            return self._tensor(obj, path, number)
        self.line(path, f"#{number} {kind.__module__}.{kind.__qualname__}")
        return self._inside(obj, path)

    def _inside(self, obj: Any, path: str) -> list[tuple[Any, str]]:
        kind = type(obj)
        found: list[tuple[Any, str]] = []
        if kind is types.FunctionType:
            return self._function(obj, path)
        if kind is types.MethodType:
            return [(obj.__func__, f"{path}.__func__"), (obj.__self__, f"{path}.__self__")]
        if kind is types.CellType:
            try:
                return [(obj.cell_contents, f"{path}.cell_contents")]
            except ValueError:
                return []
        if kind in PLAIN_ITERATORS:
            try:
                return [(each, f"{path}[{number}]") for number, each in enumerate(remaining(obj))]
            except RuntimeError:
                return []
        if issubclass(kind, types.ModuleType):
            return []
        if issubclass(kind, type):
            if not is_mutable_type(obj) or is_library(_file_of(obj)):
                return []
            return [(value, f"{path}.{name}") for name, value in vars(obj).items() if name not in _SKIPPED]
        base = next((each for each in _BASES if issubclass(kind, each)), None)
        if base is not None and issubclass(base, dict):
            for key in list(base.__iter__(obj)):
                place = f"{path}[{key!r:.40}]" if is_atom(key) else f"{path}[#]"
                if not is_atom(key):
                    found.append((key, f"{place} (key)"))
                found.append((dict.__getitem__(obj, key), place))
            self.line(path, f"{dict.__len__(obj)} items")
        elif base is not None:
            items = list(base.__iter__(obj))
            if base in (set, frozenset) and not all(map(is_atom, items)):
                items = [each for each in items if is_atom(each)]
            found += [(each, f"{path}[{number}]") for number, each in enumerate(items)]
            self.line(path, f"{base.__len__(obj)} items")
        elif issubclass(kind, BaseException):
            found.append((vars(BaseException)["args"].__get__(obj), f"{path}.args"))
            for name in ("__cause__", "__context__"):
                found.append((vars(BaseException)[name].__get__(obj), f"{path}.{name}"))
        elif kind.__module__ == "numpy" and hasattr(obj, "tobytes"):
            self.line(path, f"{obj.dtype} {obj.shape} {hash(obj.tobytes())}")
        return found + self._attributes(obj, path)

    def _attributes(self, obj: Any, path: str) -> list[tuple[Any, str]]:
        found = []
        attributes = instance_dict(obj)
        if attributes:
            found += [(value, f"{path}.{name}") for name, value in attributes.items() if name not in _SKIPPED]
        for cls in type(obj).__mro__:
            for name, member in vars(cls).items() if is_mutable_type(cls) else ():
                if type(member) is types.MemberDescriptorType:
                    try:
                        found.append((member.__get__(obj, type(obj)), f"{path}.{name}"))
                    except AttributeError:
                        self.line(f"{path}.{name}", "not set")
        return found

    def _function(self, obj: types.FunctionType, path: str) -> list[tuple[Any, str]]:
        if is_library(obj.__code__.co_filename):
            return []
        found: list[tuple[Any, str]] = [(cell, f"{path}.__closure__") for cell in obj.__closure__ or ()]
        found += [(obj.__defaults__, f"{path}.__defaults__"), (obj.__kwdefaults__, f"{path}.__kwdefaults__")]
        for name in _names(obj.__code__):
            value = obj.__globals__.get(name, None)
            if issubclass(type(value), types.ModuleType) and not is_library(
                getattr(value, "__file__", None) or "<frozen"
            ):
                parts = instance_dict(value) or {}
                found += [(parts[each], f"{name}.{each}") for each in _names(obj.__code__) if each in parts]
            elif name in obj.__globals__:
                found.append((value, f"global {name}"))
        return found

    def _tensor(self, obj: torch.Tensor, path: str, number: int) -> list[tuple[Any, str]]:
        facts = [f"#{number} {type(obj).__name__} {obj.dtype} {tuple(obj.shape)} {obj.layout} {obj.device}"]
        facts.append(f"requires_grad {obj.requires_grad} leaf {obj.is_leaf}")
        if obj.layout is torch.strided:
            facts.append(f"strides {obj.stride()}")
        written = self.known.tensors.get(id(obj))
        values = None
        if self.first or (written is not None and written == _written(obj)):
            facts.append("as it was")
        elif obj.device.type != "meta":
            values = obj.detach().clone()
        self.line(path, " ".join(facts), values)
        found = [(obj.grad, f"{path}.grad")] if obj.is_leaf else []
        return found + self._attributes(obj, path)


def _names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _names(constant)
    return names


def _file_of(cls: type) -> str:
    module = sys.modules.get(vars(cls).get("__module__", ""))
    return getattr(module, "__file__", None) or ("" if module is not None else "<frozen")


def difference(native: list[Line], served: list[Line], tolerance: float) -> str | None:
    """The first difference between two portraits, in words, or None."""
    for one, other in zip(native, served, strict=False):
        if one.path != other.path:
            return f"{one.path} ({one.text}) natively, {other.path} ({other.text}) from the record"
        if one.text != other.text:
            return f"{one.path}: natively {one.text}, from the record {other.text}"
        if one.values is not None and other.values is not None and not _alike(one.values, other.values, tolerance):
            return f"{one.path}: natively {_short(one.values)}, from the record {_short(other.values)}"
    if len(native) != len(served):
        longer = max(native, served, key=len)[min(len(native), len(served))]
        return f"{longer.path} ({longer.text}) only {'natively' if len(native) > len(served) else 'from the record'}"
    return None


def _alike(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool:
    if one.layout is not torch.strided:
        one, other = one.to_dense(), other.to_dense()
    if one.dtype.is_floating_point or one.dtype.is_complex:
        return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    return torch.equal(one, other)


def _short(tensor: torch.Tensor) -> str:
    return " ".join(repr(tensor).split())[:120]
