"""Programs whose records are saved by one process and served by another, which has nothing but torch and magpy-runtime."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    """A small model with containers, buffers and settings."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])
        self.norm = nn.LayerNorm(8)
        self.register_buffer("shift", torch.full((8,), 0.5))
        self.scale = 2.0
        self.names = ("y", "x")

    def forward(self, x: torch.Tensor, flag: bool = True) -> dict[str, Any]:
        y = x
        for layer in self.layers:
            y = self.norm(layer(y)).relu()
        if flag:
            y = y * self.scale + self.shift
        return {self.names[0]: y, self.names[1]: x}


def model(depth: int = 2) -> Model:
    """The model, with the same weights each time."""
    torch.manual_seed(0)
    return Model(depth).eval()


def helper(x: torch.Tensor, count: int) -> tuple[torch.Tensor, list[str]]:
    """Called by `dynamic`; a boundary in its loop."""
    said = []
    while x.sum() < 50:
        x = x * 2 + 1
        said.append(f"doubled {count}")
        count += 1
    return x, said


def dynamic(x: torch.Tensor, count: int = 0) -> tuple[torch.Tensor, list[str]]:
    """A loop and a branch that depend on values."""
    x, said = helper(x, count)
    if x.max().item() > 20:
        return x - 1, said
    return x + 1, [*said, "small"]


def refuse(x: torch.Tensor) -> torch.Tensor:
    """Raises."""
    if x.shape[0] > 2:
        raise ValueError("too large")
    return x


def batch(seed: int) -> torch.Tensor:
    """An input for `dynamic`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(3, 3, generator=generator) * (seed % 7)


def bert() -> Any:
    """A small BERT, with the same weights each time."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return transformers.BertModel(config).eval()


def sentence(seed: int) -> dict[str, torch.Tensor]:
    """An input for `bert`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 200, (2, 12), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def alike(one: Any, other: Any) -> bool:
    """Whether two results are of the same types and values; tensors up to the rounding of compiled code."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    if isinstance(one, dict):
        return [*one] == [*other] and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)
