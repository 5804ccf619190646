"""Numbers and sizes that vary are inputs of records: how calls are served, and that nobody in the program can tell."""

from __future__ import annotations

import collections
import itertools
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import serving
import torch

import magpy
from magpy_runtime import resolve

INF, NAN = float("inf"), float("nan")


def same(one: Any, other: Any) -> bool:
    """Bit for bit, signs of zeros and NaNs included."""
    if isinstance(one, torch.Tensor):
        return serving.equal(one, other)
    if isinstance(one, (list, tuple, collections.deque)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(map(same, one.values(), other.values()))
    return type(one) is type(other) and repr(one) == repr(other)


def check(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], monitored: int | None = 2, **options: Any
) -> serving.Served:
    """Call a function with each tuple of arguments, compiled and not, and compare; count the monitored runs."""
    compiled = magpy.compile(function, backend="eager", **options)
    for arguments in calls:
        expected = serving.attempt(function, *arguments) if hasattr(serving, "attempt") else function(*arguments)
        got = compiled(*arguments)
        assert same(expected, got), (arguments, expected, got)
    info = magpy.info(compiled)
    assert info.native == 0, info
    if monitored is not None:
        assert info.monitored == monitored, info
        assert info.hits == len(calls) - monitored
    return serving.Served(compiled)


def rows(*sizes: int) -> list[tuple[Any, ...]]:
    """Tensors of so many rows."""
    return [(torch.randn(size, 3),) for size in sizes]


def numbers(*values: Any) -> list[tuple[Any, ...]]:
    """A tensor and a number, for each."""
    x = torch.randn(4)
    return [(x, value) for value in values]


# -- one miss, then an input ------------------------------------------------------------------------------------------


def test_an_int() -> None:
    check(lambda x, n: x * n, numbers(3, 4, 5, 600, -7, 0, 1, 2**40))


def test_a_float() -> None:
    check(lambda x, n: x * n + n, numbers(0.1, 0.25, -0.0, 0.0, INF, -INF, NAN, 1e-300, 3.5))


def test_a_float_that_leaves_the_call() -> None:
    check(lambda x, n: (x + 1, n, n * 2, -n), numbers(0.1, 0.25, -0.0, 0.0, INF, -INF, NAN, 5e-324))


