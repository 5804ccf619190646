"""The annotations of numpy, derived from numpy itself once it has been imported.

An array's contents count as tensor data: whatever looks at them reads the array as a whole, and what makes a view of an
array does so too, because the view's contents are then read without asking. Shape, type and the like are its length.
Scalars of numpy are scalars. Random functions are left out, and so are boundaries.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from magpy_annotations._model import Annotation, Input, Output, Read, Relation

if TYPE_CHECKING:
    from magpy_annotations._registry import Registry

LOADED_WITH = "numpy.linalg"
"""A module of numpy that its own import reaches late."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


METADATA = _words(
    """
    shape dtype ndim size itemsize nbytes strides flags __len__ __array_priority__
    """
)
UPDATES = _words(
    """
    fill sort partition put resize setfield setflags itemset byteswap __setitem__ __delitem__ __setstate__
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __imatmul__ __ilshift__
    __irshift__ __iand__ __ior__ __ixor__
    """
)
IMPURE = _words(
    """
    dump tofile ctypes __array_interface__ __array_struct__ data __dlpack__ __hash__ base
    """
)
REDUCTIONS = _words("reduce accumulate reduceat outer")
"""Methods of ufuncs. `at` changes its first argument, and stays a boundary."""

FUNCTIONS = _words(
    """
    array asarray asanyarray ascontiguousarray zeros ones full zeros_like ones_like full_like
    arange linspace eye concatenate stack vstack hstack split where dot matmul inner outer tensordot einsum
    transpose reshape ravel squeeze expand_dims broadcast_to tile repeat sum prod mean std var min max amin
    amax argmin argmax argsort sort cumsum cumprod clip round any all isclose allclose array_equal unique
    searchsorted take diff pad flip roll triu tril diag meshgrid result_type can_cast promote_types
    iscomplexobj ndim shape size floor ceil
    """
)


def register(registry: Registry, owner: str) -> None:
    """Adds the annotations, to be made once numpy has been imported."""
    registry.add_source(LOADED_WITH, lambda: derive(owner))


def derive(owner: str) -> Iterator[Annotation]:
    """An annotation for each ufunc, for the listed functions and for the C methods of arrays and scalars."""
    numpy: Any = sys.modules["numpy"]
    seen: set[int] = set()
    for name in sorted(vars(numpy)):
        found = getattr(numpy, name)
        if isinstance(found, numpy.ufunc) and id(found) not in seen:
            seen.add(id(found))
            yield _ufunc(f"numpy.{name}", found, owner)
    for name in REDUCTIONS:
        yield _reduction(f"numpy.ufunc.{name}", owner)
    for name in FUNCTIONS:
        found = getattr(numpy, name, None)
        if found is not None and id(found) not in seen and not isinstance(found, types.FunctionType):
            seen.add(id(found))
            yield _function(f"numpy.{name}", owner)
    types_ = [numpy.ndarray, numpy.dtype, *dict.fromkeys(each for each in numpy.generic.__subclasses__())]
    pending: list[type] = [numpy.generic, *types_]
    done: set[type] = set()
    while pending:
        tp = pending.pop(0)
        if tp in done:
            continue
        done.add(tp)
        pending += tp.__subclasses__() if issubclass(tp, numpy.generic) else []
        target = f"{tp.__module__}.{tp.__qualname__}"
        if getattr(sys.modules.get(tp.__module__), tp.__name__, None) is tp:
            yield from _methods(target, tp, owner, array=tp is numpy.ndarray)
            if issubclass(tp, numpy.generic):
                yield _scalar(target, owner)


def _ufunc(target: str, ufunc: Any, owner: str) -> Annotation:
    out = [Input(name=f"out{at}", value_read=Read.NONE, in_place=True, optional=True) for at in range(ufunc.nout)]
    return Annotation(
        target=target,
        inputs=(
            *(Input(name=f"x{at}") for at in range(ufunc.nin)),
            *out,
            Input(name="out", value_read=Read.ITEMS, in_place=True, optional=True, keyword_only=True),
        ),
        keywords=Input(name="kwargs"),
        owner=owner,
    )


def _reduction(target: str, owner: str) -> Annotation:
    return Annotation(
        target=target,
        inputs=(
            Input(name="self", value_read=Read.NONE, called=True),
            Input(name="array"),
            Input(name="out", value_read=Read.ITEMS, in_place=True, optional=True, keyword_only=True),
        ),
        rest=Input(name="args", in_place=True),
        keywords=Input(name="kwargs"),
        output=Output(relation=Relation.NEW, of="array"),
        owner=owner,
        note="a positional argument may be the one that it writes to",
    )


def _function(target: str, owner: str) -> Annotation:
    return Annotation(
        target=target,
        inputs=(Input(name="out", value_read=Read.ITEMS, in_place=True, optional=True, keyword_only=True),),
        rest=Input(name="args", in_place=True),
        keywords=Input(name="kwargs"),
        output=Output(relation=Relation.NEW, of="args"),
        owner=owner,
        note="a positional argument may be the one that it writes to",
    )


def _scalar(target: str, owner: str) -> Annotation:
    return Annotation(target=target, rest=Input(name="args"), keywords=Input(name="kwargs"), owner=owner)


_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_LEFT_OUT = {"__getattribute__", "__setattr__", "__delattr__", "__sizeof__", "__reduce__", "__reduce_ex__"}


def _methods(target: str, tp: type, owner: str, *, array: bool) -> Iterator[Annotation]:
    for name, found in sorted(vars(tp).items()):
        if name in _LEFT_OUT:
            continue
        if isinstance(found, _ATTRIBUTES):
            yield _attribute(f"{target}.{name}", name, owner, array=array)
        elif isinstance(found, _METHODS) or (name == "__new__" and isinstance(found, types.BuiltinFunctionType)):
            yield _method(f"{target}.{name}", name, owner, array=array)


def _attribute(target: str, name: str, owner: str, *, array: bool) -> Annotation:
    read = Read.LENGTH if array and name in METADATA else Read.DEEP
    return Annotation(
        target=target,
        inputs=(Input(name="self", value_read=read),),
        output=Output(relation=Relation.NEW),
        pure_closure=name not in IMPURE,
        owner=owner,
    )


def _method(target: str, name: str, owner: str, *, array: bool) -> Annotation:
    updates = array and name in UPDATES
    length = array and name in METADATA
    returns_self = updates and name.startswith("__i")
    rest = Input(name="args", in_place=array and not name.startswith("__"))
    output = Output(relation=Relation.NEW, of="self")
    if returns_self:
        output = Output(relation=Relation.SAME, of="self", in_place=True)
    return Annotation(
        target=target,
        inputs=(Input(name="self", value_read=Read.LENGTH if length else Read.DEEP, in_place=updates),),
        rest=rest,
        keywords=Input(name="kwargs", in_place=array),
        output=output,
        pure_closure=name not in IMPURE,
        owner=owner,
    )
