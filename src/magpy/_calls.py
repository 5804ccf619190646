"""Update rules for calls: which function really runs, what it reads, what it changes (the paper's figures 12 and 13)."""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

from magpy_annotations import Annotation, Input, Read, Registry, Relation, unbind
from magpy_refgraph import Atom, EdgeKind, Key
from magpy_runtime.capture import NULL, instance_dict

from ._called import BINDING, CalledRules, is_call, unwrapped
from ._describe import describe
from ._reading import GETTERS, ITERATORS, NOTHING
from ._state import is_atom, is_mutable_type, is_nan

_OF_SETS: Final = (set.__ior__, set.__iand__, set.__isub__, set.__ixor__)
"""In-place operators that take sets only."""

_GETSTATE: Final[Any] = object.__dict__["__getstate__"]
_CALL_OF_CLASSES: Final = type.__dict__["__call__"]
_CONSTRUCTORS: Final = ("__new__", "__init__")
_MODE: Final = "a mode, guarded"
_GUARDED_MODES: Final = frozenset(
    {
        "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cpu_enabled",
        "is_autocast_cache_enabled", "get_default_dtype", "_get_deterministic_algorithms",
        "_get_deterministic_algorithms_warn_only", "get_num_threads", "_is_any_autocast_enabled",
    }
)  # fmt: skip
_Bound = tuple[tuple[int | str, Input], ...]


