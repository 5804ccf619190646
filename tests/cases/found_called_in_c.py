"""Programs that came out wrong: C code called something that holds another callable, which nobody looked at."""

import collections
import functools
import itertools
import json
import operator

from soundness import keep


class Partial(functools.partial):
    """A partial that Python code made a class of."""


def _on_lists(c, function):
    compiled = c(function)
    for _ in range(4):
        items = [3, 2]
        try:
            yield compiled(items), items
        except TypeError as error:
            yield str(error), items


@keep
def called_through_a_partial(c):
    yield from _on_lists(c, lambda items: list(map(functools.partial(items.append), [1, 2])))
    yield from _on_lists(c, lambda items: list(map(functools.partial(items.insert, 0), [1, 2])))
    yield from _on_lists(c, lambda items: list(map(functools.partial(list.append, items), [1, 2])))
    yield from _on_lists(c, lambda items: list(filter(functools.partial(items.remove), [3, 2])))
    yield from _on_lists(c, lambda items: list(map(functools.partial(int, base=2), ["1", "10"])) + items)
    yield from _on_lists(c, lambda items: list(map(Partial(items.append), [1, 2])))
    yield from _on_lists(c, lambda items: (Partial(items.append, 4)(), items[-1]))


@keep
def called_through_a_static_method(c):
    yield from _on_lists(c, lambda items: staticmethod(items.append)(3))
    yield from _on_lists(c, lambda items: list(map(staticmethod(items.append), [1, 2])))


@keep
def called_through_a_class_of_python(c):
    log = []

    class Adds:
        __call__ = log.append

    class Made:
        __new__ = staticmethod(log.append)

    adds = Adds()
    yield from ((each, list(log)) for each in _on_lists(c, lambda items: list(map(adds, items))))
    yield from ((each, list(log)) for each in _on_lists(c, lambda items: Made()))


@keep
def called_by_a_default_dict(c):
    yield from _on_lists(c, lambda items: collections.defaultdict(items.pop)[5])
    yield from _on_lists(c, lambda items: collections.defaultdict(functools.partial(items.append, 1))[5])


@keep
def called_for_a_missing_key(c):
    log = []

    class Logs(dict):
        __missing__ = log.append

    yield from ((each, list(log)) for each in _on_lists(c, lambda items: Logs()[4]))


@keep
def called_by_a_decoder(c):
    yield from _on_lists(c, lambda items: json.loads("[1, 2.5, {}]", object_hook=items.append))
    yield from _on_lists(c, lambda items: json.dumps([1, {2}], default=items.append))


@keep
def method_of_a_class_without_annotations(c):
    # A fresh module has classes that no annotation is made out to.
    import _functools
    import importlib.util

    spec = importlib.util.find_spec("_functools")
    twin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twin)
    assert twin.partial is not _functools.partial

    def change(f):
        f.__setstate__((len, ("four",), {}, {}))
        return f()

    compiled = c(change)
    for _ in range(4):
        f = twin.partial(abs)
        yield compiled(f), f.args


class Box:
    """An object with state that C code looks at."""

    def __init__(self, value):
        self.value = value
        self.items = [value] * value


def _on_boxes(c, function):
    compiled = c(function)
    for number in range(8):
        box = Box(number // 2)
        yield compiled(box), vars(box)


@keep
def builtins_with_rules_of_their_own_called_in_c(c):
    yield from _on_boxes(c, lambda box: list(map(getattr, [box], ["value"])))
    yield from _on_boxes(c, lambda box: list(map(functools.partial(getattr, box), ["value"])))
    yield from _on_boxes(c, lambda box: list(map(setattr, [box], ["value"], [9])))
    yield from _on_boxes(c, lambda box: (list(map(functools.partial(setattr, box, "value"), [9])), box.value))
    yield from _on_boxes(c, lambda box: list(map(delattr, [box], ["value"])))
    yield from _on_boxes(c, lambda box: list(map(object.__setattr__, [box], ["value"], [9])))
    yield from _on_boxes(c, lambda box: [dict(each) for each in map(vars, [box])])
    yield from _on_boxes(c, lambda box: functools.reduce(getattr, ["value"], box))
    yield from _on_boxes(c, lambda box: list(map(box.__getattribute__, ["value"])))


@keep
def several_arguments_at_a_time(c):
    yield from _on_boxes(c, lambda box: [list(each) for each in map(map, [len], [[box.items]])])
    yield from _on_boxes(c, lambda box: list(map(operator.getitem, [[7, *box.items]], [-1])))


@keep
def what_changes_before_it_is_called_in_c(c):
    def later(box):
        given = []
        lengths = map(len, given)
        given.append(box.items)
        return list(lengths)

    def meanwhile(box):
        given, found = [[]], []
        for length in map(len, given):
            found.append(length)
            if len(given) < 3:
                given.append(box.items)
        return found

    def by_hand(box):
        given = [[]]
        lengths = map(len, given)
        given[0] = box.items
        return next(lengths)

    def taken(box):
        given = []
        taken = itertools.takewhile(operator.attrgetter("value"), given)
        given.append(box)
        return len(list(taken))

    for function in (later, meanwhile, by_hand, taken):
        yield from _on_boxes(c, function)


@keep
def what_a_generator_yields_to_c(c):
    yield from _on_boxes(c, lambda box: list(map(len, (each for each in [box.items]))))
    yield from _on_boxes(c, lambda box: list(map(bool, (each for each in [box.items]))))
    yield from _on_boxes(c, lambda box: list(map(str, (each for each in [box.items]))))


@keep
def attributes_in_format_strings(c):
    yield from _on_boxes(c, lambda box: "{0.value}".format(box))  # noqa: UP032
    yield from _on_boxes(c, lambda box: "{box.items[0]:{box.value}}".format(box=box) if box.value else "")
    yield from _on_boxes(c, lambda box: "{box.value}".format_map({"box": box}))
    yield from _on_boxes(c, lambda box: list(map("{0.value}".format, [box])))


@keep
def mappings_of_format_strings(c):
    counts = collections.defaultdict(int)
    for form in ("%(a)s".__mod__, "{a}".format_map):
        compiled = c(lambda counts, form=form: form(counts))
        for _ in range(4):
            counts.clear()
            yield compiled(counts), dict(counts)
    compiled = c(lambda counts: "%(a)s" % counts)
    for _ in range(4):
        counts.clear()
        yield compiled(counts), dict(counts)


@keep
def properties_of_c_functions(c):
    log = []

    class Logs:
        added = property(log.append, log.extend)
        length = property(lambda self: 4)
        __call__ = log.append

    yield from ((each, list(log)) for each in _on_lists(c, lambda items: Logs().added and 0))
    yield from ((each, list(log)) for each in _on_lists(c, lambda items: (Logs()(5), Logs().length)))


@keep
def called_by_a_call_by_name(c):
    older = [1, 2]
    for function in (
        lambda x: len.__call__(older) + x,
        lambda x: list.__len__.__call__(older) + x,
        lambda x: type(len).__call__(len, older) + x,
        lambda x: sum(map(type(len).__call__, [len, len], [older, older])) + x,
        lambda x: (list.append.__call__(older, 5), len(older))[1] + x,
        lambda x: type(list.append).__call__(list.count, older, 1) + x,
        lambda x: functools.partial.__call__(functools.partial(len), older) + x,
        lambda x: len(max.__call__([older, [1, 2]], key=len)) + x,
        lambda x: sorted.__call__(older, reverse=True)[0] + x,
    ):
        older[:] = [1, 2]
        compiled = c(function)
        for turn in range(4):
            if turn == 2:
                older.append(1)
            yield compiled(1), list(older)
