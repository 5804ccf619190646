"""Update rules for what C code does with objects that Python code hands it: results of callbacks, what iterators give.

No instruction shows these objects, only the frames that return or yield them.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import operator
import types
from typing import Any, Final

from magpy_annotations import Read, Relation, unbind
from magpy_runtime.capture import NULL, type_lookup

from ._calls import CallRules
from ._describe import describe
from ._state import is_atom

TRUTH: Final = ("__bool__", "__len__")
COMPARISONS: Final = frozenset({"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__", "__contains__"})
"""Special methods whose results C code may ask for their truth; COMPARE_OP does itself on 3.13 (CPython gh-106008)."""

_CALLERS: Final[dict[Any, tuple[str, ...]]] = {
    filter: TRUTH, itertools.filterfalse: TRUTH, itertools.takewhile: TRUTH, itertools.dropwhile: TRUTH,
    itertools.groupby: ("__eq__",),
}  # fmt: skip
_CHAINS: Final = (zip, enumerate)
_ORDERED_VIEWS: Final[tuple[type, ...]] = tuple(
    type(view()) for view in (collections.OrderedDict[int, int]().values, collections.OrderedDict[int, int]().items)
)
_PLAIN: Final = (tuple, list, dict, str)
_ARGS: Final[Any] = BaseException.__dict__["args"]
_SCALARS: Final = frozenset(type(iter(made)) for made in ("", "\xe9", b"", range(0), range(1 << 70)))
_ADDITIONS: Final = ("__add__", "__radd__", "__iadd__")


class UseRules(CallRules):
    """Rules for objects that only C code sees."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[types.CodeType, set[str]] = {}

    def uses(self, code: types.CodeType, names: tuple[str, ...]) -> None:
        """C code will call these special methods of what frames of `code` return, or yield if they are generators."""
        self.given.setdefault(code, set()).update(names)

    def asked(self, name: str, found: Any) -> None:
        """C code calls the special method `name`, which is `found`; of some it asks the result's truth."""
        if name in COMPARISONS and type(found) is types.FunctionType:
            self.uses(found.__code__, TRUTH)

    def results_used(self, function: Any, called: Any, names: tuple[str, ...], others: tuple[Any, ...]) -> None:
        """C code `function` calls special methods of what `called` returns for the elements of `others`."""
        names += _CALLERS.get(function, ())
        if not names or called is None:
            return
        while type(called) in (types.MethodType, functools.partial):
            called = called.func if type(called) is functools.partial else called.__func__
        if type(called) is types.FunctionType:
            self.uses(called.__code__, names)
        elif self.info(type(called)).mutable:
            found = self.lookup(type(called), "__call__")
            if type(found) is types.FunctionType:
                self.uses(found.__code__, names)
        elif type(called) in (operator.itemgetter, operator.attrgetter):
            for element in (each for other in others for each in self.members(other)):
                if not self._is_got_in_c(called, element):
                    raise self.boundary("unannotated-call", f"{describe(called)} on a {type(element).__qualname__}")
                self.use_object(called(element), names)
        elif not issubclass(type(called), type):
            base, bound = unbind(called)
            annotation = self.registry.find(base)[0]
            if annotation is not None and annotation.output.relation in (Relation.CONSTANT, Relation.NEW):
                return
            if annotation is not None and bound and self.info(type(bound[0])).base is not None:
                for element in self.members(bound[0]):  # `counts.get` and the like give one of these
                    self.use_object(element, names)
            elif (
                annotation is None
                or annotation.output.relation is not Relation.DELEGATED
                or not all(type(each) in self.quiet for other in others for each in self.members(other))
            ):
                raise self.boundary("unannotated-call", f"{describe(called)}, whose results only C code sees")

    def _is_got_in_c(self, getter: Any, obj: Any) -> bool:
        """Whether calling an itemgetter or attrgetter runs no Python code."""
        if type(getter) is operator.itemgetter:
            return type(obj) in _PLAIN
        _, names = getter.__reduce__()
        return all("." not in name and self.attribute(obj, name) for name in names)

    def elements_used(self, obj: Any, names: tuple[str, ...]) -> None:
        """C code calls special methods of what an iteration over `obj` gives."""
        kind = type(obj)
        if is_atom(obj) or kind in _SCALARS:
            return
        if kind is types.GeneratorType:
            self.uses(obj.gi_code, names)
        elif kind is map:
            called, *iterators = obj.__reduce__()[1]
            self.results_used(map, called, names, tuple(iterators))
        elif kind is filter:
            self.elements_used(obj.__reduce__()[1][1], names)
        elif kind in _CHAINS:
            if names != ("__iter__",):  # the tuples are fresh
                for part in obj.__reduce__()[1]:
                    self.elements_used(part, names)
        else:
            self._elements_used(obj, names)

    def _elements_used(self, obj: Any, names: tuple[str, ...]) -> None:
        info = self.info(type(obj))
        if info.tensor:
            return
        if info.mutable:
            for name in ("__iter__", "__next__", "__getitem__"):
                found = self.lookup(info.type, name)
                if type(found) is types.FunctionType:
                    self.uses(found.__code__, names)
        if info.base is not None or self.peek(obj) is not None:
            for element in self.members(obj):
                self.use_object(element, names)
        elif issubclass(type(obj), BaseException):
            for element in _ARGS.__get__(obj):
                self.use_object(element, names)
        elif (
            not info.mutable
            and names != ("__iter__",)
            and (info.type in _ORDERED_VIEWS or type_lookup(info.type, "__next__") is not NULL)
        ):
            raise self.boundary("unannotated-call", f"C code that looks at what a {info.type.__qualname__} gives")

    def use_object(self, obj: Any, names: tuple[str, ...]) -> None:
        """C code calls special methods of an object."""
        if is_atom(obj):
            return
        base = self.info(type(obj)).base
        for name in names:
            if name == "__bool__":
                self.truth((obj,), None)
            elif name in _ADDITIONS and base is not None:
                self.read(obj, Read.ITEMS)  # concatenation only moves references
            elif name != "__len__" or "__bool__" not in names:
                self.special(obj, name, ())

    def gives(self, code: types.CodeType, value: Any, *, suspended: bool) -> None:
        """A frame returns or yields a value to C code."""
        names = self.given.get(code)
        if names is None:
            if code.co_name not in COMPARISONS:
                return
            names = {*TRUTH}
        if type(value) in self.quiet or suspended != bool(code.co_flags & inspect.CO_GENERATOR):
            return
        if code.co_name == "__iter__" and not suspended:
            self.elements_used(value, tuple(sorted(names)))
        else:
            self.use_object(value, tuple(sorted(names)))
