"""DenseNet-121, after Huang et al., "Densely Connected Convolutional Networks" (2016)."""

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 convolution, norm, ReLU, 3x3 convolution on all features so far."""

    def __init__(self, channels_in: int, growth: int, bottleneck: int, drop_rate: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(channels_in, bottleneck * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bottleneck * growth)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bottleneck * growth, growth, 3, padding=1, bias=False)
        self.drop_rate = drop_rate

    def forward(self, features: list[Tensor]) -> Tensor:
        x = torch.cat(features, 1)
        x = self.conv1(self.relu1(self.norm1(x)))
        x = self.conv2(self.relu2(self.norm2(x)))
        if self.drop_rate > 0:
            x = F.dropout(x, p=self.drop_rate, training=self.training)
        return x


class DenseBlock(nn.ModuleDict):
    """Layers that each see the outputs of all the layers before them."""

    def __init__(self, layers: int, channels_in: int, growth: int, bottleneck: int, drop_rate: float) -> None:
        super().__init__()
        for i in range(layers):
            self.add_module(f"denselayer{i + 1}", DenseLayer(channels_in + i * growth, growth, bottleneck, drop_rate))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for _name, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    """Halves the channels and the resolution between two blocks."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(
            OrderedDict(
                norm=nn.BatchNorm2d(channels_in),
                relu=nn.ReLU(inplace=True),
                conv=nn.Conv2d(channels_in, channels_out, 1, bias=False),
                pool=nn.AvgPool2d(2, stride=2),
            )
        )


class DenseNet(nn.Module):
    """Dense blocks with transitions between them, and a linear classifier.

    Args:
        growth: Channels that each layer adds.
        blocks: How many layers each block has.
        stem: Channels after the first convolution.
        bottleneck: Channels of a layer's 1x1 convolution, in units of `growth`.
        drop_rate: Dropout after each layer.
        classes: How many classes there are.
    """

    def __init__(
        self,
        growth: int = 32,
        blocks: tuple[int, ...] = (6, 12, 24, 16),
        stem: int = 64,
        bottleneck: int = 4,
        drop_rate: float = 0.0,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, stem, 7, stride=2, padding=3, bias=False),
                norm0=nn.BatchNorm2d(stem),
                relu0=nn.ReLU(inplace=True),
                pool0=nn.MaxPool2d(3, stride=2, padding=1),
            )
        )
        channels = stem
        for number, layers in enumerate(blocks, 1):
            self.features.add_module(f"denseblock{number}", DenseBlock(layers, channels, growth, bottleneck, drop_rate))
            channels += layers * growth
            if number < len(blocks):
                self.features.add_module(f"transition{number}", Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores [batch, classes] of images [batch, 3, height, width]."""
        x = F.relu(self.features(images), inplace=True)
        x = F.adaptive_avg_pool2d(x, (1, 1))
        scores: Tensor = self.classifier(torch.flatten(x, 1))
        return scores


def densenet121() -> DenseNet:
    """The 121-layer network."""
    return DenseNet(32, (6, 12, 24, 16), 64)
