"""Lists, dicts, sets, deques and their kin, read, built, changed and returned."""

import collections
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

import torch

from .model import Call, Program, calls, program, rand

Pair = namedtuple("Pair", "left right", defaults=(None,))


@program
def list_methods():
    def f(x):
        items = [x]
        items.append(x + 1)
        items.extend([x + 2, x + 3])
        items.insert(0, x - 1)
        last = items.pop()
        first = items.pop(0)
        numbers = [3, 1, 2]
        numbers.sort()
        numbers.reverse()
        numbers.remove(1)
        copy = numbers.copy()
        copy.clear()
        doubled = numbers * 2 + [0]
        return items, last, first, numbers, copy, doubled, numbers.index(2), doubled.count(3), 2 in doubled

    return Program(target=f, calls=calls(2))


@program
def list_of_the_caller():
    def f(x, history):
        history.append(x.mean())
        history[0] = "changed"
        return history[-1] + len(history)

    return Program(target=f, calls=[Call((rand(3, seed=s), ["old", 1])) for s in (1, 2)])


@program
def dict_methods():
    def f(x):
        d = {"a": x, "b": x + 1}
        d.update(c=x + 2)
        d.update({"e": 1}, f=2)
        d.setdefault("g", []).append(x)
        gone = d.pop("e")
        none = d.pop("zzz", None)
        key, value = d.popitem()
        merged = d | {"h": 3}
        merged |= {"i": 4}
        views = list(d.keys()), [type(v).__name__ for v in d.values()], len(d.items())
        fresh = dict.fromkeys(["p", "q"], 0)
        return d, gone, none, key, value, merged, views, fresh, "a" in d, d.get("nope", 5), d == dict(d)

    return Program(target=f, calls=calls(2))


@program
def dict_of_the_caller():
    def f(batch):
        x = batch["x"]
        batch["y"] = x * 2
        batch.pop("drop")
        for key in list(batch):
            if key.startswith("tmp"):
                del batch[key]
        return {k: v for k, v in batch.items() if isinstance(v, torch.Tensor)}

    return Program(target=f, calls=[Call(({"x": rand(2, seed=s), "drop": 1, "tmp1": 2, "tmp2": 3},)) for s in (1, 2)])


@program
def sets():
    def f(x, names):
        wanted = {"a", "b"} & set(names)
        wanted |= {"z"}
        wanted.add("y")
        wanted.discard("q")
        others = frozenset(names) - wanted
        return (
            x * len(wanted),
            sorted(wanted),
            sorted(others),
            wanted >= {"z"},
            {1, 2} ^ {2, 3},
            wanted.isdisjoint({"k"}),
        )

    return Program(target=f, calls=[Call((rand(2, seed=s), ["a", "b", "c"])) for s in (1, 2)])


@program
def deques():
    window = deque(maxlen=3)

    def f(x):
        q = deque([x, x + 1], maxlen=4)
        q.appendleft(x - 1)
        q.append(x + 2)
        q.append(x + 3)
        q.rotate(1)
        left = q.popleft()
        window.append(x.shape[0])
        return q, left, q[0] + q[-1], len(q)

    return Program(target=f, calls=calls(2), observe=lambda: window)


@program
def ordered_dict_outputs():
    def f(x):
        d = OrderedDict(a=x, b=x + 1, c=x + 2)
        d.move_to_end("a")
        d.popitem(last=False)
        return d, list(d), next(reversed(d))

    return Program(target=f, calls=calls(2))


@program
def default_dicts():
    def f(x):
        groups = defaultdict(list)
        for i, row in enumerate(x):
            groups["even" if i % 2 == 0 else "odd"].append(row)
        counts = defaultdict(int)
        for word in "a b a".split():
            counts[word] += 1
        return {k: torch.stack(v) for k, v in groups.items()}, counts, groups["none"]

    return Program(target=f, calls=calls(4, 2))


