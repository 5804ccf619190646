"""Programs that came out wrong: what C code asks of objects that no instruction shows, and classes made in the call."""

from soundness import keep

from cases.world import X


class Node:
    def __init__(self, children):
        self.children = children


@keep
def any_of_generator(c):
    node = Node([])
    f = c(lambda x, nodes: x * 2 if any(n.children for n in nodes) else x * 3)
    yield f(X(), [node])
    node.children.append(1)
    yield f(X(), [node])


@keep
def filter_by_children(c):
    node = Node([])
    f = c(lambda x, nodes: x * len(list(filter(lambda n: n.children, nodes))))
    yield f(X(), [node])
    node.children.append(1)
    yield f(X(), [node])


@keep
def max_of_lists(c):
    one, other = Node([1]), Node([2])
    f = c(lambda x, nodes: x * nodes.index(max(nodes, key=lambda n: n.children)))
    yield f(X(), [one, other])
    one.children[0] = 3
    yield f(X(), [one, other])


@keep
def contains_gives_list(c):
    class Holder:
        def __init__(s):
            s.found = []

        def __contains__(s, item):
            return s.found

    holder = Holder()
    f = c(lambda x, h: x * 2 if 1 in h else x * 3)
    yield f(X(), holder)
    holder.found.append(1)
    yield f(X(), holder)


@keep
def class_made_inherits(c):
    class Base:
        def get(s):
            return 2

    def g(x):
        class Local(Base):
            pass

        return x * Local().get()

    f = c(g)
    yield f(X())
    Base.get = lambda s: 5
    yield f(X())


@keep
def init_subclass_sets(c):
    class Base:
        def __init_subclass__(cls):
            cls.label = "made"

    kept = []

    def g(x):
        class Local(Base):
            pass

        kept.append(Local.label)
        return x * len(kept)

    f = c(g)
    yield f(X())
    yield f(X())


@keep
def raised_argument(c):
    error = ValueError()

    def g(x, error):
        try:
            raise error
        except ValueError:
            return x * 2

    f = c(g)
    yield f(X(), error)
    yield f(X(), error), error.__traceback__ is not None
