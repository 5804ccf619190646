"""What a mock does, where that is to run the graph, to call functions and to hand on what came of it: a form without Python.

It is read off the mock's source, which is the truth: a line of any other form leaves the mock to its Python.
"""

from __future__ import annotations

import ast
import enum
from typing import Any, Final

from ._steps import Operand


class Made(enum.IntEnum):
    """How a part of the result comes about; the numbers are those of the native code."""

    OUTPUT = 0  # an output of the graph, by its number
    OPERAND = 1  # an object that the guard bound or that the record holds
    TUPLE = 2  # of parts
    LIST = 3  # of parts
    DICT = 4  # of parts, with keys


Result = tuple[Any, ...]
"""`(Made, what)`, and the keys for a dictionary."""

Action = tuple[Any, tuple[Result, ...]]
"""A function that is called once the graph has run, and its arguments."""

Direct = tuple[tuple[Operand, ...], int, Result, tuple[Action, ...]]
"""Inputs of the graph, number of its outputs, the result, and what is done before that."""

_ARGUMENTS: Final = 8
"""How many arguments an action may have."""


class _Unfit(Exception):
    """The mock does something else, too."""


def direct_form(source: str, namespace: dict[str, Any]) -> Direct | None:
    """The native form of a mock.

    Args:
        source: the mock's source.
        namespace: its globals.

    Returns:
        None where the mock does more than that.
    """
    try:
        return _Reader(namespace).read(source)
    except _Unfit:
        return None


class _Reader:
    """Reads one mock.

    Attributes:
        namespace: the mock's globals.
        bound: numbers of registers, by name.
        outputs: numbers of outputs, by name.
        built: what was built, by name; taken out where it is used, since two uses would be one object.
        actions: what is done once the graph has run.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.bound: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self.built: dict[str, Result] = {}
        self.actions: list[Action] = []

    def read(self, source: str) -> Direct:
        """Read the whole mock."""
        [function] = ast.parse(source).body
        assert isinstance(function, ast.FunctionDef)
        *lines, last = function.body
        inputs: tuple[Operand, ...] | None = None
        for line in lines:
            match line:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="bound")) if not self.bound:
                    self.bound = {_name(each): number for number, each in enumerate(names)}
                case ast.Assign(
                    targets=[ast.Tuple(elts=names)],
                    value=ast.Call(func=ast.Name(id="run"), args=args, keywords=[]),
                ) if inputs is None:
                    self.outputs = {_name(each): number for number, each in enumerate(names)}
                    inputs = tuple([self._operand(each) for each in args])
                case ast.If(
                    test=ast.Compare(
                        left=ast.Name(id="run"), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
                    ),
                    body=[ast.Expr(value=ast.Call(func=ast.Name(id="run"), args=args, keywords=[]))],
                ) if inputs is None:
                    inputs = tuple([self._operand(each) for each in args])
                case _:
                    if inputs is None:
                        raise _Unfit
                    self._build(line)
        if inputs is None or not isinstance(last, ast.Return) or last.value is None:
            raise _Unfit
        result = self._part(last.value)
        if self.built:
            raise _Unfit
        return inputs, len(self.outputs), result, tuple(self.actions)

    def _build(self, line: ast.stmt) -> None:
        match line:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=[])) if (
                name in self.namespace and name not in self.built and len(args) <= _ARGUMENTS
            ):
                self.actions.append((self.namespace[name], tuple([self._part(each) for each in args])))
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="tuple"), args=[ast.List(elts=parts)], keywords=[]),
            ):
                self.built[name] = (Made.TUPLE, tuple([self._part(each) for each in parts]))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=[])):
                self.built[name] = (Made.LIST, ())
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=[])):
                self.built[name] = (Made.DICT, (), ())
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.List(elts=parts)) if self.built.get(
                name
            ) == (Made.LIST, ()):
                del self.built[name]  # a list that holds itself is not known here
                self.built[name] = (Made.LIST, tuple([self._part(each) for each in parts]))
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() | int() as key))],
                value=value,
            ) if name in self.built and self.built[name][0] is Made.DICT:
                _, parts, keys = self.built.pop(name)
                if key in keys:
                    raise _Unfit
                self.built[name] = (Made.DICT, (*parts, self._part(value)), (*keys, key))
            case _:
                raise _Unfit

    def _part(self, value: ast.expr) -> Result:
        match value:
            case ast.Name(id=name) if name in self.outputs:
                return Made.OUTPUT, self.outputs[name]
            case ast.Name(id=name) if name in self.built:
                return self.built.pop(name)
            case ast.Tuple(elts=parts):
                return Made.TUPLE, tuple([self._part(each) for each in parts])
            case ast.Dict(keys=keys, values=parts) if all(map(_is_name, keys)):
                names = tuple([key.value for key in keys if isinstance(key, ast.Constant)])
                return Made.DICT, tuple([self._part(each) for each in parts]), names
        return Made.OPERAND, self._operand(value)

    def _operand(self, value: ast.expr) -> Operand:
        match value:
            case ast.Name(id=name) if name in self.bound:
                return self.bound[name], None
            case ast.Name(id=name) if name in self.namespace:
                return -1, self.namespace[name]
            case ast.Constant(value=constant) if type(constant) in (int, float, str, bytes, bool, type(None)):
                return -1, constant
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -1, -number
        raise _Unfit


def _is_name(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and type(key.value) is str


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    raise _Unfit