@program
def counters():
    def f(x, words):
        count = Counter(words)
        count.update(["z"])
        return x * count["a"], count.most_common(1), count["missing"], count

    return Program(target=f, calls=[Call((rand(2, seed=s), ["a", "b", "a"])) for s in (1, 2)])


@program
def chain_maps():
    def f(x, overrides):
        options = ChainMap(overrides, {"scale": 2.0, "bias": 1.0})
        return x * options["scale"] + options["bias"], sorted(options)

    return Program(target=f, calls=[Call((rand(2, seed=s), {"bias": 3.0})) for s in (1, 2)])


@program
def named_tuples():
    def f(x):
        p = Pair(x, right=x + 1)
        q = p._replace(left=p.right)
        left, right = q
        return q, left - right, p[0], p._fields, Pair(1), q._asdict()

    return Program(target=f, calls=calls(2))


@program
def tuples():
    def f(x, t):
        a = t + (x,)
        b = a * 2
        return a, b[1:], len(b), (x, x), t.index(2), t.count(1), (1, 2) < (1, 3), hash((1, 2)) == hash((1, 2)), ()

    return Program(target=f, calls=[Call((rand(2, seed=s), (1, 2))) for s in (1, 2)])


@program
def shared_outputs():
    def f(x):
        y = x * 2
        inner = [y]
        return {"one": inner, "two": inner, "t": y, "again": [y, inner]}

    return Program(target=f, calls=calls(2))


@program
def cyclic_outputs():
    def f(x):
        node = {"x": x + 1}
        node["self"] = node
        items = [node]
        items.append(items)
        return items

    return Program(target=f, calls=calls(2))


@program
def inputs_come_back():
    def f(x, box, table):
        table["same"] = box
        return x, box, [box, x], table, (x, x.view(-1))

    return Program(target=f, calls=[Call((rand(2, 2, seed=s), [1], {})) for s in (1, 2)])


@program
def same_object_twice():
    def f(a, b):
        a.append(1)
        return len(b), a is b

    one, two = [], []
    return Program(target=f, calls=[Call((one, one)), Call((two, two))])


@program
def views_and_ranges():
    def f(x, d):
        r = range(2, 10, 3)
        return x + len(r), r, slice(1, 2), list(d.keys() & {"a", "b"}), d.keys() == {"a", "c"}, 5 in r, r[-1]

    return Program(target=f, calls=[Call((rand(2, seed=s), {"a": 1, "c": 2})) for s in (1, 2)])


@program
def user_containers():
    class Registry(collections.UserDict):
        pass

    class Stack(list):
        def push(self, v):
            self.append(v)
            return self

    class Attrs(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__

    config = Attrs(scale=2.0, layers=[1, 2])

    def f(x):
        s = Stack().push(x).push(x + 1)
        r = Registry(a=1)
        r["b"] = 2
        local = Attrs(y=x * config.scale)
        local.z = sum(config.layers)
        return s, sorted(r), local.y, local

    return Program(target=f, calls=calls(2))


@program
def nested_structures():
    def f(tree):
        def apply(node):
            if isinstance(node, torch.Tensor):
                return node * 2
            if isinstance(node, dict):
                return {k: apply(v) for k, v in node.items()}
            if isinstance(node, (list, tuple)):
                return type(node)(apply(v) for v in node)
            return node

        return apply(tree)

    def tree(seed):
        return {"a": [rand(2, seed=seed), 1], "b": (rand(3, seed=seed + 1), {"c": rand(1, seed=seed + 2)}), "d": "text"}

    return Program(target=f, calls=[Call((tree(1),)), Call((tree(7),))])


@program
def length_changes():
    def f(xs):
        return torch.stack(xs).sum(0)

    lists = [[rand(2, seed=s + k) for k in range(n)] for s, n in ((1, 2), (5, 3), (9, 2))]
    return Program(target=f, calls=[Call((xs,)) for xs in lists], misses=1)
