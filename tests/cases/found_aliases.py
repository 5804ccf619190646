"""Programs that came out wrong: aliases."""

from soundness import keep

from cases.world import X


@keep
def alias_arg_global(c):
    G = []

    def g(x, l):
        l.append(1)
        return x * len(G)

    f = c(g)
    yield f(X(), [])
    yield f(X(), [])
    yield f(X(), G)


@keep
def alias_arg_global_attr(c):
    class Obj:
        pass

    G = Obj()
    G.v = 1

    def g(x, o):
        o.v = 5
        return x * G.v

    f = c(g)
    yield f(X(), Obj())
    yield f(X(), Obj())
    yield f(X(), G)