def test_an_int_that_leaves_the_call() -> None:
    check(lambda x, n: (x + 1, n, n * 2 - 1, n // 3, n % 5, n / 4), numbers(3, 4, 5, 600, -7, 0, 1, 2**40))


def test_an_int_in_containers_that_leave() -> None:
    check(lambda x, n: {"n": [n, (n + 1, n)], "x": x}, numbers(3, 4, 5, 600, -7))


def test_a_size() -> None:
    check(lambda x: x.reshape(x.shape[0] * 3), rows(4, 5, 6, 100))


def test_a_size_that_leaves_the_call() -> None:
    check(lambda x: (x + 1, x.shape, x.size(), x.size(0), len(x), x.numel(), x.shape[0] + 1), rows(4, 5, 6, 100))


def test_sizes_of_what_operators_make() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.cat([x, x], 0)
        z = y[1:]
        return z.sum(0), y.shape[0], z.shape, z.size(0) - y.size(0)

    check(function, rows(4, 5, 6, 100))


def test_sizes_in_attributes() -> None:
    class Holder:
        """Keeps a size."""

    holder = Holder()

    def function(x: torch.Tensor) -> torch.Tensor:
        holder.rows = x.shape[0]  # type: ignore[attr-defined]
        return x / holder.rows  # type: ignore[attr-defined]

    compiled = magpy.compile(function, backend="eager")
    for (x,) in rows(4, 5, 6, 7):
        assert torch.equal(compiled(x), x / x.shape[0])
        assert holder.rows == x.shape[0] and type(holder.rows) is int  # type: ignore[attr-defined]
    assert magpy.info(compiled).monitored == 2


def test_zero_and_one() -> None:
    """Sizes 0 and 1 have records of their own."""
    check(lambda x: x.sum(1) * x.shape[0], rows(4, 5, 6, 1, 7, 0, 1, 0), 4)


def test_an_attribute_and_a_global() -> None:
    class Optimizer:
        """Has a learning rate."""

        def __init__(self) -> None:
            self.rate = 0.1
            self.options = {"decay": 0.5}

        def step(self, w: torch.Tensor) -> torch.Tensor:
            return w - self.rate * w * self.options["decay"] * SCALE

    optimizer = Optimizer()
    compiled = serving.Served(magpy.compile(optimizer.step, backend="eager"))
    w = torch.randn(5)
    global SCALE
    SCALE = 2.0
    assert torch.equal(compiled.monitored(w), optimizer.step(w))
    optimizer.rate, optimizer.options["decay"], SCALE = 0.2, 0.25, 3.0
    assert torch.equal(compiled.monitored(w), optimizer.step(w))
    for value in (0.3, 0.7, -1.0):
        optimizer.rate, optimizer.options["decay"], SCALE = value, value / 2, value * 3
        assert torch.equal(compiled.hit(w), optimizer.step(w))


SCALE = 2.0


def test_learning_rate_step_counter_and_log() -> None:
    class Trainer:
        """A hundred steps."""

        def __init__(self) -> None:
            self.steps, self.rate = 0, 0.1
            self.log: list[Any] = []

        def step(self, w: torch.Tensor, g: torch.Tensor) -> Any:
            self.steps += 1
            w = w - self.rate * g
            self.log.append((self.steps, self.rate))
            return w, len(self.log)

    def run(make: Callable[[Any], Any]) -> Any:
        trainer = Trainer()
        step = make(trainer.step)
        torch.manual_seed(0)
        w = torch.randn(6)
        seen = []
        for number in range(100):
            trainer.rate = 0.1 / (1 + number)
            w, count = step(w, torch.full((6,), float(number)))
            seen.append((w.clone(), count, trainer.steps))
        return seen, trainer.log, step

    expected, log, _ = run(lambda function: function)
    got, mine, compiled = run(lambda function: magpy.compile(function, backend="eager"))
    assert same(expected, got) and same(log, mine)
    assert magpy.info(compiled).monitored == 2


# -- branches ---------------------------------------------------------------------------------------------------------


def test_a_record_for_each_outcome() -> None:
    check(lambda x, n: x + n if n > 10 else x - n, numbers(3, 4, 5, 11, 12, 9, 100, 10), 3)


def test_branches_on_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2:
            return x.sum()
        return x.mean(0) if x.shape[0] >= 8 else x * 2

    check(function, rows(4, 6, 4, 6, 5, 7, 9, 8, 10, 3), 4)


def test_a_branch_on_a_number_that_two_sizes_give() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.shape[0] == y.shape[0] else x.sum() + y.sum()

    calls = [
        (torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((3, 3), (4, 4), (5, 5), (5, 6), (6, 9), (7, 7), (2, 8))
    ]
    check(function, calls, 3)


def test_truth() -> None:
    check(lambda x, n: x + 1 if n else x - 1, numbers(3, 4, 5, 0, 7, 0), 3)
    check(lambda x, n: x + 1 if not n else x - 1, numbers(0.5, 0.25, 5.0, 0.0, NAN, -0.0), 3)


def test_sizes_that_are_equal_by_accident() -> None:
    """The number of rows is that of columns when the sizes are lifted."""
    check(lambda x: x.reshape(x.shape[0], -1) @ torch.ones(3), rows(5, 3, 4, 7, 3, 9))


def test_broadcasting() -> None:
    calls = [
        (torch.randn(a, 3), torch.randn(b, 3)) for a, b in ((4, 4), (5, 5), (6, 6), (6, 1), (7, 7), (1, 7), (8, 1))
    ]
    check(lambda x, y: x + y, calls, None)


def test_comparisons_of_shapes() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.shape == y.shape else x.sum() + y.sum()

    calls = [(torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((3, 3), (4, 4), (5, 5), (5, 6), (6, 9), (7, 7))]
    check(function, calls, 3)


def test_minimum_and_maximum() -> None:
    check(lambda x, n: x * max(n, 5) + min(n, 50), numbers(6, 7, 8, 3, 4, 60, 70), 4)


# -- values that are read ---------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "formatted": lambda x, n: (x + 1, f"{n} rows"),
    "formatted with a width": lambda x, n: (x + 1, f"{n:5d}"),
    "percent": lambda x, n: (x + 1, "%d rows of %s" % (n, (n, 1))),
    "str": lambda x, n: (x + 1, str(n), repr([n])),
    "key": lambda x, n: (x + 1, {n: "n", n + 1: "m"}[n]),
    "looked up": lambda x, n: (x + 1, {3: "three", 4: "four", 5: "five", 6: "six"}.get(n)),
    "in a set": lambda x, n: (x + 1, n in {3, 5}, len({n, 3})),
    "in a tuple": lambda x, n: (x + 1, n in (3, 5)),
    "in a range": lambda x, n: (x + 1, n in range(4)),
    "range": lambda x, n: (sum([x for _ in range(n)]), list(range(n))),
    "index": lambda x, n: (x + 1, [10, 20, 30, 40, 50, 60, 70][n], "abcdefgh"[n]),
    "slice": lambda x, n: (x + 1, [10, 20, 30, 40, 50, 60, 70][:n], (1, 2, 3, 4, 5)[n - 2 :]),
    "repeated": lambda x, n: (x + 1, [0] * n, "ab" * n, n * (1,)),
    "type": lambda x, n: (x + 1, type(n) is int, isinstance(n, int), type(n)),
    "is": lambda x, n: (x + 1, n is THREE, THREE is not n, n is None),
    "hash": lambda x, n: (x + 1, hash(n), hash((n, 2))),
    "json": lambda x, n: (x + 1, json.dumps({"n": n})),
    "pickle": lambda x, n: (x + 1, pickle.loads(pickle.dumps(n))),
    "math": lambda x, n: (x + 1, math.sqrt(n), math.floor(n / 2), math.log(n), math.gcd(n, 6)),
    "round": lambda x, n: (x + 1, round(n / 7, 2), divmod(n, 3), pow(n, 3), n**2, n**0.5),
    "bits": lambda x, n: (x + 1, n << 2, n >> 1, n & 6, n | 1, ~n, n ^ 3, n.bit_length()),
    "sorted": lambda x, n: (x + 1, sorted([5, n, 4]), sorted([1, 2, 3], key=lambda k: abs(k - n))),
    "sum": lambda x, n: (x + 1, sum([n, n, 1]), math.prod((n, 2)), sum(k * n for k in (1, 2))),
    "any": lambda x, n: (x + 1, any(k == n for k in (3, 9)), all([n, n > 3])),
    "map": lambda x, n: (x + 1, list(map(str, [n, 1])), list(map(lambda k: k + n, (1, 2))), list(filter(None, [n - 3, 1]))),
    "compared in tuples": lambda x, n: (x + 1, (n, 2) == (3, 2), (n, 2) < (4, 0), [n] == [3], max((n, 2), (4, 1))),
    "enumerated": lambda x, n: (x + 1, list(enumerate([n, 7])), list(zip([n], [1], strict=True)), [*reversed([n, 2])]),
    "unpacked": lambda x, n: (x + 1, [*(n, 2), n], {**{"n": n}}, (lambda *a, **k: (a, k))(n, m=n)),
    "matched": lambda x, n: (x + 1, _matched(n)),
    "float": lambda x, n: (x * float(n), int(n + 0.5), abs(-n), bool(n), complex(n, 1)),
    "bool apart": lambda x, n: (x + 1, n == True, n + True, n * False),  # noqa: E712
    "attributes": lambda x, n: (x + 1, n.real, n.imag, n.numerator, n.denominator, n.__add__(2)),
    "closure": lambda x, n: (x + 1, (lambda: n + 1)(), [k + n for k in (1, 2)]),
    "default": lambda x, n: (x + 1, (lambda k=n: k + 1)()),
    "raised": lambda x, n: (x + 1, _raised(n)),
    "generator": lambda x, n: (x + 1, list(_counted(n)), next(_counted(n)), tuple(k for k in _counted(n))),
    "length": lambda x, n: (x + 1, len(_Sized(n)), bool(_Sized(n - 3)), [1, 2, 3][_Index(n - 3) : ]),
    "bytes": lambda x, n: (x + 1, bytes(n), bytes([n]), bytearray(n), n.to_bytes(2, "big"), chr(n + 64)),
    "identity": lambda x, n: (x + 1, n is n, [n].index(n), [n].count(n)),
    "sizes": lambda x, n: (torch.zeros(n, 2), torch.ones((n,)), torch.arange(n), x.expand(n, 4), torch.eye(n)),
    "view": lambda x, n: (x.repeat(n).view(n, -1), x.repeat(n, 1).reshape(-1)[: n + 1], x.repeat(n)[n]),
    "tensor": lambda x, n: (torch.tensor(n), torch.tensor([n, 2]), torch.full((2,), n), torch.tensor([[n]]).float()),
    "lazy": lambda x, n: (x + 1, [*filter(lambda k: k - n, (3, 4, 5))], [*iter(lambda: n, 5)] if n == 5 else 0,
                          [*itertools.takewhile(lambda k: n - k, (1, 2, 3, 4))], [*itertools.accumulate((n, 1, n))]),
    "started": lambda x, n: (x + 1, list(enumerate("ab", n)), [1, 2, 3, 4, 5, 6, 7].pop(n),
                             collections.deque([1, 2, 3, 4, 5, 6], maxlen=n), dict([(n, 1)]), dict((k + n, k) for k in (1, 2)),
                             {k * n for k in (1, 2)}, dict(map(lambda k: (n, k), (1, 2)))),
    "size": lambda x, n: (torch.Size([n, 2]), torch.Size((n, 3)).numel(), x.new_zeros(torch.Size([n]))),
}  # fmt: skip


THREE = 3


def _matched(n: int) -> str:
    match n:
        case 3:
            return "three"
        case int(k) if k > 4:
            return "many"
        case [_]:
            return "no"
    return "other"


def _raised(n: int) -> Any:
    try:
        raise ValueError(n)
    except ValueError as error:
        return error.args


def _counted(n: int) -> Any:
    yield n
    yield n + 1


class _Sized:
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n


class _Index:
    def __init__(self, n: int) -> None:
        self.n = n

    def __index__(self) -> int:
        return self.n


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", READERS)
def test_readers_of_an_argument(name: str, dynamic: bool | None) -> None:
    compiled = magpy.compile(READERS[name], backend="eager", dynamic=dynamic, record_limit=50)
    x = torch.randn(4)
    for n in (3, 4, 3, 5, 6, 3, 4, 5, 6):
        assert same(READERS[name](x, n), compiled(x, n)), n


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", READERS)
def test_readers_of_a_size(name: str, dynamic: bool | None) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return READERS[name](x, y.shape[0])

    compiled = magpy.compile(function, backend="eager", dynamic=dynamic, record_limit=50)
    x = torch.randn(4)
    for n in (3, 4, 3, 5, 6, 3, 4, 5, 6):
        y = torch.randn(n, 2)
        assert same(function(x, y), compiled(x, y)), n


# -- what the user says -----------------------------------------------------------------------------------------------


def test_dynamic_lifts_from_the_start() -> None:
    check(lambda x, n: x * n, [(torch.randn(size, 3), size / 3) for size in (4, 5, 6, 9)], 1, dynamic=True)


def test_dynamic_off_lifts_nothing() -> None:
    check(lambda x: x * 2, rows(4, 5, 6, 7), 4, dynamic=False)


def test_marks() -> None:
    def marked(size: int, mark: Callable[..., None], dim: int = 0) -> tuple[torch.Tensor]:
        x = torch.randn(size, 3)
        mark(x, dim)
        return (x,)

    mark, weak, static = torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic, torch._dynamo.mark_static
    check(lambda x: x * 2, [marked(size, mark) for size in (4, 5, 6)], 1)
    check(lambda x: x * 2, [marked(size, weak) for size in (4, 5, 6)], 1)
    check(lambda x: x * 2, [marked(size, static) for size in (4, 5, 6)], 3)
    check(lambda x: x * 2, [marked(size, mark) for size in (4, 5, 6)], 3, dynamic=False)


def test_info_and_explain_name_what_is_lifted() -> None:
    served = check(lambda x, n: x * n, [(torch.randn(size, 3), size / 3) for size in (4, 5, 6)])
    lifted = magpy.info(served.compiled).lifted
    assert any("argument 1" in text and "varied" in text for text in lifted), lifted
    assert any("size 0 of argument 0" in text for text in lifted), lifted
    assert all(text in magpy.explain(served.compiled) for text in lifted)


def test_types_are_checked() -> None:
    """A bool is no int, an int no float, and a subclass of int is neither."""

    class Number(int):
        """An int of another type."""

    check(lambda x, n: (x * n, n), numbers(3, 4, 5, True, 5.0, False, 6, 6.5, Number(7), Number(8), 8), None)


def test_ints_that_are_too_large() -> None:
    check(lambda x, n: (x + 1, n, n + 1), numbers(3, 4, 5, 2**63, 2**70, -(2**80), 7), None)


def test_aliases() -> None:
    """One tensor twice, then two tensors of one size: different records."""
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    compiled = magpy.compile(lambda a, b: (a + b, a is b, a.shape[0]), backend="eager")
    for a, b in ((x, x), (x, y), (x[:4], x[:4]), (y, y), (x[:3], y[:3])):
        got = compiled(a, b)
        assert torch.equal(got[0], a + b) and got[1:] == (a is b, a.shape[0])


def test_strides() -> None:
    calls = [(torch.randn(size, 6)[:, :3],) for size in (4, 5, 6)] + [(torch.randn(3, size).t(),) for size in (4, 5, 6)]
    check(lambda x: (x.reshape(-1), x.is_contiguous(), x.contiguous().view(-1), x.stride()), calls, None)


def test_in_place_operators_keep_what_sizes_were() -> None:
    def function(x: torch.Tensor) -> Any:
        before = x.shape[0]
        y = torch.zeros(before, 2)
        y.resize_(before + 1, 2)
        y.zero_()
        x += 1
        return y, y.shape[0], before, x.shape

    check(function, rows(4, 5, 6, 7), None)


def test_gradients() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 3))

    def function(x: torch.Tensor, rate: float) -> torch.Tensor:
        return (x @ weight * rate).relu().sum() / x.shape[0]

    compiled = magpy.compile(function, backend="eager")
    for size in (4, 5, 6, 7):
        x = torch.randn(size, 3)
        (expected,) = torch.autograd.grad(function(x, size / 10), [weight])
        (got,) = torch.autograd.grad(compiled(x, size / 10), [weight])
        assert torch.equal(expected, got)
    assert magpy.info(compiled).monitored == 2


def test_behind_a_boundary() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        y = x * n
        if y.sum() > 0:
            return y.reshape(x.shape[0], -1) + n, n * 2
        return y - n, n

    check(function, [(torch.ones(size, 3) * sign, size * 2) for size in (3, 4, 5, 6) for sign in (1, -1)], None)


def test_types_of_results_of_scalars_on_tensors() -> None:
    """A float stays a number: it does not make an integer tensor's results double."""
    calls = [(torch.arange(4), torch.ones(2, dtype=torch.float16), value) for value in (0.1, 0.5, 0.25, 3.0)]
    check(lambda a, b, n: (a * n, b * n, a + n, torch.tensor(1.0) * n, b.add(b, alpha=n), torch.full((2,), n)), calls)


def test_inductor() -> None:
    def function(x: torch.Tensor, rate: float, steps: int) -> Any:
        y = (x * rate).softmax(-1).reshape(x.shape[0] * 2, -1)
        return y + steps, y.shape[0], steps + 1

    compiled = magpy.compile(function)
    for size in (4, 5, 6, 7):
        x = torch.randn(size, 4)
        expected, got = function(x, size / 10, size), compiled(x, size / 10, size)
        assert torch.allclose(expected[0], got[0]) and expected[1:] == got[1:]
    info = magpy.info(compiled)
    assert info.monitored == 2 and info.native == 0 and not info.reasons
    assert not any("constant" in text for text in info.lifted), info.lifted


class Delegates:
    """A backend of a user's that hands graphs on to Inductor."""

    takes_hints = True

    def __call__(self, module: Any, inputs: list[Any], hints: Any = None) -> Any:
        return resolve("inductor", {})(module, inputs, hints)


def test_a_backend_that_delegates_never_runs_on_what_stands_for_its_inputs() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        return (x * 2).relu() + 1, n + 1

    fast = magpy.compile(program, backend=Delegates())
    x = torch.randn(4, 4)
    with torch.no_grad():
        for n in (3, 4, 5, 6):
            found, expected = fast(x, n), program(x, n)
            assert torch.allclose(found[0], expected[0])
            assert found[1] == expected[1]
    info = magpy.info(fast)
    assert (info.monitored, info.hits, info.native) == (2, 2, 0)


def scaled_twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two outputs, of which the first does not depend on `b`."""
    h = torch.tanh(x * w) * scale
    return h, (h + b).relu()


@pytest.mark.parametrize(("backend", "options"), [("aot_eager", None), ("inductor", {"magpy.entry": "compile_fx"})])
@pytest.mark.parametrize("varied", ["number", "size"])
def test_gradients_of_records_that_vary_are_those_of_eager(
    backend: str, options: dict[str, Any] | None, varied: str
) -> None:
    compiled = magpy.compile(scaled_twice, backend=backend, options=options)
    for number in range(6):
        size, scale = (4, 1.5 + number) if varied == "number" else (4 + number, 1.5)
        x = torch.linspace(-1, 1, 3 * size).view(size, 3)
        found = []
        for function in (scaled_twice, compiled):
            w, b = (torch.full((3,), value, requires_grad=True) for value in (0.5, 0.25))
            function(x, w, b, scale)[0].sum().backward()
            missing = b.grad
            (slope,) = torch.autograd.grad(function(x, w, b, scale)[1].sum(), w, create_graph=True)
            (slope**2).sum().backward()
            found.append((w.grad, missing))
        (one, missing), (other, missing_too) = found
        torch.testing.assert_close(one, other)
        assert missing is missing_too is None
    assert magpy.info(compiled).lifted
