"""The models that the benchmarks run: the eight of the paper's table 1, with random weights; nothing is downloaded.

Those that `examples/models` has are taken from there, ALIGN from `transformers`; the other two are written here.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.harness import SEED, Settings, to_device
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from models import EXAMPLES, Arguments

from . import quantized_resnet, tridentnet


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchModel:
    """A model and what it is called with.

    Attributes:
        name: what options and reports call it.
        title: what tables call it.
        build: makes it.
        inputs: arguments of one call at batch size 1, from a seed.
        quick: the same two for a run that only shows that all works.
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Arguments]
    quick: tuple[Callable[[], nn.Module], Callable[[int], Arguments]]


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _image(size: int, width: int | None = None) -> Callable[[int], Arguments]:
    return lambda seed: ((torch.rand(1, 3, size, width or size, generator=_seeded(seed)),), {})


def _tokens(length: int, words: int) -> Callable[[int], Arguments]:
    def inputs(seed: int) -> Arguments:
        tokens = torch.randint(2, words, (1, length), generator=_seeded(seed))
        return (), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    return inputs


def _both(size: int, length: int, words: int) -> Callable[[int], Arguments]:
    def inputs(seed: int) -> Arguments:
        _, keywords = _tokens(length, words)(seed)
        (pixels,), _ = _image(size)(seed)
        return (), {**keywords, "pixel_values": pixels}

    return inputs


def _align(size: int, layers: int, depth: float) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import AlignConfig, AlignModel

        text = dict(
            vocab_size=512, hidden_size=256, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=1024
        )
        vision = dict(image_size=size, width_coefficient=1.0, depth_coefficient=depth)
        model: nn.Module = AlignModel(AlignConfig(text_config=text, vision_config=vision, projection_dim=320))
        return model

    return build


def _bert(layers: int, width: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import BertConfig, BertModel

        config: Any = BertConfig(
            vocab_size=2000,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
        )
        model: nn.Module = BertModel(config)
        return model

    return build


def _deberta(layers: int, width: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import DebertaV2Config, DebertaV2Model

        config: Any = DebertaV2Config(  # type: ignore[call-arg]
            vocab_size=512,
            hidden_size=width,
            intermediate_size=4 * width,
            num_attention_heads=width // 64,
            num_hidden_layers=layers,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=32,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        )
        model: nn.Module = DebertaV2Model(config)
        return model

    return build


def _resnet(depths: tuple[int, ...]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from models.resnet import ResNet

        model: nn.Module = ResNet(depths)
        return model

    return build


_ALL = (
    BenchModel(
        name="align",
        title="ALIGN",
        build=_align(160, 4, 1.0),
        inputs=_both(160, 32, 512),
        quick=(_align(64, 1, 0.1), _both(64, 8, 512)),
    ),
    BenchModel(
        name="bert",
        title="BERT",
        build=_bert(12, 768),
        inputs=_tokens(32, 2000),
        quick=(_bert(2, 64), _tokens(8, 2000)),
    ),
    BenchModel(
        name="deberta",
        title="DeBERTa",
        build=_deberta(4, 768),
        inputs=_tokens(32, 512),
        quick=(_deberta(1, 64), _tokens(8, 512)),
    ),
    BenchModel(
        name="densenet",
        title="DenseNet",
        build=EXAMPLES["densenet121"].build,
        inputs=_image(96),
        quick=(EXAMPLES["densenet121"].build, _image(32)),
    ),
    BenchModel(
        name="monodepth",
        title="MonoDepth",
        build=EXAMPLES["monodepth"].build,
        inputs=_image(96, 160),
        quick=(EXAMPLES["monodepth"].build, _image(64, 128)),
    ),
    BenchModel(
        name="quantized_resnet",
        title="Quantized ResNet",
        build=lambda: quantized_resnet.QuantizedResNet((2, 2, 2, 2)),
        inputs=_image(96),
        quick=(lambda: quantized_resnet.QuantizedResNet((1, 1)), _image(32)),
    ),
    BenchModel(
        name="resnet",
        title="ResNet",
        build=_resnet((3, 4, 6, 3)),
        inputs=_image(128),
        quick=(_resnet((1, 1)), _image(32)),
    ),
    BenchModel(
        name="tridentnet",
        title="TridentNet",
        build=lambda: tridentnet.TridentNet((2, 2, 3)),
        inputs=_image(128),
        quick=(lambda: tridentnet.TridentNet((1, 1, 1)), _image(32)),
    ),
)

MODELS: dict[str, BenchModel] = {model.name: model for model in _ALL}
"""The eight models by name, in the order of the paper's table."""


def build(name: str, settings: Settings) -> tuple[nn.Module, Callable[[int], Arguments]]:
    """A model on the device, and its arguments from a seed."""
    model = MODELS[name]
    torch.manual_seed(SEED)
    make, inputs = model.quick if settings.quick else (model.build, model.inputs)
    return make().eval().to(settings.device), lambda seed: to_device(inputs(seed), settings.device)


class Pointwise(nn.Module):
    """Three operations on two tensors: what is left of a call is what the front end costs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.relu(x + y))


def thousand(pairs: int = 500) -> nn.Module:
    """A thousand modules: 500 Linear(8, 8) with a ReLU behind each."""
    return nn.Sequential(*(layer for _ in range(pairs) for layer in (nn.Linear(8, 8), nn.ReLU())))


def rows(seed: int) -> Arguments:
    """A batch [4, 8] for `thousand`."""
    return (torch.randn(4, 8, generator=_seeded(seed)),), {}


def squares(seed: int) -> Arguments:
    """Two tensors [16, 16] for `Pointwise`."""
    generator = _seeded(seed)
    return (torch.randn(16, 16, generator=generator), torch.randn(16, 16, generator=generator)), {}
