"""Update rules for tensors: torch's function mode reports each C operator, and the operator graph grows.

The two channels check each other: an operator that no mode event reported leaves a tensor without a node, and a tensor
without a node ends the region; it is never taken for a constant.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.fx

from magpy_annotations import OpKind, Read
from magpy_codegen import OperatorGraph
from magpy_refgraph import Atom, EdgeKind, Key, Node
from magpy_runtime import metadata
from magpy_runtime.capture import NULL, type_lookup

from . import _torch
from ._describe import describe
from ._specials import SpecialRules
from ._state import ATOMS, is_atom, is_library
from ._tensor_names import COUNTED_BY_SHAPE, COVERED, RANK, REDUCTIONS, SHAPED_BY_VALUES, SINGLE, TYPES

ATOMS.update(_torch.ATOM_TYPES)
ATOMS.update(_torch.NUMPY_SCALARS)
_MAKERS: Final = frozenset({"tensor", "as_tensor", "asarray", "new_tensor"})
"""Operators that take the type of what they make from numpy's scalars; all others get plain numbers of these."""
_TENSOR: Final = Key(EdgeKind.TENSOR)


class TensorRules(SpecialRules):
    """Rules for torch's operators."""

    making = False
    scalars = False
    tensor_types = (torch.Tensor,)
    tensor_classes = frozenset(_torch.PLAIN_TENSORS)
    modules = (torch.nn.Module,)
    numpy_scalars = _torch.NUMPY_SCALARS

    def __init__(self) -> None:
        super().__init__()
        self.operators = OperatorGraph()
        self.mode: Any = None
        self.mode_on = False
        self.operator_count = 0
        self.state_events = 0
        self.updates: list[Any] = []
        self.dynamic: set[Any] = set()
        self.unranked: set[Any] = set()
        self.inplace = False
        self.mutates = False
        self.switches = False
        self.random = False
        self.hash_codes.add(torch.Tensor.__hash__.__code__)
        self.add_specials(dict.fromkeys(_torch.MODE_QUERIES, self.query))
        self.add_specials({torch.Tensor.__hash__: self.tensor_hash})

    def of_numpy_scalars(self, function: Any) -> bool:
        """Whether numpy calculates with scalars in a callable."""
        return _torch.of_numpy_scalars(function)

    def meets_error(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether a calculation of numpy's meets an error of floating point."""
        return _torch.meets_error(function, args, keywords)

    def switch_on(self) -> None:
        """Let torch report its operators on this thread."""
        _torch.push_mode(self.mode)
        self.mode_on = True

    def switch_off(self) -> None:
        """Stop the reports."""
        if self.mode_on:
            self.mode_on = False
            _torch.remove_mode(self.mode)

    def query(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call that asks for function modes gets the answer that it would get without ours."""
        for arg in (*args, *keywords.values()):
            self.read(arg, Read.ITEMS)
        if not self.mode_on:
            return None
        self.switch_off()
        return self.query_done

    def query_done(self, outputs: tuple[Any, ...] | None) -> None:
        """The answer was given."""
        self.switch_on()

    def operator(self, function: Any, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One torch function was called: runs it by `run`, and adds it to the graph."""
        op = self.registry.operator_call(function, args, kwargs)
        if op is None:
            annotation = self.registry.lookup(function)
            op = None if annotation is None else annotation.as_op_node
            if op is None and annotation is not None and annotation.pure_closure:
                if annotation.note.startswith("a mode"):
                    self.mode_fact(function, args)
                out = run(*args, **kwargs)
                if self.is_constant(out):
                    return out
        if op is None:
            raise self.boundary("unannotated-call", describe(function))
        shown, dynamic = args, False
        if op.kind is OpKind.VALUE and (numbers := self.with_numbers(function, args, kwargs)) is not None:
            op, shown = numbers
        kind = op.kind
        if kind is OpKind.METADATA:
            return self.metadata(function, run, args, kwargs)
        if kind is OpKind.SETTER:
            return self.setter(function, run, args)
        if kind is OpKind.VALUE:
            if self.depends_on_constants(args) and self.depends_on_constants(tuple(kwargs.values())):
                return self.constant_value(run, args, kwargs)
            raise self.boundary("tensor-value", f"by {describe(function)}")
        if kind is OpKind.DYNAMIC_SHAPE:
            deciding = args[1:] if getattr(function, "__name__", "") == "__getitem__" else args
            if not self.depends_on_constants(deciding) or not self.depends_on_constants(tuple(kwargs.values())):
                if name_of(function) not in SHAPED_BY_VALUES:
                    raise self.boundary("dynamic-shape", describe(function))
                dynamic = True
        if kind is OpKind.IMPURE and not _is_data(function):
            if getter_name(function) in ("Tensor.grad_fn", "Tensor._grad_fn"):
                return self.metadata(function, run, args, kwargs)  # None without gradients
            raise self.boundary("tensor-attribute", getter_name(function))
        if kind is OpKind.STATE:
            done = self.state_call(function, args, kwargs)
            out = run(*args, **kwargs)
            self.state_events += 1
            if done is not None:
                done((out,))
            return out
        if name_of(function).startswith(("as_strided", "fill_diagonal_")):
            self.offsets(args)
        if kind is OpKind.INPLACE or "out" in kwargs:
            self.histories((*args[:1], kwargs.get("out")))
        self.making = name_of(function) in _MAKERS
        self.scalars = False
        fx_args = tuple([self.argument(arg) for arg in shown])
        fx_kwargs = {key: self.argument(value) for key, value in kwargs.items()}
        typed = self.making and self.scalars
        self.making = False
        where = self.user_where()
        if self.dynamic and any(each in self.dynamic for each in _nodes((fx_args, fx_kwargs))):
            dynamic = True
            self.check_dynamic(function, kwargs)
        out = run(*args, **kwargs)
        if typed and len(args) == 1 + (name_of(function) == "new_tensor") and kwargs.get("dtype") is None:
            fx_kwargs["dtype"] = out.dtype
        node = self.operators.call(function, fx_args, fx_kwargs, where)
        place = self.recorder.pending()[-1:]
        self.operators.places.update((node.name, each) for each in place)
        if dynamic and kind is OpKind.DYNAMIC_SHAPE:
            self.operators.shaped.add(node.name)
        if dynamic:
            self.note_dynamic(node, name_of(function), out, len(args) == 1 and not kwargs)
        self.operator_count += 1
        self.note_constant(node, op, kind, name_of(function), fx_args, fx_kwargs)
        if kind is OpKind.INPLACE or "out" in kwargs or any(each != "out" for each in op.mutates):
            self.updates.append(place)
        self.inplace = self.inplace or kind is OpKind.INPLACE or "out" in kwargs
        self.mutates = self.mutates or self.inplace or any(each != "out" for each in op.mutates)
        if op.random:
            self.random = True
            self.operators.drawing.add(node)
        if any(each != "out" for each in op.mutates):
            self.note_written(name_of(function), fx_args, node)
        if out is not None:
            self.result(out, node, function)
        else:
            self.operators.without_result.add(node)
        return out

    def offsets(self, args: tuple[Any, ...]) -> None:
        """An operator counts from the start of a storage: where its input lies in it is a fact."""
        for arg in args:
            if issubclass(type(arg), torch.Tensor):
                for tensor in (arg, arg._base):
                    node = None if tensor is None else self.find(tensor)
                    if tensor is not None and node is not None and node.external:
                        self.follow(node, Key(EdgeKind.MEMBER, "storage_offset"), tensor.storage_offset())

    def histories(self, updated: tuple[Any, ...]) -> None:
        """Tensors are updated: one that has gradients can be if it is no leaf."""
        for each in updated:
            if type(each) in (list, tuple):
                self.histories(tuple(each))
            elif issubclass(type(each), torch.Tensor) and each.requires_grad and torch.is_grad_enabled():
                for tensor in (each, each._base):
                    node = None if tensor is None else self.find(tensor)
                    if tensor is not None and node is not None and node.external:
                        self.follow(node, Key(EdgeKind.MEMBER, "is_leaf"), tensor.is_leaf)

    def embed(self, out: torch.Tensor) -> None:
        """A tensor that C code made of plain values: the record holds a copy, and the graph starts from it."""
        self.switch_off()
        try:
            self._embed(out)
        finally:
            self.switch_on()

    def _embed(self, out: torch.Tensor) -> None:
        copy = out.detach().clone()
        place = self.pin(copy)
        self.metadata_fact(place, copy)
        source = self.operators.input(place, copy)
        node = self.operators.call(torch.Tensor.clone, (source,), {}, self.user_where())
        self.operators.constants.update((source, node))
        self.operator_count += 1
        self.result(out, node, torch.Tensor.clone)

    def check_dynamic(self, function: Any, kwargs: dict[str, Any]) -> None:
        """An operator gets a tensor whose shape depends on values: what would show in Python ends the region."""
        name = name_of(function)
        if name in COUNTED_BY_SHAPE:
            raise self.boundary("dynamic-shape", f"number of results of {describe(function)}")
        if name == "squeeze_" or "out" in kwargs:
            raise self.boundary("dynamic-shape", f"{describe(function)} changes the shape of a tensor")

    def note_dynamic(self, node: Any, name: str, out: Any, whole: bool) -> None:
        """Mark a result whose shape depends on values, unless it is one number; `squeeze` lets the rank depend on them."""
        unranked = name == "squeeze" or any(each in self.unranked for each in node.all_input_nodes)
        if isinstance(out, torch.Tensor) and out.dim() == 0 and (not unranked or (whole and name in REDUCTIONS)):
            return
        self.dynamic.add(node)
        if unranked:
            self.unranked.add(node)

    def note_written(self, name: str, fx_args: tuple[Any, ...], node: Any) -> None:
        """An operator updates some of its inputs without moving their version counters: running statistics."""
        if name in ("batch_norm", "instance_norm") and len(fx_args) > 5:
            if fx_args[5] is not False:
                self.operators.written.update(each for each in _nodes(fx_args[3:5]) if each.op == "placeholder")
        else:
            self.operators.written.update(each for each in node.all_input_nodes if each.op == "placeholder")

    def note_constant(self, node: Any, op: Any, kind: OpKind, name: str, args: Any, kwargs: Any) -> None:
        """An operator on constants alone gives a constant, until something else is written into one."""
        constant = self.operators.is_constant(args) and self.operators.is_constant(kwargs)
        if kind is OpKind.INPLACE or any(each != "out" for each in op.mutates):
            if not constant or op.random:
                self.operators.constants.clear()  # one of them may share memory with what was written
        elif constant and not op.random and not name.startswith(("empty", "new_empty", "_empty")):
            self.operators.constants.add(node)

    def depends_on_constants(self, args: tuple[Any, ...]) -> bool:
        """Whether all tensors among some arguments have the same values at every call."""
        return all(self.operators.is_constant(self.argument(arg)) for arg in args if not is_atom(arg))

    def with_numbers(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that takes numbers gets tensors: where these are constants, their numbers stand in the graph."""
        plain = self.registry.operator(function)
        if plain is None or plain.kind is not OpKind.OPERATOR:
            return None

        def number(arg: Any) -> Any:
            if (
                issubclass(type(arg), torch.Tensor)
                and arg.numel() == 1
                and self.operators.is_constant(self.argument(arg))
            ):
                return arg.item()
            if issubclass(type(arg), slice):
                return slice(number(arg.start), number(arg.stop), number(arg.step))
            return type(arg)(map(number, arg)) if type(arg) in (list, tuple) else arg

        shown = (*args[:1], *map(number, args[1:]))
        op = self.registry.operator_call(function, shown, kwargs)
        return (op, shown) if op is not None and op.kind is OpKind.OPERATOR else None

    def constant_value(self, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A value is read from a tensor that is a constant. If tensors come of it, they are a constant operator's."""
        out = run(*args, **kwargs)
        if issubclass(type(out), torch.Tensor):
            raise self.boundary("tensor-value", "by an operator that takes numbers")
        return out

    def user_where(self) -> Any:
        """The innermost user frame's code and line."""
        pending = self.recorder.pending()
        for code, index in reversed(pending):
            if self.is_user(code):
                return (code, -index - 1)
        return (pending[-1][0], -pending[-1][1] - 1) if pending else None

    def is_user(self, code: types.CodeType) -> bool:
        """Whether a code object is the user's."""
        try:
            return self.user_codes[code]
        except KeyError:
            found = self.user_codes[code] = not is_library(code.co_filename)
            return found

    user_codes: dict[types.CodeType, bool] = {}

    def python_function(self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """C code reported a function written in Python: what is inside it is reported instead."""
        self.switch_on()
        self.recorder.unpause()
        try:
            return function(*args, **kwargs)
        finally:
            self.recorder.pause()
            self.switch_off()

    def metadata(self, function: Any, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What is fixed by a tensor's metadata is a constant once the metadata is guarded."""
        for arg in (*args, *kwargs.values()):
            self.touch(arg)
        if self.dynamic:
            names = {name_of(function), getter_name(function)}
            tags = {node.tag for node in map(self.find, args) if node is not None}
            unknown = self.unranked if names & RANK else self.dynamic
            if tags & unknown and not names & TYPES:
                raise self.boundary(
                    "dynamic-shape", f"{getter_name(function)} of a tensor whose shape depends on values"
                )
        out = run(*args, **kwargs)
        if args and issubclass(type(args[0]), torch.Tensor):
            self.uncovered_metadata(function, args, kwargs, out)
        if not self.is_constant(out):
            if issubclass(type(out), torch.Tensor) and self.find(out) is not None:
                return out
            raise self.boundary("tensor-attribute", describe(function))
        return out

    def uncovered_metadata(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """What torch's tensor guards do not compare is a fact of its own."""
        if type(function) is types.MethodWrapperType:
            name = getattr(function.__self__, "__name__", "")
        else:
            name = name_of(function)
        if name in COVERED:
            return
        node = self.find(args[0])
        if node is None or not node.external:
            return
        if name not in SINGLE or len(args) > 1 or kwargs or type_lookup(type(args[0]), name) is NULL:
            raise self.boundary("tensor-attribute", name)
        self.follow(node, Key(EdgeKind.MEMBER, name), out)

    def is_constant(self, out: Any) -> bool:
        """Whether an output is a plain value all through."""
        if is_atom(out):
            return True
        return type(out) in (tuple, torch.Size, list) and all(map(self.is_constant, out))

    def touch(self, arg: Any) -> None:
        """An argument's metadata was read."""
        if issubclass(type(arg), torch.Tensor):
            node = self.find(arg)
            if node is None:
                raise self.boundary("unknown-tensor", "as an argument")
            self.metadata_fact(node, arg)
        elif not is_atom(arg):
            self.read(arg, Read.ITEMS)

    def metadata_fact(self, node: Node, tensor: torch.Tensor) -> None:
        """The metadata of an external tensor is a fact."""
        if node.external and _TENSOR not in node.initial:
            if type(tensor) not in self.tensor_classes:
                raise self.boundary("tensor-subclass", type(tensor).__qualname__)
            self.graph.read(node, _TENSOR, Atom(metadata(tensor)), self.where())

    def setter(self, function: Any, run: Any, args: tuple[Any, ...]) -> Any:
        """A tensor attribute is set: an operator for `requires_grad`, `data` and `detach_`."""
        if type(function) is types.MethodDescriptorType:
            name = function.__name__
        else:
            name = getattr(getattr(function, "__self__", None), "__name__", "")
        if name not in ("requires_grad", "requires_grad_", "detach_", "data"):
            raise self.boundary("tensor-attribute", f"setting .{name}")
        fx_args = tuple(self.argument(arg) for arg in args)
        out = run(*args)
        self.mutates = self.inplace = True
        self.operators.constants.clear()
        node = self.operators.call(function, fx_args, {}, self.user_where())
        self.operators.places.update((node.name, each) for each in self.recorder.pending()[-1:])
        self.operator_count += 1
        return out

    def argument(self, arg: Any) -> Any:
        """An operator's argument for the graph."""
        kind = type(arg)
        if kind in self.quiet or kind in _torch.ATOM_TYPES:
            return arg
        if kind is _torch.LEGACY_TENSOR:
            return f"{arg.__module__}.{arg.__name__}"
        if issubclass(type(arg), torch.Tensor):
            node = self.find(arg)
            if node is None:
                raise self.boundary("unknown-tensor", "as an argument of an operator")
            if node.tag is None:
                if not node.external:
                    raise self.boundary("unknown-tensor", "as an argument of an operator")
                self.metadata_fact(node, arg)
                return self.operators.input(node, arg)
            return node.tag
        if kind is slice:
            self.read(arg, Read.ITEMS)
            return slice(self.argument(arg.start), self.argument(arg.stop), self.argument(arg.step))
        if issubclass(type(arg), (list, tuple)):
            node = self.find(arg)
            if node is not None and node.external:
                self.read_items(node, arg)
            of_list = issubclass(type(arg), list)
            parts = [self.argument(part) for part in (list.__iter__(arg) if of_list else tuple.__iter__(arg))]
            return parts if of_list else tuple(parts)
        if issubclass(type(arg), dict):
            node = self.find(arg)
            if node is not None and node.external:
                self.read_items(node, arg)
            return {key: self.argument(value) for key, value in dict.items(arg)}
        if kind in _torch.NUMPY_SCALARS:
            self.scalars = True
            number = arg.item()
            if not self.making and (type(number) is bool or (type(number) is complex and not isinstance(arg, complex))):
                raise self.boundary("unannotated-call", f"an operator gets a {kind.__name__} of numpy")
            return number
        if issubclass(type(arg), int):
            return int.__pos__(arg)
        if issubclass(type(arg), float):
            return float.__pos__(arg)
        if issubclass(type(arg), str):
            return str.__str__(arg)
        if is_atom(arg):
            return arg
        if issubclass(type(arg), range):
            return list(arg)
        raise self.boundary("opaque-object", f"a {kind.__qualname__} as an argument of an operator")

    def result(self, out: Any, node: Any, function: Any) -> None:
        """Bind an operator's tensors to its node."""
        if issubclass(type(out), torch.Tensor):
            found = self.find(out)
            if found is None:
                if type(out) not in self.tensor_classes:
                    raise self.boundary("tensor-subclass", type(out).__qualname__)
                self.graph.add(out, weak=True).tag = node
            elif found.tag is None:
                self.argument(out)
        elif issubclass(type(out), (tuple, list)):
            self.operators.tuples.add(node)
            for index, part in enumerate(out):
                if part is not None:
                    element = self.operators.element(node, index)
                    if node in self.dynamic:
                        self.dynamic.add(element)
                    if node in self.unranked:
                        self.unranked.add(element)
                    self.result(part, element, function)
        elif not is_atom(out):
            raise self.boundary("unannotated-call", f"{describe(function)} gave a {type(out).__qualname__}")
        else:
            raise self.boundary("tensor-value", f"by {describe(function)}")

    # -- calls that the mode does not report ----------------------------------------------------------------------------

    def state_call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A mode of torch is read or changed. See `TensorCallRules`."""
        raise NotImplementedError

    def is_compiling_flag(self, namespace: dict[str, Any], name: str) -> bool:
        """Whether this is torch's flag that a compiler is at work."""
        return name == _torch.IS_COMPILING_FLAG and namespace is _torch.COMPILER_GLOBALS


def _nodes(value: Any) -> Iterator[Any]:
    """All fx nodes in an operator's arguments."""
    if issubclass(type(value), (tuple, list)):
        for part in value:
            yield from _nodes(part)
    elif issubclass(type(value), dict):
        for part in value.values():
            yield from _nodes(part)
    elif issubclass(type(value), slice):
        yield from _nodes((value.start, value.stop, value.step))
    elif isinstance(value, torch.fx.Node):
        yield value


def getter_name(function: Any) -> str:
    """A torch function's name; for a getter or setter the attribute's."""
    if type(function) is types.MethodWrapperType:
        return f"Tensor.{getattr(function.__self__, '__name__', '')}"
    return describe(function)


def name_of(function: Any) -> str:
    """The bare name of a torch function."""
    return getattr(function, "__name__", "")


def _is_data(function: Any) -> bool:
    """Whether a function is the getter of `Tensor.data`: the same memory without history."""
    return type(function) is types.MethodWrapperType and function.__self__ is torch.Tensor.data
