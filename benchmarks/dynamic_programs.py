"""Programs whose control flow depends on tensors' values: those of `benchmarks/dynamic.py` and `tests/test_dynamic.py`.

Each entry of `PROGRAMS` makes a fresh world: `(callable, make_arguments)`, where `make_arguments(number)` gives the
arguments of a call, varied from call to call, the same for the same number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

World = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
PROGRAMS: dict[str, Callable[[], World]] = {}


def program(make: Callable[[], World]) -> Callable[[], World]:
    """Register a program by its name."""
    PROGRAMS[make.__name__] = make
    return make


def generator(number: int) -> torch.Generator:
    """The random numbers of one call."""
    return torch.Generator().manual_seed(number)


class RaggedLSTM(nn.Module):
    """A cell that runs as long as any sequence of the batch is not over; what is over keeps its state."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.width = width

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], self.width)
        c = x.new_zeros(x.shape[0], self.width)
        step = 0
        while (lengths > step).any():
            running = (lengths > step).unsqueeze(1)
            new_h, new_c = self.cell(x[:, step], (h, c))
            h = torch.where(running, new_h, h)
            c = torch.where(running, new_c, c)
            step += 1
        return h


@program
def lstm_by_length() -> World:
    torch.manual_seed(0)

    def arguments(number: int) -> tuple[Any, ...]:
        g = generator(number)
        return torch.randn(4, 12, 16, generator=g), torch.randint(1, 4 + number % 8, (4,), generator=g)

    return RaggedLSTM().eval(), arguments


class BlockDrop(nn.Module):
    """A policy decides for each block, from the input, whether it runs."""

    def __init__(self, width: int = 32, blocks: int = 6) -> None:
        super().__init__()
        self.policy = nn.Linear(width, blocks)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keep = torch.sigmoid(self.policy(x)).mean(0) > 0.5
        for index, block in enumerate(self.blocks):
            if keep[index]:
                x = torch.relu(x + block(x))
        return self.head(x)


@program
def block_drop() -> World:
    torch.manual_seed(0)
    return BlockDrop().eval(), lambda number: (torch.randn(2, 32, generator=generator(number)),)


class EarlyExit(nn.Module):
    """A classifier that stops at the first exit that is sure."""

    def __init__(self, width: int = 32, stages: int = 5) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(stages))
        self.exits = nn.ModuleList(nn.Linear(width, 4) for _ in range(stages))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        logits = x
        for number, (stage, leave) in enumerate(zip(self.stages, self.exits)):
            x = stage(x)
            logits = leave(x)
            if logits.softmax(-1).max().item() > 0.31 + 0.01 * number:
                return logits, number
        return logits, len(self.stages)


@program
def early_exit() -> World:
    torch.manual_seed(0)
    return EarlyExit().eval(), lambda number: (torch.randn(1, 32, generator=generator(number)) * (0.1 + number % 7),)


