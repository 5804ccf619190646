"""Update rules for what C code calls in turn: functions that it is given, and what objects hold that it calls.

No instruction shows these calls. Python code among them is monitored; C code goes by its annotation, or by a rule of its own,
for each of the calls where it is known with what they are made.
"""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import operator
import types
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from magpy_annotations import Annotation, Read, Registry, unbind
from magpy_refgraph import EdgeKind, Key
from magpy_runtime.capture import NULL
from magpy_runtime.iterators import INDEXED_ITERATORS, ahead

from ._describe import describe
from ._reading import GETTERS, NOTHING, PEEKED, ReadingRules
from ._state import is_atom, is_mutable_type

_EXECUTIONS: Final = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
BINDING: Final = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
"""Types of class attributes that are bound to the instance that they are called on."""

_BOUND: Final = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
_LOOKS_AT: Final[dict[Any, tuple[str, ...]]] = {
    int: ("__int__", "__index__", "__trunc__"), float: ("__float__", "__index__"), abs: ("__abs__",), len: ("__len__",),
    bool: ("__bool__", "__len__"), str: ("__str__", "__repr__"),
}  # fmt: skip
"""Functions that only call special methods of what they are given."""

_ONE_BY_ONE: Final = frozenset(
    {
        filter, sorted, min, max, list.sort, itertools.filterfalse, itertools.takewhile, itertools.dropwhile,
        itertools.groupby, itertools.starmap,
    }
)  # fmt: skip
"""C code that calls a function with one element after the other; `starmap` with those of each."""

_LAZY: Final = frozenset(
    {itertools.filterfalse, itertools.takewhile, itertools.dropwhile, itertools.groupby, itertools.starmap}
)
_FEW: Final = 10_000
_OVER_PLAIN: Final = frozenset(type(iter(made)) for made in ("", "\xe9", b"", range(0), range(1 << 70)))


def is_call(caller: Any) -> bool:
    """Whether `caller` is the `__call__` of one of the interpreter's own callables: it hands on what it is given."""
    return type(caller) is types.WrapperDescriptorType and caller.__name__ == "__call__"


