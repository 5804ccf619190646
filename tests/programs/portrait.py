"""A portrait of objects: everything that a program could see of them, as plain data that two runs can be compared by.

Values and types, and identity: each mutable object gets a number when it is first met, and a later path to it shows that
number, so that two portraits agree only when the same paths lead to the same objects. Tensors also show which of them share
storage. Contents of tensors are cloned, so that a portrait stays what it was.
"""

import collections
import dataclasses
import enum
import types
from typing import Any

import torch
from torch import nn

Line = tuple[str, Any]

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), enum.Enum, range, slice)
_ATOMS += (torch.dtype, torch.device, torch.layout, type, types.BuiltinFunctionType, types.MethodDescriptorType)


def portrait(value: Any, ignore: Any = lambda name: False) -> list[Line]:
    """Lines of (path, what is there).

    Args:
        value: Where to start.
        ignore: Says of an attribute's name that it is not to be looked at.
    """
    painter = _Painter(ignore)
    painter.paint(value, "")
    return painter.lines


def first_difference(expected: list[Line], got: list[Line], tolerance: float = 0.0) -> str | None:
    """Says at which path two portraits differ first, or None."""
    for (path, one), (other_path, two) in zip(expected, got):
        if path != other_path:
            return f"{path} became {other_path}"
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
            if not _same_tensor(one, two, tolerance):
                return f"{path}: {_short(one)} became {_short(two)}"
        elif isinstance(one, torch.Tensor) or isinstance(two, torch.Tensor) or one != two:
            return f"{path}: {one} became {two}"
    if len(expected) != len(got):
        longer = max(expected, got, key=len)[min(len(expected), len(got))]
        return (
            f"{longer[0]}: {_short(longer[1])} is only in {'eager' if len(expected) > len(got) else 'the compiled run'}"
        )
    return None


def _same_tensor(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.is_floating_point or a.dtype.is_complex:
        return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return torch.equal(a, b)


def _short(value: Any) -> str:
    return " ".join(str(value).split())[:120]


class _Painter:
    def __init__(self, ignore: Any) -> None:
        self.ignore = ignore
        self.lines: list[Line] = []
        self.numbers: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[Any] = []

    def line(self, path: str, what: Any) -> None:
        self.lines.append((path or ".", what))

    def paint(self, value: Any, path: str) -> None:
        kind = type(value)
        if isinstance(value, _ATOMS):
            # repr tells 1 from True, 0.0 from -0.0, and has nan equal to itself
            self.line(path, f"{kind.__qualname__} {value!r}")
            return
        if kind is tuple or kind is torch.Size:
            self.line(path, f"{kind.__name__} of {len(value)}")
            for n, item in enumerate(value):
                self.paint(item, f"{path}({n})")
            return
        if id(value) in self.numbers:
            self.line(path, f"is #{self.numbers[id(value)]}")
            return
        self.kept.append(value)
        number = self.numbers[id(value)] = len(self.numbers)
        if isinstance(value, torch.Tensor):
            self.tensor(value, path, number)
            return
        self.line(path, f"#{number} {kind.__module__}.{kind.__qualname__}{self.contents(value)}")
        self.inside(value, path)

    def contents(self, value: Any) -> str:
        if isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            return f" of {len(value)}" + (f" maxlen {value.maxlen}" if isinstance(value, collections.deque) else "")
        if isinstance(value, types.FunctionType):
            return f" {value.__qualname__}"
        return ""

    def inside(self, value: Any, path: str) -> None:
        if isinstance(value, types.MethodType):
            self.paint(value.__self__, path + ".__self__")
            return
        if isinstance(value, (types.FunctionType, types.ModuleType, types.GeneratorType)):
            return
        if isinstance(value, dict):
            for n, (key, item) in enumerate(value.items()):
                if not (isinstance(key, str) and self.ignore(key)):
                    self.paint(key, f"{path}.key{n}")
                    self.paint(item, f"{path}[{key!r:.40}]" if isinstance(key, _ATOMS) else f"{path}.value{n}")
        elif isinstance(value, (list, tuple, collections.deque)):
            for n, item in enumerate(value):
                self.paint(item, f"{path}[{n}]")
        elif isinstance(value, (set, frozenset)):
            for n, item in enumerate(sorted(value, key=repr)):
                self.paint(item, f"{path}{{{n}}}")
        names: dict[str, Any] = dict(getattr(value, "__dict__", {}))
        if isinstance(value, collections.defaultdict):
            names["default_factory"] = value.default_factory
        if dataclasses.is_dataclass(value):
            names |= {f.name: getattr(value, f.name, "unset") for f in dataclasses.fields(value)}
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if not name.startswith("__"):
                    names[name] = getattr(value, name, "unset")
        if isinstance(value, nn.Module):  # torch's own bookkeeping does not have to be looked at name by name
            names = {k: v for k, v in names.items() if "hooks" not in k and k != "_non_persistent_buffers_set"}
        for name, item in names.items():
            if not self.ignore(name):
                self.paint(item, f"{path}.{name}")

    def tensor(self, value: torch.Tensor, path: str, number: int) -> None:
        facts = [f"#{number}", type(value).__name__, str(value.dtype), str(tuple(value.shape)), str(value.layout)]
        facts += [f"grad {value.requires_grad}", f"leaf {value.is_leaf}", str(value.device)]
        if value.layout == torch.strided:
            address = value.untyped_storage().data_ptr()
            # tensors without elements have no storage to share
            storage = self.storages.setdefault(address, len(self.storages)) if address else "none"
            facts += [f"strides {value.stride()}", f"offset {value.storage_offset()}", f"storage {storage}"]
        self.line(path, " ".join(facts))
        if value.device.type != "meta":
            self.line(path + " values", value.detach().clone())
        if value.is_leaf and value.requires_grad:
            self.paint(value.grad, path + ".grad")
        for name, item in vars(value).items():
            if not self.ignore(name):
                self.paint(item, f"{path}.{name}")
