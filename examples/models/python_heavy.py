"""A program that is more Python than tensors: what research code does around its operators.

Closures, comprehensions, generator expressions, dataclasses, enums, dict and list bookkeeping, `**kwargs`, try/except/finally,
context managers (a class, a generator, `torch.no_grad`), properties, `super()`, partials, and side effects on attributes,
lists and dicts that live longer than the call.
"""

import contextlib
import enum
import functools
import itertools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Kind(enum.Enum):
    """What a block does to its input."""

    LINEAR = "linear"
    GATED = "gated"
    RESIDUAL = "residual"


@dataclass(frozen=True)
class BlockSpec:
    """How to build and to run one block."""

    name: str
    kind: Kind
    width: int
    options: tuple[tuple[str, float], ...] = ()

    @property
    def is_gated(self) -> bool:
        return self.kind is Kind.GATED


@dataclass
class Report:
    """What one call leaves behind for its caller."""

    output: Tensor
    losses: dict[str, Tensor] = field(default_factory=dict)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    order: tuple[str, ...] = ()

    @property
    def total(self) -> Tensor:
        return functools.reduce(operator.add, self.losses.values())


class Step(NamedTuple):
    """A line of the running log."""

    name: str
    depth: int
    shape: torch.Size


class Scope:
    """Keeps the names of the blocks that are running on a stack."""

    def __init__(self, stack: list[str], name: str) -> None:
        self.stack = stack
        self.name = name

    def __enter__(self) -> int:
        self.stack.append(self.name)
        return len(self.stack)

    def __exit__(self, *problem: object) -> None:
        assert self.stack.pop() == self.name


@contextlib.contextmanager
def temporarily(owner: object, **values: Any) -> Iterator[None]:
    """Sets attributes for the length of a block and puts the old ones back."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def activation(name: str, **options: float) -> Callable[[Tensor], Tensor]:
    """A closure over options, or a KeyError."""
    table: dict[str, Callable[..., Tensor]] = {"gelu": F.gelu, "leaky": F.leaky_relu, "tanh": torch.tanh}
    function = table[name]

    def apply(x: Tensor) -> Tensor:
        return function(x, **options)

    return apply


class Block(nn.Module):
    """One block; subclasses say what it does."""

    registry: ClassVar[dict[Kind, type["Block"]]] = {}

    def __init_subclass__(cls, kind: Kind, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Block.registry[kind] = cls

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.spec = spec
        self.proj = nn.Linear(spec.width, spec.width)
        self.scale = 1.0

    def forward(self, x: Tensor, *, act: Callable[[Tensor], Tensor], **_unused: Any) -> Tensor:
        return act(self.proj(x)) * self.scale


class LinearBlock(Block, kind=Kind.LINEAR):
    pass


class GatedBlock(Block, kind=Kind.GATED):
    def __init__(self, spec: BlockSpec) -> None:
        super().__init__(spec)
        self.gate = nn.Linear(spec.width, spec.width)

    def forward(self, x: Tensor, *, act: Callable[[Tensor], Tensor], sharpness: float = 1.0, **rest: Any) -> Tensor:
        return super().forward(x, act=act, **rest) * torch.sigmoid(self.gate(x) * sharpness)


class ResidualBlock(Block, kind=Kind.RESIDUAL):
    def forward(self, x: Tensor, *, act: Callable[[Tensor], Tensor], **rest: Any) -> Tensor:
        return x + super().forward(x, act=act, **rest)


class PythonHeavy(nn.Module):
    """Blocks, and the bookkeeping around them.

    Args:
        width: Features of every block.
        depth: How many blocks there are; their kinds alternate.
    """

    def __init__(self, width: int = 16, depth: int = 6) -> None:
        super().__init__()
        kinds = itertools.cycle(Kind)
        self.specs = [
            BlockSpec(f"block{n}", next(kinds), width, (("sharpness", 1.0 + n),) if n % 2 else ()) for n in range(depth)
        ]
        self.blocks = nn.ModuleDict({spec.name: Block.registry[spec.kind](spec) for spec in self.specs})
        self.register_buffer("mean", torch.zeros(width))
        self.mean: Tensor
        self.log: list[Step] = []
        self.recent: deque[str] = deque(maxlen=3)
        self.last_shapes: dict[str, torch.Size] = {}
        self.running: list[str] = []
        self.phase = "idle"
        self.fallbacks = 0

    @property
    def gated(self) -> list[str]:
        return [spec.name for spec in self.specs if spec.is_gated]

    def choose(self, name: str) -> Callable[[Tensor], Tensor]:
        """An activation by name; what is not known becomes a tanh."""
        try:
            return activation(name, **({"negative_slope": 0.1} if name == "leaky" else {}))
        except KeyError as problem:
            self.fallbacks = len(problem.args)
            return activation("tanh")
        finally:
            self.recent.append(name)

    def run_block(self, spec: BlockSpec, x: Tensor, act: Callable[[Tensor], Tensor], **common: Any) -> Tensor:
        options = {**common, **dict(spec.options)}
        with Scope(self.running, spec.name) as depth:
            y: Tensor = self.blocks[spec.name](x, act=act, **options)
            self.log.append(Step(spec.name, depth, y.shape))
            self.last_shapes[spec.name] = y.shape
        return y

    def forward(self, x: Tensor, *names: str, weights: dict[str, float] | None = None, **common: Any) -> Report:
        """Runs the blocks on x [batch, width] with the activations `names` in turn."""
        weights = {} if weights is None else weights
        chosen = [self.choose(name) for name in names or ("gelu", "leaky", "unheard-of")]
        self.log.clear()
        by_kind: defaultdict[Kind, list[Tensor]] = defaultdict(list)
        outputs: OrderedDict[str, Tensor] = OrderedDict()
        with temporarily(self, phase="running"), contextlib.ExitStack() as stack:
            stack.enter_context(temporarily(self.blocks["block0"], scale=0.5))
            for spec, act in zip(self.specs, itertools.cycle(chosen)):
                x = self.run_block(spec, x, act, **common)
                outputs[spec.name] = x
                by_kind[spec.kind].append(x)
            phase = self.phase
        outputs.move_to_end("block0")
        report = Report(output=x, order=tuple(outputs))
        report.shapes.extend(tuple(t.shape) for t in outputs.values())
        report.losses.update(
            {
                kind.value: sum((t.square().mean() for t in tensors), torch.zeros(())) / len(tensors)
                for kind, tensors in by_kind.items()
            }
        )
        *_, last = (name for name in outputs if name not in self.gated)
        report.losses[last] = max(weights.get(last, 1.0), 0.25) * (x - self.mean).abs().mean()
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
        assert phase == "running" and self.phase == "idle" and not self.running
        return replace(report, order=tuple(sorted(report.order, key=lambda name: (name not in self.gated, name))))