class CalledRules(ReadingRules):
    """Rules for functions that C code calls."""

    registry: Registry
    specials: dict[int, Callable[[tuple[Any, ...], dict[str, Any]], Any]]

    def called(self, function: Any, others: tuple[Any, ...], caller: Any = None, *, read: bool = False) -> None:
        """C code, `caller`, calls `function` with elements of the other inputs. `read`: all of these are read by value."""
        if function is None:  # `filter(None, ...)`: the truth of each element
            for other in others:
                for element in self.members(other):
                    self.truth((element,), None)
            return
        if issubclass(type(function), _EXECUTIONS) or self.callable_facts(function):
            return
        base, bound, keywords = self.taken_apart(function)
        if type(base) is types.FunctionType:
            self.use_function(base)
            return
        if issubclass(type(base), type) and is_mutable_type(base):
            self.call_class(base, bound, keywords)
            return
        if type(base) in GETTERS:
            exact = self.exact_calls(caller, others)
            if exact is None or bound or keywords:
                raise self.boundary("unannotated-call", f"{describe(base)}, called by C code")
            for passed in exact:
                if len(passed) == 1 and self.call_getter(base, passed[0]) is not None:
                    raise self.boundary("impure-call", describe(base))
            return
        annotation, front = self.registry.find(base)
        bound = front + bound
        if annotation is None or self.calls_unknown(annotation, bound):
            raise self.boundary("unannotated-call", describe(base))
        if annotation.as_op_node is not None:
            return
        own = not front and getattr(caller, "__objclass__", None) is type(base)
        if own and read and annotation.pure_closure:
            return  # `ufunc.reduce` and the like: it runs its own callable on what it reads, and writes as it says itself
        exact = self.exact_calls(caller, others)
        if is_call(caller) and annotation.for_call(len(bound) + len(others), keywords) is None:
            raise self.boundary("unannotated-call", f"{describe(base)}, called by name")
        if id(base) in self.specials:
            if exact is None or any(self.specials[id(base)]((*bound, *each), keywords) is not None for each in exact):
                raise self.boundary("unannotated-call", f"{describe(base)}, called by C code")
            return
        unbound = (*annotation.inputs[len(bound) :], annotation.rest)
        if not annotation.pure_closure or (
            annotation.mutates
            and (any(each is not None and each.in_place for each in unbound) or self.touches_external(bound))
        ):
            raise self.boundary("impure-call", describe(base))
        if exact is not None:
            for passed in exact:
                if annotation.for_call(len(bound) + len(passed), keywords) is not None:
                    self.apply(base, annotation, (*bound, *passed), keywords)
            return
        containers = [each for each in others if not is_atom(each)]
        reads = any(each.value_read not in NOTHING or each.operators for each in annotation.all_inputs())
        for container in containers:
            if reads and caller is not None and not is_call(caller):
                self.read_in_turn(container)
            peeked = self.peek(container)
            elements = self.elements(container) if peeked is None else peeked
            for first, second in zip(elements, (*elements[1:], None), strict=False):
                for passed in ((*bound, first), (*bound, first, second)):
                    if annotation.for_call(len(passed), keywords) is not None:
                        self.apply(base, annotation, passed, keywords)
                        break
            if (
                peeked is None
                and self.info(type(container)).base is None
                and any(each.value_read not in NOTHING or each.operators for each in annotation.all_inputs())
            ):
                self.only_plain(base, container)

    def read_in_turn(self, obj: Any) -> None:
        """C code calls C code with what an object holds, and with what comes out of that: all that it may look at is read."""
        if self.info(type(obj)).tensor or is_atom(obj):
            return
        if self.info(type(obj)).base is None or id(obj) in self.reading:
            return
        self.read(obj, Read.ITEMS)
        self.reading.add(id(obj))
        try:
            for element in self.members(obj):
                self.read_in_turn(element)
        finally:
            self.reading.discard(id(obj))

    def iterated(self, obj: Any) -> None:
        """`iter` is called on an object and the outcome is drained. What a map goes over may have changed since."""
        super().iterated(obj)
        if type(obj) in (map, filter):
            function, *iterators = obj.__reduce__()[1]
            self.called(function, tuple(iterators), type(obj))
        elif type(obj) in _LAZY:
            parts = [each for each in gc.get_referents(obj) if each is not type(obj)]
            iterators = [each for each in parts if type(each) in PEEKED]
            if len(iterators) == 1 and len(parts) == 2:
                [function] = [each for each in parts if each is not iterators[0]]
                self.called(function, tuple(iterators), type(obj))
                self.results_used(type(obj), function, (), tuple(iterators))

    def step(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before the iterator on top of the stack is asked for its next element."""
        super().step(inputs, arg)
        if type(inputs[-1]) in (map, filter):
            self.next_called(inputs[-1])

    def next_called(self, iterator: Any) -> None:
        """A map or filter is advanced by one: its function gets the next element of what it goes over."""
        function, *iterators = iterator.__reduce__()[1]
        if all(type(each) in PEEKED for each in iterators):
            heads = tuple((self._head(each),) for each in iterators)
            self.called(function, heads, type(iterator))

    def _head(self, iterator: Any) -> Any:
        """What an iterator gives next, None if nothing."""
        if type(iterator) not in INDEXED_ITERATORS:
            return next(copy.copy(iterator), None)
        found = ahead(iterator, 0)
        return None if found is NULL else found

    def exact_calls(self, caller: Any, others: tuple[Any, ...]) -> list[tuple[Any, ...]] | None:
        """The arguments with which C code will call a function, call by call; None where nobody knows."""
        if is_call(caller):
            return [others]
        if caller is map:
            given = [self.contents(each) for each in others]
            return None if any(each is None for each in given) else list(zip(*cast("list[Any]", given), strict=False))
        containers = [each for each in others if not is_atom(each)]
        if caller not in _ONE_BY_ONE or len(containers) != 1:
            return None
        elements = self.contents(containers[0])
        if elements is None:
            return None
        if caller is not itertools.starmap:
            return [(each,) for each in elements]
        return [tuple(each) for each in elements] if all(type(each) in (tuple, list) for each in elements) else None

    def contents(self, obj: Any) -> Collection[Any] | None:
        """What an iteration over an object of the interpreter's own will give; None where nobody knows."""
        if type(obj) in (str, bytes) or (type(obj) is range and len(obj) <= _FEW):
            return obj  # type: ignore[no-any-return]
        if type(obj) in _OVER_PLAIN and operator.length_hint(obj) <= _FEW:
            return tuple(copy.copy(obj))
        peeked = self.peek(obj)
        if peeked is not None or is_atom(obj):
            return peeked
        info = self.info(type(obj))
        return None if info.base is None or info.mutable else self.elements(obj)

    def taken_apart(self, function: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """What calling `function` calls in the end, and the arguments in front of the call's own.

        C code that only calls what it holds is looked into, down to a Python function, a class, or what is annotated.
        """
        bound: tuple[Any, ...] = ()
        keywords: dict[str, Any] = {}
        while True:
            self.binding_facts(function)
            function, front = unbind(function)
            bound = front + bound
            kind = type(function)
            if kind is functools.partial:
                self.partial_facts(function)
                bound = function.args + bound
                keywords = {**function.keywords, **keywords}
                function = function.func
            elif kind is staticmethod:
                node = self.find(function)
                if node is not None and node.external:
                    self.follow(node, Key(EdgeKind.MEMBER, "__func__"), function.__func__)
                function = function.__func__
            elif not issubclass(kind, type) and is_mutable_type(kind):
                found = self.lookup(kind, "__call__")
                if found is NULL:
                    return function, bound, keywords
                if type(found) in BINDING:
                    bound = (function, *bound)
                elif type(found) is not staticmethod and hasattr(type(found), "__get__"):
                    return found, bound, keywords
                function = found
            else:
                return function, bound, keywords

    def calls_unknown(self, annotation: Annotation, bound: tuple[Any, ...]) -> bool:
        """Whether the call is one of the `__call__` of an object that calls what it holds, which nobody looked at."""
        if not bound or annotation.target.rpartition(".")[2] != "__call__" or not annotation.inputs[0].called:
            return False
        maker = self.registry.lookup(type(bound[0]))
        seen = maker is not None and any(each.called for each in maker.all_inputs())  # when the object was made
        return not seen or self.touches_external(bound[:1])

    def binding_facts(self, function: Any) -> None:
        """What an external method is bound to is a fact, and its function if it has one."""
        node = self.find(function)
        if node is not None and node.external and issubclass(type(function), _BOUND):
            if type(function) is types.MethodType:
                self.follow(node, Key(EdgeKind.MEMBER, "__func__"), function.__func__)
            self.follow(node, Key(EdgeKind.MEMBER, "__self__"), function.__self__)

    def only_plain(self, function: Any, iterator: Any) -> None:
        """An annotated C function is called on what an iterator yields, which no instruction shows."""
        names = _LOOKS_AT.get(function)
        if names is None:
            raise self.boundary("unannotated-call", f"{describe(function)} on a {type(iterator).__qualname__}")
        self.elements_used(iterator, names)

    def apply(self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Note what an annotated operation reads and changes. See `CallRules`."""
        raise NotImplementedError

    def call_class(self, cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A class is called. See `CallRules`."""
        raise NotImplementedError

    def use_function(self, function: types.FunctionType) -> None:
        """A Python function is entered. See `CallRules`."""
        raise NotImplementedError

    def call_getter(self, function: Any, obj: Any) -> Any:
        """A getter of the `operator` module is called. See `CallRules`."""
        raise NotImplementedError

    def partial_facts(self, function: functools.partial[Any]) -> None:
        """The parts of an external partial are facts. See `CallRules`."""
        raise NotImplementedError

    def elements_used(self, obj: Any, names: tuple[str, ...]) -> None:
        """C code calls special methods of what an iteration over `obj` gives. See `UseRules`."""
        raise NotImplementedError

    def results_used(self, function: Any, called: Any, names: tuple[str, ...], others: tuple[Any, ...]) -> None:
        """C code calls special methods of what `called` returns. See `UseRules`."""
        raise NotImplementedError

    def truth(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """An object's truth is asked for. See `OperationRules`."""
        raise NotImplementedError


def unwrapped(found: Any) -> Any:
    """The function of a static method, as which a class gives it."""
    return found.__func__ if type(found) is staticmethod else found
