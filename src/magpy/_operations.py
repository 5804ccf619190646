"""Update rules for what instructions do themselves: globals, cells, operators, subscripts, iteration, imports.

Handlers take `(inputs, arg)` before an instruction, with stack values deepest first, and `(state, outputs, arg)` after it.
They know nothing of instruction numbers: the table of each Python version names them (`_opcodes`).
"""

from __future__ import annotations

import collections
import sys
import types
from typing import Any

from magpy_annotations import Read
from magpy_refgraph import Atom, EdgeKind, Key
from magpy_runtime.capture import NULL, type_lookup

from ._attributes import Pending
from ._state import is_atom, is_library, is_mutable_type, is_nan
from ._uses import UseRules

_RAISED_BY_C = frozenset(
    {
        ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, LookupError, NameError, OverflowError,
        RuntimeError, StopIteration, TypeError, UnboundLocalError, UnicodeDecodeError, UnicodeEncodeError, ValueError,
        ZeroDivisionError,
    }
)  # fmt: skip
"""Types of exceptions that instructions and builtins raise for what they are given."""

_CELL = Key(EdgeKind.CELL)
_COMPARISONS = {"<": ("__lt__", "__gt__"), "<=": ("__le__", "__ge__"), "==": ("__eq__", "__eq__"),
                "!=": ("__ne__", "__ne__"), ">": ("__gt__", "__lt__"), ">=": ("__ge__", "__le__")}  # fmt: skip
_SINGLETONS = (type(None), bool, type(...), type(NotImplemented))


