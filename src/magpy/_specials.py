"""Special cases among builtins: most belong in the catalogue of annotations; only these need code.

Each rule takes `(args, keywords)` of a call and gives what `CallRules.call` gives. Nothing here needs torch.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _string  # type: ignore[import-not-found]
import _warnings
import abc
import collections
import contextlib
import dataclasses
import functools
import gc
import inspect
import operator
import reprlib
import sys
import threading
import types
import warnings
from typing import Any, Final

from magpy_annotations import Read
from magpy_refgraph import Atom, EdgeKind, Key
from magpy_runtime.capture import NULL

from ._attributes import Pending
from ._operations import OperationRules
from ._state import is_atom, is_hashed_alike, is_library

_BOOKKEEPERS: Final = frozenset(
    function.__code__.co_filename
    for function in (
        contextlib.contextmanager,
        reprlib.recursive_repr,
        dataclasses.is_dataclass,
        inspect.unwrap,
        warnings.simplefilter,
    )
)
"""Modules that ask for the thread's state and let nobody see it."""

_HASH: Final = "a hash"
_LRU_CACHE: Final = type(functools.lru_cache(len))


class SpecialRules(OperationRules):
    """Rules for builtins that an annotation cannot describe."""

    def __init__(self) -> None:
        super().__init__()
        self.globals_seen = {}
        self.hash_codes: set[types.CodeType] = set()
        self.held: list[Any] = []
        self.abstract: list[tuple[Any, ...]] = []
        self.making = 0
        self.made_classes = False
        self.made_functions = False
        rules: dict[Any, Any] = {
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
            super: self.super_call,
            object.__new__: self.nothing,
            object.__init__: self.nothing,
            type.__call__: self.metaclass_call,
            vars: self.builtin_vars,
            globals: self.builtin_globals,
            __build_class__: self.class_statement,
            warnings.warn: self.warn,
            operator.setitem: self.set_item_in_c,
            operator.delitem: self.set_item_in_c,
            operator.is_: self.is_in_c,
            operator.is_not: self.is_in_c,
            id: self.identity_number,
            sys.exc_info: self.thread_state,
            threading.get_ident: self.thread_state,
            sys.getrecursionlimit: self.thread_state,
            sys.getrefcount: self.count_references,
            sys.getsizeof: self.count_bytes,
            gc.isenabled: self.impure,
            gc.enable: self.impure,
            gc.disable: self.impure,
            callable: self.callable_check,
            object.__dict__["__getstate__"]: self.get_state,
            str.format: functools.partial(self.formatted, str.format),
            str.format_map: functools.partial(self.formatted, str.format_map),
            str.__mod__: functools.partial(self.formatted, str.__mod__),
            bytes.__mod__: functools.partial(self.formatted, bytes.__mod__),
            next: self.next_element,
            memoryview: self.memory_view,
            _abc._abc_instancecheck: self.abstract_instance,
            _abc._abc_subclasscheck: self.abstract_check,
            _warnings._filters_mutated: self.nothing,  # type: ignore[attr-defined]
        }
        for descriptor in (types.MemberDescriptorType, types.GetSetDescriptorType):
            rules[descriptor.__dict__["__get__"]] = self.descriptor_get
        for kind in (type(threading.Lock()), type(threading.RLock())):
            for name in ("__enter__", "__exit__", "acquire", "release"):
                rules[kind.__dict__[name]] = self.lock
        for sized in (object, list, dict, set, collections.deque, collections.OrderedDict):
            rules[sized.__dict__["__sizeof__"]] = self.count_bytes
        self.add_specials(rules)

    def add_specials(self, rules: dict[Any, Any]) -> None:
        """Register special rules by the callable that they are for."""
        for function, rule in rules.items():
            if function is not None:
                self.held.append(function)
                self.specials[id(function)] = rule

    def metaclass_call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`type.__call__`, called by name."""
        cls = args[0] if args else None
        if type(cls) is type or not isinstance(cls, type):
            return self.call_class(args[0], args[1:], keywords)
        special = self.specials.get(id(cls))
        if special is not None:
            return special(args[1:], keywords)
        self.made_classes = self.made_classes or issubclass(cls, type)
        return self.construct(cls, args[1:], keywords)

    def set_item_in_c(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`operator.setitem` and `operator.delitem`, which raise if they get anything else."""
        if keywords or len(args) not in (2, 3):
            return None
        return self.set_item(args[0], args[1], args[2] if len(args) > 2 else NULL)

    def builtin_globals(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`globals()`."""
        self.pin(self.recorder.globals())

    def native(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """C code is called. A cache that a library keeps around a function of its own gives what the function would."""
        if type(function) is _LRU_CACHE:
            wrapped = function.__wrapped__
            if type(wrapped) is types.FunctionType and is_library(wrapped.__code__.co_filename):
                for arg in (*args, *keywords.values()):
                    self.hashed(arg)
                self.callable_facts(wrapped)
                return None
        if function is hash and args:
            self.hash_read(args[0])
        elif getattr(function, "__name__", None) == "__hash__" and not self._is_hashing():
            self.only_here = _HASH
        return super().native(function, args, keywords)

    def called(self, function: Any, others: tuple[Any, ...], caller: Any = None, *, read: bool = False) -> None:
        """C code calls `function`, for the keys of `sorted` for instance."""
        if function is hash or function is id:
            self.only_here = _HASH
        super().called(function, others, caller, read=read)

    def hash_read(self, obj: Any) -> None:
        """The program sees a hash: one that is made from an address is fixed for what the record holds."""
        if not is_hashed_alike(obj) and not self._is_hashing():
            self.only_here = _HASH
        if issubclass(type(obj), (tuple, frozenset)):
            for each in self.elements(obj):
                self.hash_read(each)
        elif not is_atom(obj) and self.is_hashed_by_identity(type(obj)):
            node = self.find(obj)
            if node is None or not node.external:
                raise self.boundary("value-identity", f"hash() of a {type(obj).__qualname__}")
            self.held_by_identity.add(node.index)

    def hash_seen(self) -> None:
        """The program itself calls a `__hash__`."""
        if not self._is_hashing():
            self.only_here = _HASH

    def _is_hashing(self) -> bool:
        """Whether a hash is part of another one; of that one, or of what has found something by it, more is known."""
        return self.recorder.code().co_name == "__hash__"

    def tensor_hash(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`tensor.__hash__()`."""
        self.hash_read(args[0])

    def lock(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A lock of a library's own is taken or released; it is free again when the call returns."""
        if not is_library(self.recorder.code().co_filename):
            raise self.boundary("impure-call", "a lock was used")

    def identity_number(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`id(obj)`: fixed for what the record holds by identity; as a tensor's hash it only tells tensors apart."""
        if self.recorder.code() in self.hash_codes:
            return
        node = self.find(args[0])
        if node is None or not node.external:
            if is_library(self.recorder.code().co_filename):
                return  # a memo of `copy` or `reprlib`, which nobody sees
            raise self.boundary("value-identity", f"id() of a {type(args[0]).__qualname__}")
        self.held_by_identity.add(node.index)
        if not is_library(self.recorder.code().co_filename):  # libraries only find by it what they have put there
            self.only_here = "an address"

    def thread_state(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`sys.exc_info()` and the like: state of the thread that some libraries ask for their own bookkeeping."""
        if self.recorder.code().co_filename not in _BOOKKEEPERS:
            raise self.boundary("impure-call", "state of the interpreter's thread")

    def count_references(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """What is watched, and what a record hands on across a boundary, is held once more: the count shows that."""
        raise self.boundary("value-identity", "references to an object were counted")

    def count_bytes(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """What a record builds has the room that it needs, not what the program's own steps left it with."""
        node = self.find(args[0]) if args and not is_atom(args[0]) else None
        if args and not is_atom(args[0]) and (node is None or not node.external or node.mutated):
            raise self.boundary("value-identity", f"the bytes of a {type(args[0]).__qualname__} were counted")
        raise self.boundary("impure-call", "sys.getsizeof")

    def descriptor_get(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`descriptor.__get__(obj)` of a slot, or of what a C class gives, called by name."""
        node = self.find(args[1]) if len(args) > 1 else None
        if node is not None and node.external and args[1] is not None:
            self.member(node, args[1], args[0].__name__, args[0])

    def get_state(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`object.__getstate__`."""
        return self.special(args[0], "__getstate__", ()) if args else None

    def formatted(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`str.format`: fields may name attributes and items of the arguments, and a mapping may do more than give them."""
        if function.__name__ == "__mod__":
            if len(args) == 2 and self.asks_for_keys(args[0], args[1]):
                raise self.boundary("unannotated-call", f"% of a {type(args[1]).__qualname__}")
        elif args and issubclass(type(args[0]), str) and _names_parts(str.__str__(args[0])):
            raise self.boundary(
                "unannotated-call", f"str.{function.__name__} with attributes or items of its arguments"
            )
        if function is str.format_map and len(args) == 2 and type(args[1]) is not dict:
            raise self.boundary("unannotated-call", f"str.format_map of a {type(args[1]).__qualname__}")
        annotation = self.registry.lookup(function)
        return None if annotation is None else self.apply(function, annotation, args, keywords)

    def impure(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """A call whose answer differs in a monitored run."""
        raise self.boundary("impure-call", "state of the garbage collector")

    def callable_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`callable(obj)`."""
        self.lookup(type(args[0]), "__call__")

    def next_element(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`next(iterator)`."""
        if self.is_external_iterator(args[0]):
            self.step(args[:1], None)
            return None
        if args and type(args[0]) in (map, filter):
            self.next_called(args[0])
        annotation = self.registry.lookup(next)
        return None if annotation is None else self.apply(next, annotation, args, keywords)

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
        if issubclass(type(args[0]), type):
            self.mro(args[0])
        self.class_check(args[1], "__subclasscheck__")

    def abstract_instance(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """An abstract base class is asked for an instance."""
        self.abstract_check((args[0], type(args[1])) if len(args) == 2 else (), keywords)

    def abstract_check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """An abstract base class is asked for a subclass: what is registered with it is covered by the token of its caches."""
        token = Key(EdgeKind.MODE, "abc_cache_token")
        self.graph.read(self.graph.root, token, Atom(abc.get_cache_token()), self.where())
        if len(args) == 2 and issubclass(type(args[1]), type):
            self.mro(args[1])
            self.abstract.append(args)

    def class_check(self, classes: Any, name: str) -> None:
        """A class or a tuple of classes is asked for its instances."""
        if issubclass(type(classes), tuple):
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
        if issubclass(type(args[1]), str):
            self.attribute(args[0], str.__str__(args[1]))

    def builtin_setattr(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Pending | None:
        """`setattr` and `delattr`."""
        if not issubclass(type(args[1]), str):
            return None
        return self.set_attribute(args[0], str.__str__(args[1]), args[2] if len(args) > 2 else NULL)

    def object_setattr(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Pending | None:
        """`object.__setattr__`, `type.__setattr__` and their deletions, called by name."""
        value = args[2] if len(args) > 2 else NULL
        if issubclass(type(args[0]), type):
            return self.set_class_attribute(args[0], args[1], value)
        return self.generic_store(args[0], args[1], value)

    def object_getattribute(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`object.__getattribute__`, called by name."""
        self.generic_attribute(args[0], args[1])

    def type_call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`type(obj)`, or a class is made."""
        if len(args) == 1:
            return None
        for held in args[1:3]:
            self.read(held, Read.ITEMS)
        return self.build_class(args, keywords)

    def super_call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`super()`: without arguments it reads the cell of `__class__`."""
        code = self.recorder.code()
        if args or "__class__" not in code.co_freevars:
            return
        cells = len(set(code.co_varnames) | set(code.co_cellvars))  # in the frame, free variables come last
        self.load_cell((), cells + code.co_freevars.index("__class__"))

    def class_statement(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """`class ...:`; the names that its body stores are the new class's, unless a metaclass says where they go."""
        meta = keywords.get("metaclass") or (type(args[2]) if len(args) > 2 else type)
        found = self.lookup(meta, "__prepare__") if issubclass(type(meta), type) else NULL
        prepare = getattr(found, "__func__", found)
        if type(prepare) is types.FunctionType and not is_library(prepare.__code__.co_filename):
            raise self.boundary("opaque-object", f"the namespace that {meta.__qualname__}.__prepare__ makes")
        return self.build_class(args, keywords)

    def build_class(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A class is made during the run."""
        self.made_classes = True
        self.making += 1

        def made(outputs: tuple[Any, ...] | None) -> None:
            self.making -= 1
            if outputs and issubclass(type(outputs[-1]), type) and self.find(outputs[-1]) is None:
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
        if issubclass(type(message), Warning) or type(message) is not str or named.get("skip_file_prefixes"):
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
        return self.announced(self.pin(_WARNINGS), replay_warning, place)


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


def _names_parts(template: str) -> bool:
    """Whether a field of a format string, or of the formats in it, names an attribute or an item."""
    try:
        for _, field, form, _ in _string.formatter_parser(template):
            if field and any(True for _ in _string.formatter_field_name_split(field)[1]):
                return True
            if form and "{" in form and _names_parts(form):
                return True
    except ValueError:  # the call raises it, too
        return False
    return False
