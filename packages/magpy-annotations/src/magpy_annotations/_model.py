"""What one operation does to the objects that it gets: the whole idea in one module.

Code written in C shows nothing of what it does, so MagPy is told. An :class:`Annotation` states the six properties of
the paper's section 5.2: AsOpNode and PureClosure for the operation, ValueRead and InPlace for each input, Relation and
InPlace for the output. It never says *how* the operation computes; the operation itself always runs natively.

An annotation is a promise with one direction. It may claim more than the operation does (a deeper read, an update
that does not always happen): that costs guards or coverage. It must never claim less: a read or an update that is left
out, or an output called ``NEW`` that is reachable from elsewhere, gives a silently wrong program. What Python code does
that the operation calls back into is not part of the promise, because its frames are monitored on their own.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass


class AnnotationError(Exception):
    """An annotation that is not well formed."""


class DuplicateAnnotationError(AnnotationError):
    """A second annotation for a target that already has one."""


class Read(enum.Enum):
    """How much of an input the operation reads, each level including the ones above it.

    A scalar (a number, a text, bytes, a singleton) is read as a whole from LENGTH on. Of an array, a bytearray or a
    memoryview the items are values, so that ITEMS is as much as DEEP; LENGTH is what describes it without its contents.
    Of a tensor ITEMS is the reference alone. A DEEP read of a node of the graph stops at tensors, whose data it takes.
    """

    NONE = "none"  # the reference is only moved or compared by identity
    TYPE = "type"  # its type
    LENGTH = "length"  # how many items it holds
    KEY = "key"  # whether `Output.key` is present, and, where the relation is ITEM, the item there
    ITEMS = "items"  # every reference held (items; keys and values; attributes), in order, scalars by their value
    DEEP = "deep"  # everything reachable, by value; for a class, a function or a module: which one it is


class Relation(enum.Enum):
    """Where the output of an operation comes from."""

    NEW = "new"  # a fresh object made from what was read; with `of`, or that input itself (seen by its identity)
    CONSTANT = "constant"  # a value determined by what was read: scalars, types, singletons
    SAME = "same"  # the input `of` itself
    ITEM = "item"  # the item at `key` of the input `of`, or the input `default`; a slice as key gives a NEW sequence
    ATTRIBUTE = "attribute"  # the attribute `key` of the input `of`, or the input `default`
    ELEMENT = "element"  # some item of the input `of` (for the variadic input: one of them), or the input `default`
    DELEGATED = (
        "delegated"  # what the special method gives that was called (`Input.operators`); a NEW object if none was
    )
    UNKNOWN = "unknown"  # any object reachable from the inputs, or from what the called inputs return


class OpKind(enum.Enum):
    """What a torch function is to the operator graph."""

    OPERATOR = "operator"  # a node that makes new tensors, or views
    INPLACE = "inplace"  # a node that mutates its first argument (or its `out`)
    METADATA = "metadata"  # gives what is fixed by tensor metadata: sizes, strides, dtype, flags
    VALUE = "value"  # hands Python values that were read from tensor data
    DYNAMIC_SHAPE = "dynamic_shape"  # a tensor whose shape depends on tensor data
    SETTER = "setter"  # writes an attribute of a tensor
    STATE = "state"  # reads or changes a mode of torch
    IMPURE = "impure"  # never in a graph: addresses, storages, hooks, autograd, registration


@dataclass(frozen=True, slots=True, kw_only=True)
class OpNode:
    """AsOpNode: the operation is (or is not) a node of the operator graph.

    Attributes:
        kind: What the operation is to the graph.
        random: Whether it draws from a random generator. Such a node keeps its place in the order of draws.
        mutates: Names of the arguments that it may update besides what `kind` says, as ``running_mean`` of batch norm.
        why: One phrase that says what put it in its class, for dumps and `explain`.
    """

    kind: OpKind
    random: bool = False
    mutates: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the operation does to one of its inputs.

    Attributes:
        name: The parameter's name; it must be the real one where the operation takes it as a keyword.
        value_read: ValueRead, how much of it is read.
        in_place: InPlace, whether it is updated.
        called: Whether the operation calls it, now or later. A Python callable is monitored. A C callable has to be
            annotated itself, with no input in place and a true PureClosure; it gets other inputs, or items of them, and
            reads those as its own annotation says. A torch function that is called reports itself.
        iterated: Whether `iter` is called on it and the outcome drained, now or later. An *iterator* that is passed
            here is therefore updated in place, although a container is not. What cannot be iterated is not read.
        hashed: Whether it is used as a key (where `value_read` is ITEMS: its items are). Of all that can be read of a
            key, only its hash and its equality matter: with ``object.__hash__`` which object it is, not where.
        alike: Whether it is read only when its type is one that ``self`` operates with: for numbers any builtin number,
            else ``self``'s own type and its subtypes. Of any other object only the type is read.
        operators: Special methods that the operation calls on the input itself, in this order until one answers. One
            that is C code brings its own annotation: for the input, and for those that are passed on to it, that one
            holds in the place of `value_read` and adds what is updated. One that is Python is monitored, and the
            operation itself has read but the type. Where the type has none of them, `value_read` holds.
        element_operators: Special methods that it calls on each item, to be treated in the same way.
        optional: Whether a call may leave it out.
        keyword_only: Whether it is only taken by name.
    """

    name: str
    value_read: Read = Read.DEEP
    in_place: bool = False
    called: bool = False
    iterated: bool = False
    hashed: bool = False
    alike: bool = False
    operators: tuple[str, ...] = ()
    element_operators: tuple[str, ...] = ()
    optional: bool = False
    keyword_only: bool = False

    @property
    def alone(self) -> Read:
        """What to take as read by who does not follow `operators` and `element_operators`: all, if there are any."""
        return Read.DEEP if self.operators or self.element_operators else self.value_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where the operation's output comes from.

    Attributes:
        relation: How it relates to the inputs.
        of: The input that `relation` speaks of.
        key: For ITEM and ATTRIBUTE, and for an input read as KEY: the name of the input that is the key, or else the
            key itself (an index, or a name that no input has).
        default: The input that the output is instead when there is no such item or attribute.
        in_place: Whether the output is an input that was updated in place, as in ``list.__iadd__``.
    """

    relation: Relation = Relation.NEW
    of: str | None = None
    key: str | int | None = None
    default: str | None = None
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """What one operation does.

    Attributes:
        target: Where the operation is found, as ``builtins.list.append``. A descriptor's annotation describes reading
            the attribute.
        inputs: The inputs, in order, a method's ``self`` first.
        rest: What holds for each further positional argument (``*args``).
        keywords: What holds for each further keyword argument (``**kwargs``).
        output: Where the output comes from.
        as_op_node: AsOpNode, for what is a torch function.
        pure_closure: PureClosure. False for what depends on more than its inputs (clocks, randomness, addresses, files,
            the caller's frame), or does more than update them.
        effect: Whether it does something outside its inputs that the program does not see and that has to be done again
            each time, as a warning is. The call with its arguments is replayed.
        overloads: Other forms of the same operation, told apart by how many arguments a call passes.
        owner: Who registered the annotation.
        optional: Whether the target may be missing on a supported version.
        note: Anything a reader should know.
    """

    target: str
    inputs: tuple[Input, ...] = ()
    rest: Input | None = None
    keywords: Input | None = None
    output: Output = Output()
    as_op_node: OpNode | None = None
    pure_closure: bool = True
    effect: bool = False
    overloads: tuple[Annotation, ...] = ()
    owner: str = ""
    optional: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        """Refuses what contradicts itself.

        Raises:
            AnnotationError: With every error found, one a line.
        """
        errors = problems(self)
        if errors:
            raise AnnotationError("\n".join(f"{self.target}: {error}" for error in errors))

    @property
    def mutates(self) -> bool:
        """Whether any input may be updated in place, an iterator that is drained aside."""
        return any(each.in_place for each in self.all_inputs())

    def all_inputs(self) -> tuple[Input, ...]:
        """The named inputs, then the variadic ones."""
        return self.inputs + tuple(each for each in (self.rest, self.keywords) if each is not None)

    def bind(self, positional: int, keywords: Collection[str] = ()) -> tuple[Input, ...] | None:
        """Says which input each argument of a call is.

        Args:
            positional: How many positional arguments the call passes.
            keywords: The names of its keyword arguments, in order.

        Returns:
            One input for each argument, keywords last; None when this form of the operation is not what is called.
        """
        places = [each for each in self.inputs if not each.keyword_only]
        bound = places[:positional]
        surplus = positional - len(bound)
        if surplus and self.rest is None:
            return None
        bound += [self.rest] * surplus if self.rest is not None else []
        by_name = {each.name: each for each in self.inputs}
        given = {each.name for each in places[:positional]}
        for name in keywords:
            named = by_name.get(name, self.keywords) if name not in given else self.keywords
            if named is None:
                return None
            given.add(name)
            bound.append(named)
        if any(not each.optional and each.name not in given for each in self.inputs):
            return None
        return tuple(bound)

    def for_call(self, positional: int, keywords: Collection[str] = ()) -> Annotation | None:
        """The form of the operation that a call uses, or None when no form fits."""
        for form in (self, *self.overloads):
            if form.bind(positional, keywords) is not None:
                return form
        return None


_OF = {Relation.SAME, Relation.ITEM, Relation.ATTRIBUTE, Relation.ELEMENT}


def problems(annotation: Annotation) -> list[str]:
    """All that makes an annotation contradict itself; empty when it is well formed."""
    found: list[str] = []
    inputs = annotation.all_inputs()
    names = [each.name for each in inputs]
    output = annotation.output
    found += [f"two inputs are named {name!r}" for name in sorted({n for n in names if names.count(n) > 1})]
    if not annotation.target or any(not part for part in annotation.target.split(".")):
        found.append("the target is not a dotted path")
    if output.relation in _OF and output.of is None:
        found.append(f"the relation {output.relation.value} needs an input")
    if output.relation not in _OF | {Relation.NEW} and output.of is not None:
        found.append(f"the relation {output.relation.value} speaks of no input")
    for role, name in (("of", output.of), ("default", output.default)):
        if name is not None and name not in names:
            found.append(f"the output's {role} {name!r} is no input")
    if output.relation in {Relation.ITEM, Relation.ATTRIBUTE} and output.key is None:
        found.append(f"the relation {output.relation.value} needs a key")
    if any(each.value_read is Read.KEY for each in inputs) and output.key is None:
        found.append("an input is read at a key, and the output names none")
    if output.in_place and output.relation is not Relation.DELEGATED:
        updated = {each.name for each in inputs if each.in_place}
        if output.relation is not Relation.SAME or output.of not in updated:
            found.append("an output in place is an input that is updated")
    if output.relation is Relation.DELEGATED and not any(each.operators or each.element_operators for each in inputs):
        found.append("a delegated output needs an input with operators")
    for variadic in (annotation.rest, annotation.keywords):
        if variadic is not None and variadic.optional:
            found.append(f"the variadic input {variadic.name!r} is always optional")
    places = [each for each in annotation.inputs if not each.keyword_only]
    if any(a.optional and not b.optional for a, b in zip(places, places[1:], strict=False)):
        found.append("an input without default follows one with")
    found += [
        f"the form {form.target!r} is another operation"
        for form in annotation.overloads
        if form.target != annotation.target
    ]
    found += ["a form has forms of its own" for form in annotation.overloads if form.overloads]
    return found
