"""Who has annotated what: annotations by target, and by the identity of the live callable."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, Protocol

from magpy_annotations._model import Annotation, DuplicateAnnotationError, OpNode
from magpy_annotations._targets import UnknownTargetError, module_of, resolve, type_member, unbind

ENTRY_POINTS = "magpy.annotations"

Source = Callable[[], Iterable[Annotation]]

_ITSELF = (
    FunctionType,
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    ClassMethodDescriptorType,
    MethodWrapperType,
    type,
)
"""Types whose `__call__` only runs the callable itself: what it does is not said by that method's annotation."""


class Operators(Protocol):
    """Who knows what functions are to the operator graph."""

    def __call__(self, func: Any) -> OpNode | None:
        """The class of a function, or None when it is unknown."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode | None:
        """The class of one call of it."""


class Registry:
    """The annotations known to one monitor.

    Targets are resolved when their module is in ``sys.modules``, and not before: an annotation never imports anything.
    """

    def __init__(self) -> None:
        self._annotations: dict[str, Annotation] = {}
        self._by_id: dict[int, tuple[Any, Annotation]] = {}  # the callable is held, so that its id stays its own
        self._aliases: dict[str, str] = {}
        self._pending: dict[str, Annotation] = {}
        self._sources: dict[str, list[Source]] = {}
        self._families: dict[type, Callable[[Any], Annotation | None]] = {}
        self._operators: list[Operators] = []
        self._conflicts: list[str] = []
        self._modules_seen = -1

    def add(self, annotation: Annotation) -> None:
        """Registers one annotation.

        Raises:
            DuplicateAnnotationError: When its target is annotated, saying by whom.
        """
        other = self._annotations.get(annotation.target)
        if other is not None:
            raise DuplicateAnnotationError(
                f"{annotation.target} is annotated by {other.owner or 'nobody named'}, "
                f"and again by {annotation.owner or 'nobody named'}"
            )
        self._annotations[annotation.target] = annotation
        self._pending[annotation.target] = annotation
        self._modules_seen = -1

    def add_source(self, module: str, source: Source) -> None:
        """Registers annotations that are made once `module` has been imported.

        Args:
            module: The module that the annotations speak of.
            source: Gives the annotations; called at most once. A duplicate among them is refused, and kept in
                :meth:`conflicts` rather than raised, since it may come to light in the middle of somebody's program.
        """
        self._sources.setdefault(module, []).append(source)
        self._modules_seen = -1

    def add_family(self, tp: type, annotate: Callable[[Any], Annotation | None]) -> None:
        """Registers who annotates the callables of one type, which are made at run time and have no target each.

        Args:
            tp: The exact type of the callables.
            annotate: Gives the annotation of one of them; asked once for each.
        """
        self._families[tp] = annotate

    def add_operators(self, operators: Operators) -> None:
        """Registers who answers :meth:`operator`; the first answer that is not None holds."""
        self._operators.append(operators)

    def lookup(self, callable_: Any) -> Annotation | None:
        """The annotation of a live callable or descriptor; None when it has none.

        Bound callables have no annotation of their own: see `unbind`.
        """
        known = self._by_id.get(id(callable_))
        if known is not None:
            return known[1]
        if self._settle():
            known = self._by_id.get(id(callable_))
            if known is not None:
                return known[1]
        family = self._families.get(type(callable_))
        annotation = None if family is None else family(callable_)
        if annotation is not None:
            self._by_id[id(callable_)] = callable_, annotation
        return annotation

    def special(self, tp: type, name: str) -> tuple[Any, Annotation | None]:
        """The special method that `tp` has under `name` (None when it has none), and its annotation."""
        found = type_member(tp, name)
        return found, None if found is None else self.lookup(found)

    def operator(self, func: Any) -> OpNode | None:
        """What a torch function is to the graph, for the `func` that a ``TorchFunctionMode`` receives.

        Returns:
            None for what nobody knows, and for functions that are Python.
        """
        for operators in self._operators:
            node = operators(func)
            if node is not None:
                return node
        return None

    def operator_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpNode | None:
        """What one call of a torch function is to the graph: :meth:`operator`, as the arguments decide it.

        Indexing with a mask has a dynamic shape, an ``out`` makes an operator one in place, a tensor that is passed
        where a number is wanted is read.
        """
        for operators in self._operators:
            node = operators.call(func, args, kwargs)
            if node is not None:
                return node
        return None

    def find(self, callable_: Any) -> tuple[Annotation | None, tuple[Any, ...]]:
        """The annotation that a call of `callable_` goes by, and the arguments to put in front of the call's own.

        Looks at the callable itself, at what it is bound to, and at the ``__call__`` of its type.
        """
        found = self.lookup(callable_)
        if found is not None:
            return found, ()
        unbound, front = unbind(callable_)
        if unbound is not callable_:
            return self.lookup(unbound), front
        if isinstance(callable_, _ITSELF):
            return None, ()
        return self.special(type(callable_), "__call__")[1], (callable_,)

    def targets(self) -> tuple[str, ...]:
        """All annotated targets whose module is imported, sorted."""
        self._settle()
        return tuple(sorted(self._annotations))

    def annotation(self, target: str) -> Annotation:
        """The annotation made out to `target`.

        Raises:
            KeyError: When there is none.
        """
        self._settle()
        return self._annotations[target]

    def resolve(self, target: str) -> Any:
        """The live object that `target` names.

        Raises:
            UnknownTargetError: When there is none.
        """
        return resolve(target)

    def owner_of(self, target: str) -> str:
        """Who registered the annotation of `target`."""
        return self.annotation(target).owner

    def aliases(self) -> dict[str, str]:
        """Targets that name an object which another target named first, each with that target."""
        self._settle()
        return dict(self._aliases)

    def conflicts(self) -> tuple[str, ...]:
        """What was refused of the sources because its target was annotated before."""
        self._settle()
        return tuple(self._conflicts)

    def unresolved(self) -> tuple[str, ...]:
        """Targets whose module is imported and that name nothing on this interpreter, optional ones aside."""
        self._settle()
        return tuple(sorted(t for t, each in self._pending.items() if not each.optional and module_of(t) is not None))

    def waiting(self) -> tuple[str, ...]:
        """Modules that annotations wait for, since nobody has imported them yet, sorted."""
        self._settle()
        return tuple(sorted(self._sources))

    def load_entry_points(self, group: str = ENTRY_POINTS) -> tuple[str, ...]:
        """Lets installed packages register: each entry point is a function that takes the registry.

        Returns:
            The names of the entry points that were called.
        """
        found = sorted(importlib.metadata.entry_points(group=group), key=lambda each: each.name)
        for entry_point in found:
            entry_point.load()(self)
        return tuple(each.name for each in found)

    def __iter__(self) -> Iterator[Annotation]:
        self._settle()
        return iter([self._annotations[target] for target in sorted(self._annotations)])

    def __len__(self) -> int:
        self._settle()
        return len(self._annotations)

    def _settle(self) -> bool:
        """Resolves what can be resolved now; False when nothing was imported since the last time."""
        if len(sys.modules) == self._modules_seen:
            return False
        self._modules_seen = len(sys.modules)
        for module in [name for name in self._sources if name in sys.modules]:
            for source in self._sources.pop(module):
                for annotation in source():
                    try:
                        self.add(annotation)
                    except DuplicateAnnotationError as error:
                        self._conflicts.append(str(error))
        self._modules_seen = len(sys.modules)
        for target, annotation in list(self._pending.items()):
            try:
                live = resolve(target)
            except UnknownTargetError:
                continue
            del self._pending[target]
            first = self._by_id.setdefault(id(live), (live, annotation))[1]
            if first is not annotation:
                self._aliases[target] = first.target
        return True
