"""Classifies torch's C functions, methods and attributes from torch itself, once it has been imported.

Imported when somebody else has imported torch.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from magpy_annotations._model import Annotation, Input, OpKind, OpNode, Output, Read, Relation
from magpy_annotations.catalogue.torch._calls import refine
from magpy_annotations.catalogue.torch._kinds import EXPLICIT, MUTATES, RANDOM_NAMES
from magpy_annotations.catalogue.torch._torch import OVERLOADS, TENSOR, is_packet, namespaces, schemas

C_CALLABLES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_ACCESSES = {"__get__": "", "__set__": "=", "__delete__": "="}


def functions() -> Iterator[tuple[str, str, Any]]:
    """Target, name and object of each C function and method that can be an operator.

    Besides the namespaces, the functions of ``torch`` itself that are in none (``torch.tensor`` and the like).
    """
    for path, holder in namespaces().items():
        for name in dir(holder):
            found = getattr(holder, name)
            if isinstance(found, C_CALLABLES) and not (name.startswith("__") and name.endswith("__")):
                yield f"{path}.{name}", name, found
    for name in ("tensor", "as_tensor", "from_file"):
        found = getattr(torch, name)
        if isinstance(found, C_CALLABLES):
            yield f"torch.{name}", name, found
    for name, found in sorted(vars(TENSOR).items()):
        found = found.__func__ if isinstance(found, staticmethod) else found
        if isinstance(found, C_CALLABLES):
            yield f"torch._C.TensorBase.{name}", name, found


def attributes() -> Iterator[tuple[str, str, Any]]:
    """Target, name and descriptor of each attribute of a tensor."""
    for name, found in sorted(vars(TENSOR).items()):
        if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            yield f"torch._C.TensorBase.{name}", name, found


def classify(name: str) -> OpNode | None:
    """What the function, method or attribute access (``.shape``, ``.data=``) of a name is; None when nothing tells."""
    explicit = EXPLICIT.get(name)
    forms = _schemas(name)
    if explicit is None:
        inferred = _infer(name, forms)
        if inferred is None:
            return None
        kind, why = inferred
    else:
        kind, why = explicit, "listed"
    random = name in RANDOM_NAMES or _tagged(name, torch.Tag.nondeterministic_seeded)
    mutates = (*MUTATES.get(name, ()), *_written(forms, skip_first=True))
    return OpNode(kind=kind, random=random, mutates=tuple(dict.fromkeys(mutates)), why=why)


def tagged_kind(name: str) -> OpKind | None:
    """What torch's own tags say about the shape and the outcome of the operator of that name."""
    if _tagged(name, torch.Tag.data_dependent_output):
        return OpKind.VALUE
    if _tagged(name, torch.Tag.dynamic_output_shape):
        return OpKind.DYNAMIC_SHAPE
    return None


def _infer(name: str, forms: tuple[Any, ...]) -> tuple[OpKind, str] | None:
    if name.endswith("_") and not name.endswith("__"):
        return OpKind.INPLACE, "named in place"
    tagged = tagged_kind(name)
    if tagged is not None:
        return tagged, "tagged"
    on_tensors = [each for each in forms if any("Tensor" in str(arg.type) for arg in each.arguments)]
    if not forms or any("Tensor" not in str(ret.type) for each in on_tensors for ret in each.returns):
        return None
    if not on_tensors and not any("Tensor" in str(ret.type) for each in forms for ret in each.returns):
        return None
    return OpKind.OPERATOR, "gives tensors only"


def _schemas(name: str) -> tuple[Any, ...]:
    return () if name.startswith(".") else schemas(name)


def _tagged(name: str, tag: Any) -> bool:
    packet = getattr(torch.ops.aten, name, None) if not name.startswith(("_", ".")) or _schemas(name) else None
    if packet is None or not hasattr(packet, "overloads"):
        return False
    return any(tag in getattr(packet, overload).tags for overload in packet.overloads())


def _written(forms: Iterable[Any], *, skip_first: bool) -> Iterator[str]:
    """Arguments that the schemas mark as written."""
    for schema in forms:
        if not any("Tensor" in str(argument.type) for argument in schema.arguments):
            continue  # the list methods of TorchScript
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write and not (skip_first and position == 0):
                yield "out" if argument.kwarg_only else argument.name  # Python has one `out`, a tuple for several


def derive(owner: str) -> Iterator[Annotation]:
    """An annotation for each function, method and attribute that is classified."""
    seen: set[int] = set()
    for target, name, found in functions():
        node = classify(name)
        if node is not None and id(found) not in seen:
            seen.add(id(found))
            yield _function(target, node, owner, method=".TensorBase." in target)
    for target, name, found in attributes():
        node = classify("." + name)
        if node is not None and id(found) not in seen:
            yield _attribute(target, name, node, owner)


