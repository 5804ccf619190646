"""Everything that a program can read is changed, one thing at a time: compiled calls give what eager calls give.

Each change says how the next call must be served: from a record where the program does not see it, by a run that is watched
where it does. Whatever was changed is then put back, and the first record serves again.
"""

from __future__ import annotations

import builtins
import collections
import copy
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from serving import Served, equal
from torch import nn

import magpy

GAIN = 2.0


class Meta(type):
    shared = 3.0


class Base:
    inherited = 1.5

    def method(self) -> float:
        return 1.0


class Mixin:
    pass


class Tool(Base, metaclass=Meta):
    rate = 0.5

    def __init__(self) -> None:
        self.value = 1.25
        self.unread = 0

    @property
    def doubled(self) -> float:
        return self.value * 2

    def __getattr__(self, name: str) -> float:
        if name == "computed":
            return 4.0
        raise AttributeError(name)


class OtherTool(Base, metaclass=Meta):
    rate = 0.75
    doubled = 7.0
    computed = 4.0


class Slotted:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 3.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.ReLU())
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.layers(self.first(x))) * self.scale + self.frozen
        return y if self.training else y + 1


class World:
    """What the program reads."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net().eval()
        self.kind: Any = type("Kind", (Tool,), {})
        self.tool = self.kind()
        self.slotted = Slotted()
        self.queue = collections.deque([2.0, 3.0])
        self.names = {"a", "b"}
        self.table: dict[Any, Any] = {"k": 2.0, "other": None}
        self.numbers: list[Any] = [1.0, 2.0]
        self.ordered = collections.OrderedDict(a=1.0, b=2.0)
        self.settings = types.ModuleType("settings")
        self.settings.value = 1.5
        self.referent: Any = Tool()
        self.reference = weakref.ref(self.referent)
        self.constant = torch.full((4,), 2.0)
        captured = 1.5

        def helper(x: Any, by: float = 2.0, *, plus: float = 1.0) -> Any:
            return x * by + plus + captured

        def set_captured(value: float) -> None:
            nonlocal captured
            captured = value

        self.helper = helper
        self.set_captured = set_captured


def program(world: World) -> Callable[..., Any]:
    """A function that reads all of it."""
    (net, tool, slotted, queue, names, table, numbers, ordered, settings, reference, helper, constant) = (
        world.net, world.tool, world.slotted, world.queue, world.names, world.table, world.numbers, world.ordered,
        world.settings, world.reference, world.helper, world.constant,
    )  # fmt: skip

    def run(x: torch.Tensor) -> dict[str, Any]:
        y = net(x)
        z = y * tool.value + tool.rate + tool.doubled + tool.inherited + tool.method() + tool.computed
        z = z + type(tool).shared + slotted.a + queue[0] + len(queue)
        if "a" in names:
            z = z * 2
        z = z + table["k"] + table.get("missing", 0.0) + numbers[1] + len(numbers) + settings.value
        for key, number in ordered.items():
            z = z * number if key == "a" else z - number
        z = z * GAIN if abs(-1.0) == 1.0 else z
        z = z * 3 if reference() is not None else z * 5
        z = helper(z) * constant
        return {"z": z, "grad": torch.is_grad_enabled(), "fresh": torch.zeros(2)}

    return run


Change = Callable[[World], Any]


def put(path: str, name: str, value: Any) -> Change:
    """A change: an attribute of something in the world, or of itself if `path` is empty, is set."""

    def change(world: World) -> None:
        obj: Any = world
        for part in path.split(".") if path else ():
            obj = getattr(obj, part)
        setattr(obj, name, value(obj) if isinstance(value, types.LambdaType) else value)

    change.__name__ = f"{path}.{name}"
    return change


def do(text: str) -> Change:
    """A change: a statement."""

    def change(world: World) -> None:
        exec(text, {"w": world, **globals()})

    change.__name__ = text
    return change


HIT, NEW = "hits", "monitored"

CHANGES: list[tuple[Change, str]] = [
    # attributes of instances and classes
    (put("tool", "value", 2.5), NEW),
    (put("tool", "value", float("1.25")), HIT),
    (put("tool", "value", 1), NEW),
    (put("tool", "unread", 1), HIT),
    (put("tool", "new", 1), HIT),
    (put("tool", "rate", 0.75), NEW),
    (put("tool", "inherited", 1.75), NEW),
    (put("tool", "method", lambda obj: lambda: 2.0), NEW),
    (put("tool", "computed", 5.0), NEW),
    (put("kind", "rate", 0.25), NEW),
    (put("kind", "unread", 0.25), HIT),
    (put("kind", "new", 0.25), HIT),
    (put("kind", "inherited", 0.25), NEW),
    (put("kind", "shared", 0.25), NEW),
    (put("kind", "computed", 6.0), NEW),
    (put("kind", "method", lambda obj: lambda self: 9.0), NEW),
    (put("kind", "doubled", property(lambda self: 8.0)), NEW),
    (put("kind", "__getattr__", lambda obj: lambda self, name: 11.0), NEW),
    (put("kind", "__getattribute__", lambda obj: lambda self, name: 1.0), NEW),
    (put("kind", "__bases__", lambda obj: (Tool, Mixin)), HIT),
    (do("w.kind.__bases__ = (OtherTool, *w.kind.__bases__)"), NEW),
    (do("del w.tool.value; w.tool.value = 1.25"), HIT),
    (put("tool", "__dict__", lambda obj: dict(vars(obj))), NEW),  # a dictionary is held by identity
    (put("tool", "__dict__", lambda obj: {**vars(obj), "value": 3.0}), NEW),
    (put("tool", "__class__", lambda obj: OtherTool), NEW),
    (put("tool", "__class__", lambda obj: type("Kind", (Tool,), {"rate": 4.0})), NEW),
    (put("slotted", "a", 4.0), NEW),
    (put("slotted", "a", float("3.0")), HIT),
    # containers
    (do("w.table['k'] = 3.0"), NEW),
    (do("w.table['k'] = float('2.0')"), HIT),
    (do("w.table['k'] = 2"), NEW),
    (do("w.table['missing'] = 3.0"), NEW),
    (do("w.table['unread'] = 3.0"), HIT),
    (do("items = dict(w.table); w.table.clear(); w.table.update(items)"), HIT),
    (do("w.table.update({str(n): n for n in range(1000)})"), HIT),
    (do("w.numbers[1] = 3.0"), NEW),
    (do("w.numbers[1] = float('2.0')"), HIT),
    (do("w.numbers[0] = 3.0"), NEW),
    (do("w.numbers.append(3.0)"), NEW),
    (do("w.numbers += [0.0] * 1000; del w.numbers[2:]"), HIT),
    (do("w.numbers.reverse()"), NEW),
    (do("w.queue[0] = 5.0"), NEW),
    (do("w.queue[1] = 5.0"), NEW),
    (do("w.queue.append(5.0)"), NEW),
    (do("w.queue.rotate()"), NEW),
    (do("w.names.discard('a')"), NEW),
    (do("w.ordered.move_to_end('a')"), NEW),
    (do("w.ordered['b'] = 3.0"), NEW),
    (do("w.ordered['c'] = 3.0"), NEW),
    # functions, cells, globals, builtins, modules, weak references
    (do("w.set_captured(2.5)"), NEW),
    (do("w.set_captured(float('1.5'))"), HIT),
    (do("w.set_captured(1)"), NEW),
    (put("helper", "__defaults__", (3.0,)), NEW),
    (put("helper", "__kwdefaults__", lambda obj: {"plus": 3.0}), NEW),
    (do("w.helper.__kwdefaults__['plus'] = 4.0"), NEW),
    (do("def f(x, by=2.0, *, plus=1.0): return x\nc = w.set_captured\n"
        "def make():\n captured = 0\n def f(x, by=2.0, *, plus=1.0): return x * captured\n return f\n"
        "w.helper.__code__ = make().__code__"), NEW),
    (put("helper", "attribute", 1), HIT),
    (put("settings", "value", 2.5), NEW),
    (put("settings", "other", 2.5), HIT),
    (do("w.settings.__dict__.clear(); w.settings.value = 9.0"), NEW),
    (put("", "referent", None), NEW),
    # modules of torch
    (do("w.net.scale = 3.0"), NEW),
    (do("w.net.first = nn.Linear(4, 4)"), NEW),
    (do("w.net.first.weight = nn.Parameter(torch.ones(4, 4))"), NEW),
    (do("w.net.first.weight.data = torch.ones(4, 4)"), HIT),
    (do("w.net.first.weight.data.zero_()"), HIT),
    (do("w.net.first.weight.requires_grad_(False)"), NEW),
    (do("w.net.frozen.requires_grad_(True)"), NEW),
    (do("w.net.frozen.data = torch.ones(1)"), NEW),
    (do("w.net.frozen.data = torch.ones(4, 2)[:, 0]"), NEW),
    (do("w.net.frozen.data = torch.ones(4, dtype=torch.float64)"), NEW),
    (do("w.net.frozen = None; w.net.frozen = nn.Parameter(torch.ones(4), requires_grad=False)"), NEW),
    (do("w.net.first.bias = None"), NEW),
    (do("w.net.norm.running_mean = torch.ones(4)"), NEW),
    (do("w.net.norm.running_mean.fill_(3.0)"), HIT),
    (do("w.net.norm.eps = 0.5"), NEW),
    (do("w.net.load_state_dict({k: v + 1 for k, v in w.net.state_dict().items()})"), HIT),
    (do("w.net.train()"), NEW),
    (do("w.net.norm.training = True"), NEW),
    (do("w.net.layers.append(nn.Tanh())"), NEW),
    (do("w.net.layers[2] = nn.Tanh()"), NEW),
    (do("del w.net.layers[1]"), NEW),
    (do("w.net.layers[1].p = 0.0"), HIT),
    (do("w.net.register_buffer('unread', torch.ones(1))"), HIT),
    (do("w.net.first.register_forward_hook(lambda m, i, o: o + 1)"), NEW),
    (do("w.net.layers[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))"), NEW),
    (do("h = w.net.first.register_forward_hook(lambda m, i, o: o + 1); h.remove()"), HIT),
    (do("w.net.forward = lambda x: x"), NEW),
    (do("w.net.first.__class__ = type('L', (nn.Linear,), {'forward': lambda self, x: x})"), NEW),
    (do("w.net.first.__dict__ = dict(w.net.first.__dict__)"), NEW),
    (do("w.net.first._parameters = dict(w.net.first._parameters)"), NEW),
    (do("w.net.first._parameters['weight'] = nn.Parameter(torch.zeros(4, 4))"), NEW),
    (do("w.constant.add_(1)"), HIT),
    (do("w.constant.resize_(1)"), NEW),
]  # fmt: skip


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a failing test changed outside of its world is put back."""
    gain, absolute, dtype = GAIN, builtins.abs, torch.get_default_dtype()
    yield
    globals()["GAIN"], builtins.abs = gain, absolute
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(True)


