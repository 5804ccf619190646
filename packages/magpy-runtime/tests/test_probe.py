"""Questions about objects that run none of the user's code."""

import enum
import sys
import types

import pytest

from magpy_runtime.capture import (
    NULL,
    dict_version,
    has_instance_dict,
    instance_dict,
    put_in_tuple,
    super_lookup,
    type_lookup,
    type_version,
)


class Meta(type):
    def __getattribute__(cls, name):
        raise AssertionError("user code ran")


class Descriptor:
    def __get__(self, instance, owner):
        raise AssertionError("user code ran")


class Base(metaclass=Meta):
    shared = Descriptor()
    both = "base"

    def __getattribute__(self, name):
        raise AssertionError("user code ran")


class Derived(Base):
    both = "derived"
    own = 1


class Slotted:
    __slots__ = ("a",)


class WeakSlotted:
    __slots__ = ("__weakref__",)


def test_type_lookup():
    assert type_lookup(Derived, "both") == "derived"
    assert type(type_lookup(Derived, "shared")) is Descriptor
    assert type_lookup(Derived, "missing") is NULL
    assert type_lookup(Derived, "__hash__") is object.__dict__["__hash__"]
    assert type_lookup(list, "append") is list.__dict__["append"]
    assert type_lookup(type, "mro") is type.__dict__["mro"]
    for bad in ((Derived,), (1, "a"), (Derived, 1), (Derived, "a", "b")):
        with pytest.raises(TypeError):
            type_lookup(*bad)


def test_super_lookup():
    assert super_lookup(Derived, Derived, "both") == "base"
    assert super_lookup(Derived, Base, "both") is NULL
    assert super_lookup(Derived, Base, "__init__") is object.__dict__["__init__"]
    assert super_lookup(Derived, object, "__init__") is NULL
    assert super_lookup(Base, Derived, "both") is NULL
    assert super_lookup(bool, bool, "real") is int.__dict__["real"]
    with pytest.raises(TypeError):
        super_lookup(Derived, "x", "both")


def test_instance_dict_is_the_real_one():
    derived = Derived()
    names = instance_dict(derived)
    assert names == {} and type(names) is dict
    object.__setattr__(derived, "x", 1)
    assert instance_dict(derived) == {"x": 1}
    assert instance_dict(derived) is object.__getattribute__(derived, "__dict__")
    names["y"] = 2
    assert object.__getattribute__(derived, "y") == 2


def test_instance_dict_of_objects_of_all_kinds():
    def function():
        pass

    function.a = 1
    assert instance_dict(function) is function.__dict__
    assert instance_dict(sys) is sys.__dict__
    assert instance_dict(ValueError()) == {}
    for none in (1, "a", [], None, Slotted(), WeakSlotted(), object(), len, (1,), NULL):
        assert instance_dict(none) is None
        assert not has_instance_dict(none)
    for some in (Derived(), function, sys, ValueError(), types.SimpleNamespace(), enum.Enum("E", "A").A):
        assert has_instance_dict(some)

    class IntWithDict(int):
        pass

    n = IntWithDict(10**30)
    n.a = 1
    assert has_instance_dict(n) and instance_dict(n) == {"a": 1}

    class TupleWithDict(tuple):
        pass

    t = TupleWithDict((1, 2, 3))
    t.a = 1
    assert instance_dict(t) == {"a": 1} and instance_dict(TupleWithDict()) == {}


def test_instance_dict_of_types_is_the_namespace():
    class C:
        a = 1

    assert instance_dict(C)["a"] == 1 and type(instance_dict(C)) is dict
    assert instance_dict(int)["real"] is int.__dict__["real"]
    assert has_instance_dict(C)


def test_type_version():
    class C:
        x = 1

    type_lookup(C, "x")
    version = type_version(C)
    assert version > 0 and type_version(C) == version
    C.x = 2
    assert type_version(C) != version
    type_lookup(C, "x")
    assert type_version(C) not in (0, version)
    with pytest.raises(TypeError):
        type_version(1)


def test_dict_version():
    names = {"a": 1}
    version = dict_version(names)
    if sys.version_info >= (3, 12):
        assert version == 0
    else:
        assert version > 0 and dict_version(names) == version
        names["a"] = 2
        assert dict_version(names) != version
    with pytest.raises(TypeError):
        dict_version([])


def test_references():
    derived = Derived()
    thing = object()
    object.__setattr__(derived, "thing", thing)
    before = sys.getrefcount(thing), sys.getrefcount(instance_dict(derived)), sys.getrefcount(NULL)
    for _ in range(1000):
        type_lookup(Derived, "both"), super_lookup(Derived, Base, "nothing"), instance_dict(derived), instance_dict(1)
        instance_dict(Derived), has_instance_dict(derived), type_version(Derived)
    assert (sys.getrefcount(thing), sys.getrefcount(instance_dict(derived)), sys.getrefcount(NULL)) == before


def test_put_in_tuple():
    first, second = (float("1.5") for _ in range(2))
    pair = (first, first)
    put_in_tuple(pair, 1, second)
    assert pair[0] is first
    assert pair[1] is second
    with pytest.raises(IndexError):
        put_in_tuple(pair, 2, second)
    with pytest.raises(TypeError):
        put_in_tuple([first], 0, second)
