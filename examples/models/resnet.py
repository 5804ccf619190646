"""ResNet-50, after He et al., "Deep Residual Learning for Image Recognition" (2015)."""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """A residual block of a 1x1, a 3x3 and a 1x1 convolution; the stride sits in the 3x3 one."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        channels_out = channels * self.expansion
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        result: Tensor = self.relu(out)
        return result


class ResNet(nn.Module):
    """Four stages of bottleneck blocks and a linear classifier.

    Args:
        depths: How many blocks each stage has.
        classes: How many classes there are.
    """

    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        width = 64
        stages = []
        for number, depth in enumerate(depths):
            channels = 64 * 2**number
            blocks = []
            for block in range(depth):
                stride = 2 if block == 0 and number > 0 else 1
                blocks.append(Bottleneck(width, channels, stride))
                width = channels * Bottleneck.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck):
                nn.init.constant_(module.bn3.weight, 0.25)  # the residual branch starts small

    def forward(self, images: Tensor) -> Tensor:
        """Class scores [batch, classes] of images [batch, 3, height, width]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in self.stages:
            x = stage(x)
        scores: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return scores


def resnet50() -> ResNet:
    """The 50-layer network."""
    return ResNet((3, 4, 6, 3))
