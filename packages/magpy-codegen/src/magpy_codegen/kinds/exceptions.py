"""Exceptions: their arguments and attributes, what C code keeps in them, and for one that leaves the call its links."""

from __future__ import annotations

import types
from typing import Any

from magpy_codegen._mock import MockWriter, Unbuildable
from magpy_codegen._raising import handled, links, stubs

_HEAP = 1 << 9


def build_exception(writer: MockWriter, obj: BaseException) -> str:
    """An exception, by the `__new__` of its C base. One that has been raised is only built where it leaves the call."""
    from .instances import attributes_of, slots_of

    traceback, cause, context, suppressed = links(obj)
    leaves = writer.raised is not None and id(obj) in writer.raised.frames
    if not leaves and (traceback is not None or context is not None or cause is not None):
        raise Unbuildable(obj, "it has been raised")
    cls = type(obj)
    if issubclass(cls, BaseExceptionGroup):
        raise Unbuildable(obj)
    node = writer.graph.find(cls)
    if node is not None and not node.external:
        raise Unbuildable(obj, "its class was made during the run")
    constant = writer.namespace.constant
    base = next(each for each in cls.__mro__ if not each.__flags__ & _HEAP)
    members = _members(obj, base)
    items = ", ".join([writer.value(item) for item in vars(BaseException)["args"].__get__(obj)])
    if (found := writer.known(obj)) is not None:
        return found
    name = writer.fresh(obj)
    new = constant(base.__new__, f"new_{base.__name__}")
    writer.add(f"{name} = {new}({constant(cls, cls.__name__)}{', ' + items if items else ''})")
    if base is MemoryError and items:  # one that has been used before comes without arguments
        writer.add(f"{constant(vars(BaseException)['args'].__set__, 'set_args')}({name}, ({items},))")
    for member, value in members:
        writer.add(f"{constant(member.__set__, 'set_' + member.__name__)}({name}, {writer.value(value)})")
    attributes = attributes_of(obj)
    if attributes is not None:
        writer.attributes(name, obj, attributes, settable=True)
    for slot, value in slots_of(obj):
        writer.add(f"{constant(slot.__set__, 'set_' + slot.__name__)}({name}, {writer.value(value)})")
    if leaves:
        _link(writer, name, obj, traceback is not None, cause, context, suppressed)
    elif suppressed:
        writer.add(f"{name}.__suppress_context__ = True")
    return name


def _members(obj: BaseException, base: type) -> list[tuple[Any, Any]]:
    """What C code keeps in an exception besides its arguments."""
    found = []
    args = vars(BaseException)["args"].__get__(obj)
    try:
        probe = base.__new__(type(obj), *args)
    except Exception as error:
        raise Unbuildable(obj, str(error)) from error
    for cls in base.__mro__:
        if cls is BaseException:
            break
        for member in vars(cls).values():
            if type(member) is not types.MemberDescriptorType:
                continue
            try:
                value = member.__get__(obj, type(obj))
                if value is not member.__get__(probe, type(obj)):
                    member.__set__(probe, value)
                    found.append((member, value))
            except (AttributeError, TypeError) as error:
                raise Unbuildable(obj, f"{member.__name__} cannot be set") from error
    return found


def _link(
    writer: MockWriter, name: str, obj: BaseException, was_raised: bool, cause: Any, context: Any, suppressed: bool
) -> None:
    assert writer.raised is not None
    constant = writer.namespace.constant
    if cause is not None:
        writer.add(f"{name}.__cause__ = {writer.value(cause)}")
    if (cause is not None) is not suppressed:
        writer.add(f"{name}.__suppress_context__ = {suppressed}")
    if context is not None and context is not writer.raised.outer:
        writer.add(f"{name}.__context__ = {writer.value(context)}")
    elif was_raised:
        writer.add(f"{name}.__context__ = {constant(handled, 'handled')}()")
    frames = writer.raised.frames[id(obj)]
    if was_raised and frames:
        writer.add(f"{constant(stubs(frames), 'throw')}({name})")
