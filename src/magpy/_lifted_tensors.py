"""Rules for lifted numbers, operators of torch: numbers as their arguments, and sizes of what they give."""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.fx

from magpy_codegen import Expression, Measured

from ._lifted_calls import LiftedCalls
from ._numbers import BINARY, SYMBOLS, is_number
from ._tensor_names import RANK, TYPES
from ._tensors import getter_name, name_of

_MAKERS = frozenset({"tensor", "as_tensor", "scalar_tensor"})
_ARITHMETIC = {
    "add": ("__add__", False), "__add__": ("__add__", False), "__radd__": ("__add__", True),
    "sub": ("__sub__", False), "__sub__": ("__sub__", False), "rsub": ("__sub__", True), "__rsub__": ("__sub__", True),
    "mul": ("__mul__", False), "__mul__": ("__mul__", False), "__rmul__": ("__mul__", True),
}  # fmt: skip


_MOST_PARTS = 64


def _all_of_type(parts: Any, kind: type) -> bool:
    """Whether nested lists hold numbers of one type alone."""
    if type(parts) is list:
        return all(_all_of_type(each, kind) for each in parts)
    return type(parts) is kind


class LiftedTensors(LiftedCalls):
    """Rules for torch's operators on lifted numbers and varying sizes.

    Attributes:
        varying: whether a node of the graph comes of something that is lifted, as far as that is known.
        measured: objects that carry sizes, by node and dimension.
        carriers: nodes of tensors of no dimensions that were made of an int alone, with that int.
    """

    def argument(self, arg: Any) -> Any:
        """An operator's argument for the graph."""
        expression = self.numbers.find(arg)
        if expression is not None and type(arg) is str:
            self.consume(arg)
        elif expression is not None:
            return self.nodes.node(expression, self.operators._last_input)
        return super().argument(arg)

    def depends_on_constants(self, args: tuple[Any, ...]) -> bool:
        """Whether some arguments are the same at every call."""
        return not self.numbers.reached(*args) and super().depends_on_constants(args)

    def operator(self, function: Any, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One torch function was called."""
        name = name_of(function)
        if name == "item" and len(args) == 1 and (number := self.carried(args[0])) is not None:
            out = run(*args, **kwargs)
            return self.numbers.carry(number, out) if isinstance(number, Expression) else out
        out = super().operator(function, run, args, kwargs)
        in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or name == "__set__"
        if in_place or "out" in kwargs:
            self.measured.clear()
            self.carriers.clear()
            self._resized(args)
        elif name == "tensor" and len(args) == 1 and type(args[0]) is list and not kwargs.keys() - {"dtype", "device"}:
            self._made_of_parts(args[0], out)
        elif name in _MAKERS or name in _ARITHMETIC:
            self._carry(name, args, kwargs, out)
        return out

    def carried(self, obj: Any) -> Expression | int | None:
        """The int that a tensor is known to hold, None for others."""
        if not issubclass(type(obj), torch.Tensor):
            return None
        node = self.find(obj)
        return None if node is None or node.tag is None else self.carriers.get(node.tag)

    def _carry(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """An operator made a tensor of no dimensions: it may hold a number that is known."""
        if not issubclass(type(out), torch.Tensor) or out.dim() or out.dtype is not torch.int64:
            return
        node = self.find(out)
        if node is None or node.tag is None:
            return
        if name in _MAKERS:
            if type(args[0]) is int and not set(kwargs) - {"dtype", "device"}:
                self.carriers[node.tag] = self._known_int(args[0])
                node.tag.meta["carrier"] = True
            return
        operands = [known for arg in args if (known := self._known_int(arg)) is not None]
        if len(args) != 2 or len(operands) != 2 or kwargs:
            return
        method, swapped = _ARITHMETIC[name]
        left, right = reversed(operands) if swapped else operands
        values = [each.value if isinstance(each, Expression) else each for each in (left, right)]
        value = BINARY[method](*values)
        if is_number(value):
            node.tag.meta["carrier"] = True
            self.carriers[node.tag] = self.numbers.compute(
                value, f"{{}} {SYMBOLS[method]} {{}}", BINARY[method], (left, right)
            )

    def _made_of_parts(self, parts: list[Any], out: torch.Tensor) -> None:
        """A tensor was made of nested lists of numbers of which some are lifted."""
        node = self.find(out)
        kind = {torch.float32: float, torch.float64: float, torch.int64: int}.get(out.dtype)
        if kind is None or node is None or node.tag is None or not self.numbers.reached(parts):
            return
        if 0 < out.numel() <= _MOST_PARTS and _all_of_type(parts, kind):
            node.tag.meta["parts"] = {"dtype": out.dtype, "device": out.device}

    def _known_int(self, arg: Any) -> Any:
        """An int, the expression of one, or what a tensor is known to hold; None for all else."""
        return self.numbers.operand(arg) if type(arg) is int else self.carried(arg)

    def with_numbers(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that takes numbers gets tensors: where it is known what they hold, that stands in the graph."""
        if not self.carriers:
            return super().with_numbers(function, args, kwargs)

        def shown(arg: Any) -> Any:
            if type(arg) is slice:
                return slice(shown(arg.start), shown(arg.stop), shown(arg.step))
            if type(arg) in (list, tuple):
                return type(arg)(map(shown, arg))
            number = self.carried(arg)
            if isinstance(number, Expression):
                return self.numbers.carry(number, number.value)
            return arg if number is None else number

        return super().with_numbers(function, (*args[:1], *map(shown, args[1:])), kwargs)

    def _resized(self, args: tuple[Any, ...]) -> None:
        """An operator in place may have given its first argument a varying shape."""
        if args and issubclass(type(args[0]), torch.Tensor):
            node = self.find(args[0])
            if node is not None and node.tag is not None and any(map(self.varies, node.tag.users)):
                self.varying[node.tag] = True

    def varies(self, node: torch.fx.Node) -> bool:
        """Whether a node of the graph comes of something that is lifted."""
        found = self.varying.get(node)
        if found is not None:
            return found
        stack = [node]
        while stack:
            each = stack[-1]
            if each in self.varying:
                stack.pop()
                continue
            if each.op == "placeholder":
                self.varying[each] = each in self.nodes.placeholders or self._has_lifted_size(each)
                continue
            unknown = [part for part in each.all_input_nodes if part not in self.varying]
            if unknown:
                stack += unknown
            else:
                self.varying[each] = any(self.varying[part] for part in each.all_input_nodes)
        return self.varying[node]

    def _has_lifted_size(self, place: torch.fx.Node) -> bool:
        return any(
            node.tag is place and (node.index, dim) in self.sizes for node in self.operators.inputs for dim in range(8)
        )

    def metadata(self, function: Any, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What is fixed by a tensor's metadata: sizes that vary are lifted numbers."""
        self.consume(*args[1:], *kwargs.values())
        out = super().metadata(function, run, args, kwargs)
        name = getter_name(function) if type(function) is types.MethodWrapperType else name_of(function)
        if not args or name in TYPES or name in RANK:
            return out
        tensors = [arg for arg in args if issubclass(type(arg), torch.Tensor)]
        places = [self._place(tensor) for tensor in tensors]
        if not any(place is not None and self.varies(place) for place in places):
            return out
        if len(tensors) == 1 and args[0] is tensors[0]:
            place = places[0]
            assert place is not None
            if name in ("Tensor.shape", "size") and type(out) is torch.Size:
                return torch.Size([self._size(place, dim, size) for dim, size in enumerate(out)])
            if name == "size" and type(out) is int:
                dim = args[1] if len(args) > 1 else kwargs["dim"]
                return self._size(place, dim % tensors[0].dim(), out)
            if name in ("numel", "nelement"):
                return self._measure(place, -1, out, "numel", ())
        self._check_metadata(function, args, kwargs, out)
        return out

    def _place(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """The graph's node of a tensor."""
        node = self.find(tensor)
        if node is None:
            return None
        if node.tag is None and any((node.index, dim) in self.sizes for dim in range(tensor.dim())):
            self.argument(tensor)
        found: torch.fx.Node | None = node.tag
        return found

    def _size(self, place: torch.fx.Node, dim: int, size: int) -> Any:
        return self._measure(place, dim, size, "size", (dim,))

    def _measure(self, place: torch.fx.Node, dim: int, value: int, method: str, args: tuple[Any, ...]) -> Any:
        """The object for a size, or another measure, of a tensor as it is now."""
        found = self.measured.get((place, dim))
        if found is None:
            node = self.operators.graph.call_method(method, (place, *args))
            expression = Measured(value, node)
            node.meta["number"] = expression
            found = self.measured[place, dim] = self.numbers.carry(expression, value)
        return found

    def _check_metadata(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Strides and the like: what was answered has to be the answer again."""
        fx_args = tuple([self.argument(arg) for arg in args])
        fx_kwargs = {key: self.argument(value) for key, value in kwargs.items()}
        node = self.operators.call(function, fx_args, fx_kwargs, self.user_where())
        node.meta["expected"] = out
