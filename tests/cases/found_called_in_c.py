"""Programs that came out wrong: C code called something that holds another callable, which nobody looked at."""

import collections
import functools
import json

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
