"""A MonoDepth-like encoder-decoder: one image in, disparities at four scales out.

After Godard et al., "Digging Into Self-Supervised Monocular Depth Estimation" (2019): a residual encoder of 18 layers, and
a decoder of reflection-padded convolutions with nearest-neighbour upsampling and skip connections.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class Encoder(nn.Module):
    """Features at five scales, from half to one thirty-second of the image's size."""

    def __init__(self) -> None:
        super().__init__()
        self.num_ch_enc = np.array([64, 64, 128, 256, 512])
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layers = nn.ModuleList()
        channels_in = 64
        for number, channels in enumerate((64, 128, 256, 512)):
            stride = 1 if number == 0 else 2
            self.layers.append(
                nn.Sequential(BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1))
            )
            channels_in = channels
        self.features: list[Tensor] = []

    def forward(self, image: Tensor) -> list[Tensor]:
        self.features = []
        x = (image - 0.45) / 0.225
        self.features.append(F.relu(self.bn1(self.conv1(x))))
        self.features.append(self.layers[0](F.max_pool2d(self.features[-1], 3, 2, 1)))
        for layer in self.layers[1:]:
            self.features.append(layer(self.features[-1]))
        return self.features


class Conv3x3(nn.Module):
    """A convolution whose border mirrors the image."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv = nn.Conv2d(int(channels_in), int(channels_out), 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(self.pad(x))
        return y


class ConvBlock(nn.Module):
    """The mirrored convolution with an ELU behind it."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = Conv3x3(channels_in, channels_out)
        self.nonlin = nn.ELU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.nonlin(self.conv(x))
        return y


def upsample(x: Tensor) -> Tensor:
    """Doubles height and width."""
    return F.interpolate(x, scale_factor=2, mode="nearest")


class Decoder(nn.Module):
    """From the encoder's features to a disparity map at each of `scales`."""

    def __init__(self, num_ch_enc: np.ndarray, scales: range = range(4), use_skips: bool = True) -> None:
        super().__init__()
        self.scales = scales
        self.use_skips = use_skips
        self.num_ch_dec = np.array([16, 32, 64, 128, 256])
        self.convs: dict[tuple[str, int] | tuple[str, int, int], nn.Module] = {}
        for i in range(4, -1, -1):
            channels_in = num_ch_enc[-1] if i == 4 else self.num_ch_dec[i + 1]
            self.convs["upconv", i, 0] = ConvBlock(channels_in, self.num_ch_dec[i])
            channels_in = self.num_ch_dec[i]
            if use_skips and i > 0:
                channels_in += num_ch_enc[i - 1]
            self.convs["upconv", i, 1] = ConvBlock(channels_in, self.num_ch_dec[i])
        for scale in scales:
            self.convs["dispconv", scale] = Conv3x3(self.num_ch_dec[scale], 1)
        self.decoder = nn.ModuleList(list(self.convs.values()))
        self.sigmoid = nn.Sigmoid()
        self.outputs: dict[tuple[str, int], Tensor] = {}

    def forward(self, features: list[Tensor]) -> dict[tuple[str, int], Tensor]:
        self.outputs = {}
        x = features[-1]
        for i in range(4, -1, -1):
            x = self.convs["upconv", i, 0](x)
            parts = [upsample(x)]
            if self.use_skips and i > 0:
                parts += [features[i - 1]]
            x = self.convs["upconv", i, 1](torch.cat(parts, 1))
            if i in self.scales:
                self.outputs["disp", i] = self.sigmoid(self.convs["dispconv", i](x))
        return self.outputs


class MonoDepth(nn.Module):
    """Encoder and decoder together, with the disparity of scale 0 turned into a depth."""

    def __init__(self, min_depth: float = 0.1, max_depth: float = 100.0) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder(self.encoder.num_ch_enc)
        self.min_depth = min_depth
        self.max_depth = max_depth

    def forward(self, image: Tensor) -> dict[tuple[str, int], Tensor]:
        """Disparities [batch, 1, h, w] under ("disp", scale) and a depth under ("depth", 0)."""
        outputs: dict[tuple[str, int], Tensor] = self.decoder(self.encoder(image))
        low, high = 1 / self.max_depth, 1 / self.min_depth
        outputs["depth", 0] = 1 / (low + (high - low) * outputs["disp", 0])
        return outputs