def check(run: Any, served: Served, how: str, x: torch.Tensor) -> None:
    """The next call is served in this way, and gives what eager gives."""
    state = torch.get_rng_state()
    wanted = _outcome(run, x)
    torch.set_rng_state(state)
    found = _outcome(lambda x: served(how, x), x)
    assert equal(wanted, found)


def _outcome(function: Any, x: torch.Tensor) -> Any:
    try:
        return function(x)
    except Exception as error:
        assert not isinstance(error, AssertionError)
        return str(type(error))


@pytest.mark.parametrize(("change", "how"), CHANGES, ids=[change.__name__[:70] for change, _ in CHANGES])
def test_a_change_is_seen(change: Change, how: str) -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    for _ in range(3):
        check(run, served, HIT, x)
    change(world)
    raises = isinstance(_outcome(run, x), str)
    check(run, served, how, x)
    if not raises:
        check(run, served, HIT, x)


def glob(value: float) -> Change:
    def change(world: World) -> None:
        globals()["GAIN"] = value

    return change


def builtin(world: World) -> None:
    builtins.abs = lambda value: 2.0  # type: ignore[assignment]


def test_globals_and_builtins() -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    check(run, served, HIT, x)
    globals()["UNREAD"] = object()
    check(run, served, HIT, x)
    glob(float("2.0"))(world)
    check(run, served, HIT, x)
    glob(3.0)(world)
    check(run, served, NEW, x)
    glob(2.0)(world)
    check(run, served, HIT, x)
    absolute = builtins.abs
    globals()["abs"] = lambda value: 1.0
    check(run, served, NEW, x)
    del globals()["abs"]
    check(run, served, HIT, x)
    builtin(world)
    check(run, served, NEW, x)
    builtins.abs = absolute
    check(run, served, HIT, x)


