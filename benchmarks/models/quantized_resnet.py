"""A ResNet as quantisation-aware training leaves it, after Jacob et al. (2018): weights and activations on a grid of 8 bits.

Numbers stay floating point and are rounded to the grid on their way, so the model shows what the quantised one computes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Grid(nn.Module):
    """Rounds activations to a grid whose step and offset are buffers.

    Args:
        bits: How many bits a number has.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, bits: int = 8) -> None:
        super().__init__()
        self.lowest, self.highest = 0, 2**bits - 1
        self.register_buffer("scale", torch.tensor(0.05))
        self.register_buffer("zero_point", torch.tensor(64, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, self.lowest, self.highest)


class QuantizedConv(nn.Conv2d):
    """A convolution whose weights lie on a grid of their own for each output channel, with a norm behind it.

    Args:
        channels_in: Channels of its input.
        channels_out: Channels of its output.
        kernel: Edge of its kernel.
        relu: Whether a ReLU follows.
        keywords: What `nn.Conv2d` takes, too.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, relu: bool = True, **keywords: Any) -> None:
        super().__init__(channels_in, channels_out, kernel, padding=kernel // 2, bias=False, **keywords)
        self.norm = nn.BatchNorm2d(channels_out)
        self.relu = relu
        self.grid = Grid()

    def quantized_weight(self) -> Tensor:
        """The weights [out, in, height, width], each output channel rounded to 255 steps of its largest weight."""
        scale = self.weight.detach().abs().amax(dim=(1, 2, 3)).clamp(min=1e-8) / 127
        offset = torch.zeros_like(scale, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(self.weight, scale, offset, 0, -127, 127)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(functional.conv2d(x, self.quantized_weight(), None, self.stride, self.padding))
        rounded: Tensor = self.grid(functional.relu(x) if self.relu else x)
        return rounded


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut; the sum is rounded again.

    Args:
        channels_in: Channels of its input.
        channels: Channels of its output.
        stride: Of the first convolution.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = QuantizedConv(channels_in, channels, 3, stride=stride)
        self.second = QuantizedConv(channels, channels, 3, relu=False)
        shortcut = stride != 1 or channels_in != channels
        self.shortcut = QuantizedConv(channels_in, channels, 1, relu=False, stride=stride) if shortcut else None
        self.grid = Grid()

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        rounded: Tensor = self.grid(functional.relu(self.second(self.first(x)) + shortcut))
        return rounded


class QuantizedResNet(nn.Module):
    """Stages of blocks and a linear classifier.

    Args:
        depths: How many blocks each stage has.
        classes: How many classes there are.
    """

    def __init__(self, depths: tuple[int, ...], classes: int = 100) -> None:
        super().__init__()
        self.entry = Grid()
        self.stem = QuantizedConv(3, 64, 7, stride=2)
        blocks: list[nn.Module] = []
        channels_in = 64
        for number, depth in enumerate(depths):
            channels = 64 * 2**number
            for block in range(depth):
                blocks.append(Block(channels_in, channels, 2 if number and not block else 1))
                channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels_in, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stem(self.entry(images)), 3, 2, 1)
        x = self.blocks(x)
        scores: Tensor = self.head(x.mean(dim=(2, 3)))
        return scores
