"""Update rules for attributes: what a lookup, a store or a deletion reads and changes, without running any of it."""

from __future__ import annotations

import collections
import types
from typing import Any, Final

from magpy_refgraph import Atom, EdgeKind, Effect, Key, Node
from magpy_runtime.capture import NULL, instance_dict, type_lookup

from ._describe import describe
from ._state import State, is_atom, is_mutable_type

_TUPLE_GETTER: Final = type(collections.namedtuple("_P", "x").x)  # type: ignore[attr-defined]
_C_MEMBERS: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_WRAPPERS: Final = (staticmethod, classmethod)
_CONTEXT: Final = vars(BaseException)["__context__"]


SKIP: Final = object()
"""What a rule gives for a call of which nothing is to be watched."""


class Pending:
    """An effect that is recorded once its operation has succeeded."""

    __slots__ = ("args", "before", "changes", "function", "key", "keywords", "node", "versioned")

    def __init__(
        self,
        node: Node,
        function: Any,
        args: tuple[Any, ...],
        keywords: dict[str, Any] | None = None,
        key: Key | None = None,
        value: Any = NULL,
        versioned: Node | None = None,
    ) -> None:
        self.node = node
        self.function = function
        self.args = args
        self.keywords = keywords or {}
        self.key = key
        self.changes = value
        self.versioned = versioned
        self.before = -1


