"""What each instruction of each supported Python means, as a plan of rule calls.

The only place that knows opcodes by name. `Planner.plan(code)` gives the plan that the native recorder follows; an
instruction that only moves references has no entry and is skipped at C speed.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any, Final

from magpy_runtime.capture import NULL, Plan

from . import _env
from ._attributes import SKIP, Pending
from ._operations import OperationRules
from ._reasons import Boundary

_BINARY: Final = {
    "+": "add", "&": "and", "//": "floordiv", "<<": "lshift", "@": "matmul", "*": "mul", "%": "mod", "|": "or",
    "**": "pow", ">>": "rshift", "-": "sub", "/": "truediv", "^": "xor",
}  # fmt: skip

_QUIET_INTRINSICS: Final = frozenset(
    """
    INTRINSIC_STOPITERATION_ERROR INTRINSIC_ASYNC_GEN_WRAP INTRINSIC_TYPEVAR
    INTRINSIC_PARAMSPEC INTRINSIC_TYPEVARTUPLE INTRINSIC_SUBSCRIPT_GENERIC INTRINSIC_TYPEALIAS
    INTRINSIC_PREP_RERAISE_STAR INTRINSIC_TYPEVAR_WITH_BOUND INTRINSIC_TYPEVAR_WITH_CONSTRAINTS
    INTRINSIC_SET_FUNCTION_TYPE_PARAMS INTRINSIC_SET_TYPEPARAM_DEFAULT
    """.split()  # noqa: SIM905 - a list that is read as prose
)
"""Operands of CALL_INTRINSIC_1 and _2 that only make fresh objects, or call Python code that is monitored."""

_SKIPPED: Final = frozenset(
    """
    CACHE POP_TOP PUSH_NULL NOP END_FOR END_SEND RESUME LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR
    LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_FAST_MAYBE_NULL DELETE_FAST
    LOAD_CONST LOAD_CLOSURE COPY SWAP MAKE_CELL COPY_FREE_VARS MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE BUILD_TUPLE
    BUILD_LIST BUILD_STRING BUILD_SLICE BUILD_CONST_KEY_MAP KW_NAMES JUMP_FORWARD
    JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP JUMP_NO_INTERRUPT POP_JUMP_FORWARD_IF_NONE
    POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE RETURN_VALUE RETURN_CONST RETURN_GENERATOR YIELD_VALUE SEND EXTENDED_ARG
    PUSH_EXC_INFO POP_EXCEPT PREP_RERAISE_STAR RERAISE LOAD_ASSERTION_ERROR
    LOAD_BUILD_CLASS GEN_START CLEANUP_THROW INTERPRETER_EXIT ASYNC_GEN_WRAP STOPITERATION_ERROR MATCH_MAPPING
    MATCH_SEQUENCE EXIT_INIT_CHECK LOAD_LOCALS SETUP_ANNOTATIONS ENTER_EXECUTOR
    """.split()  # noqa: SIM905 - a list that is read as prose
)
"""Instructions that only move references, build fresh objects or jump on what is already known."""


_PRECALL: Final = dis.opmap.get("PRECALL", -1)


class Planner:
    """Makes plans for one run.

    Attributes:
        rules: whose handlers the plans call.
    """

    def __init__(self, rules: OperationRules) -> None:
        self.rules = rules
        self._called: Any = None
        self._table: dict[str, Callable[[dis.Instruction], tuple[Any, ...] | None]] = self._make_table()

    def plan(self, code: types.CodeType) -> Plan:
        """The plan of a code object: one element for each code unit."""
        plan: Plan = [None] * (len(code.co_code) // 2)
        names: tuple[str, ...] = ()
        table = self._table
        for instruction in dis.get_instructions(code):
            opname = instruction.opname
            if opname in _SKIPPED:
                if opname == "KW_NAMES":
                    names = code.co_consts[instruction.arg or 0]
                continue
            maker = table.get(opname)
            if maker is None:
                item: Any = (self.rules.unsupported, None, 0, 0, opname)
            elif opname == "PRECALL":
                item = (self._before_precall, None, (instruction.arg or 0) + 2, 0, names)
            elif opname == "CALL":
                item = self._call(instruction.arg or 0, names)
                names = ()
            else:
                item = maker(instruction)
            if item is not None:
                plan[instruction.offset // 2] = item
        for (owner, index), reason in [*self.rules.hints().items()]:  # a worker may add some
            if owner is code:
                plan[index] = (self.rules.hinted, None, 0, 0, reason)
                if (
                    _env.HAS_PRECALL
                    and index >= 2
                    and plan[index - 2] is not None
                    and code.co_code[2 * index - 4] == _PRECALL
                ):
                    plan[index - 2] = None
        self.rules.nested_codes.update(const for const in code.co_consts if isinstance(const, types.CodeType))
        return plan

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, count: int, names: tuple[str, ...]) -> tuple[Any, ...]:
        if _env.HAS_PRECALL:
            return (self._take_precall, self.rules.after_call, 0, 1, None)
        before = self._before_call_313 if _env.CALL_SELF_ABOVE_CALLABLE else self._before_call_312
        return (before, self.rules.after_call, count + 2, 1, names)

    def _before_call(self, inputs: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        first, second = inputs[0], inputs[1]
        if first is NULL:
            return self._dispatch(second, inputs[2:], names)
        return self._dispatch(first, inputs[1:], names)

    def _before_precall(self, inputs: tuple[Any, ...], names: tuple[str, ...]) -> None:
        """PRECALL takes bound methods apart, so the call is looked at before; CALL follows at once."""
        try:
            self._called = self._before_call(inputs, names)
        except Boundary as boundary:
            self._called = boundary

    def _take_precall(self, inputs: tuple[Any, ...], arg: None) -> Any:
        state, self._called = self._called, None
        if type(state) is Boundary:
            raise state
        return self._unless_skipped(state)

    def _unless_skipped(self, state: Any) -> Any:
        if state is SKIP:
            self.rules.skip()
            return None
        return state

    def _before_call_312(self, inputs: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        return self._unless_skipped(self._before_call(inputs, names))

    def _before_call_313(self, inputs: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        args = inputs[2:] if inputs[1] is NULL else inputs[1:]
        return self._unless_skipped(self._dispatch(inputs[0], args, names))

    def _before_call_kw(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        return self._before_call_313(inputs[:-1], inputs[-1])

    def _dispatch(self, function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        if names:
            split = len(args) - len(names)
            return self.rules.call(function, args[:split], dict(zip(names, args[split:], strict=True)))
        return self.rules.call(function, args, {})

    def _before_call_ex(self, inputs: tuple[Any, ...], keywords: bool) -> Any:
        return self._unless_skipped(self._spread(inputs, keywords))

    def _spread(self, inputs: tuple[Any, ...], keywords: bool) -> Any:
        rules = self.rules
        mapping = inputs[-1] if keywords else None
        args = inputs[-2] if keywords else inputs[-1]
        if _env.CALL_SELF_ABOVE_CALLABLE:
            function = inputs[0]
        else:
            function = inputs[1]
        if type(args) not in rules.quiet:
            rules.iterated(args)
        if mapping is not None:
            rules.merge((mapping,), None)
        if type(args) is not tuple:
            if rules.runs_python(function):
                return rules.call(function, (), mapping or {})
            if rules.info(type(args)).base is None:
                raise rules.boundary("unsupported-instruction", f"call with *{type(args).__qualname__}")
            args = rules.elements(args)
        if mapping is not None and type(mapping) is not dict:
            mapping = {name: dict.__getitem__(mapping, name) for name in rules.elements(mapping)}
        return rules.call(function, args, mapping or {})

    # -- the table ----------------------------------------------------------------------------------------------------

    def _make_table(self) -> dict[str, Callable[[dis.Instruction], tuple[Any, ...] | None]]:
        rules = self.rules
        effect = rules.effect

        def fixed(*item: Any) -> Callable[[dis.Instruction], tuple[Any, ...]]:
            return lambda instruction: item

        def named(before: Any, after: Any, n_in: int, n_out: int) -> Callable[[dis.Instruction], tuple[Any, ...]]:
            return lambda instruction: (before, after, n_in, n_out, instruction.argval)

        def numbered(before: Any, after: Any, n_in: int, n_out: int) -> Callable[[dis.Instruction], tuple[Any, ...]]:
            return lambda instruction: (before, after, n_in, n_out, instruction.arg)

        def method(instruction: dis.Instruction) -> tuple[Any, ...]:
            return (rules.load_attribute, None, 1, 0, instruction.argval)

        truth = fixed(rules.truth, None, 1, 0, None)
        table: dict[str, Callable[[dis.Instruction], tuple[Any, ...] | None]] = {
            "LOAD_GLOBAL": named(None, rules.load_global, 0, 1),
            "LOAD_NAME": named(None, self._after_name, 0, 1),
            "LOAD_FROM_DICT_OR_GLOBALS": named(None, self._after_name, 0, 1),
            "STORE_GLOBAL": named(rules.store_global, effect, 1, 0),
            "DELETE_GLOBAL": named(rules.delete_global, effect, 0, 0),
            "STORE_NAME": lambda instruction: None,  # a class body; see `SpecialRules.class_statement`
            "DELETE_NAME": lambda instruction: None,
            "LOAD_DEREF": numbered(rules.load_cell, None, 0, 0),
            "LOAD_CLASSDEREF": numbered(rules.load_cell, None, 0, 0),
            "LOAD_FROM_DICT_OR_DEREF": numbered(rules.load_cell, None, 0, 0),
            "STORE_DEREF": numbered(rules.store_cell, effect, 1, 0),
            "DELETE_DEREF": numbered(rules.delete_cell, effect, 0, 0),
            "LOAD_ATTR": method,
            "LOAD_METHOD": method,
            "LOAD_SUPER_ATTR": named(self._super_attribute, None, 3, 0),
            "STORE_ATTR": named(rules.store_attribute, effect, 2, 0),
            "DELETE_ATTR": named(rules.delete_attribute, effect, 1, 0),
            "BINARY_SUBSCR": fixed(rules.load_item, self._after_item, 2, 1, None),
            "STORE_SUBSCR": fixed(rules.store_item, effect, 3, 0, None),
            "DELETE_SUBSCR": fixed(rules.delete_item, effect, 2, 0, None),
            "BINARY_SLICE": fixed(rules.load_slice, self._after_item, 3, 1, None),
            "STORE_SLICE": fixed(rules.store_slice, effect, 4, 0, None),
            "BINARY_OP": self._binary,
            "COMPARE_OP": self._compare,
            "IS_OP": fixed(rules.is_, None, 2, 0, None),
            "CONTAINS_OP": fixed(rules.contains, None, 2, 0, None),
            "UNARY_NEGATIVE": fixed(rules.unary, None, 1, 0, "__neg__"),
            "UNARY_POSITIVE": fixed(rules.unary, None, 1, 0, "__pos__"),
            "UNARY_INVERT": fixed(rules.unary, None, 1, 0, "__invert__"),
            "UNARY_NOT": None if _env.HAS_TO_BOOL else truth,  # type: ignore[dict-item]
            "FOR_ITER": fixed(rules.step, None, 1, 0, None),
            "GET_ITER": fixed(rules.iterator, rules.iterator_made, 1, 1, None),
            "GET_YIELD_FROM_ITER": fixed(rules.iterate, rules.iterator_made, 1, 1, None),
            "UNPACK_SEQUENCE": fixed(rules.iterate, None, 1, 0, None),
            "UNPACK_EX": fixed(rules.iterate, None, 1, 0, None),
            "LIST_APPEND": self._filling(list.append, None, 1),
            "LIST_EXTEND": self._filling(list.extend, rules.iterate, 1),
            "LIST_TO_TUPLE": fixed(self._copied, None, 1, 0, None),
            "SET_UPDATE": self._filling(set.update, rules.update_set, 1),
            "DICT_UPDATE": self._filling(dict.update, rules.merge, 1),
            "DICT_MERGE": self._filling(dict.update, rules.merge, 1),
            "BUILD_MAP": lambda i: (rules.keys, None, 2 * (i.arg or 0), 0, 2) if i.arg else None,
            "BUILD_SET": lambda i: (rules.keys, None, i.arg or 0, 0, 1) if i.arg else None,
            "MAP_ADD": self._filling(dict.__setitem__, rules.keys, 2),
            "SET_ADD": self._filling(set.add, rules.keys, 1),
            "MATCH_CLASS": numbered(rules.match_class, None, 3, 0),
            "MATCH_KEYS": fixed(rules.match_keys, None, 2, 0, None),
            "GET_LEN": fixed(rules.length, None, 1, 0, None),
            "FORMAT_VALUE": lambda i: (rules.format, None, 2 if (i.arg or 0) & 4 else 1, 0, None),
            "FORMAT_SIMPLE": fixed(rules.format, None, 1, 0, None),
            "FORMAT_WITH_SPEC": fixed(rules.format, None, 2, 0, None),
            "CONVERT_VALUE": fixed(rules.format, None, 1, 0, None),
            "CALL": lambda instruction: None,
            "PRECALL": lambda instruction: None,
            "CHECK_EXC_MATCH": fixed(rules.exception_match, None, 2, 0, None),
            "CHECK_EG_MATCH": fixed(rules.exception_match, None, 2, 0, None),
            "RAISE_VARARGS": lambda i: (rules.raised if i.arg else rules.raised_again, None, i.arg, 0, None),
            "CALL_KW": lambda i: (self._before_call_kw, rules.after_call, (i.arg or 0) + 3, 1, None),
            "CALL_FUNCTION_EX": self._call_ex,
            "CALL_INTRINSIC_1": self._intrinsic,
            "CALL_INTRINSIC_2": self._intrinsic,
            "BEFORE_WITH": fixed(rules.enter, None, 1, 0, None),
            "WITH_EXCEPT_START": fixed(rules.leave, rules.after_call, 4, 1, None),
            "IMPORT_NAME": named(rules.import_name, None, 2, 0),
            "IMPORT_FROM": named(rules.import_from, None, 1, 0),
        }
        if _env.HAS_TO_BOOL:
            table["TO_BOOL"] = truth
            table["UNARY_NOT"] = lambda instruction: None
        for name in dis.opmap:
            if "JUMP" in name and ("IF_TRUE" in name or "IF_FALSE" in name):
                table[name] = (lambda instruction: None) if _env.HAS_TO_BOOL else truth
        return table

    def _filling(
        self, operation: Any, rule: Callable[..., Any] | None, count: int
    ) -> Callable[[dis.Instruction], tuple[Any, ...]]:
        """Instructions that fill a container which is being built on the stack.

        Usually it is the run's own. Behind a boundary it is older than the segment: then this is an update of it.

        Args:
            operation: what does the same to a container, called with it and the values.
            rule: what notes the values' part otherwise.
            count: how many values.
        """
        rules = self.rules

        def before(inputs: tuple[Any, ...], arg: int) -> Any:
            container, values = inputs[0], inputs[-arg:]
            if self._is_older(container):
                return rules.call(operation, (container, *values), {})
            if rule is not None:
                rule(values, arg)
            return None

        def after(state: Any, outputs: tuple[Any, ...] | None, arg: int) -> None:
            if state is not None:
                rules.after_call(state, None if outputs is None else (None,), None)

        return lambda instruction: (before, after, (instruction.arg or 0) + count, 0, count)

    def _copied(self, inputs: tuple[Any, ...], arg: None) -> None:
        if self._is_older(inputs[-1]):
            self.rules.iterate(inputs, arg)

    def _is_older(self, container: Any) -> bool:
        node = self.rules.find(container)
        return node is not None and node.external

    def _binary(self, instruction: dis.Instruction) -> tuple[Any, ...]:
        symbol = instruction.argrepr
        in_place = symbol.endswith("=")
        word = _BINARY[symbol[:-1] if in_place else symbol]
        names = (f"__{word}__", f"__r{word}__", f"__i{word}__" if in_place else None)
        return (self.rules.binary, self._after_item, 2, 1, names)

    def _compare(self, instruction: dis.Instruction) -> tuple[Any, ...]:
        symbol = instruction.argval if isinstance(instruction.argval, str) else instruction.argrepr
        return (self.rules.compare, None, 2, 0, symbol.removeprefix("bool(").removesuffix(")"))

    def _call_ex(self, instruction: dis.Instruction) -> tuple[Any, ...]:
        keywords = bool((instruction.arg or 0) & 1)
        return (self._before_call_ex, self.rules.after_call, 4 if keywords else 3, 1, keywords)

    def _intrinsic(self, instruction: dis.Instruction) -> tuple[Any, ...] | None:
        name = instruction.argrepr
        if name == "INTRINSIC_UNARY_POSITIVE":
            return (self.rules.unary, None, 1, 0, "__pos__")
        if name == "INTRINSIC_LIST_TO_TUPLE":
            return (self._copied, None, 1, 0, None)
        if name in _QUIET_INTRINSICS:
            return None
        return (self.rules.unsupported, None, 0, 0, name)

    def _super_attribute(self, inputs: tuple[Any, ...], name: str) -> None:
        builtin, cls, obj = inputs
        if builtin is not super:
            raise self.rules.boundary("unsupported-instruction", "LOAD_SUPER_ATTR with a replaced `super`")
        try:
            made = super(cls, obj)
        except TypeError:
            return  # the program gets the same
        self.rules.super_attribute(made, name)

    def _after_item(self, state: Any, outputs: tuple[Any, ...] | None, arg: Any) -> None:
        if state is None:
            return
        if type(state) is Pending:
            self.rules.effect(state, outputs, arg)
        else:
            state(outputs)

    def _after_name(self, state: None, outputs: tuple[Any, ...] | None, name: str) -> None:
        namespace = self.rules.recorder.globals()
        value = NULL if outputs is None else outputs[-1]
        builtins = self.rules.recorder.builtins()
        if namespace.get(name, builtins.get(name, NULL)) is value:
            self.rules.load_global(None, outputs, name)
