"""Functions, cells, bound methods and partials that were made during the run."""

from __future__ import annotations

import functools
import types
from typing import Any

from magpy_codegen._mock import Builder, MockWriter, Unbuildable


def build_cell(writer: MockWriter, obj: types.CellType) -> str:
    """A cell, filled after it has its name, since a function may refer to itself through it."""
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(types.CellType, 'CellType')}()")
    try:
        content = obj.cell_contents
    except ValueError:
        return name
    value = writer.value(content)
    writer.add(f"{name}.cell_contents = {value}")
    return name


def build_function(writer: MockWriter, obj: types.FunctionType) -> str:
    """A function on the same code, with its own closure, defaults and attributes."""
    constant = writer.namespace.constant
    closure = ""
    if obj.__closure__:
        cells = [writer.value(cell) for cell in obj.__closure__]
        if (found := writer.known(obj)) is not None:
            return found
        closure = f", ({', '.join(cells)},)"
    name = writer.fresh(obj)
    code, namespace = constant(obj.__code__, "code"), constant(obj.__globals__, "namespace")
    function = constant(types.FunctionType, "FunctionType")
    writer.add(f"{name} = {function}({code}, {namespace}, {writer.value(obj.__name__)}, None{closure})")
    for attribute in ("__defaults__", "__kwdefaults__", "__annotations__", "__type_params__"):
        value = getattr(obj, attribute, None)
        if value:
            writer.add(f"{name}.{attribute} = {writer.value(value)}")
    for attribute in ("__doc__", "__qualname__", "__module__"):
        writer.add(f"{name}.{attribute} = {writer.value(getattr(obj, attribute))}")
    writer.attributes(name, obj, obj.__dict__, settable=True)
    return name


def build_method(writer: MockWriter, obj: types.MethodType) -> str:
    """A method bound to its object."""
    function, owner = writer.value(obj.__func__), writer.value(obj.__self__)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(types.MethodType, 'MethodType')}({function}, {owner})")
    return name


def build_partial(writer: MockWriter, obj: functools.partial[Any]) -> str:
    """A partial."""
    args = "".join([f", {writer.value(arg)}" for arg in obj.args])
    keywords = ", ".join([f"{writer.value(key)}: {writer.value(value)}" for key, value in obj.keywords.items()])
    keywords = f", **{{{keywords}}}" if keywords else ""
    function = writer.value(obj.func)
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    writer.add(f"{name} = {writer.namespace.constant(functools.partial, 'partial')}({function}{args}{keywords})")
    if writer.known(obj.keywords) is not None:
        raise Unbuildable(obj, "its keywords are used by themselves")
    writer.part(obj.keywords, f"{name}.keywords")
    writer.attributes(name, obj, obj.__dict__, settable=True)
    return name


BUILDERS: dict[type, Builder] = {
    types.CellType: build_cell,
    types.FunctionType: build_function,
    types.MethodType: build_method,
    functools.partial: build_partial,
}
