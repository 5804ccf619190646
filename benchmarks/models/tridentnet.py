"""TridentNet's backbone, after Li et al., "Scale-Aware Trident Networks for Object Detection" (2019).

In its last stage three branches share all their weights and differ in dilation, so each sees objects of another scale.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """A residual block of a 1x1, a 3x3 and a 1x1 convolution.

    Args:
        channels_in: Channels of its input.
        channels: Channels of its 3x3 convolution.
        channels_out: Channels of its output.
        stride: Of the 3x3 convolution.
    """

    def __init__(self, channels_in: int, channels: int, channels_out: int, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def branch(self, x: Tensor, dilation: int) -> Tensor:
        """The block with its 3x3 convolution widened by `dilation`."""
        out = functional.relu(self.norm1(self.conv1(x)))
        out = functional.conv2d(out, self.conv2.weight, None, self.stride, dilation, dilation)
        out = self.norm3(self.conv3(functional.relu(self.norm2(out))))
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return functional.relu(out + shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x, 1)


class TridentBlock(Bottleneck):
    """The block with one output for each branch: takes and gives a list of feature maps."""

    dilations = (1, 2, 3)

    def forward(self, x: Tensor | list[Tensor]) -> list[Tensor]:  # type: ignore[override]
        features = x if isinstance(x, list) else [x] * len(self.dilations)
        return [self.branch(each, dilation) for each, dilation in zip(features, self.dilations, strict=True)]


class TridentNet(nn.Module):
    """Stem, stages of bottlenecks, the last one of trident blocks, and a head that scores every place of each branch.

    Args:
        depths: How many blocks each stage has.
        classes: How many classes there are.
    """

    def __init__(self, depths: tuple[int, ...], classes: int = 80) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        stages: list[nn.Module] = []
        channels_in = 64
        for number, depth in enumerate(depths):
            kind = TridentBlock if number == len(depths) - 1 else Bottleneck
            channels = 64 * 2**number
            for block in range(depth):
                stages.append(kind(channels_in, channels, 4 * channels, 2 if number and not block else 1))
                channels_in = 4 * channels
        self.stages = nn.ModuleList(stages)
        self.scores = nn.Conv2d(channels_in, classes, 1)
        self.boxes = nn.Conv2d(channels_in, 4, 1)

    def forward(self, images: Tensor) -> dict[str, list[Tensor]]:
        features: Tensor | list[Tensor] = functional.max_pool2d(self.stem(images), 3, 2, 1)
        for stage in self.stages:
            features = stage(features)
        branches = features if isinstance(features, list) else [features]
        return {
            "scores": [torch.sigmoid(self.scores(each)) for each in branches],
            "boxes": [functional.relu(self.boxes(each)) for each in branches],
        }
