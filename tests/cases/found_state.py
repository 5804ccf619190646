"""Programs that came out wrong: attributes that C code reads for a copy, or through their descriptors."""

import copy

from soundness import keep


class Slots:
    """Two attributes in slots, another one in a dictionary where there is one."""

    __slots__ = ("first", "second")

    def __init__(self, number):
        self.first, self.second = number, [number]


class Both(Slots):
    """Slots and a dictionary."""

    def __init__(self, number):
        super().__init__(number)
        self.third = number


def _on_objects(c, function):
    for kind in (Slots, Both):
        compiled = c(function)
        for number in (0, 0, 1, 1, 2, 2, 3):
            yield compiled(kind(number))


@keep
def slots_are_copied(c):
    yield from _on_objects(c, lambda obj: copy.copy(obj).first)
    yield from _on_objects(c, lambda obj: copy.copy(obj).second)


@keep
def state_is_read(c):
    yield from _on_objects(c, lambda obj: obj.__getstate__())
    yield from _on_objects(c, lambda obj: object.__getstate__(obj))
    yield from _on_objects(c, lambda obj: obj.__reduce_ex__(2)[2])
    yield from _on_objects(c, lambda obj: super(type(obj), obj).__reduce_ex__(2)[2])


@keep
def slots_are_read_through_their_descriptors(c):
    yield from _on_objects(c, lambda obj: Slots.first.__get__(obj))
    yield from _on_objects(c, lambda obj: (Slots.second.__get__(obj, Slots).append(7), obj.second))
    yield from _on_objects(c, lambda obj: list(map(Slots.first.__get__, [obj])))