def test_metaclass_and_base() -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    for owner, name, value in ((Meta, "shared", 4.0), (Base, "inherited", 2.5), (Tool, "rate", 1.5)):
        before = getattr(owner, name)
        try:
            setattr(owner, name, value)
            check(run, served, NEW, x)
            check(run, served, HIT, x)
        finally:
            setattr(owner, name, before)
        check(run, served, HIT, x)
    for owner in (Meta, Base, Tool, Net, nn.Linear):
        owner.something_new = 1  # type: ignore[union-attr]
        check(run, served, HIT, x)
        del owner.something_new  # type: ignore[union-attr]
        check(run, served, HIT, x)


def test_modes() -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    with torch.no_grad():
        check(run, served, NEW, x)
        check(run, served, HIT, x)
    check(run, served, HIT, x)
    with torch.inference_mode():
        check(run, served, NEW, x)
        check(run, served, HIT, x)
    check(run, served, HIT, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(run, served, NEW, x)
        check(run, served, HIT, x)
    check(run, served, HIT, x)
    torch.set_default_dtype(torch.float64)
    check(run, served, NEW, x)
    check(run, served, HIT, x)
    torch.set_default_dtype(torch.float32)
    check(run, served, HIT, x)


ARGUMENTS = [
    torch.zeros(3, 4), torch.ones(2, 4).double().float(), torch.ones(4, 2).t(), torch.ones(2, 4, requires_grad=True),
    torch.ones(1, 4), torch.ones(4), nn.Parameter(torch.ones(2, 4)), torch.ones(2, 4, dtype=torch.float64),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ARGUMENTS)))