class CallRules(CalledRules):
    """Rules for calls of Python functions, classes and C code."""

    registry: Registry
    made_classes = False
    made_functions = False

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()
        self.held_by_identity: set[int] = set()
        self.nested_codes: set[types.CodeType] = set()
        self.specials: dict[int, Callable[[tuple[Any, ...], dict[str, Any]], Any]] = {}
        self.asking: set[tuple[int, str]] = set()

    # -- what is called -----------------------------------------------------------------------------------------------

    def hash_seen(self) -> None:
        """The program itself calls a `__hash__`. See `SpecialRules`."""
        raise NotImplementedError

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Before a call: note what it depends on.

        Returns:
            None, a `Pending` effect, or a function to call with the output afterwards.
        """
        while True:
            kind = type(function)
            if kind is types.FunctionType:
                special = self.specials.get(id(function))
                if special is not None:
                    return special(args, keywords)
                if id(function) not in self.used:
                    self.use_function(function)
                if function.__name__ == "__hash__":
                    self.hash_seen()
                if function.__dict__:
                    if "__magpy_disable__" in function.__dict__:
                        raise self.boundary("disabled", describe(function))
                    if "__magpy__" in function.__dict__:  # a compiled function, inlined
                        node = self.find(function)
                        if node is None or not node.external:
                            raise self.boundary("opaque-object", "a function that was compiled during the call")
                        self.held_by_identity.add(node.index)
                        function = function.__dict__["__magpy__"].target
                        if not is_atom(function):
                            self.pin(function)
                        continue
                return None
            if kind is types.MethodType:
                self.binding_facts(function)
                args = (function.__self__, *args)
                function = function.__func__
                continue
            if kind is types.MethodWrapperType or issubclass(kind, types.BuiltinFunctionType):
                self.binding_facts(function)
                function, bound = unbind(function)
                return self.native(function, bound + args, keywords)
            if kind is functools.partial:
                self.partial_facts(function)
                args = function.args + args
                keywords = {**function.keywords, **keywords}
                function = function.func
                continue
            if kind in self.native_callables:
                return self.native(function, args, keywords)
            if issubclass(type(function), type):
                return self.call_class(function, args, keywords)
            if issubclass(kind, weakref.ref) and not args:
                referent = weakref.ref.__call__(function)
                held = self.find(referent)
                if held is not None:
                    referent = None
                    if not held.lives():
                        raise self.boundary("foreign-write", f"a {held.type.__qualname__} died meanwhile")
                    referent = held.obj()
                node = self.find(function)
                if node is not None and node.external:
                    self.follow(node, Key(EdgeKind.REFERENT), NULL if referent is None else referent)
                elif referent is not None and self.find(referent) is None:
                    raise self.boundary("opaque-object", "a weak reference that was made during the call")
                return None
            if kind in GETTERS and len(args) == 1:
                return self.call_getter(function, args[0])
            target = getattr(kind, "__magpy_target__", None)
            if target is not None:  # a compiled object called while another records is inlined
                node = self.find(function)
                if node is not None and node.external:
                    self.held_by_identity.add(node.index)
                elif not issubclass(kind, self.modules):
                    raise self.boundary("opaque-object", "an object that was compiled during the call")
                function = target(function)
                self.pin(function)
                continue
            if "__magpy_disable__" in (instance_dict(function) or ()):
                raise self.boundary("disabled", describe(function))
            if is_mutable_type(kind):
                found = self.lookup(kind, "__call__")
                if found is NULL:
                    return None  # raises TypeError
                if type(found) in BINDING:
                    args = (function, *args)
                elif type(found) is not staticmethod and hasattr(type(found), "__get__"):
                    raise self.boundary("unannotated-call", f"{kind.__qualname__}.__call__")
                function = unwrapped(found)
                continue
            return self.native(function, args, keywords)

    def call_getter(self, function: Any, obj: Any) -> Any:
        """`operator.itemgetter`, `operator.attrgetter` and `operator.methodcaller`."""
        reduced = function.__reduce__()
        if type(function) is operator.itemgetter:
            for key in reduced[1]:
                if self.native(operator.getitem, (obj, key), {}) is not None:
                    raise self.boundary("unannotated-call", "operator.itemgetter")
            return None
        if type(function) is operator.attrgetter:
            for name in reduced[1]:
                first, _, rest = name.partition(".")
                if (not self.attribute(obj, first) and rest) or rest:
                    raise self.boundary("unannotated-call", f"operator.attrgetter({name!r})")
            return None
        if reduced[0] is not operator.methodcaller or not self.attribute(obj, reduced[1][0]):
            raise self.boundary("unannotated-call", "operator.methodcaller")
        return self.call(getattr(obj, reduced[1][0]), reduced[1][1:], {})

    def runs_python(self, function: Any) -> bool:
        """Whether calling an object runs a Python function, or a torch function, so that its arguments need no look."""
        while type(function) is types.MethodType:
            function = function.__func__
        annotation = self.registry.find(function)[0]
        if annotation is not None and annotation.as_op_node is not None:
            return True
        if issubclass(type(function), type):
            return is_mutable_type(function) and type(self.lookup(function, "__init__")) is types.FunctionType
        if is_mutable_type(type(function)):
            function = self.lookup(type(function), "__call__")
        return type(function) is types.FunctionType

    def native(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """C code is called: its special rule, or its annotation."""
        special = self.specials.get(id(function))
        if special is not None:
            return special(args, keywords)
        if is_call(function) and len(args) == 2 and type(args[0]) in GETTERS:
            return self.call_getter(args[0], args[1])
        if type(function) in self.dispatchers:
            return None  # C code around a Python implementation, which is monitored
        annotation, front = self.registry.find(function)
        if annotation is None:
            raise self.boundary("unannotated-call", describe(function))
        return self.apply(function, annotation, front + args, keywords)

    def partial_facts(self, function: functools.partial[Any]) -> None:
        """The parts of an external partial are facts."""
        node = self.find(function)
        if node is not None and node.external:
            self.follow(node, Key(EdgeKind.MEMBER, "func"), function.func)
            for name, part in (("args", function.args), ("keywords", function.keywords)):
                self.follow(node, Key(EdgeKind.MEMBER, name), part)
                found = self.find(part)
                if found is not None and found.external:
                    self.read_items(found, part)

    def use_function(self, function: types.FunctionType) -> None:
        """A Python function is entered: its code, defaults and cells are facts if it existed before."""
        node = self.find(function)
        if node is None or not node.external:
            return
        self.used.add(id(function))
        self.pin(function.__globals__)
        self.follow(node, Key(EdgeKind.MEMBER, "__code__"), function.__code__)
        self.follow(node, Key(EdgeKind.MEMBER, "__globals__"), function.__globals__)
        for name in ("__defaults__", "__kwdefaults__", "__closure__"):
            value = getattr(function, name)
            self.follow(node, Key(EdgeKind.MEMBER, name), value)
            found = None if value is None else self.find(value)
            if found is not None and found.external:
                self.read_items(found, value)

    def callable_facts(self, function: Any) -> bool:
        """Note what calling `function` depends on, its arguments aside; gives whether Python code will run."""
        while type(function) in (types.MethodType, functools.partial):
            if type(function) is functools.partial:
                self.partial_facts(function)
                function = function.func
            else:
                self.binding_facts(function)
                function = function.__func__
        if type(function) is types.FunctionType:
            self.use_function(function)
            return True
        return False

    def call_class(self, cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`type.__call__`: the metaclass's `__call__`, then `__new__` and `__init__`."""
        special = self.specials.get(id(cls))
        if special is not None:
            return special(args, keywords)
        meta = type(cls)
        if issubclass(cls, type):
            self.made_classes = True
        elif cls is types.FunctionType:
            self.made_functions = True
        if meta is not type:
            call = self.lookup(meta, "__call__")
            if type(call) is types.FunctionType:
                self.use_function(call)
                return None
            if call is not _CALL_OF_CLASSES:
                args = (cls, *args) if type(call) in BINDING else args
                return self.native(unwrapped(call), args, keywords)
        return self.construct(cls, args, keywords)

    def construct(self, cls: type, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`type.__call__` itself, whatever the metaclass makes of calls: `__new__` and `__init__`."""
        if not is_mutable_type(cls):
            annotation = self.registry.lookup(cls)
            if annotation is None:
                raise self.boundary("unannotated-call", describe(cls))
            return self.apply(cls, annotation, args, keywords)
        if self.info(cls).tensor:
            raise self.boundary("tensor-subclass", f"making a {cls.__qualname__}")
        for name in _CONSTRUCTORS:
            found = unwrapped(self.lookup(cls, name))
            if type(found) is types.FunctionType:
                self.use_function(found)
            elif found is not object.__new__ and found is not object.__init__:
                self.native_constructor(cls, found, args, keywords)
        return None

    def native_constructor(self, cls: type, found: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A class whose constructor is C code of a base: what that base's constructor reads is read."""
        base = next(
            base
            for base in cls.__mro__
            if not is_mutable_type(base) or any(unwrapped(vars(base).get(name)) is found for name in _CONSTRUCTORS)
        )
        annotation = self.registry.lookup(base)
        if annotation is None:
            raise self.boundary("unannotated-call", describe(base))
        if found is base.__new__ and type(self.lookup(cls, "__init__")) is types.FunctionType and base is not tuple:
            return  # the base's __new__ ignores the arguments of an __init__ in Python
        self.apply(base, annotation, args, keywords)

    # -- annotated C code ---------------------------------------------------------------------------------------------

    def apply(self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Note what an annotated operation reads and changes."""
        if annotation.as_op_node is not None:
            return self.operator_call(function, annotation, args, keywords)
        if annotation.note == _MODE:
            self.mode_fact(function, args)
        if not annotation.pure_closure or annotation.effect:
            raise self.boundary("impure-call", describe(function))
        if self.of_numpy_scalars(function):
            self.scalar_errors(function, args, keywords)
        if keywords and is_call(function):  # whose they are is not known where the callable is looked at
            raise self.boundary("unannotated-call", describe(function))
        form = annotation
        inputs = form.bind(len(args), keywords)
        if inputs is None:
            found = annotation.for_call(len(args), keywords)
            if found is None:
                return None  # the call raises TypeError
            form = found
            if not form.pure_closure or form.effect:
                raise self.boundary("impure-call", describe(function))
            inputs = form.bind(len(args), keywords) or ()
        values = (*args, *keywords.values())
        if getattr(function, "__objclass__", None) is collections.OrderedDict:
            self.ordered(type(values[0]))
        pending = None
        for index, each in enumerate(inputs):
            value = values[index]
            if each.in_place:
                node = self.find(value)
                if node is not None and node.external:
                    if pending is not None:
                        raise self.boundary("opaque-object", f"{describe(function)} changes two objects")
                    pending = (node, value, index)
                elif issubclass(type(value), ITERATORS):
                    pass
            if each.called or type(value) in self.quiet:
                continue
            self.input(function, each, value, values, index, form)
        for index, each in enumerate(inputs):
            if each.called:  # after the others, whose elements it gets
                self.input(function, each, values[index], values, index, form)
        output = form.output
        if output.key is not None:
            self.keyed(form, inputs, values)
        if pending is None:
            return None
        node, value, index = pending
        if any(each.called and values[i] is not None for i, each in enumerate(inputs)):
            raise self.boundary("opaque-object", f"{describe(function)} calls Python code while it changes its input")
        self.snapshot(node, value)
        if node.before is None:
            raise self.boundary("opaque-object", f"{describe(function)} changes a {type(value).__qualname__}")
        if index != 0:
            raise self.boundary("opaque-object", f"{describe(function)} changes its argument {index}")
        copied = [
            self.frozen(value)
            if each.iterated or each.value_read is Read.ITEMS or (each.value_read is Read.DEEP and not each.hashed)
            else value  # a key is what it is
            for each, value in zip(inputs, values, strict=True)
        ]
        if function in _OF_SETS:
            if not issubclass(type(values[1]), (set, frozenset)):  # it gives NotImplemented, and the other one is asked
                raise self.boundary("unannotated-call", f"{describe(function)} of a {type(values[1]).__qualname__}")
            copied[1] = frozenset(copied[1]) if type(copied[1]) is tuple else copied[1]
        rest = tuple(copied[1 : len(args)])
        return self.announced(node, function, rest, dict(zip(keywords, copied[len(args) :], strict=True)))

    def ordered(self, tp: type) -> None:
        """The methods of `OrderedDict` go through those of a subclass."""
        if is_mutable_type(tp):
            self.protocol(tp)
            for name in ("items", "keys"):
                self.lookup(tp, name)

    def scalar_errors(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Numpy calculates with plain numbers: of errors it warns, raises or says nothing, as it was told to."""
        if all(map(is_atom, args)) and all(map(is_atom, keywords.values())):
            if self.meets_error(function, args, keywords):
                raise self.boundary("impure-call", f"an error of floating point in {describe(function)}")

    def of_numpy_scalars(self, function: Any) -> bool:
        """Whether numpy calculates with scalars in a callable. See `TensorRules`."""
        return False

    def meets_error(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether a calculation of numpy's meets an error of floating point. See `TensorRules`."""
        return False

    def mode_fact(self, function: Any, args: tuple[Any, ...]) -> None:
        """A mode of torch was read: a fact of its own, unless torch's guard of the global state looks at it."""
        if function.__name__ in _GUARDED_MODES:
            return
        if not all(map(is_atom, args)):
            raise self.boundary("impure-call", describe(function))
        value = function(*args)
        if not is_atom(value):
            raise self.boundary("impure-call", describe(function))
        self.graph.read(self.graph.root, Key(EdgeKind.MODE, (function, args)), Atom(value), self.where())

    quiet: frozenset[type] = frozenset(
        {int, float, complex, bool, str, bytes, type(None), types.CodeType, type(...), type(NotImplemented)}
    )

    def input(
        self, function: Any, each: Input, value: Any, values: tuple[Any, ...], index: int, form: Annotation
    ) -> None:
        """Note what an operation does to one of its inputs."""
        if each.alike and self.info(type(value)).tensor:
            return  # only numbers are looked at
        if each.called:
            read = all(other is each or other.value_read not in NOTHING for other in form.all_inputs())
            self.called(value, values[:index] + values[index + 1 :], function, read=read)
            others = values[:index] + values[index + 1 :]
            names = tuple(name for other in form.inputs for name in other.element_operators)
            self.results_used(function, value, names, others)
        if each.iterated:
            self.iterated(value)
        if each.operators:
            others = values[:index] + values[index + 1 :]
            for name in each.operators:
                if self.special(value, name, others) is not None:
                    raise self.boundary("impure-call", describe(function))
            if each.value_read in (Read.ITEMS, Read.DEEP) and not self._answers(value, each.operators):
                self.read(value, each.value_read)
        elif each.value_read not in NOTHING or each.hashed:
            if each.hashed and each.value_read is Read.ITEMS:
                if not each.iterated:
                    self.read(value, Read.ITEMS)
                peeked = self.peek(value)
                for element in self.elements(value) if peeked is None else peeked:
                    self.hashed(element)
            elif each.hashed:
                self.hashed(value)
            else:
                self.read(value, each.value_read)
                if issubclass(type(value), (set, frozenset)) and each.value_read in (Read.ITEMS, Read.DEEP):
                    self.order_read(value)
        if "__eq__" in each.element_operators:
            self.compared_in_c(value, values[:index] + values[index + 1 :])
        if each.element_operators:
            self.elements_used(value, each.element_operators)

    def _answers(self, obj: Any, names: tuple[str, ...]) -> bool:
        """Whether an object has one of some special methods."""
        return is_atom(obj) or any(self.lookup(type(obj), name) is not NULL for name in names)

    def compared_in_c(self, container: Any, others: tuple[Any, ...]) -> None:
        """C code compares elements with other objects, which are equal to it if they are the same: two NaNs may be that."""
        if self._holds_nan((container,)) and (not others or self._holds_nan(others)):
            raise self.boundary("value-identity", "elements are compared, NaNs among them")

    def _holds_nan(self, objects: tuple[Any, ...]) -> bool:
        """Whether NaNs are among some objects, or in containers that are among them."""
        stack, seen = [*objects], set()
        while stack:
            obj = stack.pop()
            if is_nan(obj):
                return True
            if not is_atom(obj) and id(obj) not in seen:
                seen.add(id(obj))
                stack += self.members(obj)
        return False

    def keyed(self, form: Annotation, inputs: tuple[Input, ...], values: tuple[Any, ...]) -> None:
        """One item or attribute of an input is read, or whether it is there."""
        named = {each.name: value for each, value in zip(inputs, values, strict=True)}
        looked_into = [each.name for each in inputs if each.value_read is Read.KEY]
        obj = named.get(form.output.of or (looked_into[0] if looked_into else ""))
        key: Any = form.output.key
        if issubclass(type(key), str) and key in {each.name for each in form.inputs}:
            key = named.get(key)
        if form.output.relation is Relation.ATTRIBUTE or (
            form.output.key == "name" and self.info(type(obj)).base is None
        ):
            self.attribute(obj, key)
        else:
            self.item(obj, key)

    # -- reading ------------------------------------------------------------------------------------------------------

    dispatchers: frozenset[type] = frozenset()
    modules: tuple[type, ...] = ()
    numpy_scalars: Collection[type] = ()
    native_callables: frozenset[type] = frozenset()

    def mapped(self, iterator: Any, function: Any) -> None:
        """An external `map` will call its function."""
        if not self.callable_facts(function) and function not in (int, float, str, bool, len, abs):
            raise self.boundary("external-iterator", f"map of {describe(function)}")

    def special(self, obj: Any, name: str, others: tuple[Any, ...]) -> Any:
        """C code calls a special method of `obj`: Python code is monitored, C code is annotated."""
        if name == "__mod__" and issubclass(type(obj), (str, bytes)) and self.asks_for_keys(obj, others[0]):
            raise self.boundary("unannotated-call", f"% of a {type(others[0]).__qualname__}")
        if is_atom(obj):
            if type(obj) in self.numpy_scalars:
                self.scalar_errors(getattr(type(obj), name, None), (obj, *others), {})
            for other in others:
                if not is_atom(other) and self.find(other) is not None and not self.info(type(other)).tensor:
                    self.read(other, Read.DEEP if self.info(type(other)).base else Read.TYPE)
            return None
        tp = type(obj)
        info = self.info(tp)
        found = self.lookup(tp, name)
        if type(found) is types.FunctionType:
            self.asked(name, found)
            return None
        if found is _GETSTATE:
            self.read_state(obj)
        if found is NULL or info.tensor:
            return None
        if info.base is None and any(self.info(type(other)).tensor for other in others):
            return None  # a number's own method declines a tensor; the tensor's is reported by the function mode
        annotation = self.registry.lookup(found)
        if annotation is None:
            if found is None or (type(found) in BINDING and not self.touches_external((obj, *others))):
                return None
            raise self.boundary("unannotated-call", describe(found))
        count = len(annotation.inputs) - 1
        passed = (obj, *others[:count])
        if annotation.bind(len(passed)) is None:
            for each in passed:
                self.read(each, Read.DEEP)
            return None
        pair = (id(obj), name)
        if pair in self.asking:
            return None  # `__ne__` asks `__eq__`, which asks the other's `__eq__`: all lookups are noted already
        self.asking.add(pair)
        try:
            return self.apply(found, annotation, passed, {})
        finally:
            self.asking.discard(pair)

    def read_state(self, obj: Any) -> None:
        """`object.__getstate__`: all attributes in the instance's dictionary and its slots."""
        node = self.find(obj)
        if node is None or not node.external:
            return
        if not self.info(type(obj)).tensor:
            self.no_hidden_state(type(obj))
        place = self.dictionary(node, obj)
        if place is not None:
            self.read_items(*place)
        for base in type(obj).__mro__:
            for name, found in vars(base).items():
                if type(found) is types.MemberDescriptorType and is_mutable_type(base):
                    self.member(node, obj, name, found)

    def asks_for_keys(self, form: str | bytes, obj: Any) -> bool:
        """Whether a format string asks an object for keys, which one of more than plain items answers as it likes."""
        named = str.find(form, "%(") if isinstance(form, str) else bytes.find(form, b"%(")
        return named >= 0 and type(obj) not in (tuple, list, dict) and not is_atom(obj)

    def asked(self, name: str, found: Any) -> None:
        """C code calls the special method `name`, which is `found`. See `UseRules`."""
        raise NotImplementedError

    def operator_call(
        self, function: Any, annotation: Annotation, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """A torch function is called from bytecode. See `TensorRules`."""
        raise NotImplementedError