_OUTPUTS = {
    OpKind.OPERATOR: Output(relation=Relation.NEW),
    OpKind.METADATA: Output(relation=Relation.CONSTANT),
    OpKind.VALUE: Output(relation=Relation.NEW),
    OpKind.DYNAMIC_SHAPE: Output(relation=Relation.NEW),
    OpKind.SETTER: Output(relation=Relation.UNKNOWN),
    OpKind.IMPURE: Output(relation=Relation.UNKNOWN),
}


def _function(target: str, node: OpNode, owner: str, *, method: bool) -> Annotation:
    updates = node.kind in {OpKind.INPLACE, OpKind.SETTER}
    first = Input(name="self" if method else "input", in_place=updates, optional=not (method or updates))
    if node.kind is OpKind.INPLACE:
        output = Output(relation=Relation.SAME, of=first.name, in_place=True)
    elif node.kind is OpKind.OPERATOR:
        output = Output(relation=Relation.NEW, of=first.name)
    else:
        output = _OUTPUTS[node.kind]
    return Annotation(
        target=target,
        inputs=(
            first,
            *(
                Input(name=each, in_place=True, optional=True, keyword_only=True)
                for each in node.mutates
                if each != first.name
            ),
        ),
        rest=Input(name="args"),
        keywords=Input(name="kwargs"),
        output=output,
        as_op_node=node,
        pure_closure=node.kind is not OpKind.IMPURE,
        owner=owner,
    )


def _attribute(target: str, name: str, node: OpNode, owner: str) -> Annotation:
    if node.kind is OpKind.OPERATOR:
        output = Output(relation=Relation.NEW)
    elif node.kind is OpKind.METADATA:
        output = Output(relation=Relation.ATTRIBUTE, of="self", key=name)
    else:
        output = Output(relation=Relation.UNKNOWN)
    return Annotation(
        target=target,
        inputs=(Input(name="self", value_read=Read.TYPE),),
        output=output,
        as_op_node=node,
        pure_closure=node.kind is not OpKind.IMPURE,
        owner=owner,
    )


def derive_overload(func: Any, owner: str) -> Annotation:
    """The annotation of an operator of ``torch.ops``."""
    return _function(str(func), _of_schemas(func), owner, method=False)


class Operators:
    """Answers what a function is to the graph, for what a ``TorchFunctionMode`` receives."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Any, OpNode]] = {}
        for _, name, found in functions():
            node = classify(name)
            if node is not None:
                self._by_id.setdefault(id(found), (found, node))
        self._accesses = {
            (name, access): node
            for _, name, _ in attributes()
            for access, mark in _ACCESSES.items()
            if (node := classify(f".{name}{mark}")) is not None
        }
        self._schemas: dict[Any, OpNode] = {}

    def __call__(self, func: Any) -> OpNode | None:
        """The class of `func`; None for what is not a C function of torch.

        Args:
            func: A builtin, a descriptor, a getter or setter (``torch.Tensor.shape.__get__``), or an operator of
                ``torch.ops``.
        """
        known = self._by_id.get(id(func))
        if known is not None:
            return known[1]
        if isinstance(func, types.MethodWrapperType):
            holder = func.__self__
            if isinstance(holder, types.GetSetDescriptorType) and issubclass(TENSOR, holder.__objclass__):
                return self._accesses.get((holder.__name__, func.__name__))
            return None
        if type(func) in OVERLOADS:
            return self._schemas.setdefault(func, _of_schemas(func))
        return None

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode | None:
        """The class of one call, where the arguments decide more than the function does."""
        node = self(func)
        return None if node is None else refine(getattr(func, "__name__", ""), node, args, kwargs)


def _of_schemas(func: Any) -> OpNode:
    """The class of an operator of ``torch.ops``, from its schemas alone."""
    packet = is_packet(func)
    overloads = [getattr(func, name) for name in func.overloads()] if packet else [func]
    name = (func if packet else func.overloadpacket).__name__
    if overloads and overloads[0].namespace == "aten" and (node := classify(name)) is not None:
        return node
    tags = {tag for each in overloads for tag in each.tags}
    forms = [each._schema for each in overloads]
    random = torch.Tag.nondeterministic_seeded in tags
    if torch.Tag.data_dependent_output in tags:
        return OpNode(kind=OpKind.VALUE, random=random, why="tagged")
    if torch.Tag.dynamic_output_shape in tags:
        return OpNode(kind=OpKind.DYNAMIC_SHAPE, random=random, why="tagged")
    if any("Tensor" not in str(ret.type) for schema in forms for ret in schema.returns):
        return OpNode(kind=OpKind.VALUE, random=random, why="its schema gives more than tensors")
    if not any(schema.returns for schema in forms) and not any(_written(forms, skip_first=False)):
        return OpNode(kind=OpKind.IMPURE, random=random, why="its schema gives nothing and writes nothing")
    written = tuple(dict.fromkeys(_written(forms, skip_first=False)))
    kind = OpKind.INPLACE if written and "out" not in written else OpKind.OPERATOR
    return OpNode(kind=kind, random=random, mutates=written, why="by its schema")
