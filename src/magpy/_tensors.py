"""Update rules for tensors: torch's function mode reports each C operator, and the operator graph grows.

The two channels check each other: an operator that no mode event reported leaves a tensor without a node, and a tensor
without a node ends the region; it is never taken for a constant.
"""

from __future__ import annotations

import _abc
import _warnings
import abc
import functools
import gc
import sys
import threading
import types
import warnings
from typing import Any, Final

import torch

from magpy_annotations import Annotation, OpKind, Read
from magpy_codegen import OperatorGraph
from magpy_refgraph import Atom, EdgeKind, Key, Node
from magpy_runtime import metadata
from magpy_runtime.capture import NULL, type_lookup

from . import _torch
from ._attributes import Pending
from ._calls import describe
from ._operations import OperationRules
from ._reasons import Boundary
from ._state import ATOMS, is_atom, is_library

ATOMS.update(_torch.ATOM_TYPES)
ATOMS.update(_torch.NUMPY_SCALARS)
_TENSOR: Final = Key(EdgeKind.TENSOR)


class TensorRules(OperationRules):
    """Rules for torch: the function mode, the calls that it does not report, modes of torch."""

    tensor_types = (torch.Tensor,)
    tensor_classes = frozenset(_torch.PLAIN_TENSORS)

    def __init__(self) -> None:
        super().__init__()
        self.operators = OperatorGraph()
        self.mode = _Mode(self)
        self.mode_on = False
        self.globals_seen = {}
        self.operator_count = 0
        self.inplace = False
        self.mutates = False
        self.random = False
        specials: dict[Any, Any] = {query: self.query for query in _torch.MODE_QUERIES}
        specials.update(
            {
                isinstance: self.instance_check,
                issubclass: self.subclass_check,
                getattr: self.builtin_getattr,
                hasattr: self.builtin_getattr,
                setattr: self.builtin_setattr,
                delattr: self.builtin_setattr,
                object.__setattr__: self.object_setattr,
                object.__delattr__: self.object_setattr,
                object.__getattribute__: self.object_getattribute,
                types.ModuleType.__getattribute__: self.object_getattribute,
                type.__setattr__: self.object_setattr,
                type: self.type_call,
                super: self.nothing,
                object.__new__: self.nothing,
                object.__init__: self.nothing,
                type.__call__: lambda args, keywords: self.call_class(args[0], args[1:], keywords),
                vars: self.builtin_vars,
                globals: lambda args, keywords: self.pin(self.recorder.globals()) and None,
                __build_class__: self.build_class,
                _torch.FUNCTION_APPLY: self.function_apply,
                _torch.LEGACY_VARIABLE: self.variable,
                warnings.warn: self.warn,
                id: self.identity_number,
                sys.exc_info: self.thread_state,
                threading.get_ident: self.thread_state,
                gc.isenabled: self.impure,
                gc.enable: self.impure,
                gc.disable: self.impure,
                callable: self.callable_check,
                memoryview: self.memory_view,
                _abc._abc_instancecheck: self.abstract_check,
                _abc._abc_subclasscheck: self.abstract_check,
                sys.getrecursionlimit: self.thread_state,
                torch.Tensor: self.legacy_tensor,
            }
        )
        specials[_warnings._filters_mutated] = self.nothing  # type: ignore[attr-defined]
        for kind in (type(threading.Lock()), type(threading.RLock())):
            for name in ("__enter__", "__exit__", "acquire", "release"):
                specials[kind.__dict__[name]] = self.lock
        specials.update({setter: self.nothing for setter in _torch.EVAL_FRAME_SETTERS})
        self.specials = {id(function): rule for function, rule in specials.items()}
        self.held = list(specials)

    # -- the function mode --------------------------------------------------------------------------------------------

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
        shown = args
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
                raise self.boundary("dynamic-shape", describe(function))
        if kind is OpKind.IMPURE and not _is_data(function):
            raise self.boundary("tensor-attribute", getter_name(function))
        if kind is OpKind.STATE:
            done = self.state_call(function, args, kwargs)
            out = run(*args, **kwargs)
            self.state_events += 1
            if done is not None:
                done((out,))
            return out
        fx_args = tuple([self.argument(arg) for arg in shown])
        fx_kwargs = {key: self.argument(value) for key, value in kwargs.items()}
        where = self.user_where()
        out = run(*args, **kwargs)
        node = self.operators.call(function, fx_args, fx_kwargs, where)
        self.operator_count += 1
        self.note_constant(node, op, kind, name_of(function), fx_args, fx_kwargs)
        self.inplace = self.inplace or kind is OpKind.INPLACE or "out" in kwargs
        self.mutates = self.mutates or self.inplace or any(each != "out" for each in op.mutates)
        self.random = self.random or op.random
        if out is not None:
            self.result(out, node, function)
        return out

    constants_known = True

    def note_constant(self, node: Any, op: Any, kind: OpKind, name: str, args: Any, kwargs: Any) -> None:
        """An operator on constants alone gives a constant, until something else is written into one."""
        constant = self.operators.is_constant(args) and self.operators.is_constant(kwargs)
        if kind is OpKind.INPLACE or any(each != "out" for each in op.mutates):
            if not constant or op.random:
                self.constants_known = False
        elif constant and not op.random and not name.startswith(("empty", "new_empty", "_empty")):
            self.operators.constants.add(node)

    def depends_on_constants(self, args: tuple[Any, ...]) -> bool:
        """Whether all tensors among some arguments have the same values at every call."""
        return self.constants_known and all(
            self.operators.is_constant(self.argument(arg)) for arg in args if not is_atom(arg)
        )

    def with_numbers(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that takes numbers gets tensors: where these are constants, their numbers stand in the graph."""
        plain = self.registry.operator(function)
        if plain is None or plain.kind is not OpKind.OPERATOR or not self.constants_known:
            return None

        def number(arg: Any) -> Any:
            if isinstance(arg, torch.Tensor) and arg.numel() == 1 and self.operators.is_constant(self.argument(arg)):
                return arg.item()
            if isinstance(arg, slice):
                return slice(number(arg.start), number(arg.stop), number(arg.step))
            return type(arg)(map(number, arg)) if type(arg) in (list, tuple) else arg

        shown = (*args[:1], *map(number, args[1:]))
        op = self.registry.operator_call(function, shown, kwargs)
        return (op, shown) if op is not None and op.kind is OpKind.OPERATOR else None

    def constant_value(self, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A value is read from a tensor that is a constant. If tensors come of it, they are a constant operator's."""
        out = run(*args, **kwargs)
        if isinstance(out, torch.Tensor):
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
        out = run(*args, **kwargs)
        if args and isinstance(args[0], torch.Tensor):
            self.uncovered_metadata(function, args, kwargs, out)
        if not self.is_constant(out):
            if isinstance(out, torch.Tensor) and self.find(out) is not None:
                return out
            raise self.boundary("tensor-attribute", describe(function))
        return out

    def uncovered_metadata(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """What torch's tensor guards do not compare is a fact of its own."""
        if type(function) is types.MethodWrapperType:
            name = function.__self__.__name__
        else:
            name = name_of(function)
        if name in _COVERED:
            return
        node = self.find(args[0])
        if node is None or not node.external:
            return
        if name not in _SINGLE or len(args) > 1 or kwargs or type_lookup(type(args[0]), name) is NULL:
            raise self.boundary("tensor-attribute", name)
        self.follow(node, Key(EdgeKind.MEMBER, name), out)

    def is_constant(self, out: Any) -> bool:
        """Whether an output is a plain value all through."""
        if is_atom(out):
            return True
        return type(out) in (tuple, torch.Size, list) and all(map(self.is_constant, out))

    def touch(self, arg: Any) -> None:
        """An argument's metadata was read."""
        if isinstance(arg, torch.Tensor):
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
        self.constants_known = False
        self.operators.call(function, fx_args, {}, self.user_where())
        self.operator_count += 1
        return out

    def argument(self, arg: Any) -> Any:
        """An operator's argument for the graph."""
        kind = type(arg)
        if kind in self.quiet or kind in _torch.ATOM_TYPES:
            return arg
        if kind is _torch.LEGACY_TENSOR:
            return f"{arg.__module__}.{arg.__name__}"
        if isinstance(arg, torch.Tensor):
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
        if isinstance(arg, (list, tuple)):
            node = self.find(arg)
            if node is not None and node.external:
                self.read_items(node, arg)
            parts = [self.argument(part) for part in arg]
            return parts if isinstance(arg, list) else tuple(parts)
        if isinstance(arg, dict):
            node = self.find(arg)
            if node is not None and node.external:
                self.read_items(node, arg)
            return {key: self.argument(value) for key, value in arg.items()}
        if kind in _torch.NUMPY_SCALARS:
            return arg.item()
        if isinstance(arg, int):
            return int.__new__(int, arg)
        if isinstance(arg, float):
            return float.__new__(float, arg)
        if isinstance(arg, str):
            return str.__str__(arg)
        if is_atom(arg):
            return arg
        if isinstance(arg, range):
            return list(arg)
        raise self.boundary("opaque-object", f"a {kind.__qualname__} as an argument of an operator")

    def result(self, out: Any, node: Any, function: Any) -> None:
        """Bind an operator's tensors to its node."""
        if isinstance(out, torch.Tensor):
            found = self.find(out)
            if found is None:
                if type(out) not in self.tensor_classes:
                    raise self.boundary("tensor-subclass", type(out).__qualname__)
                self.graph.add(out, weak=True).tag = node
            elif found.tag is None:
                self.argument(out)
        elif isinstance(out, (tuple, list)):
            for index, part in enumerate(out):
                if part is not None:
                    self.result(part, self.operators.element(node, index), function)
        elif not is_atom(out):
            raise self.boundary("unannotated-call", f"{describe(function)} gave a {type(out).__qualname__}")
        else:
            raise self.boundary("tensor-value", f"by {describe(function)}")

    # -- calls that the mode does not report ----------------------------------------------------------------------------

    def operator_call(self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A torch function is called from bytecode: the mode reports operators; modes of torch are handled here."""
        op = annotation.as_op_node
        assert op is not None
        if op.kind is not OpKind.STATE:
            return None
        before = self.state_events
        done = self.state_call(function, args, keywords)

        def unless_reported(outputs: tuple[Any, ...] | None) -> None:
            if done is not None and self.state_events == before:
                done(outputs)

        return unless_reported

    state_events = 0

    def state_call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A mode of torch is read, which is a constant since modes are guarded, or changed, which is a node."""
        name = getattr(function, "__name__", "")
        if name.startswith(("is_", "get_", "_is_", "_get_", "has_", "_has_", "_len_")) or name in _READS:
            return None
        fx_args = tuple(self.argument(arg) for arg in args)
        fx_kwargs = {key: self.argument(value) for key, value in keywords.items()}
        if name not in _MODE_SETTERS:
            raise self.boundary("impure-call", describe(function))

        def done(outputs: tuple[Any, ...] | None) -> None:
            if outputs is not None:
                self.operators.call(function, fx_args, fx_kwargs, self.user_where())
                self.graph.tick()

        return done

    def function_apply(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`autograd.Function.apply`: its forward is inlined where no gradient is at stake."""
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            raise self.boundary("autograd-function", args[0].__qualname__ if isinstance(args[0], type) else "")
        if isinstance(args[0], type):
            for name in ("forward", "setup_context", "generate_vmap_rule", "vmap"):
                self.type_attribute(args[0], name)
            self.callable_facts(args[0].forward)  # type: ignore[attr-defined]
            self.callable_facts(args[0].setup_context)  # type: ignore[attr-defined]

        def made(outputs: tuple[Any, ...] | None) -> None:
            if outputs is None:
                return
            out = outputs[-1]
            for part in out if isinstance(out, tuple) else (out,):
                if isinstance(part, torch.Tensor) and self.find(part) is None:
                    raise self.boundary("autograd-function", "an output that its forward did not make")

        return made

    def variable(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`torch.autograd.Variable(tensor)`: another tensor on the same memory, without history."""
        data = args[0] if args else keywords.get("data")
        wants = args[1] if len(args) > 1 else keywords.get("requires_grad", False)
        if not isinstance(data, torch.Tensor):
            raise self.boundary("unannotated-call", "torch.autograd.Variable of something else than a tensor")
        source = self.argument(data)
        where = self.user_where()

        def made(outputs: tuple[Any, ...] | None) -> None:
            if not outputs or not isinstance(outputs[-1], torch.Tensor) or self.find(outputs[-1]) is not None:
                return
            out = outputs[-1]
            node = self.operators.call(torch.Tensor.detach, (source,), {}, where)
            if wants:
                node = self.operators.call(torch.Tensor.requires_grad_, (node, True), {}, where)
            self.result(out, node, torch.Tensor.detach)

        return made

    def legacy_tensor(self, args: tuple[Any, ...], keywords: dict[str, Any], cls: Any = torch.Tensor) -> Any:
        """`torch.Tensor(...)` and `torch.FloatTensor(...)`: from sizes, which leaves the values open, or from numbers."""
        if keywords or any(isinstance(arg, torch.Tensor) for arg in args):
            raise self.boundary("unannotated-call", f"{describe(cls)} of a tensor")
        dtype = torch.get_default_dtype() if cls is torch.Tensor else getattr(cls, "dtype", None)
        if dtype is None or getattr(cls, "is_cuda", False) is True:
            raise self.boundary("unannotated-call", describe(cls))
        for arg in args:
            self.read(arg, Read.DEEP)
        function: Any
        fx_args: tuple[Any, ...]
        if len(args) == 1 and isinstance(args[0], (list, tuple)) and not isinstance(args[0], torch.Size):
            function, fx_args = torch.tensor, (self.argument(args[0]),)
        elif all(isinstance(arg, (int, torch.Size)) for arg in args):
            function, fx_args = torch.empty, (list(args[0]) if args and isinstance(args[0], torch.Size) else list(args or (0,)),)
        else:
            raise self.boundary("unannotated-call", describe(cls))
        where = self.user_where()

        def made(outputs: tuple[Any, ...] | None) -> None:
            if outputs:
                self.result(outputs[-1], self.operators.call(function, fx_args, {"dtype": dtype}, where), function)
                self.operator_count += 1

        return made

    def call_class(self, cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Classes of torch whose instances are tensors made by C code that the mode does not report."""
        if type(cls) is _torch.LEGACY_TENSOR:
            return self.legacy_tensor(args, keywords, cls)
        if _torch.LEGACY_VARIABLE is not None and issubclass(cls, _torch.LEGACY_VARIABLE):
            return self.variable(args, keywords)
        return super().call_class(cls, args, keywords)

    def native(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """C code is called. A cache that a library keeps around a function of its own gives what the function would."""
        if type(function) is _LRU_CACHE:
            wrapped = function.__wrapped__
            if type(wrapped) is types.FunctionType and is_library(wrapped.__code__.co_filename):
                for arg in (*args, *keywords.values()):
                    self.hashed(arg)
                self.callable_facts(wrapped)
                return None
        return super().native(function, args, keywords)

    def lock(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A lock of a library's own is taken or released; it is free again when the call returns."""
        if not is_library(self.recorder.code().co_filename):
            raise self.boundary("impure-call", "a lock was used")

    def script_function(self, function: Any) -> Any:
        """A scripted function runs outside of Python: torch keeps the Python function that it was made of."""
        raise self.boundary("unannotated-call", "a scripted function")

    # -- special cases among builtins: most belong in the catalogue; only these need code ---------------------------------

    def identity_number(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`id(obj)`: fixed for what the record holds by identity; as a tensor's hash it only tells tensors apart."""
        if self.recorder.code() is torch.Tensor.__hash__.__code__:
            return
        node = self.find(args[0])
        if node is None or not node.external:
            if is_library(self.recorder.code().co_filename):
                return  # a memo of `copy` or `reprlib`, which nobody sees
            raise self.boundary("value-identity", f"id() of a {type(args[0]).__qualname__}")
        self.held_by_identity.add(node.index)

    def thread_state(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`sys.exc_info()` and the like: state of the thread that some libraries ask for their own bookkeeping."""
        if not self.recorder.code().co_filename.endswith(_BOOKKEEPERS):
            raise self.boundary("impure-call", "state of the interpreter's thread")

    def impure(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A call whose answer differs in a monitored run."""
        raise self.boundary("impure-call", "state of the garbage collector")

    def callable_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`callable(obj)`."""
        self.lookup(type(args[0]), "__call__")

    def memory_view(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`memoryview(obj)`: what it shows may change between calls."""
        if self.touches_external(args):
            raise self.boundary("array-contents", "a memoryview")

    def nothing(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A call that reads nothing of what it gets."""

    def instance_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`isinstance(obj, classes)`."""
        obj, classes = args
        tp = type(obj)
        if tp not in self.quiet:
            self.mro(tp)
            self.lookup(tp, "__class__")
        self.class_check(classes, "__instancecheck__")

    def subclass_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`issubclass(cls, classes)`."""
        if isinstance(args[0], type):
            self.mro(args[0])
        self.class_check(args[1], "__subclasscheck__")

    def abstract_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """An abstract base class is asked: what is registered with it is covered by the token of its caches."""
        token = Key(EdgeKind.MODE, "abc_cache_token")
        self.graph.read(self.graph.root, token, Atom(abc.get_cache_token()), self.where())
        if len(args) > 1:
            self.mro(args[1] if isinstance(args[1], type) else type(args[1]))

    def class_check(self, classes: Any, name: str) -> None:
        """A class or a tuple of classes is asked for its instances."""
        if isinstance(classes, tuple):
            node = self.find(classes)
            if node is not None and node.external:
                self.read_items(node, classes)
            for each in classes:
                self.class_check(each, name)
        elif type(classes) is not type:
            found = self.lookup(type(classes), name)
            if type(found) is types.FunctionType:
                self.use_function(found)

    def builtin_getattr(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`getattr` and `hasattr`."""
        if isinstance(args[1], str):
            self.attribute(args[0], str.__str__(args[1]))

    def builtin_setattr(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Pending | None:
        """`setattr` and `delattr`."""
        if not isinstance(args[1], str):
            return None
        return self.set_attribute(args[0], str.__str__(args[1]), args[2] if len(args) > 2 else NULL)

    def object_setattr(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Pending | None:
        """`object.__setattr__`, `type.__setattr__` and their deletions, called by name."""
        value = args[2] if len(args) > 2 else NULL
        if isinstance(args[0], type):
            return self.set_class_attribute(args[0], args[1], value)
        return self.generic_store(args[0], args[1], value)

    def object_getattribute(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`object.__getattribute__`, called by name."""
        self.generic_attribute(args[0], args[1])

    def type_call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`type(obj)`, or a class is made."""
        return None if len(args) == 1 else self.build_class(args, keywords)

    def build_class(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A class is made during the run."""

        def made(outputs: tuple[Any, ...] | None) -> None:
            if outputs and isinstance(outputs[-1], type) and self.find(outputs[-1]) is None:
                self.graph.add(outputs[-1])

        return made

    def builtin_vars(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`vars(obj)`: the attribute dictionary itself."""
        if args:
            self.attribute(args[0], "__dict__")

    def warn(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Pending:
        """`warnings.warn`: an effect on the registry of the module that is blamed."""
        named = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | keywords
        message, category = named.get("message"), named.get("category") or UserWarning
        if isinstance(message, Warning) or type(message) is not str or named.get("skip_file_prefixes"):
            raise self.boundary("impure-call", "warnings.warn of a warning object")
        level = max(int(named.get("stacklevel", 1)), 1)
        if level > self.recorder.depth():
            raise self.boundary("impure-call", "warnings.warn that blames the caller of the compiled function")
        code = self.recorder.code()
        frame: types.FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        for _ in range(level - 1):
            frame = None if frame is None else frame.f_back
        if frame is None:
            raise self.boundary("impure-call", "warnings.warn without a frame to blame")
        place = (frame.f_globals, message, category, frame.f_code.co_filename, frame.f_lineno)
        return Pending(self.pin(_WARNINGS), replay_warning, place)

    def is_compiling_flag(self, namespace: dict[str, Any], name: str) -> bool:
        """Whether this is torch's flag that a compiler is at work."""
        return name == _torch.IS_COMPILING_FLAG and namespace is _torch.COMPILER_GLOBALS


class _Raised(BaseException):
    """What a torch function raised, told apart from what the rules raise."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
        self.context = error.__context__


class _Mode(_torch.TorchFunctionMode):
    """Reports each torch function that is called on this thread to the rules."""

    def __init__(self, rules: Any) -> None:
        self.rules = rules

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rules = self.rules
        kwargs = kwargs or {}
        recorder = rules.recorder
        if rules.failed or not recorder.active:
            return func(*args, **kwargs)
        recorder.pause()
        mode_on, rules.mode_on = rules.mode_on, False
        try:
            return rules.watch(func, args, kwargs)
        finally:
            rules.mode_on = mode_on
            recorder.unpause()


class WatchedTensorRules(TensorRules):
    """Keeps failures of the rules away from the program while torch calls into the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    def watch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one torch function under the rules. What the function itself raises is the program's."""
        done: list[Any] = []

        def once(*a: Any, **k: Any) -> Any:
            try:
                done.append(func(*a, **k))
            except BaseException as error:
                raise _Raised(error) from None
            return done[0]

        if type(func) is types.FunctionType:
            found = torch._C.TensorBase.__dict__.get(func.__name__)
            if found is None:
                return self.python_function(func, args, kwargs)
            # A C method of the tensor's base, reported by the name of the Python method that called it.
            func = found
        error: BaseException | None = None
        context: BaseException | None = None
        try:
            return self.operator(func, once, args, kwargs)
        except _Raised as raised:
            error, context = raised.error, raised.context
            self.failed = True
            self.recorder.fail(self.boundary("exception", f"{type(error).__name__} in {describe(func)}"))
        except BaseException as internal:
            self.failed = True
            self.recorder.fail(internal if isinstance(internal, Exception) else Boundary("internal-error", repr(internal)))
        # Not inside of the handlers, where the program would see what is handled as the context of its exceptions.
        if error is None:
            return done[0] if done else func(*args, **kwargs)
        try:
            raise error
        except BaseException:
            error.__context__ = context
            raise


_BOOKKEEPERS: Final = ("contextlib.py", "reprlib.py", "dataclasses.py", "inspect.py", "warnings.py")
"""Modules that ask for the thread's state and let nobody see it."""

_COVERED: Final = frozenset(
    {
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "get_device", "dense_dim", "sparse_dim",
        "is_complex", "is_conj", "is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_signed", "__len__",
        "is_same_size", "is_distributed", "can_cast", "promote_types", "result_type", "_is_zerotensor", "type", "_dimI",
        "_dimV", "shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "requires_grad", "is_cpu", "is_cuda",
        "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse",
        "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "volatile", "_has_symbolic_sizes_strides", "_python_dispatch",
        "is_vulkan_available", "_nnpack_available", "cudnn_is_acceptable", "_use_cudnn_rnn_flatten_weight", "_parse_to",
        "_has_compatible_shallow_copy_type",
    }
)  # fmt: skip
"""Metadata that follow from what a tensor guard compares: type, dtype, device, layout, sizes, strides, dispatch keys."""

_SINGLE: Final = frozenset(
    {
        "storage_offset", "is_leaf", "retains_grad", "output_nr", "name", "grad", "_grad", "_backward_hooks", "grad_dtype",
        "_post_accumulate_grad_hooks", "is_pinned", "_is_view", "is_coalesced",
    }
)  # fmt: skip
"""Metadata that become facts of their own."""

_LRU_CACHE: Final = type(functools.lru_cache(len))
_READS: Final = frozenset({"is_grad_enabled", "autocast_decrement_nesting_", "current_device"})
_MODE_SETTERS: Final = frozenset(
    {
        "_set_grad_enabled", "set_autocast_enabled", "set_autocast_dtype", "set_autocast_cache_enabled",
        "set_autocast_cpu_enabled", "set_autocast_cpu_dtype", "set_autocast_gpu_dtype", "autocast_increment_nesting",
        "autocast_decrement_nesting", "clear_autocast_cache",
    }
)  # fmt: skip


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


class _Registry:
    """Stands for the state of the warnings module in the RefGraph."""


_WARNINGS: Final = _Registry()


def replay_warning(
    registry: object, namespace: dict[str, Any], message: str, category: type[Warning], filename: str, line: int
) -> None:
    """Warn as the monitored run did; the primitive operation of `warnings.warn`."""
    warnings.warn_explicit(
        message,
        category,
        filename,
        line,
        module=namespace.get("__name__") or "<unknown>",
        registry=namespace.setdefault("__warningregistry__", {}),
    )
