"""Programs that came out wrong: sets that are older than the call, read and changed by operators."""

import operator

from soundness import keep


class Holder:
    """What holds a set, a list and a dictionary, all of them older than the call."""

    def __init__(self, number):
        self.members = {number}
        self.items = [number]
        self.names = {"a": number}


def _on_holders(c, function):
    compiled = c(function)
    for number in (0, 0, 1, 1, 2, 2, 3):
        holder = Holder(number)
        yield compiled(holder), vars(holder)


@keep
def sets_are_read_by_operators(c):
    yield from _on_holders(c, lambda holder: holder.members | {3})
    yield from _on_holders(c, lambda holder: ({1, 2} - holder.members, holder.members & {1}, {1} ^ holder.members))
    yield from _on_holders(c, lambda holder: (holder.members == {1}, {1} >= holder.members, {1} != holder.members))
    yield from _on_holders(c, lambda holder: holder.members.union([3]))
    yield from _on_holders(c, lambda holder: ({1, 2}.difference(holder.members), holder.members.isdisjoint({1})))
    yield from _on_holders(c, lambda holder: (holder.members.add(9), holder.members | {3}))


@keep
def sets_are_changed_by_operators(c):
    def joined(holder):
        holder.members |= {8}

    def all_of_them(holder):
        holder.members |= {5, 11}
        holder.members &= {1, 5, 11}
        holder.members -= {11}
        holder.members ^= frozenset([7])

    def with_one_that_changes(holder):
        others = {4, 5}
        holder.members |= others
        others.add(6)
        return others

    def with_keys(holder):
        holder.members |= holder.names.keys()

    for function in (joined, all_of_them, with_one_that_changes, with_keys):
        yield from _on_holders(c, function)
    yield from _on_holders(c, lambda holder: holder.members.__ior__({8}))


@keep
def changed_by_functions_of_operators(c):
    yield from _on_holders(c, lambda holder: operator.ior(holder.members, {8}))
    yield from _on_holders(c, lambda holder: operator.iadd(holder.items, [8]))
    yield from _on_holders(c, lambda holder: operator.ior(holder.names, {"b": 8}))
