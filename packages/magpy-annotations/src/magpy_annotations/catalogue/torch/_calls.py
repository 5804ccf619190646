"""What one call of a torch function is, where its arguments decide: an index that is a mask, a size in a tensor.

torch's argument parser takes a tensor of one element wherever a number is wanted, and reads it. Such a call reads data,
although the function itself does not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from magpy_annotations._model import OpKind, OpNode
from magpy_annotations.catalogue.torch._torch import schemas

_MASKS = {torch.bool, torch.uint8}
_READS = "a number is read from a tensor"


def refine(name: str, node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    """The class of the call ``name(*args, **kwargs)``, given that of the function."""
    special = _SPECIAL.get(name)
    if special is not None:
        node = special(node, args, kwargs)
    if node.kind in {OpKind.OPERATOR, OpKind.INPLACE} and _number_in_tensor(name, args, kwargs):
        return dataclasses.replace(node, kind=OpKind.VALUE, why=_READS)
    if kwargs.get("out") is not None:
        return dataclasses.replace(node, kind=_in_place(node.kind), mutates=("out",), why="has an out")
    return node


def _in_place(kind: OpKind) -> OpKind:
    return OpKind.INPLACE if kind is OpKind.OPERATOR else kind


def _number_in_tensor(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    places = _tensor_places(name)
    if places is None:
        return False
    positions, names = places
    if any(position not in positions and _holds_tensor(value) for position, value in enumerate(args)):
        return True
    return any(each not in names and each != "out" and _holds_tensor(value) for each, value in kwargs.items())


@functools.cache
def _tensor_places(name: str) -> tuple[frozenset[int], frozenset[str]] | None:
    """Where some form of the function takes tensors: positions and names; None when `aten` does not have it."""
    forms = schemas(name)
    if not forms:
        return None
    positions: set[int] = set()
    names: set[str] = set()
    for schema in forms:
        for position, argument in enumerate(schema.arguments):
            if "Tensor" in str(argument.type):
                names |= {argument.name, "input"} if position == 0 else {argument.name}
                if not argument.kwarg_only:
                    last = position == len(schema.arguments) - 1 or schema.arguments[position + 1].kwarg_only
                    varargs = last and "List" in str(argument.type)
                    positions |= set(range(position, 64)) if varargs else {position}
    return frozenset(positions), frozenset(names)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    return any(isinstance(each, torch.Tensor) for each in _elements(value))


def _elements(value: Any) -> Iterator[Any]:
    """The elements of a list or tuple, without running code of a subclass; none of anything else."""
    if isinstance(value, list):
        return list.__iter__(value)
    return tuple.__iter__(value if isinstance(value, tuple) else ())


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _type(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    converts = len(args) > 1 or kwargs.get("dtype") is not None
    return OpNode(kind=OpKind.OPERATOR if converts else OpKind.METADATA, why="with a type" if converts else "names it")


def _index(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    tensors = list(_index_tensors(args[1])) if len(args) > 1 else []
    if any(each.dim() == 0 and each.dtype not in _MASKS for each in tensors):
        return dataclasses.replace(node, kind=OpKind.VALUE, why="an index is read from a tensor")
    if node.kind is OpKind.OPERATOR and any(each.dtype in _MASKS for each in tensors):
        return dataclasses.replace(node, kind=OpKind.DYNAMIC_SHAPE, why="the index is a mask")
    return node


def _index_tensors(index: Any) -> list[torch.Tensor]:
    if isinstance(index, torch.Tensor):
        return [index]
    if isinstance(index, slice):
        # A bound is always read.
        bounds = [each for each in (index.start, index.stop, index.step) if isinstance(each, torch.Tensor)]
        return [torch.empty((), dtype=torch.int64, device="meta") for _ in bounds]
    return [tensor for each in _elements(index) for tensor in _index_tensors(each)]


def _where(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    if len(args) + len(kwargs) == 1:
        return dataclasses.replace(node, kind=OpKind.DYNAMIC_SHAPE, why="where() of a condition alone is nonzero()")
    return node


def _repeat_interleave(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    fixed = isinstance(_argument(args, kwargs, 1, "repeats"), int) or kwargs.get("output_size") is not None
    return dataclasses.replace(node, kind=OpKind.OPERATOR, why="the number of repeats is given") if fixed else node


def _one_hot(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    classes = _argument(args, kwargs, 1, "num_classes", -1)
    if isinstance(classes, int) and classes >= 0:
        return dataclasses.replace(node, kind=OpKind.OPERATOR, why="the number of classes is given")
    return node


def _tensor_split(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    places = _argument(args, kwargs, 1, "tensor_indices_or_sections", kwargs.get("indices"))
    if _holds_tensor(places):
        return dataclasses.replace(node, kind=OpKind.DYNAMIC_SHAPE, why="the places are read from a tensor")
    return node


def _ctc_loss(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    if any(
        _holds_tensor(_argument(args, kwargs, at, name)) for at, name in ((2, "input_lengths"), (3, "target_lengths"))
    ):
        return dataclasses.replace(node, kind=OpKind.VALUE, why="the lengths are read from tensors")
    return node


def _data(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    data = args[-1] if args else kwargs.get("data")
    if isinstance(data, list | tuple) and _nested_tensor(data):
        return dataclasses.replace(node, kind=OpKind.VALUE, why="the items are read from tensors")
    return node


def _nested_tensor(data: Any) -> bool:
    return isinstance(data, torch.Tensor) or (isinstance(data, list | tuple) and any(map(_nested_tensor, data)))


def _dropout(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    if _argument(args, kwargs, 2, "train", True) is False or _argument(args, kwargs, 1, "p") == 0:
        return dataclasses.replace(node, random=False)
    return node


def _attention(node: OpNode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode:
    return dataclasses.replace(node, random=_argument(args, kwargs, 4, "dropout_p", 0.0) != 0)


_SPECIAL: dict[str, Callable[[OpNode, tuple[Any, ...], dict[str, Any]], OpNode]] = {
    "type": _type,
    "__getitem__": _index,
    "__setitem__": _index,
    "where": _where,
    "repeat_interleave": _repeat_interleave,
    "one_hot": _one_hot,
    "tensor_split": _tensor_split,
    "ctc_loss": _ctc_loss,
    "tensor": _data,
    "as_tensor": _data,
    "new_tensor": _data,
    "new": _data,
    "dropout": _dropout,
    "dropout_": _dropout,
    "alpha_dropout": _dropout,
    "alpha_dropout_": _dropout,
    "feature_dropout": _dropout,
    "feature_dropout_": _dropout,
    "feature_alpha_dropout": _dropout,
    "feature_alpha_dropout_": _dropout,
    "scaled_dot_product_attention": _attention,
}
