"""The models of the demo and of the benchmarks: how to build each, and inputs for it.

Every model is plain PyTorch as a user would write it; nothing here knows of MagPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import densenet, lstm, monodepth, python_heavy, resnet, seq2seq

__all__ = ["EXAMPLES", "Arguments", "Example"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A model and its inputs.

    Attributes:
        name: What `--only` calls it.
        title: What the table calls it.
        build: Makes the model, with random weights; seed before the call.
        inputs: Positional and keyword arguments for a call, from a seed.
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Arguments]


def _transformer(name: str) -> Callable[[], nn.Module]:
    """Imports `transformers` only when the model is wanted, since that takes seconds."""

    def build() -> nn.Module:
        from . import transformers_models

        model: nn.Module = getattr(transformers_models, name)()
        return model

    return build


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _images(height: int, width: int) -> Callable[[int], Arguments]:
    return lambda seed: ((torch.rand(1, 3, height, width, generator=_generator(seed)),), {})


def _words(batch: int, length: int, words: int, masked: bool = True) -> Callable[[int], Arguments]:
    """Token numbers [batch, length] and a mask that leaves out some of the last sentence's end."""

    def inputs(seed: int) -> Arguments:
        tokens = torch.randint(2, words, (batch, length), generator=_generator(seed))
        if not masked:
            return (), {"input_ids": tokens}
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[-1, length - 3 - seed % 4 :] = 0
        return (), {"input_ids": tokens, "attention_mask": mask}

    return inputs


def _steps(seed: int) -> Arguments:
    return (torch.randn(4, 16, 32, generator=_generator(seed)),), {}


def _sentences(seed: int) -> Arguments:
    source = torch.randint(2, 200, (3, 10), generator=_generator(seed))
    source[1, 7:] = seq2seq.Seq2Seq.PAD
    return (source,), {"max_length": 6}


def _vectors(seed: int) -> Arguments:
    x = torch.randn(8, 16, generator=_generator(seed))
    return (x, "gelu", "leaky", "unheard-of"), {"weights": {"block5": 0.5}, "verbose": False}


_ALL = (
    Example(name="bert", title="BERT-base", build=_transformer("bert_base"), inputs=_words(2, 32, 30_000)),
    Example(name="gpt2", title="GPT-2 (tiny)", build=_transformer("gpt2_tiny"), inputs=_words(2, 24, 512, False)),
    Example(name="llama", title="Llama (tiny)", build=_transformer("llama_tiny"), inputs=_words(2, 24, 512)),
    Example(name="deberta", title="DeBERTa", build=_transformer("deberta"), inputs=_words(2, 32, 512)),
    Example(name="resnet50", title="ResNet-50", build=resnet.resnet50, inputs=_images(160, 160)),
    Example(name="densenet121", title="DenseNet-121", build=densenet.densenet121, inputs=_images(128, 128)),
    Example(name="monodepth", title="MonoDepth-like", build=monodepth.MonoDepth, inputs=_images(96, 160)),
    Example(name="lstm", title="LSTM of cells", build=lstm.LSTM, inputs=_steps),
    Example(name="seq2seq", title="Seq2seq, attention", build=seq2seq.Seq2Seq, inputs=_sentences),
    Example(name="python_heavy", title="Python-heavy", build=python_heavy.PythonHeavy, inputs=_vectors),
)

EXAMPLES: dict[str, Example] = {example.name: example for example in _ALL}
"""All examples by name, in the table's order."""
