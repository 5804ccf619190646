"""Functions, closures, generators, comprehensions, functools, itertools, operator."""

import functools
import itertools
import operator
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .model import Call, Program, calls, program, rand


@program
def closures():
    weight, log = rand(3, 3, seed=5), []

    def make(scale):
        def layer(x):
            log.append(scale)
            return torch.relu(x @ weight) * scale

        return layer

    layers = [make(s) for s in (1.0, 0.5, 2.0)]

    def f(x):
        for layer in layers:
            x = layer(x)
        return x

    return Program(target=f, calls=calls(2, 3), observe=lambda: log)


@program
def nonlocal_inside():
    def f(x):
        count, last = 0, None

        def step(t):
            nonlocal count, last
            count += 1
            last = t
            return t * count

        for _ in range(3):
            x = step(x)
        return x, count, last is not None

    return Program(target=f, calls=calls(4))


@program
def cell_of_the_world():
    best = None

    def f(x):
        nonlocal best
        best = x.amax()
        return x - best

    return Program(target=f, calls=calls(4), observe=lambda: best)


@program
def signatures():
    def inner(a, /, b, *args, scale=1.0, **kwargs):
        return a * scale + b + sum(args) + kwargs.get("bias", 0)

    def f(x, y, **options):
        first = inner(x, y, 1, 2, scale=3.0, bias=0.5)
        second = inner(x, b=y, **options)
        third = inner(*(x, y), *[4], **{"scale": 2.0, **options})
        return first, second, third, sorted(options)

    return Program(target=f, calls=calls(3, count=2, bias=1.5))


