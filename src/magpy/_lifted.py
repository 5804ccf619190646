"""Update rules for numbers and sizes that vary: where they come from, what is asked of them, and who only reads them.

The rules stand before those of a plain run (`_monitor.Monitor`) and are only used where something is lifted. What follows a
number is: references (not at all, see `_numbers`), arithmetic, comparisons, branches, operators of torch, and questions for a
tensor's sizes. Everything else reads the number's value, which then has to be the same at each call.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import torch

from magpy_annotations import Registry
from magpy_codegen import Expression
from magpy_refgraph import EdgeKind, Key, Node
from magpy_runtime.capture import NULL

from . import _torch
from ._lifted_calls import CALLS, HARMLESS, REFERENCES
from ._lifted_tensors import LiftedTensors
from ._monitor import Monitor, Run
from ._numbers import LIFTABLE, Numbers, Wish, fact_key, is_liftable, is_number
from ._originals import original, put_back, put_back_effects

_ROOT: Final = Node(0, None, None, None, 0)
_LOADS: Final = frozenset(
    {"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "BINARY_SUBSCR",
     "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"}
)  # fmt: skip
_MOVES: Final = frozenset(
    {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "STORE_ATTR", "DELETE_ATTR", "GET_ITER",
     "GET_YIELD_FROM_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "DICT_UPDATE", "DICT_MERGE", "RAISE_VARARGS",
     "IMPORT_NAME", "IMPORT_FROM", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "BEFORE_WITH", "WITH_EXCEPT_START",
     "LOAD_SUPER_ATTR", "MATCH_CLASS", "LIST_APPEND", "LIST_TO_TUPLE", "STORE_NAME", "FOR_ITER", "SEND",
     "RETURN_VALUE", "YIELD_VALUE"}
)  # fmt: skip
"""Instructions that hand on references, or call Python code, and look at no number."""

_LONGEST_LIST: Final = 64
"""So many numbers of a list are lifted."""

_OWN_REFERENCES: Final = 3
"""References to an object in a container and in a variable, while they are counted."""

_ITERATES: Final = frozenset({"GET_ITER", "GET_YIELD_FROM_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND"})
"""Of these, instructions that look into a string."""


def find_wish(
    dynamic: bool | None, unstable: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Wish | None:
    """What is to be lifted in the next monitored run, None for nothing.

    Args:
        dynamic: the user's option.
        unstable: what did not hold at earlier calls.
        args: positional arguments.
        kwargs: keyword arguments.
    """
    if dynamic is False:
        return None
    if dynamic:
        return Wish(everything=True)
    facts = frozenset(key for key in unstable if type(key) is tuple and key and key[0] in ("number", "size"))
    return Wish(facts=facts) if facts or _is_marked((args, kwargs), 3) else None


def _is_marked(value: Any, depth: int) -> bool:
    """Whether the user marked a dimension of a tensor as dynamic."""
    if issubclass(type(value), torch.Tensor):
        attributes = getattr(value, "__dict__", None) or {}
        return any(mark in attributes for mark in _torch.MARKS)
    if not depth:
        return False
    if type(value) in (tuple, list):
        return any(_is_marked(each, depth - 1) for each in value)
    return type(value) is dict and any(_is_marked(each, depth - 1) for each in value.values())


def find_outcomes(point: Any, args: tuple[Any, ...]) -> frozenset[Any]:
    """The facts about what a boundary operation gave, floats and strings, which hardly are the same twice."""
    start = sum(shape.size for shape in point.frames)
    return frozenset(
        fact_key(lambda node: (), _ROOT, Key(EdgeKind.ARGUMENT, index))
        for index in range(start, len(args))
        if type(args[index]) is float or (type(args[index]) is str and is_liftable(args[index]))
    )


def made_list(point: Any, args: tuple[Any, ...], made: bool) -> list[Any] | None:
    """The list of numbers that a boundary operation has just made, None if it made none.

    Args:
        point: where the program goes on.
        args: its slots.
        made: whether the operation was one whose outcome nobody else holds.
    """
    if not made or len(args) != sum(shape.size for shape in point.frames) + 1 or type(args[-1]) is not list:
        return None
    return args[-1] if 0 < _count(args[-1]) <= _LONGEST_LIST else None


def _held_by_nobody_else(args: tuple[Any, ...]) -> set[int]:
    """The identities of lists among some slots that only these hold."""
    found: set[int] = set()
    for value in args:
        if type(value) is list:
            slots = sum(each is value for each in args)
            if sys.getrefcount(value) - slots < _OWN_REFERENCES:
                found.add(id(value))
    return found


def _count(values: list[Any]) -> int:
    """How many numbers there are in nested lists."""
    return sum(_count(each) if type(each) is list else 1 for each in values)


def make_monitor(
    registry: Registry,
    dynamic: bool | None,
    unstable: Iterable[Any],
    args: Any,
    kwargs: Any,
    point: Any = None,
    made: bool = False,
) -> Monitor:
    """A monitor for the next run; see `find_wish`.

    Args:
        registry: the annotations.
        dynamic: the user's option.
        unstable: what did not hold at earlier calls.
        args: positional arguments, or the slots of `point`.
        kwargs: keyword arguments.
        point: where the program goes on, None for the call itself.
        made: whether the last slot is an outcome that nobody else holds.
    """
    wish = find_wish(dynamic, unstable, args, kwargs)
    if dynamic is not False and point is not None and point.cache.records:
        outcomes = find_outcomes(point, args)
        if outcomes:
            wish = wish or Wish()
            wish = replace(wish, facts=wish.facts | outcomes)
        if made_list(point, args, made) is not None:
            wish = wish or Wish()
    return Monitor(registry) if wish is None else LiftingMonitor(registry, wish, dynamic, made)


class LiftingMonitor(LiftedTensors):
    """Watches one call with lifted numbers."""

    def __init__(self, registry: Registry, wish: Wish, dynamic: bool | None, made: bool) -> None:
        super().__init__(registry)
        self.made = made
        self.sole: set[int] = set()
        self.handed: Numbers | None = None
        self.dynamic_option = dynamic
        self._start(wish)
        self._watch_builtins()

    def _watch_builtins(self) -> None:
        self.specials = {
            identity: self._naming(rule) if identity in HARMLESS else self._reading(rule)
            for identity, rule in self.specials.items()
        }

    def _renew(self, point: Any, args: tuple[Any, ...]) -> None:
        """The next segment starts: numbers that the last one lifted are slots of this one."""
        unstable = point.cache.unstable
        facts = frozenset(key for key in unstable if type(key) is tuple and key and key[0] in ("number", "size"))
        outcomes = find_outcomes(point, args) if self.dynamic_option is not False else frozenset()
        old = self.numbers
        self.sole = set()
        self.handed = old if old else None
        self._start(Wish(everything=self.dynamic_option is True, facts=facts | outcomes))
        self.has_slots = True
        super()._renew(point, self._handed_on(old, args, sum(shape.size for shape in point.frames)))
        self._watch_builtins()
        self.flush()

    def slots(self, point: Any, args: tuple[Any, ...]) -> None:
        """The external state of a segment; numbers in a list that an operation has just made are lifted in it."""
        super().slots(point, args)
        old, self.handed = self.handed, None
        if self.dynamic_option is False:
            return
        made = made_list(point, args, self.made)
        self.where = lambda: None  # type: ignore[method-assign]
        try:
            for value in args:
                if type(value) is list and (value is made or id(value) in self.sole or old):
                    node = self.find(value)
                    if isinstance(node, Node) and _count(value) <= _LONGEST_LIST:
                        self._lift_items(node, value, value is made or id(value) in self.sole, value is made, old)
        finally:
            del self.where
        self.flush()

    def _lift_items(self, node: Node, values: list[Any], sole: bool, made: bool, old: Numbers | None) -> None:
        """Lift numbers in a list.

        Args:
            node: of the list.
            values: the list.
            sole: whether nobody but the program's frame holds it, so that objects of their own can be put in it.
            made: whether a boundary operation has just made it.
            old: numbers that the last segment lifted; they have such objects.
        """
        for index in range(len(values)):  # `enumerate` would hold the element once more
            value = values[index]
            key = Key(EdgeKind.ITEM, index)
            carried = old is not None and old.find(value) is not None
            wanted = is_number(value) and ((made and type(value) is float) or self.is_wanted(node, key))
            if carried or (sole and wanted):
                root = self.root(node, key, value)
                if carried:
                    self.numbers.adopt(value, root)
                else:
                    values[index] = value = self.numbers.carry(root, value)
                if made:
                    self.outcomes.add(root)
                self.read_length(node, values)
                self.follow(node, key, value)
            elif type(value) is list and (made or not sole or sys.getrefcount(value) <= _OWN_REFERENCES):
                target = self.follow(node, key, value)
                if isinstance(target, Node):
                    self._lift_items(target, value, sole, made, old)

    def _handed_on(self, old: Numbers, args: tuple[Any, ...], pushed: int) -> tuple[Any, ...]:
        """The slots of a segment, with objects of their own for numbers that are lifted in it.

        Those are numbers that were lifted before, and what a boundary operation has just put on the stack.
        """
        found = [*args]
        for index, value in enumerate(args):
            key = Key(EdgeKind.ARGUMENT, index)
            if not is_liftable(value):
                continue
            if old.find(value) is not None:
                self.numbers.adopt(value, self.root(_ROOT, key, value))
            elif index >= pushed and self.is_wanted(_ROOT, key):
                found[index] = self.numbers.carry(self.root(_ROOT, key, value), value)
                self.recorder.poke(len(args) - 1 - index, found[index])
        return tuple(found)

    def run(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        point: Any = None,
        box: list[tuple[Any, ...]] | None = None,
    ) -> Run:
        """Watch a call, or the rest of one; arguments and slots that are lifted are objects of their own."""
        self.has_slots = box is not None
        if box is not None:
            self.sole = _held_by_nobody_else(box[0])
            box[0] = self.lifted_arguments(box[0], {})[0]
        else:
            args, kwargs = self.lifted_arguments(args, kwargs)
        return super().run(function, args, kwargs, point, box)

    # -- the program's own objects ------------------------------------------------------------------------------------

    def _is_old(self, obj: Any) -> bool:
        """Whether no object that carries a number can have got into one: it existed when the run started."""
        if self.has_slots:
            return False
        node = self.find(obj)
        return (node is not None and node.external) or (type(obj) is types.FunctionType and self.is_old(obj))

    def give_back(self, run: Run) -> None:
        """The program's own objects are what the run has given and stored."""
        if self.copies:
            put_back_effects(self.copies, self.graph.effects, self._is_old)
            put_back(self.copies, (run.result, run.error), self._is_old)
            run.result = original(self.copies, run.result)

    def crossing(self, within: bool) -> None:
        """A boundary operation gets the program's own objects, and finds these where it looks."""
        if self.copies:
            if not within:
                self.recorder.replace(self.copies, False, True)
            put_back_effects(self.copies, self.graph.effects, self._is_old)

    def on_error(self, error: BaseException, phase: int) -> bool:
        """A rule has raised; if the run ends there, the program goes on with its own objects."""
        goes_on = super().on_error(error, phase)
        if not goes_on:
            self._leave(inputs=False)
        return goes_on

    def on_failure(self, error: BaseException) -> bool:
        """The same outside of instructions, where an instruction has not taken its inputs yet."""
        goes_on = super().on_failure(error)
        if not goes_on and self.copies and self.recorder.phase() == 0:
            put_back(self.copies, self.recorder.inputs(), self._is_old)
            self.recorder.replace(self.copies, False, True)
        return goes_on

    def finish(self) -> None:
        """What is left of the call runs unobserved, with the program's own objects."""
        self._leave(inputs=True)
        super().finish()

    def _leave(self, inputs: bool) -> None:
        if not self.copies:
            return
        try:
            self.recorder.replace(self.copies, True, inputs)
            put_back_effects(self.copies, self.graph.effects, self._is_old)
            for *_, variables, stack in self.recorder.frames():
                put_back(self.copies, (*variables, *stack), self._is_old)
        except (RuntimeError, ValueError):
            return  # no frame is left, or not all of them are running

    # -- instructions -------------------------------------------------------------------------------------------------

    def plan_for(self, code: types.CodeType) -> Any:
        """The plan of a code object, with what lifted numbers need around each instruction."""
        plan = super().plan_for(code)
        if plan is None:
            return None
        for instruction in dis.get_instructions(code):
            place = instruction.offset // 2
            item = plan[place]
            name = instruction.opname
            if name == "BUILD_STRING":
                plan[place] = (self._built_string, None, instruction.arg or 0, 0, None)
                continue
            if name in _ITERATES and item is not None:
                plan[place] = self._iterating(item)
            if item is None or name in _MOVES:
                continue
            plan[place] = self._around(name, instruction, item)
        return plan

    def _iterating(self, item: tuple[Any, ...]) -> tuple[Any, ...]:
        before, *rest = item

        def before_it(inputs: tuple[Any, ...], arg: Any) -> Any:
            if inputs and type(inputs[-1]) is str:
                self.flush()
                self.consume(inputs[-1])
            return None if before is None else before(inputs, arg)

        return (before_it, *rest)

    def _built_string(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before strings are joined."""
        self.flush()
        self.consume(*inputs)

    def _around(self, opname: str, instruction: dis.Instruction, item: tuple[Any, ...]) -> tuple[Any, ...]:
        before, after, n_in, n_out, arg, *rest = item
        look, needed = self._look(opname, instruction, n_in)
        loads = opname in _LOADS or opname in CALLS or opname == "BINARY_OP" or opname.startswith("UNARY_")
        start = max(needed - n_in, 0)
        calls = opname in CALLS
        if opname == "PRECALL":
            loads = False

        def before_it(inputs: tuple[Any, ...], arg: Any) -> Any:
            self.flush()
            self.answer = None
            self.handled = False
            if look is not None:
                look(inputs[-needed:] if needed else ())
            answer = self._answered()
            state = None if before is None else before(inputs[start:], arg)
            self.handled = False
            followed, self.followed = self.followed, []
            given = self._answered()
            if opname == "PRECALL":
                self.prepared = (followed, given)
                return state
            if calls and n_in == 0:
                (followed, answer), self.prepared = self.prepared, ([], None)
            elif given is not None:
                answer = given
            if loads:
                return (state, followed, answer)
            self._settle(followed, NULL)
            return state

        def after_it(state: Any, outputs: tuple[Any, ...] | None, arg: Any) -> None:
            if not loads:
                after(state, outputs, arg)
                return
            inner, followed, answer = state
            self.flush()
            if opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
                self._seen_anew(outputs)
            if after is not None:
                after(inner, outputs if n_out or not outputs else (), arg)
            followed += self.followed
            self.followed = []
            kinds = REFERENCES
            if calls:
                called = self.calls.get(self._depth())
                kinds = LIFTABLE if called is None else called[1]
                if called is not None and called[0] is len and answer is None:
                    answer = self.lengths
            self._loaded(outputs, followed, answer, kinds)

        return (
            before_it,
            after_it if after is not None or loads else None,
            max(n_in, needed),
            max(n_out, 1) if loads else n_out,
            arg,
            *rest,
        )

    def _answered(self) -> Expression | None:
        """What the current instruction will give, once."""
        answer, self.answer = self.answer, None
        return answer

    def _seen_anew(self, outputs: tuple[Any, ...] | None) -> None:
        """A global that is a number is looked up each time that it is loaded."""
        if outputs and is_number(outputs[-1]):
            namespace = id(self.recorder.globals())
            for key in [
                key for key, value in self.globals_seen.items() if key[0] == namespace and value is outputs[-1]
            ]:
                del self.globals_seen[key]

    def _loaded(
        self,
        outputs: tuple[Any, ...] | None,
        followed: list[tuple[Node, Key, Any]],
        answer: Expression | None,
        kinds: frozenset[EdgeKind],
    ) -> None:
        """An instruction has put a value on the stack: if it is a lifted number, an object of its own takes its place."""
        loaded = outputs[-1] if outputs else NULL
        root = self._settle(followed, loaded, kinds)
        expression = answer if answer is not None else root
        if expression is None or not outputs:
            return
        carried = self.numbers.find(loaded)
        if carried is not None and (answer is None or carried is answer):
            return  # a function that gave its argument back, as `abs` may, has an answer of its own
        if type(loaded) is type(expression.value) and (loaded == expression.value or loaded != loaded):
            self.recorder.poke(0, self.numbers.carry(expression, loaded))
        else:
            self.numbers.give_up("an operation on numbers gave something else than expected")

    def _look(self, opname: str, instruction: dis.Instruction, n_in: int) -> tuple[Any, int]:
        """What is to be looked at before an instruction, and how many values of the stack that takes."""
        if opname == "BINARY_OP":
            symbol = instruction.argrepr
            return (lambda inputs: self.arithmetic(symbol.removesuffix("="), inputs)), 2
        if opname.startswith("UNARY_"):
            if opname == "UNARY_NOT":
                return self.asked_truth, 1
            return (lambda inputs: self.negated(opname, inputs[0])), 1
        if opname == "COMPARE_OP":
            symbol = instruction.argval if isinstance(instruction.argval, str) else instruction.argrepr
            operator_ = symbol.removeprefix("bool(").removesuffix(")")
            return (lambda inputs: self.compared(operator_, *inputs)), 2
        if opname == "TO_BOOL" or "IF_TRUE" in opname or "IF_FALSE" in opname:
            return self.asked_truth, 1
        if opname == "IS_OP":
            return self.identified, 2
        if opname == "CONTAINS_OP":
            return self.searched, 2
        if opname in ("BINARY_SUBSCR", "DELETE_SUBSCR"):
            return (lambda inputs: self.subscripted(inputs[0], inputs[1])), 2
        if opname == "STORE_SUBSCR":
            return (lambda inputs: self.subscript_stored(*inputs)), 3
        if opname == "BINARY_SLICE":
            return (lambda inputs: self.subscripted(inputs[0], inputs[1:])), 3
        if opname == "STORE_SLICE":
            return (lambda inputs: self.subscript_stored(inputs[0], inputs[1], inputs[2:])), 4
        if opname in ("BUILD_MAP", "MAP_ADD"):
            return (lambda inputs: self.consume(*inputs[::2])), n_in
        if opname == "CALL_FUNCTION_EX":
            return (lambda inputs: self.consume(*[each for each in inputs if type(each) is str])), 2
        if opname in _LOADS or opname in CALLS:
            return None, 0
        return (lambda inputs: self.consume(*inputs)), n_in