class Decoder(nn.Module):
    """A small decoder: embeddings, one attention over a fixed window, logits."""

    def __init__(self, words: int = 23, width: int = 16, window: int = 8) -> None:
        super().__init__()
        self.window = window
        self.embed = nn.Embedding(words, width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        y, _ = self.attend(x, x, x, need_weights=False)
        return self.out((x + y)[:, -1])


class Greedy(nn.Module):
    """Greedy decoding until the end token comes up, or for so many steps."""

    def __init__(self, end: int = 3, steps: int = 10) -> None:
        super().__init__()
        self.decoder = Decoder()
        self.end = end
        self.steps = steps

    def forward(self, window: torch.Tensor) -> list[int]:
        found: list[int] = []
        for _ in range(self.steps):
            token = self.decoder(window).argmax(-1)
            window = torch.cat([window[:, 1:], token[:, None]], dim=1)
            word = int(token)
            found.append(word)
            if word == self.end or word % 7 == 0:
                break
        return found


@program
def greedy_decoding() -> World:
    torch.manual_seed(1)
    return Greedy().eval(), lambda number: (torch.randint(0, 23, (1, 8), generator=generator(number)),)


class Beam(nn.Module):
    """Beam search of a fixed width, which stops when the best hypothesis has ended."""

    def __init__(self, beams: int = 3, end: int = 3, steps: int = 6) -> None:
        super().__init__()
        self.decoder = Decoder()
        self.beams = beams
        self.end = end
        self.steps = steps

    def forward(self, window: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        windows = window.expand(self.beams, -1)
        scores = torch.full((self.beams,), -1e4)
        scores[0] = 0.0
        step = 0
        while step < self.steps:
            log_probabilities = self.decoder(windows).log_softmax(-1)
            total = (scores[:, None] + log_probabilities).flatten()
            scores, places = total.topk(self.beams)
            words = places % log_probabilities.shape[1]
            windows = torch.cat([windows[places // log_probabilities.shape[1]][:, 1:], words[:, None]], dim=1)
            step += 1
            if (words[0] % 11 == self.end).item():
                break
        return windows, scores


@program
def beam_search() -> World:
    torch.manual_seed(2)
    return Beam().eval(), lambda number: (torch.randint(0, 23, (1, 8), generator=generator(number)),)


class Experts(nn.Module):
    """A mixture of experts: each sees the tokens that are routed to it, found by `nonzero`."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        choice = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (choice == number).nonzero().squeeze(1)
            if rows.numel() > 0:
                out.index_copy_(0, rows, expert(x[rows]))
        return out


@program
def experts_by_nonzero() -> World:
    torch.manual_seed(0)
    return Experts().eval(), lambda number: (torch.randn(6, 16, generator=generator(number)),)


def overlap(box: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Intersection over union of one box with others."""
    left = torch.maximum(box[:2], boxes[:, :2])
    right = torch.minimum(box[2:], boxes[:, 2:])
    common = (right - left).clamp(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return common / (areas + (box[2:] - box[:2]).prod() - common)


def suppress(boxes: torch.Tensor, scores: torch.Tensor) -> list[int]:
    """Non-maximum suppression, box by box."""
    kept: list[int] = []
    alive = torch.ones(len(scores), dtype=torch.bool)
    while alive.any():
        best = int(torch.where(alive, scores, torch.full_like(scores, -1.0)).argmax())
        kept.append(best)
        alive = alive & (overlap(boxes[best], boxes) < 0.3)
        alive[best] = False
    return kept


@program
def non_maximum_suppression() -> World:
    def arguments(number: int) -> tuple[Any, ...]:
        g = generator(number)
        corners = torch.rand(6, 2, generator=g) * 4
        return torch.cat([corners, corners + 0.5 + torch.rand(6, 2, generator=g) * 3], dim=1), torch.rand(
            6, generator=g
        )

    return suppress, arguments


class TrainStep:
    """Forward, backward and an optimizer's step in one compiled call."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.002, momentum=0.9)

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@program
def train_step() -> World:
    torch.manual_seed(0)

    def arguments(number: int) -> tuple[Any, ...]:
        g = generator(number)
        return torch.randn(5, 8, generator=g), torch.randn(5, 1, generator=g)

    return TrainStep(), arguments


LOGGER = logging.getLogger("magpy.dynamic_programs")
LOGGER.setLevel(logging.INFO)


class Logged(nn.Module):
    """A forward that prints its progress and logs a metric."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        print("hidden mean", round(x.mean().item(), 3))
        x = self.second(x)
        LOGGER.info("norm %.3f", x.norm().item())
        return x.softmax(-1)


@program
def print_and_log() -> World:
    torch.manual_seed(0)
    return Logged().eval(), lambda number: (torch.randn(3, 16, generator=generator(number)),)


def solve(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Solve by Cholesky; where that fails, try again with more on the diagonal."""
    jitter = 0.0
    for attempt in range(5):
        try:
            if attempt == 0 and torch.linalg.det(a) < 0:
                raise ValueError("not positive")
            factor = torch.linalg.cholesky(a + jitter * torch.eye(a.shape[0]))
            return torch.cholesky_solve(b, factor), attempt
        except (RuntimeError, ValueError):
            jitter = 10.0**attempt
    return b, -1


@program
def retry_on_failure() -> World:
    def arguments(number: int) -> tuple[Any, ...]:
        g = generator(number)
        m = torch.randn(4, 4, generator=g)
        return m @ m.T - (number % 4) * 1.5 * torch.eye(4), torch.randn(4, 1, generator=g)

    return solve, arguments


class Nested(nn.Module):
    """A value is read three calls deep, inside of `with` and `for`."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 3:
            return x / x.abs().max()
        return x

    def layer(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.gate(layer(x))
        return torch.relu(layer(x)) + scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = []
        for layer in self.layers:
            x = self.layer(layer, x)
            parts.append(x.sum(-1))
        return torch.stack(parts)


@program
def nested_three_deep() -> World:
    torch.manual_seed(0)
    return Nested(), lambda number: (torch.randn(2, 16, generator=generator(number)) * (1 + number % 5),)


class Gated(nn.Module):
    """A block with two ways, both pure tensor code."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width, bias=False)
        self.wide = nn.Linear(width, width)
        self.narrow = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gate(x)
        if y.mean() > 0:
            y = torch.relu(self.wide(y))
        else:
            y = torch.tanh(self.narrow(y)) - 1
        return y * 2


@program
def gated_block() -> World:
    torch.manual_seed(0)
    return Gated().eval().requires_grad_(False), lambda number: (torch.randn(8, 32, generator=generator(number)),)