@program
def decorators():
    def traced(name):
        def wrap(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                calls_of.append(name)
                return function(*args, **kwargs)

            return wrapper

        return wrap

    calls_of = []

    @traced("outer")
    @traced("inner")
    def block(x, *, by=2):
        return x * by

    def f(x):
        return block(x, by=3), block.__name__

    return Program(target=f, calls=calls(2), observe=lambda: calls_of)


@program
def partials():
    conv = functools.partial(F.conv1d, padding=1)
    pooled = functools.partial(torch.mean, dim=-1, keepdim=True)
    kernel = rand(4, 2, 3, seed=9)

    def f(x):
        op = functools.partial(operator.mul, 2)
        return op(pooled(conv(x, kernel))), pooled.keywords["dim"]

    return Program(target=f, calls=calls(1, 2, 8))


@program
def reductions():
    def f(xs):
        total = functools.reduce(lambda a, b: a + b, xs)
        product = functools.reduce(torch.mul, xs, torch.ones(3))
        return total, product, sum(xs), sum(x.sum() for x in xs), max(len(xs), 1)

    return Program(target=f, calls=[Call(([rand(3, seed=s + k) for k in range(3)],)) for s in (1, 5)])


@program
def generators():
    def windows(x, size):
        for start in range(0, x.shape[0] - size + 1, size):
            yield x[start : start + size]

    def chain(*parts):
        for part in parts:
            yield from part

    def accumulate():
        total = None
        while True:
            value = yield total
            if value is None:
                return "done"
            total = value if total is None else total + value

    def f(x):
        means = [w.mean() for w in windows(x, 2)]
        both = list(chain(windows(x, 4), windows(x, 8)))
        g = accumulate()
        next(g)
        for m in means:
            total = g.send(m)
        try:
            g.send(None)
        except StopIteration as stop:
            word = stop.value
        return torch.stack(means), total, len(both), word, next(windows(x, 3)), next(iter(()), None)

    return Program(target=f, calls=calls(8, 2))


@program
def generator_expressions():
    def f(x, names=("a", "b", "c")):
        parts = tuple(x * i for i in range(4) if i)
        table = dict((n, p.sum()) for n, p in zip(names, parts))
        ok = all(p.shape == x.shape for p in parts) and any(n == "b" for n in names)
        return sum(p for p in parts), table, ok, sorted((n for n in names), reverse=True)

    return Program(target=f, calls=calls(3))


@program
def comprehensions():
    def f(x):
        rows = [[x[i] * j for j in range(2) if j or i] for i in range(3)]
        flat = [t for row in rows for t in row]
        by_index = {i: t for i, t in enumerate(flat)}
        lengths = {len(row) for row in rows}
        return torch.stack(flat), {k: v for k, v in by_index.items() if k % 2}, sorted(lengths), [*map(len, rows)]

    return Program(target=f, calls=calls(3, 4))


@program
def builtin_iteration():
    def f(x, names):
        out = {}
        for i, (name, t) in enumerate(zip(names, x.unbind()), start=1):
            out[name] = t * i
        pairs = list(map(lambda n, t: (n, t.shape[0]), names, x))
        kept = list(filter(None, [0, 1, "", "a", None]))
        order = sorted(out, key=lambda n: (-len(n), n))
        backwards = list(reversed(names))
        highest = max(names, key=len)
        return out, pairs, kept, order, backwards, highest, list(iter([1, 2])), any([]), all([])

    return Program(target=f, calls=[Call((rand(3, 2, seed=s), ["ab", "c", "def"])) for s in (1, 2)])


@program
def itertools_zoo():
    def f(x):
        it = itertools
        rows = list(x)
        pairs = [a + b for a, b in it.pairwise(rows)]
        grid = [i * 10 + j for i, j in it.product(range(2), repeat=2)]
        running = list(it.accumulate(rows))
        sliced = list(it.islice(it.count(5), 3))
        cycled = [c for _, c in zip(range(4), it.cycle("ab"))]
        groups = [(k, len(list(g))) for k, g in it.groupby([1, 1, 2], key=lambda v: v)]
        mixed = list(it.zip_longest([1], [2, 3], fillvalue=0))
        star = list(it.starmap(torch.add, [(rows[0], 1), (rows[1], 2)]))
        joined = list(it.chain.from_iterable([[1], [2, 3]]))
        taken = list(it.takewhile(lambda v: v < 3, [1, 2, 3, 1]))
        repeated = list(it.repeat(x, 2))
        combos = list(it.combinations("abc", 2))
        return pairs, grid, running, sliced, cycled, groups, mixed, star, joined, taken, repeated, combos

    return Program(target=f, calls=calls(3, 2))


@program
def operators_module():
    get = operator.itemgetter("a", "b")
    shape = operator.attrgetter("shape")
    call = operator.methodcaller("view", -1)

    def f(x):
        a, b = get({"a": x, "b": 2})
        return operator.add(a, b), tuple(shape(x)), call(x), operator.getitem([1, 2], 1), operator.truediv(x, 2)

    return Program(target=f, calls=calls(2, 3))


@program
def recursion():
    tree = {
        "value": 1.0,
        "children": [{"value": 2.0, "children": []}, {"value": 3.0, "children": [{"value": 4.0, "children": []}]}],
    }

    def f(x):
        def walk(node, t):
            t = t * node["value"]
            return t + sum(walk(child, t) for child in node["children"])

        return walk(tree, x)

    return Program(target=f, calls=calls(3))


@program
def iterator_classes():
    class Chunks:
        def __init__(self, x, size):
            self.x, self.size, self.at = x, size, 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            return self

        def __next__(self):
            if self.at >= self.x.shape[0]:
                raise StopIteration
            self.at += self.size
            return self.x[self.at - self.size : self.at]

    class Indexed:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError(i)
            return i * 10

    def f(x):
        return [c.sum() for c in Chunks(x, 2)], list(Indexed()), 20 in Indexed()

    return Program(target=f, calls=calls(6))


@program
def cached_helper():
    @functools.lru_cache(maxsize=None)
    def positions(n):
        return tuple(i / n for i in range(n))

    def f(x):
        return x * torch.tensor(positions(x.shape[0])), positions.cache_info().currsize

    return Program(target=f, calls=calls(4), served="any")


@program
def cached_property_on_config():
    class Config:
        def __init__(self):
            self.heads, self.width = 2, 8

        @functools.cached_property
        def head_width(self):
            return self.width // self.heads

    config = Config()

    def f(x):
        return x.view(-1, config.heads, config.head_width).sum(1)

    # The first call fills the cache; so it may take two monitored runs until the record fits.
    return Program(target=f, calls=calls(3, 8), observe=lambda: sorted(vars(config)), misses=1)


@program
def single_dispatch():
    @functools.singledispatch
    def scale(by, x):
        return x

    @scale.register
    def _(by: int, x):
        return x * by

    @scale.register(list)
    def _(by, x):
        return x + len(by)

    def f(x):
        return scale(2, x), scale([1, 2], x), scale("no", x)

    return Program(target=f, calls=calls(3), served="any")


@program
def higher_order():
    def compose(*functions):
        return lambda x: functools.reduce(lambda acc, g: g(acc), functions, x)

    table = {"relu": torch.relu, "sig": torch.sigmoid, "own": lambda t: t * 3, "method": torch.Tensor.abs}

    def f(x, names=("relu", "own", "method")):
        return compose(*(table[n] for n in names))(x), [g(x) for g in table.values()], list(map(torch.relu, [x, -x]))

    return Program(target=f, calls=calls(4))