class OperationRules(UseRules):
    """Rules for instructions."""

    def __init__(self) -> None:
        super().__init__()
        self.raised_types: set[type] = set()

    # -- variables ----------------------------------------------------------------------------------------------------

    def load_global(self, state: None, outputs: tuple[Any, ...] | None, name: str) -> None:
        """After a global was loaded: its presence in the globals, or its absence there and presence in builtins."""
        namespace = self.recorder.globals()
        key = (id(namespace), name)
        value = NULL if outputs is None else outputs[-1]
        if self.globals_seen.get(key, self) is value:
            return
        self.globals_seen[key] = value
        if self.is_compiling_flag(namespace, name):
            return
        node = self.pin(namespace)
        self.read_item(node, namespace, name)
        if name not in namespace:
            builtins = self.recorder.builtins()
            self.read_item(self.pin(builtins), builtins, name)

    globals_seen: dict[tuple[int, str], Any]

    def is_compiling_flag(self, namespace: dict[str, Any], name: str) -> bool:
        """Whether this is torch's flag that a compiler is at work, which only a recording run sees set."""
        return False

    def store_global(self, inputs: tuple[Any, ...], name: str) -> Pending:
        """Before a global is stored."""
        namespace = self.recorder.globals()
        self.globals_seen.pop((id(namespace), name), None)
        return self.set_item(namespace, name, inputs[0]) or _never()

    def delete_global(self, inputs: tuple[Any, ...], name: str) -> Pending:
        """Before a global is deleted."""
        namespace = self.recorder.globals()
        self.globals_seen.pop((id(namespace), name), None)
        return self.set_item(namespace, name, NULL) or _never()

    def load_cell(self, inputs: tuple[Any, ...], index: int) -> None:
        """Before a closure's variable is loaded."""
        cell = self.recorder.local(index)
        node = self.find(cell)
        if node is not None and node.external:
            self.follow(node, _CELL, cell_content(cell))

    def store_cell(self, inputs: tuple[Any, ...], index: int) -> Pending | None:
        """Before a closure's variable is stored."""
        cell = self.recorder.local(index)
        node = self.find(cell)
        if node is None or not node.external:
            return None
        return self.announced(node, set_cell, (inputs[0],), key=_CELL, value=inputs[0])

    def delete_cell(self, inputs: tuple[Any, ...], index: int) -> Pending | None:
        """Before a closure's variable is deleted."""
        cell = self.recorder.local(index)
        node = self.find(cell)
        if node is None or not node.external:
            return None
        self.follow(node, _CELL, cell_content(cell))
        return self.announced(node, clear_cell, (), key=_CELL, value=NULL)

    # -- operators ----------------------------------------------------------------------------------------------------

    def binary(self, inputs: tuple[Any, ...], names: tuple[str, str, str | None]) -> Any:
        """Before a binary operator; names are the method, its reflection, and the in-place one or None."""
        left, right = inputs
        quiet = self.quiet
        if type(left) in quiet and type(right) in quiet:
            return None
        method, reflected, in_place = names
        if in_place is not None:
            found = self.lookup(type(left), in_place)
            if found is not NULL:
                return self.special(left, in_place, (right,))
        state = self.special(left, method, (right,))
        self.special(right, reflected, (left,))
        return state

    def unary(self, inputs: tuple[Any, ...], name: str) -> None:
        """Before a unary operator."""
        if type(inputs[0]) not in self.quiet:
            self.special(inputs[0], name, ())

    def compare(self, inputs: tuple[Any, ...], operator: str) -> None:
        """Before a comparison."""
        left, right = inputs
        quiet = self.quiet
        if type(left) in quiet and type(right) in quiet:
            return
        method, reflected = _COMPARISONS[operator]
        self.identity(left, right, plain=True)
        self.special(left, method, (right,))
        self.special(right, reflected, (left,))

    def contains(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before `item in container`."""
        item, container = inputs
        if is_atom(container):
            return
        info = self.info(type(container))
        if info.base is None and not info.mutable and type_lookup(info.type, "__contains__") is NULL:
            self.iterated(container)
            self.compared_in_c(container, (item,))
            if self.is_external_iterator(container):
                drained = self.drain(container)
                self.compared_in_c(drained, (item,))
                for element in drained:
                    self.compare((element, item), "==")
            return
        if info.tensor or (info.base is None and not info.mutable):
            self.special(container, "__contains__", (item,))
            return
        if info.mutable and type(self.lookup(info.type, "__contains__")) is types.FunctionType:
            self.asked("__contains__", self.lookup(info.type, "__contains__"))
            return
        if info.mutable and info.base is None:
            self.iterated(container)
            return
        node = self.find(container)
        external = node is not None and node.external
        if info.base in (dict, set, frozenset):
            self.hashed(item)
            if external and node is not None:
                if info.base is dict:
                    self.read_item(node, container, item)
                else:
                    self.read_items(node, container)
            return
        if external and node is not None:
            self.read_items(node, container)
        self.compared_in_c(container, (item,))
        for element in self.elements(container):
            self.compare((element, item), "==")

    def is_(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before `one is other`."""
        self.identity(inputs[0], inputs[1], plain=False)

    def is_in_c(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """`operator.is_` and `operator.is_not`."""
        if len(args) == 2:
            self.identity(*args, plain=False)

    def identity(self, left: Any, right: Any, *, plain: bool) -> None:
        """Two objects are told apart by identity."""
        one, other = type(left), type(right)
        if one in _SINGLETONS or other in _SINGLETONS:
            return
        if not plain and is_atom(left) and is_atom(right):
            same = one is other and (left == right or (is_nan(left) and is_nan(right)))
            if same and one in (int, float, complex, str, bytes):
                if (one is int and -5 <= left <= 256) or is_library(self.recorder.code().co_filename):
                    return
                raise self.boundary("value-identity", f"`is` between two values of type {one.__name__}")
            return
        a, b = self.find(left), self.find(right)
        if a is not None and b is not None and a.external and b.external and a is not b:
            self.graph.read(a, Key(EdgeKind.SAME, b.index), Atom(False), self.where())

    def truth(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before an object's truth is asked for."""
        obj = inputs[0]
        tp = type(obj)
        if tp in self.quiet:
            return
        info = self.infos.get(tp) or self.info(tp)
        if info.tensor:
            return  # the function mode reports it
        if info.base is not None:
            if info.mutable:
                for name in ("__bool__", "__len__"):
                    if type(self.lookup(tp, name)) is types.FunctionType:
                        return
            node = self.find(obj)
            if node is not None and node.external:
                self.read_truth(node, obj)
        elif info.mutable:
            self.lookup(tp, "__bool__")
            self.lookup(tp, "__len__")
        elif not is_atom(obj):
            self.special(obj, "__bool__", ())
            self.special(obj, "__len__", ())

    # -- subscripts ---------------------------------------------------------------------------------------------------

    def load_item(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before `container[key]`."""
        container, key = inputs
        tp = type(container)
        if type(key) not in self.quiet:
            self.index(key)
        if tp in self.quiet:
            return None
        info = self.infos.get(tp) or self.info(tp)
        if info.tensor:
            return None
        if info.mutable:
            found = self.lookup(tp, "__getitem__")
            if type(found) is types.FunctionType:
                self.use_function(found)
                return None
        if info.base is None:
            if issubclass(type(container), type):
                return self.call_class_getitem(container)
            return self.special(container, "__getitem__", (key,))
        self.item(container, key)
        if info.base is dict and tp is not dict and not dict.__contains__(container, key):
            return self.missing(container, key)
        return None

    def index(self, key: Any) -> None:
        """A subscript that is no plain value: slices are looked into."""
        if type(key) is tuple:
            node = self.find(key)
            if node is not None and node.external:
                self.read_items(node, key)
            for part in key:
                self.index(part)
        elif type(key) is slice:
            self.read(key, Read.ITEMS)
            for part in (key.start, key.stop, key.step):
                if type(part) not in self.quiet:
                    self.special(part, "__index__", ())

    def call_class_getitem(self, cls: type) -> None:
        """`cls[item]`."""
        if type(cls) is not type and type(self.lookup(type(cls), "__getitem__")) is types.FunctionType:
            return
        found = self.lookup(cls, "__class_getitem__")
        if (
            type(found) is classmethod
            and not isinstance(found.__func__, types.FunctionType)
            and cls.__module__ != "builtins"
        ):
            raise self.boundary("unannotated-call", f"{cls.__qualname__}.__class_getitem__")

    def missing(self, container: Any, key: Any) -> Any:
        """A key is not in a dictionary subclass."""
        tp = type(container)
        found = self.lookup(tp, "__missing__")
        if found is NULL or type(found) is types.FunctionType:
            return None
        if found is not collections.defaultdict.__missing__:
            raise self.boundary("unannotated-call", f"{tp.__qualname__}.__missing__")
        node = self.find(container)
        if node is None or not node.external:
            self.called(container.default_factory, ())
            return None
        self.follow(node, Key(EdgeKind.MEMBER, "default_factory"), container.default_factory)
        self.called(container.default_factory, ())
        self.snapshot(node, container)

        def made(outputs: tuple[Any, ...] | None) -> None:
            if outputs is not None:
                value = outputs[-1]
                self.record(Pending(node, dict.__setitem__, (key, value), key=self.item_key(key), value=value))

        return made

    def store_item(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before `container[key] = value`; inputs are (value, container, key)."""
        value, container, key = inputs
        return self.set_item(container, key, value)

    def delete_item(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before `del container[key]`; inputs are (container, key)."""
        return self.set_item(inputs[0], inputs[1], NULL)

    def set_item(self, container: Any, key: Any, value: Any) -> Any:
        """Set or, with NULL, delete an item."""
        tp = type(container)
        info = self.info(tp)
        self.index(key)
        if info.tensor:
            return None
        name = "__delitem__" if value is NULL else "__setitem__"
        if info.mutable and type(self.lookup(tp, name)) is types.FunctionType:
            return None
        self.hashed(key)
        node = self.find(container)
        if node is None or not node.external:
            return None
        base = info.base
        if base is None:
            return self.special(container, name, (key,) if value is NULL else (key, value))
        function = self.lookup(tp, name)
        args = (key,) if value is NULL else (key, value)
        if base is dict:
            if value is NULL or node.index in self.complete or node.index in self.scrambled:
                self.read_item(node, container, key)
            self.snapshot(node, container)
            return self.announced(node, function, args, key=self.item_key(key), value=value)
        self.snapshot(node, container)
        self.read_items(node, container)
        if type(key) is slice and value is not NULL:
            self.iterated(value)
            args = (key, self.frozen(value))
        return self.announced(node, function, args)

    def load_slice(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before `container[start:stop]` (3.12 and later)."""
        return self.load_item((inputs[0], slice(inputs[1], inputs[2])), arg)

    def store_slice(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before `container[start:stop] = value` (3.12 and later)."""
        return self.set_item(inputs[1], slice(inputs[2], inputs[3]), inputs[0])

    # -- iteration and unpacking --------------------------------------------------------------------------------------

    def iterate(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before an iterator is taken of, or elements are copied out of, the top of the stack."""
        obj = inputs[-1]
        if type(obj) not in self.quiet:
            self.iterated(obj)

    def iterator(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before `iter` of the top of the stack, whose elements will be taken one by one: see `step`."""
        obj = inputs[-1]
        if type(obj) not in self.quiet and not self.is_external_iterator(obj):
            self.iterated(obj)

    def iterator_made(self, state: None, outputs: tuple[Any, ...] | None, arg: Any) -> None:
        """After an iterator was taken: a user's `__iter__` may hand out one that is older than the call."""
        if outputs and not self.is_external_iterator(outputs[-1]):
            self.own_iterator(outputs[-1])

    def update_set(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before elements are copied into a set."""
        self.iterate(inputs, arg)
        for member in self.members(inputs[-1]):
            self.hashed(member)

    def raised(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before an exception is raised; inputs are the exception or its class, and the cause."""
        for each in inputs:
            self.raised_types.add(each if isinstance(each, type) else type(each))
            if isinstance(each, type):
                if is_mutable_type(each):
                    self.call_class(each, (), {})
                continue
            node = self.find(each)
            if node is not None and node.external:  # its traceback and context change
                raise self.boundary("opaque-object", f"a {type(each).__qualname__} that existed before was raised")

    def raised_again(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before a bare `raise`: what is handled has to be of this run, not of who called it."""
        if sys.exc_info()[1] is self.outer:
            raise self.boundary("impure-call", "an exception is raised again that the caller may handle")

    def is_explained(self, error: BaseException) -> bool:
        """Whether an exception came of what was observed, so that it comes again where the facts hold again.

        Others can be thrown into a thread from outside.
        """
        node = self.find(error)
        if node is not None and node.external:
            return False
        kind = type(error)
        return kind in _RAISED_BY_C or (kind in self.raised_types and issubclass(kind, Exception))

    def exception_match(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before an exception is matched against a class or a tuple of classes."""
        classes = inputs[-1]
        self.mro(type(inputs[0]))
        node = self.find(classes)
        if issubclass(type(classes), tuple) and node is not None and node.external:
            self.read_items(node, classes)

    def merge(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before a mapping is copied into another one."""
        obj = inputs[-1]
        self.iterated(obj)
        if self.info(type(obj)).mutable:
            for name in ("keys", "__getitem__"):
                self.lookup(type(obj), name)

    def keys(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before objects are used as keys of a new dictionary (every `arg`-th of the inputs) or members of a set."""
        for obj in inputs[::arg]:
            if type(obj) not in self.quiet:
                self.hashed(obj)

    def length(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before the length of the top of the stack is read."""
        if not is_atom(inputs[-1]):
            self.special(inputs[-1], "__len__", ())

    def match_class(self, inputs: tuple[Any, ...], count: int) -> None:
        """Before a class pattern is matched; inputs are (subject, class, keyword names)."""
        subject, cls, names = inputs
        if not issubclass(type(cls), type):
            return  # raises TypeError
        self.specials[id(isinstance)]((subject, cls), {})
        check = self.lookup(type(cls), "__instancecheck__")
        if type(check) is types.FunctionType and not is_library(check.__code__.co_filename):
            raise self.boundary("opaque-object", f"a pattern of class {cls.__qualname__}, which has its own isinstance")
        if not isinstance(subject, cls):
            return
        if count:
            self.attribute(cls, "__match_args__")
            given = type_lookup(cls, "__match_args__")
            if type(given) is tuple:
                node = self.find(given)
                if node is not None and node.external:
                    self.read_items(node, given)
                names = (*given[:count], *names)
        for name in names:
            self.attribute(subject, name)

    def match_keys(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before a mapping pattern is matched; inputs are (subject, keys)."""
        subject, keys = inputs
        if type(self.lookup(type(subject), "get")) is not types.FunctionType:
            for key in keys:
                self.item(subject, key)

    def format(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before a value is formatted into a string."""
        value = inputs[0]
        if type(value) in self.quiet:
            return
        info = self.info(type(value))
        if info.tensor:
            return
        for name in ("__format__", "__str__", "__repr__"):
            if type(self.lookup(info.type, name)) is types.FunctionType:
                return
        if info.mutable and info.base is None:
            raise self.boundary("value-identity", f"an object of class {info.type.__qualname__} was formatted")
        self.read(value, Read.DEEP)

    # -- calls --------------------------------------------------------------------------------------------------------

    def after_call(self, state: Any, outputs: tuple[Any, ...] | None, arg: Any) -> None:
        """After a call: record its effect; a tensor that nobody reported ends the region."""
        if state is not None:
            if type(state) is Pending:
                self.effect(state, outputs, arg)
            else:
                state(outputs)
        if outputs:
            out = outputs[-1]
            if type(out) in self.tensor_classes and self.find(out) is None:
                raise self.boundary("unknown-tensor", "returned by a C function")

    tensor_classes: frozenset[type] = frozenset()

    def enter(self, inputs: tuple[Any, ...], arg: Any) -> None:
        """Before `with` enters a context manager."""
        manager = inputs[0]
        tp = type(manager)
        for name in ("__enter__", "__exit__"):
            found = self.lookup(tp, name)
            if found is NULL or type(found) is types.FunctionType:
                continue
            args = (manager,) if name == "__enter__" else (manager, None, None, None)
            if type(self.native(found, args, {})) is Pending:
                raise self.boundary("opaque-object", f"a {tp.__qualname__} in a `with` statement")

    def leave(self, inputs: tuple[Any, ...], arg: Any) -> Any:
        """Before a context manager's exit function is called for an exception."""
        return self.call(inputs[0], (None, None, None), {})

    # -- imports ------------------------------------------------------------------------------------------------------

    def import_name(self, inputs: tuple[Any, ...], name: str) -> None:
        """Before `import name`; inputs are (level, fromlist)."""
        level, names = inputs
        builtins = self.recorder.builtins()
        self.read_item(self.pin(builtins), builtins, "__import__")
        if level:
            package = self.recorder.globals().get("__package__") or ""
            base = package.rsplit(".", level - 1)[0] if level > 1 else package
            name = f"{base}.{name}" if name else base
        module = sys.modules.get(name)
        if module is None or not issubclass(type(module), types.ModuleType):
            raise self.boundary("impure-call", f"import of {name}")
        top = name if names else name.partition(".")[0]
        modules = self.pin(sys.modules)
        self.read_item(modules, sys.modules, name)
        if top != name:
            self.read_item(modules, sys.modules, top)

    def import_from(self, inputs: tuple[Any, ...], name: str) -> None:
        """Before `from module import name`."""
        self.attribute(inputs[0], name)

    def skip(self) -> None:
        """Watch nothing of the current instruction."""
        self.muted = True
        self.recorder.divert(self.unmuted, 0)

    def unmuted(self, state: None, outputs: tuple[Any, ...] | None, arg: None) -> None:
        """What was not to be watched is over."""
        self.muted = False

    muted = False

    def hints(self) -> dict[tuple[types.CodeType, int], tuple[str, str]]:
        """Instructions that are boundaries as a whole, with the reason. See `SplitRules`."""
        return {}

    def hinted(self, inputs: tuple[Any, ...], reason: tuple[str, str]) -> None:
        """Before an instruction that is a boundary as a whole."""
        raise self.boundary(*reason)

    def unsupported(self, inputs: tuple[Any, ...], name: str) -> None:
        """Before an instruction that is not understood."""
        raise self.boundary("unsupported-instruction", name)


def _never() -> Pending:
    raise AssertionError("a namespace is an external object")


def cell_content(cell: types.CellType) -> Any:
    """What a cell holds, NULL when it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return NULL


def set_cell(cell: types.CellType, value: Any) -> None:
    """Fill a cell; the primitive operation of STORE_DEREF."""
    cell.cell_contents = value


def clear_cell(cell: types.CellType) -> None:
    """Empty a cell; the primitive operation of DELETE_DEREF."""
    del cell.cell_contents
