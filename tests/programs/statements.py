"""All kinds of statements."""

import torch

from .model import Call, Program, calls, program, rand

LOG: list[str] = []
LEVEL = 1.0


@program
def branches():
    def f(x, mode="double", flag=True):
        if mode == "double":
            y = x * 2
        elif mode == "halve":
            y = x / 2
        else:
            y = x
        return y + 1 if flag and not y.requires_grad else y - 1

    return Program(target=f, calls=calls(3, 4))


@program
def loops():
    def f(x):
        total = torch.zeros_like(x)
        for i in range(10):
            if i % 3 == 0:
                continue
            if i > 7:
                break
            total = total + x * i
        else:
            total = total * 100
        for _ in ():
            pass
        else:
            total = total + 1
        n, stack = 0, [x]
        while len(stack) < 4:
            stack.append(stack[-1].cos())
            n += 1
        while n:
            n -= 1
        return total, stack[-1], n

    return Program(target=f, calls=calls(5))


@program
def unpacking():
    def f(x, y):
        a, b = x, y
        a, b = b, a
        (c, (d, *rest)), e = (a, [b, 1, 2, 3]), 4
        first, *middle, last = x.unbind(0)
        h, w = x.shape
        i = j = k = h * w
        lists = [*middle, *rest]
        merged = {**{"a": a}, "b": b, **dict(c=c)}
        return first + last, d, e, i + j + k, len(lists), sorted(merged), merged["c"] - b

    return Program(target=f, calls=calls(4, 3, count=2))