def test_arguments(number: int) -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    other = ARGUMENTS[number]
    if isinstance(_outcome(run, other), str):
        check(run, served, NEW, other)
    elif number != 1:
        check(run, served, NEW, other)
        check(run, served, HIT, other)
    else:
        check(run, served, HIT, other)
    check(run, served, HIT, x)


def test_global_hooks() -> None:
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    hook = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    try:
        check(run, served, NEW, x)
        check(run, served, HIT, x)
    finally:
        hook.remove()
    check(run, served, HIT, x)


def test_back_and_forth() -> None:
    """What is put back is served by the first record again, as often as one likes."""
    world = World()
    run = program(world)
    served = Served(magpy.compile(run, backend="eager"))
    x = torch.ones(2, 4)
    check(run, served, NEW, x)
    weight = world.net.first.weight
    changed = nn.Parameter(torch.ones(4, 4))
    for number in range(10):
        how = HIT if number else NEW
        world.net.first.weight = changed
        check(run, served, how, x)
        world.net.first.weight = weight
        world.numbers.append(0.0)
        check(run, served, how, x)
        world.numbers.pop()
        world.tool.rate = 9.0
        check(run, served, how, x)
        del world.tool.rate
        check(run, served, HIT, x)


def test_a_module_is_served_natively_too() -> None:
    net = Net().eval()
    compiled = magpy.compile(net, backend="eager")
    served = Served(compiled)
    x = torch.ones(2, 4)
    check(net, served, NEW, x)
    check(net, served, HIT, x)
    for change in (
        lambda: net.train(),
        lambda: net.eval(),
        lambda: compiled.first.register_forward_hook(lambda m, i, o: o * 2),
        lambda: setattr(net, "__class__", type("Net", (Net,), {"forward": lambda self, x: self.first(x)})),
    ):
        change()
        clone = copy.deepcopy(net)
        wanted = clone(x)
        assert equal(compiled(x), wanted)


def test_which_records_are_served_natively() -> None:
    log: list[int] = []
    programs: dict[str, Any] = {
        "plain": lambda x: (x + 1, {"y": [x * 2]}),
        "sizes": lambda x: x + x.shape[0],
        "effect": lambda x: (log.append(1), x + 1)[1],
        "random": lambda x: x + torch.rand(2),
    }
    for name, program in programs.items():
        compiled = magpy.compile(program, backend="eager")
        for size in (2, 3, 4) if name == "sizes" else (2, 2, 2):
            compiled(torch.ones(size, 2))
        record = compiled.__magpy__.cache.records[0]  # type: ignore[attr-defined]
        assert record.native is not None, name
        assert record.native.direct == (name != "random"), name


def test_a_graph_that_updates_only_what_it_has_made_may_be_run_natively() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(x + 1) * 2

    def functional(graph: Any, inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            return graph(*inputs)

        run.functional = True  # type: ignore[attr-defined]
        return run

    for backend, direct in (("eager", False), (functional, True)):
        compiled = magpy.compile(program, backend=backend)
        served = Served(compiled)
        check(program, served, NEW, torch.ones(2))
        check(program, served, HIT, -torch.ones(2))
        assert compiled.__magpy__.cache.records[0].native.direct is direct  # type: ignore[attr-defined]

    def updating(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    compiled = magpy.compile(updating, backend="eager")
    x = torch.ones(2)
    assert compiled(x) is x
    assert compiled(x) is x
    assert x.tolist() == [3.0, 3.0]
    assert not compiled.__magpy__.cache.records[0].native.direct  # type: ignore[attr-defined]


def test_many_calls_grow_nothing() -> None:
    """100,000 calls: memory, records and time stay."""
    import gc
    import sys
    import time

    compiled = magpy.compile(lambda x, y: torch.relu(x + y), backend=lambda graph, inputs: lambda *args: (args[0],))
    x = torch.ones(2)
    times = []
    blocks = []
    for _ in range(10):
        started = time.perf_counter()
        for _ in range(10_000):
            compiled(x, x[:])
        times.append(time.perf_counter() - started)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    assert abs(blocks[-1] - blocks[2]) < 100
    assert magpy.info(compiled).records == 1
    assert min(times[5:]) < 3 * min(times[:5])
