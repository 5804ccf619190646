"""Update rules for calls of torch that its function mode does not report: modes, legacy constructors, autograd functions."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from magpy_annotations import Annotation, OpKind, Read

from . import _torch
from ._attributes import SKIP
from ._describe import describe
from ._script import NotInlinedError, Operand, inline
from ._state import is_atom
from ._tensors import TensorRules

_READS: Final = frozenset({"is_grad_enabled", "autocast_decrement_nesting_", "current_device"})
_MODE_SETTERS: Final = frozenset(
    {
        "_set_grad_enabled", "set_autocast_enabled", "set_autocast_dtype", "set_autocast_cache_enabled",
        "set_autocast_cpu_enabled", "set_autocast_cpu_dtype", "set_autocast_gpu_dtype", "autocast_increment_nesting",
        "autocast_decrement_nesting", "clear_autocast_cache",
    }
)  # fmt: skip


_NESTED: Final = 20
"""How deep the arguments of a refused call are looked into."""


class TensorCallRules(TensorRules):
    """Rules for torch functions that are called from bytecode."""

    native_callables = frozenset({torch.jit.ScriptFunction})

    def __init__(self) -> None:
        super().__init__()
        self.shared_arrays: list[tuple[Any, Any]] = []
        self.add_specials(
            {
                _torch.FUNCTION_APPLY: self.function_apply,
                _torch.LEGACY_VARIABLE: self.variable,
                torch.Tensor: self.legacy_tensor,
                torch.from_numpy: self.from_numpy,
                **dict.fromkeys(_torch.EVAL_FRAME_SETTERS, self.nothing),
                **dict.fromkeys(_torch.PROFILER_MARKS, self.profiler_mark),
                **dict.fromkeys(_torch.generation_marks(), self.generation_mark),
            }
        )

    def profiler_mark(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A mark for a profiler, which nobody sees unless one is running."""
        if _torch.PROFILER_ENABLED():
            raise self.boundary("impure-call", "a mark for the profiler that is running")
        self.mode_fact(_torch.PROFILER_ENABLED, ())
        return SKIP

    def generation_mark(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """TorchDynamo notes when a module was made, for itself."""
        return SKIP

    def enter(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before `with` enters a context manager."""
        if type(inputs[0]) is torch.autograd.profiler.record_function:
            self.profiler_mark((), {})
            self.skip()
        else:
            super().enter(inputs, arg)

    def operator_call(
        self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A torch function is called from bytecode: the mode reports operators; modes of torch are handled here."""
        op = annotation.as_op_node
        assert op is not None
        if op.kind is OpKind.METADATA:
            return None
        if op.kind is not OpKind.STATE:
            return functools.partial(self.must_be_reported, function, (*args, *keywords.values()), self.reported)
        before = self.state_events
        done = self.state_call(function, args, keywords)

        def unless_reported(outputs: tuple[Any, ...] | None) -> None:
            if done is not None and self.state_events == before:
                done(outputs)

        return unless_reported

    def must_be_reported(
        self, function: Any, args: tuple[Any, ...], before: int, outputs: tuple[Any, ...] | None
    ) -> None:
        """An operator was called: if torch did not report it, it refused its arguments or nobody knows what it did."""
        if self.reported != before or self.muted:
            return
        if outputs is not None:
            raise self.boundary("unknown-tensor", f"{describe(function)}, which torch does not report")
        for arg in args:
            self.refused(arg, 0)

    def refused(self, arg: Any, depth: int) -> None:
        """Torch has looked at an argument, and into it, before it refused the call."""
        if depth > _NESTED:
            raise self.boundary("opaque-object", "a deep argument of a refused call")
        if is_atom(arg):
            return
        self.touch(arg)
        if self.info(type(arg)).base is not None:
            self.read(arg, Read.ITEMS)
        for element in self.members(arg):
            self.refused(element, depth + 1)

    reported = 0

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
                self._switch(function, *fx_args, **fx_kwargs)

        return done

    def _switch(self, function: Any, *args: Any, **keywords: Any) -> None:
        """A mode changes for the operators that follow."""
        self.operators.call(function, args, keywords, self.user_where())
        self.graph.tick()
        self.switches = True

    def function_apply(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`autograd.Function.apply`: its forward is inlined where no gradient is at stake."""
        if torch.is_grad_enabled() and any(issubclass(type(a), torch.Tensor) and a.requires_grad for a in args):
            raise self.boundary("autograd-function", args[0].__qualname__ if issubclass(type(args[0]), type) else "")
        if issubclass(type(args[0]), type):
            for name in ("forward", "setup_context", "generate_vmap_rule", "vmap"):
                self.type_attribute(args[0], name)
            self.callable_facts(args[0].forward)
            self.callable_facts(args[0].setup_context)
        recording = torch.is_grad_enabled()
        if recording:  # C code switches gradients off for its forward, which nobody reports
            self._switch(_torch.set_grad_enabled, False)

        def made(outputs: tuple[Any, ...] | None) -> None:
            if recording:
                self._switch(_torch.set_grad_enabled, True)
            if outputs is None:
                return
            out = outputs[-1]
            for part in out if issubclass(type(out), tuple) else (out,):
                if issubclass(type(part), torch.Tensor) and self.find(part) is None:
                    raise self.boundary("autograd-function", "an output that its forward did not make")

        return made

    def variable(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`torch.autograd.Variable(tensor)`: another tensor on the same memory, without history."""
        data = args[0] if args else keywords.get("data")
        wants = args[1] if len(args) > 1 else keywords.get("requires_grad", False)
        if not issubclass(type(data), torch.Tensor):
            raise self.boundary("unannotated-call", "torch.autograd.Variable of something else than a tensor")
        source = self.argument(data)
        where = self.user_where()

        def made(outputs: tuple[Any, ...] | None) -> None:
            if not outputs or not issubclass(type(outputs[-1]), torch.Tensor) or self.find(outputs[-1]) is not None:
                return
            out = outputs[-1]
            node = self.operators.call(torch.Tensor.detach, (source,), {}, where)
            if wants:
                node = self.operators.call(torch.Tensor.requires_grad_, (node, True), {}, where)
            self.result(out, node, torch.Tensor.detach)

        return made

    def legacy_tensor(self, args: tuple[Any, ...], keywords: dict[str, Any], cls: Any = torch.Tensor) -> Any:
        """`torch.Tensor(...)` and `torch.FloatTensor(...)`: from sizes, which leaves the values open, or from numbers."""
        if (
            keywords
            or any(issubclass(type(arg), torch.Tensor) for arg in args)
            or getattr(cls, "is_cuda", False) is True
        ):
            raise self.boundary("unannotated-call", f"{describe(cls)} of a tensor")
        for arg in args:
            self.read(arg, Read.DEEP)
        if args and all(issubclass(type(arg), (int, torch.Size)) for arg in args):
            sizes = list(args[0]) if issubclass(type(args[0]), torch.Size) else list(args)
            dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
            where = self.user_where()

            def allocated(outputs: tuple[Any, ...] | None) -> None:
                if outputs:
                    node = self.operators.call(torch.empty, (sizes,), {"dtype": dtype}, where)
                    self.operator_count += 1
                    self.result(outputs[-1], node, torch.empty)

            return allocated
        return self.embedded

    def embedded(self, outputs: tuple[Any, ...] | None) -> None:
        """A tensor was made of plain values."""
        if outputs and issubclass(type(outputs[-1]), torch.Tensor) and self.find(outputs[-1]) is None:
            self.embed(outputs[-1])

    def from_numpy(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`torch.from_numpy(array)` of an array that the run made itself; both share memory, so it must not change."""
        if self.touches_external(args):
            raise self.boundary("array-contents", "torch.from_numpy")
        self.shared_arrays.append((args[0], args[0].copy()))
        return self.embedded

    def native(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """C code is called; a scripted function shows its operators."""
        if issubclass(type(function), torch.jit.ScriptFunction):
            return self.script_function(function, args, keywords)
        return super().native(function, args, keywords)

    def script_function(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A scripted function runs outside of Python: the operators of its graph are what it runs."""
        try:
            steps, result = inline(function, args, keywords)
        except NotInlinedError as problem:
            raise self.boundary("unannotated-call", f"a scripted function: {problem}") from problem
        where = self.user_where()
        values: dict[Any, Any] = {}

        def value(operand: Any) -> Any:
            if isinstance(operand, Operand):
                return values[operand]
            if isinstance(operand, list):
                return [value(each) for each in operand]
            return self.argument(operand)

        for place, operator, operands in steps:
            passed = tuple(value(each) for each in operands)
            if operator is None:
                values[place] = passed[0]
            else:
                values[place] = self.operators.call(operator, passed, {}, where)
                self.operator_count += 1

        def done(outputs: tuple[Any, ...] | None) -> None:
            if outputs and self.find(outputs[-1]) is None:
                self.result(outputs[-1], value(result), function)

        return done

    def call_class(self, cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Classes of torch whose instances are tensors made by C code that the mode does not report."""
        if type(cls) is _torch.LEGACY_TENSOR:
            return self.legacy_tensor(args, keywords, cls)
        if _torch.LEGACY_VARIABLE is not None and issubclass(cls, _torch.LEGACY_VARIABLE):
            return self.variable(args, keywords)
        return super().call_class(cls, args, keywords)