@program
def tensor_slicing():
    def f(x):
        n = x.shape[1]
        parts = [x[0], x[-1], x[1:3], x[:, ::2], x[..., None], x[:, :, n // 2 :], x[0, 1, 2], x[:, [0, 2]]]
        parts += [x[:, None, -2:], x[slice(None), 1], x[..., 0], x[(Ellipsis, slice(1, None, 2))]]
        return parts

    return Program(target=f, calls=calls(3, 5, 6))


@program
def python_slicing():
    def f(x, layers):
        inner = layers[1:-1]
        rev = layers[::-1]
        layers[1:2] = [5, 6]
        del layers[-1]
        name = "encoder.layer.3.weight"
        index = int(name.split(".")[2])
        return x * sum(inner) + rev[0], layers, name[: name.rfind(".")], index, (1, 2, 3, 4)[slice(0, 4, 2)]

    return Program(target=f, calls=[Call((rand(3, seed=1), [1, 2, 3, 4])), Call((rand(3, seed=2), [1, 2, 3, 4]))])


@program
def augmented():
    def f(x, items, table):
        y = x.clone()
        y += 1
        y *= 2
        y[0] -= 5
        items += [y]
        table["n"] += 1
        table["t"] = table.get("t", 0) + y
        bits = 6
        bits |= 1
        bits <<= 2
        bits //= 3
        power = 2
        power **= 3
        return y @ y.T, bits, power

    world = {"n": 3}
    one = [Call((rand(3, 3, seed=s), [], {"n": 1})) for s in (1, 2)]
    return Program(target=f, calls=one, observe=lambda: world)


@program
def try_forms():
    def f(x, table):
        log = []
        try:
            scale = table["missing"]
        except KeyError as error:
            log.append(("key", error.args[0]))
            scale = 2.0
        else:
            log.append("else")
        finally:
            log.append("finally")
        try:
            try:
                raise ValueError("inner") from None
            except ValueError as inner:
                raise RuntimeError("outer") from inner
        except (RuntimeError, TypeError) as outer:
            log.append((str(outer), repr(outer.__cause__)))
        try:
            int("no number")
        except ValueError:
            log.append("value")
        try:
            [1, 2][5]
        except IndexError:
            pass
        try:
            x.no_such_attribute
        except AttributeError:
            log.append("attribute")
        return x * scale, log

    return Program(target=f, calls=[Call((rand(2, 2, seed=s), {"a": 1})) for s in (1, 2)])


@program
def finally_returns():
    def f(x):
        seen = []

        def g():
            for i in range(3):
                try:
                    if i == 1:
                        return x + i
                finally:
                    seen.append(i)

        return g(), seen

    return Program(target=f, calls=calls(4))


@program
def matching():
    class Point:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

    def f(t, spec):
        match spec:
            case {"op": "scale", "by": float(by)}:
                t = t * by
            case ["add", first, *rest]:
                t = t + first + sum(rest)
            case _:
                t = -t
        match Point(1, len(spec)):
            case Point(0, _):
                return t
            case Point(x=1, y=n) if n > 1:
                return t * n
            case Point() | None:
                return t - 1

    return Program(target=f, calls=[Call((rand(3, seed=s), ["add", 1, 2, 3])) for s in (1, 2)])


@program
def match_mapping():
    def f(t, spec):
        match spec:
            case {"op": "scale" | "times", "by": by, **rest} if not rest:
                return t * by
            case str() | int():
                return t
        return t + 1

    return Program(target=f, calls=[Call((rand(3, seed=s), {"op": "times", "by": 2.5})) for s in (1, 2)])


@program
def assertions_and_deletion():
    def f(x, options):
        assert x.dim() == 2, f"expected two dims, got {x.dim()}"
        assert isinstance(options, dict)
        temporary = x.exp()
        y = temporary.log()
        del temporary
        del options["used"]
        a, b = y, y
        del b
        return a

    return Program(target=f, calls=[Call((rand(2, 2, seed=s), {"used": 1, "kept": 2})) for s in (1, 2)])


@program
def globals_read_and_appended():
    LOG.clear()

    def f(x):
        LOG.append("called")
        return x * LEVEL

    return Program(target=f, calls=calls(2), observe=lambda: list(LOG))


@program
def globals_written():
    def f(x):
        global LEVEL
        before = LEVEL
        LEVEL = 3.0
        y = x * LEVEL
        LEVEL = before
        return y

    return Program(target=f, calls=calls(2), observe=lambda: LEVEL)


@program
def global_changes_between_calls():
    namespace = {"torch": torch, "GAIN": 2.0}
    exec("def f(x):\n    return torch.tanh(x) * GAIN", namespace)

    def between(number):
        namespace["GAIN"] = 5.0 if number == 2 else 2.0

    return Program(target=namespace["f"], calls=calls(3), between=between, misses=1)


@program
def walrus_ternary_chained():
    def f(x):
        if (n := x.shape[0]) > 2 and 1 < n <= 8 != 9:
            x = x[: (m := n - 1)]
        else:
            m = 0
        values = [y for i in range(5) if (y := i * i) % 2 == 0]
        return x if m else x + 1, values, not m, None is not m, m in values, 3 not in values

    return Program(target=f, calls=calls(4, 2))


@program
def strings():
    def f(x, name):
        title = f"{name!r:>10} has {x.ndim} dims of {tuple(x.shape)} {3.14159:.2f}"
        key = "_".join([name.upper().lower(), str(x.dtype).split(".")[-1]])
        ok = key.startswith("conv") and name in key and not name.isdigit()
        return x + len(key), title, key.replace("_", "-"), ok, "%s-%03d" % (name, 7), "{}{k}".format(1, k=2)

    return Program(target=f, calls=[Call((rand(2, 3, seed=s), "conv")) for s in (1, 2)])


@program
def numbers():
    import math

    def f(x, k=3):
        n = x.numel()
        scale = math.sqrt(n) + math.log(k) - math.pi / 2 + math.prod((1, 2, 3)) + abs(-2) + round(2.567, 1)
        q, r = divmod(n, 5)
        bits = (n & 3) | (1 << 4) ^ ~k
        c = complex(1, 2) * 2
        return (
            x * scale,
            q,
            r,
            bits,
            c.real,
            max(n, k),
            min([3, 1]),
            sum((1, 2), 10),
            pow(2, 5),
            int(3.7),
            7 // 2,
            -7 % 3,
        )

    return Program(target=f, calls=calls(3, 4))


@program
def lambdas_and_nested_defs():
    def f(x):
        square = lambda t, p=2: t**p
        add = lambda *ts: sum(ts[1:], ts[0])

        def nested(depth):
            if depth == 0:
                return x
            return square(nested(depth - 1)) / 2

        class Local:
            bias = 1

            def apply(self, t):
                return t + self.bias

        return add(nested(2), x, Local().apply(x))

    return Program(target=f, calls=calls(3))


@program
def raises_out():
    def f(x):
        y = x + 1
        if x.dim() == 2:
            raise ValueError(f"bad shape {tuple(y.shape)}")
        return y

    return Program(target=f, calls=calls(2, 2))


@program
def imports_inside():
    def f(x):
        import math

        from torch.nn import functional as G

        return G.relu(x) * math.e

    return Program(target=f, calls=calls(3))
