"""The residual encoder (ResNet-18, -34 or -50 up to layer3) in plain torch, with torchvision's key names.

Two conventions exist for the bottleneck of ResNet-50: torchvision puts the stride of a stage on the 3x3 convolution,
the original Caffe model on the 1x1 convolution before it. Weights trained one way fit the other in shape but not in
meaning, so the encoder takes the convention as an argument.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from torch import Tensor, nn

from posfeat.networks.norm import BatchNorm2d

EncoderName = Literal["resnet18", "resnet34", "resnet50"]
StrideConvention = Literal["conv3x3", "conv1x1"]

BLOCKS: dict[str, tuple[int, int, int]] = {"resnet18": (2, 2, 2), "resnet34": (3, 4, 6), "resnet50": (3, 4, 6)}
STEM_CHANNELS = 64


class EncoderMaps(NamedTuple):
    """The encoder's maps: after the first max-pool, then after layer1, layer2 and layer3."""

    stem: Annotated[Tensor, "batch 64 height/4 width/4"]
    quarter: Annotated[Tensor, "batch channels1 height/4 width/4"]
    eighth: Annotated[Tensor, "batch channels2 height/8 width/8"]
    sixteenth: Annotated[Tensor, "batch channels3 height/16 width/16"]


def _conv(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """A projection where the block changes size or width; None keeps the input as it is."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(_conv(in_channels, out_channels, 1, stride), BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions (ResNet-18 and -34)."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int, stride_on: StrideConvention) -> None:
        super().__init__()
        self.conv1 = _conv(in_channels, width, 3, stride)  # both conventions agree here
        self.bn1 = BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(in_channels, width, stride)

    def forward(self, x: Annotated[Tensor, "batch c h w"]) -> Annotated[Tensor, "batch c2 h2 w2"]:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)).add_(shortcut))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions (ResNet-50)."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int, stride_on: StrideConvention) -> None:
        super().__init__()
        stride1, stride2 = (stride, 1) if stride_on == "conv1x1" else (1, stride)
        self.conv1 = _conv(in_channels, width, 1, stride1)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride2)
        self.bn2 = BatchNorm2d(width)
        self.conv3 = _conv(width, width * self.expansion, 1)
        self.bn3 = BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(in_channels, width * self.expansion, stride)

    def forward(self, x: Annotated[Tensor, "batch c h w"]) -> Annotated[Tensor, "batch c2 h2 w2"]:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)).add_(shortcut))


class ResNetEncoder(nn.Module):
    """ResNet without its last stage and classifier."""

    def __init__(self, name: EncoderName, stride_on: StrideConvention = "conv3x3") -> None:
        super().__init__()
        block = Bottleneck if name == "resnet50" else BasicBlock
        self.channels = tuple(width * block.expansion for width in (64, 128, 256))
        self.conv1 = nn.Conv2d(3, STEM_CHANNELS, 7, stride=2, padding=3, bias=False)
        self.bn1 = BatchNorm2d(STEM_CHANNELS)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        count1, count2, count3 = BLOCKS[name]
        self.layer1 = _stage(block, count1, STEM_CHANNELS, 64, 1, stride_on)
        self.layer2 = _stage(block, count2, self.channels[0], 128, 2, stride_on)
        self.layer3 = _stage(block, count3, self.channels[1], 256, 2, stride_on)
        _initialise(self)

    def forward(self, image: Annotated[Tensor, "batch 3 height width"]) -> EncoderMaps:
        stem = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        quarter = self.layer1(stem)
        eighth = self.layer2(quarter)
        return EncoderMaps(stem, quarter, eighth, self.layer3(eighth))


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    count: int,
    in_channels: int,
    width: int,
    stride: int,
    stride_on: StrideConvention,
) -> nn.Sequential:
    first = block(in_channels, width, stride, stride_on)
    rest = [block(width * block.expansion, width, 1, stride_on) for _ in range(count - 1)]
    return nn.Sequential(first, *rest)


def _initialise(encoder: nn.Module) -> None:
    """He's initialisation, as the original ResNet uses."""
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