class AttributeRules(State):
    """Rules for attribute access."""

    def load_attribute(self, inputs: tuple[Any, ...], name: str) -> None:
        """Before `obj.name` is evaluated: note everything that the lookup will read."""
        self.attribute(inputs[0], name)

    def attribute(self, obj: Any, name: str) -> bool:
        """Note what looking `name` up on `obj` reads. Gives whether the lookup ends without calling Python code."""
        tp = type(obj)
        info = self.infos.get(tp) or self.info(tp)
        if info.atom:
            return True
        how = info.getattribute
        if how == "generic":
            return self.generic_attribute(obj, name)
        if how == "module":
            return self.module_attribute(obj, name)
        if how == "type":
            return self.type_attribute(obj, name)
        if how == "super":
            return self.super_attribute(obj, name)
        if how == "method":
            return self.method_attribute(obj, name)
        if how == "python":
            return False
        raise self.boundary("opaque-object", f"attribute {name!r} of a {tp.__qualname__}")

    def generic_attribute(self, obj: Any, name: str) -> bool:
        """`object.__getattribute__`: data descriptor, instance dictionary, class attribute, `__getattr__`."""
        tp = type(obj)
        info = self.infos.get(tp) or self.info(tp)
        found = self.lookup(tp, name) if info.mutable else type_lookup(tp, name)
        node = self.find(obj)
        external = node is not None and node.external
        if found is not NULL and self.is_data_descriptor(found):
            return self.data_descriptor(obj, node if external else None, name, found)
        if info.has_dict:
            if external and node is not None:
                attributes = self.dictionary(node, obj)
                if attributes is not None:
                    self.read_item(attributes[0], attributes[1], name)
                    if name in attributes[1]:
                        return True
            else:
                attributes_ = instance_dict(obj)
                if attributes_ is not None and name in attributes_:
                    return True
        if found is not NULL:
            return self.bind(found, obj)
        if info.mutable:
            return self.lookup(tp, "__getattr__") is NULL
        return True

    def is_data_descriptor(self, found: Any) -> bool:
        """Whether a class attribute takes precedence over the instance dictionary."""
        kind = type(found)
        if kind is types.FunctionType:
            return False
        if kind in _C_MEMBERS or kind is property:
            return True
        return self.lookup(kind, "__set__") is not NULL or self.lookup(kind, "__delete__") is not NULL

    def data_descriptor(self, obj: Any, node: Node | None, name: str, found: Any) -> bool:
        """A data descriptor answers; `node` is the external object's, or None."""
        kind = type(found)
        if kind is property:
            return self.accessor(found, "fget", (obj,))
        if kind in _C_MEMBERS:
            if node is not None:
                self.member(node, obj, name, found)
            elif found is _CONTEXT and _CONTEXT.__get__(obj) is self.outer:
                raise self.boundary("impure-call", "the context of an exception may be what the caller handles")
            return True
        if kind is _TUPLE_GETTER:
            if node is not None:
                self.read_items(node, obj)
            return True
        return self.python_descriptor(found, "__get__")

    def accessor(self, found: property, part: str, args: tuple[Any, ...]) -> bool:
        """A property's getter, setter or deleter is called. Gives whether C code answers, without Python's."""
        function = getattr(found, part)
        node = self.find(found)
        if function is not None and node is not None and node.external:
            self.follow(node, Key(EdgeKind.MEMBER, part), function)
        if function is None:
            return True
        if self.callable_facts(function):
            return False
        if self.call(function, args, {}) is not None:
            raise self.boundary("unannotated-call", f"a property of {type(function).__qualname__}")
        return not self.runs_python(function)

    def python_descriptor(self, found: Any, name: str) -> bool:
        """A descriptor whose class says how it is read."""
        kind = type(found)
        getter = self.lookup(kind, name)
        if isinstance(getter, types.FunctionType):
            return False
        if getter is NULL:
            return True
        raise self.boundary("opaque-object", f"a {kind.__qualname__} descriptor")

    def member(self, node: Node, obj: Any, name: str, found: Any) -> None:
        """A C member or getter of an external object was read."""
        if name == "__dict__":
            self.dictionary(node, obj)
            return
        if name == "__class__" or self.info(type(obj)).tensor:
            return
        try:
            value = found.__get__(obj, type(obj))
            again = found.__get__(obj, type(obj))
        except AttributeError:
            value = again = NULL
        if value is not again and not is_atom(value):
            # A getter that makes its answer anew: the program's will be another object than this one.
            if type(value) is not tuple or not all(map(is_atom, value)):
                raise self.boundary("opaque-object", f"attribute {name!r} of a {type(obj).__qualname__}")
            self.graph.read(node, Key(EdgeKind.MEMBER, name), Atom(value), self.where())
            return
        self.follow(node, Key(EdgeKind.MEMBER, name), value)

    def bind(self, found: Any, obj: Any) -> bool:
        """A class attribute that is no data descriptor answers, bound to the instance if it is a function."""
        kind = type(found)
        if kind is types.FunctionType or is_atom(found):
            return True
        if kind in _WRAPPERS:
            node = self.find(found)
            if node is not None and node.external:
                self.follow(node, Key(EdgeKind.MEMBER, "__func__"), found.__func__)
            return True
        if isinstance(found, type) or self.lookup(kind, "__get__") is NULL:
            return True
        return self.python_descriptor(found, "__get__") if self.info(kind).mutable else True

    def module_attribute(self, obj: Any, name: str) -> bool:
        """`ModuleType.__getattribute__`: like the generic one, then the module's own `__getattr__`."""
        if not self.generic_attribute(obj, name):
            return False
        attributes = instance_dict(obj)
        if attributes is not None and name not in attributes and type_lookup(type(obj), name) is NULL:
            node = self.find(obj)
            if node is not None and node.external:
                found = self.dictionary(node, obj)
                if found is not None:
                    self.read_item(found[0], found[1], "__getattr__")
            return "__getattr__" not in attributes
        return True

    def type_attribute(self, obj: type, name: str) -> bool:
        """`type.__getattribute__`: the metaclass's data descriptors, the class's MRO, the metaclass."""
        meta = type(obj)
        found = self.lookup(meta, name) if meta is not type else type_lookup(meta, name)
        if found is not NULL and self.is_data_descriptor(found):
            if type(found) in _C_MEMBERS:
                self.class_member(obj, name)
                return True
            return self.data_descriptor(obj, self.pin(obj), name, found)
        own = self.lookup(obj, name)
        if own is not NULL:
            return self.bind(own, obj)
        if found is not NULL:
            return self.bind(found, obj)
        return meta is type or self.lookup(meta, "__getattr__") is NULL

    def class_member(self, obj: type, name: str) -> None:
        """A member of a class that `type` itself keeps: its name, bases, annotations."""
        if not is_mutable_type(obj):
            return
        if name in ("__mro__", "__bases__", "__base__"):
            self.mro(obj)
        elif name == "__dict__":
            namespace = instance_dict(obj)
            if namespace is None or self.written_class_names:
                raise self.boundary("opaque-object", f"the namespace of class {obj.__qualname__}")
            self.read_items(self.pin(namespace), namespace)
        elif name != "__class__":
            self.follow(self.pin(obj), Key(EdgeKind.MEMBER, name), getattr(obj, name, NULL))

    def super_attribute(self, obj: Any, name: str) -> bool:
        """`super.__getattribute__`: the MRO of the object's class behind the given one."""
        owner: Any = obj.__self_class__
        if owner is None:
            raise self.boundary("opaque-object", "an unbound super object")
        found = self.super_lookup(owner, obj.__thisclass__, name)
        if found is NULL:
            return True
        instance = obj.__self__
        if type(found) is property or self.is_data_descriptor(found):
            node = self.find(instance)
            return self.data_descriptor(instance, node if node is not None and node.external else None, name, found)
        return self.bind(found, instance)

    def method_attribute(self, obj: types.MethodType, name: str) -> bool:
        """A bound method's own members, else its function's attributes."""
        node = self.find(obj)
        found = type_lookup(types.MethodType, name)
        if found is NULL:
            return self.attribute(obj.__func__, name)
        if node is not None and node.external and type(found) in _C_MEMBERS:
            self.member(node, obj, name, found)
        return True

    # -- stores -------------------------------------------------------------------------------------------------------

    def store_attribute(self, inputs: tuple[Any, ...], name: str) -> Pending | None:
        """Before `obj.name = value`; inputs are (value, obj)."""
        return self.set_attribute(inputs[1], name, inputs[0])

    def delete_attribute(self, inputs: tuple[Any, ...], name: str) -> Pending | None:
        """Before `del obj.name`."""
        return self.set_attribute(inputs[0], name, NULL)

    def set_attribute(self, obj: Any, name: str, value: Any) -> Pending | None:
        """Note what setting (or, with NULL, deleting) an attribute reads; gives the effect to record afterwards."""
        tp = type(obj)
        info = self.info(tp)
        setter = self.lookup(tp, "__delattr__" if value is NULL else "__setattr__")
        if isinstance(setter, types.FunctionType):
            return None
        if issubclass(type(obj), type):
            return self.set_class_attribute(obj, name, value)
        if type(setter) is not types.WrapperDescriptorType:
            raise self.boundary("opaque-object", f"setting {name!r} of a {tp.__qualname__}")
        if setter.__objclass__ not in (object, types.ModuleType) and not info.tensor:
            node = self.find(obj)
            if node is None or not node.external:
                return None
            raise self.boundary("opaque-object", f"setting {name!r} of a {tp.__qualname__}")
        return self.generic_store(obj, name, value)

    def generic_store(self, obj: Any, name: str, value: Any) -> Pending | None:
        """`object.__setattr__` and `object.__delattr__`."""
        tp = type(obj)
        info = self.info(tp)
        found = self.lookup(tp, name)
        node = self.find(obj)
        external = node is not None and node.external
        function = object.__delattr__ if value is NULL else object.__setattr__
        args = (name,) if value is NULL else (name, value)
        if found is not NULL and self.is_data_descriptor(found):
            kind = type(found)
            if kind is property:
                if value is NULL:
                    self.accessor(found, "fdel", (obj,))
                else:
                    self.accessor(found, "fset", (obj, value))
                return None
            if kind is types.MemberDescriptorType:
                if not external or node is None:
                    return None
                key = Key(EdgeKind.MEMBER, name)
                if value is NULL:
                    self.member(node, obj, name, found)
                return self.announced(node, function, args, key=key, value=value)
            if kind is types.GetSetDescriptorType:
                if info.tensor:
                    return None  # torch's function mode reports it
                if external or name in ("__class__", "__dict__"):
                    raise self.boundary("opaque-object", f"setting {name!r} of a {tp.__qualname__}")
                return None
            self.python_descriptor(found, "__delete__" if value is NULL else "__set__")
            return None
        if not external or node is None:
            return None
        attributes = self.dictionary(node, obj)
        if attributes is None:
            return None  # raises AttributeError
        place, dictionary = attributes
        key = self.item_key(name)
        if value is NULL or place.index in self.complete or place.index in self.scrambled:
            self.read_item(place, dictionary, name)
        self.snapshot(place, dictionary)
        return self.announced(node, function, args, key=key, value=value, versioned=place)

    def set_class_attribute(self, obj: type, name: str, value: Any) -> Pending | None:
        """`type.__setattr__`: looks the metaclass up, then changes the class's dictionary."""
        found = self.lookup(type(obj), name)
        if found is not NULL and self.is_data_descriptor(found):
            raise self.boundary("opaque-object", f"setting {name!r} of class {obj.__qualname__}")
        node = self.find(obj)
        if node is None or not node.external:
            # A class made during the run; nothing outside can refer to it yet.
            self.forget(name)
            return None
        for other, seen in list(self.found):
            if seen == name and other is not obj and obj in other.__mro__:
                raise self.boundary("class-changed", f"{obj.__qualname__}.{name}")
        if value is NULL:
            self.lookup(obj, name)
        function = type.__delattr__ if value is NULL else type.__setattr__
        return self.announced(
            node, function, (name,) if value is NULL else (name, value), key=Key(EdgeKind.CLASS, name), value=value
        )

    def forget(self, name: str) -> None:
        """Look class attributes of this name up anew."""
        for key in [key for key in self.found if key[1] == name or (isinstance(key[1], tuple) and key[1][1] == name)]:
            del self.found[key]

    # -- effects ------------------------------------------------------------------------------------------------------

    def effect(self, state: Any, outputs: tuple[Any, ...] | None, arg: Any) -> None:
        """After an instruction: record the effect that `before` announced, unless it raised."""
        if state is None:
            return
        if outputs is None:
            if state.key is None:
                raise self.boundary("exception", f"{state.function.__qualname__} failed half way")
            return
        if 0 <= state.before < len(self.graph.effects):  # to replay both would run that code once more
            raise self.boundary("opaque-object", f"{describe(state.function)} calls Python code that changes something")
        self.record(state)

    def announced(self, *args: Any, **kwargs: Any) -> Pending:
        """An effect of the instruction that comes. See `Pending`."""
        pending = Pending(*args, **kwargs)
        pending.before = len(self.graph.effects)
        return pending

    def record(self, pending: Pending) -> None:
        """Add an effect to the graph, with the version that it makes."""
        graph = self.graph
        node = pending.node
        effect = Effect(graph.tick(), node, pending.function, pending.args, pending.keywords, self.where(), pending.key)
        versioned = pending.versioned or node
        if pending.key is None:
            self.scrambled.add(versioned.index)
            graph.write(effect, {}, versioned)
            return
        value = pending.changes
        if value is NULL or is_atom(value):
            target = self.target(versioned, pending.key, value)
        else:
            found = self.find(value)
            target = graph.add(value, weak=self.info(type(value)).tensor) if found is None else found
        graph.write(effect, {pending.key: target}, versioned)
        if pending.key.kind is EdgeKind.CLASS:
            self.forget(pending.key.arg)
            self.written_class_names.add(pending.key.arg)

    def callable_facts(self, function: Any) -> bool:
        """Note what calling `function` depends on; gives whether Python code will run. See `CallRules`."""
        raise NotImplementedError

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Before a call: note what it depends on. See `CallRules`."""
        raise NotImplementedError

    def runs_python(self, function: Any) -> bool:
        """Whether calling an object runs a Python function. See `CallRules`."""
        raise NotImplementedError
