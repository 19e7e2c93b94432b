"""The compact networks: what ships as the default, made for processors and phones.

Same interface as the paper's networks (describe, freeze, then detect from the frozen features and the image), built of
what such machines do well: plain 3x3 convolutions with many channels at low resolution. Maps shrink by 2x2 convolutions
of stride 2 and grow by bilinear interpolation, so each cell stays centred on the block of pixels it covers and nothing
drifts by a fraction of a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from posfeat.networks.norm import BatchNorm2d
from posfeat.options import check_options, described
from posfeat.types import DescriptionMaps

_SMOOTH_CELLS = 5


@dataclass(frozen=True)
class CompactDescriptionOptions:
    """Widths (channels at 1/2, 1/4, 1/8, 1/16 resolution), residual blocks at the last three, descriptor size."""

    widths: tuple[int, ...] = described((16, 64, 128, 192), "channels at 1/2, 1/4, 1/8 and 1/16 of the resolution")
    blocks: tuple[int, ...] = described((1, 1, 3), "residual blocks at 1/4, 1/8 and 1/16 of the resolution")
    dim: int = described(128, "length of a descriptor", low=8)
    coarse: bool = described(False, "also give a descriptor map at 1/16, which the coarse-to-fine search needs")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class CompactDetectionOptions:
    """Channels of the detector's branch on frozen features and of its branch on the image."""

    feature_channels: int = described(32, "channels of the branch on the frozen features", low=4)
    image_channels: int = described(8, "channels of the branch on the full-resolution image", low=1)

    def __post_init__(self) -> None:
        check_options(self)


class ConvNorm(nn.Sequential):
    """Convolution without bias, then batch normalisation (folded into one convolution for inference)."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1) -> None:
        padding = dilation * (size // 2) if stride == 1 else 0
        conv = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_in", nonlinearity="relu")
        super().__init__(conv, BatchNorm2d(outputs))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(x))), then relu."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels, channels, 3)
        self.second = ConvNorm(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(F.relu(self.first(x))))


class CompactDescription(nn.Module):
    """Encoder to 1/16 resolution, light decoder back to 1/4: dense descriptors of a few milliseconds."""

    stride = 4

    def __init__(self, options: CompactDescriptionOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or CompactDescriptionOptions()
        self.dim = options.dim
        half, quarter, eighth, sixteenth = options.widths
        self.stem_channels = quarter
        self.stem = ConvNorm(3, half, 2, stride=2)
        self.stem_mix = ConvNorm(half, half, 3)
        self.quarter = self._stage(half, quarter, options.blocks[0])
        self.eighth = self._stage(quarter, eighth, options.blocks[1])
        self.sixteenth = self._stage(eighth, sixteenth, options.blocks[2])
        self.up_eighth = ConvNorm(sixteenth, eighth, 1)
        self.mix_eighth = ConvNorm(eighth, eighth, 3)
        self.up_quarter = ConvNorm(eighth, options.dim, 1)
        self.skip_quarter = ConvNorm(quarter, options.dim, 1)
        self.head = nn.Conv2d(options.dim, options.dim, 1)
        self.coarse = nn.Conv2d(sixteenth, options.dim, 1) if options.coarse else None

    @staticmethod
    def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
        return nn.Sequential(
            ConvNorm(inputs, outputs, 2, stride=2), nn.ReLU(), *(ResidualBlock(outputs) for _ in range(blocks))
        )

    def forward(self, image: Annotated[Tensor, "batch 3 height width"]) -> DescriptionMaps:
        half = F.relu(self.stem_mix(F.relu(self.stem(image))))
        quarter = self.quarter(half)
        eighth = self.eighth(quarter)
        sixteenth = self.sixteenth(eighth)
        coarse = None if self.coarse is None else self.coarse(sixteenth)
        eighth = F.relu(eighth + _double(self.up_eighth(sixteenth)))
        eighth = F.relu(self.mix_eighth(eighth))
        merged = F.relu(self.skip_quarter(quarter) + _double(self.up_quarter(eighth)))
        return DescriptionMaps(self.head(merged), quarter, coarse)


class CompactDetection(nn.Module):
    """Full-resolution keypoint scores from the frozen features (what is worth it) and the image (exactly where).

    The image's own maps move with the image to the pixel; features of a network with strides do not. So the features
    only weigh these maps, and change so slowly from pixel to pixel that they do not move a peak.
    """

    def __init__(self, description: CompactDescription, options: CompactDetectionOptions | None = None) -> None:
        super().__init__()
        self.options = options = options or CompactDetectionOptions()
        features, image = options.feature_channels, options.image_channels
        self.reduce = ConvNorm(description.dim + description.stem_channels, features, 1)
        self.mix = ConvNorm(features, features, 3)
        self.worth = nn.Conv2d(features, image + 1, 1)
        with (
            torch.no_grad()
        ):  # at first the image's maps count alike, so that they learn; the features join in as they do
            self.worth.weight.mul_(0.1)
            self.worth.bias.copy_(torch.ones(image + 1))  # type: ignore[union-attr]
        self.image_first = ConvNorm(3, image, 3)
        self.image_second = ConvNorm(image, image, 3)
        self.image_third = ConvNorm(image, image, 3, dilation=2)
        self.image_fourth = ConvNorm(image, image, 3, dilation=2)

    def forward(
        self, image: Annotated[Tensor, "batch 3 height width"], maps: DescriptionMaps
    ) -> Annotated[Tensor, "batch 1 height width"]:
        descriptors = F.normalize(maps.descriptors.detach(), dim=1) * maps.descriptors.shape[1] ** 0.5
        features = torch.cat([descriptors.to(maps.stem.dtype), maps.stem.detach()], dim=1)
        worth = F.avg_pool2d(self.worth(F.relu(self.mix(F.relu(self.reduce(features))))), 2)
        where = F.relu(self.image_second(F.relu(self.image_first(image))))
        return weighted_scores(self.image_fourth(F.relu(self.image_third(where))), worth)


@fx.wrap  # one step for whoever rewrites the network
def weighted_scores(
    where: Annotated[Tensor, "batch channels height width"],
    worth: Annotated[Tensor, "batch channels_and_one rows columns"],
) -> Annotated[Tensor, "batch 1 height width"]:
    """The sum of the image's maps, each times what it is worth there, and of the last map of the worth."""
    worth = F.interpolate(smoothed(worth), size=where.shape[-2:], mode="bilinear", align_corners=False)
    weights, base = worth.float().split([where.shape[1], 1], dim=1)
    # positive as in the paper: a proposed pixel is then accepted half the time at least, so that the policy does not
    # learn to accept nothing while matches are still mostly wrong
    return F.softplus((where.float() * weights).sum(dim=1, keepdim=True) + base)


def smoothed(x: Annotated[Tensor, "batch channels rows columns"]) -> Annotated[Tensor, "batch channels rows columns"]:
    """Means over about 80 pixels of a map at 1/8 resolution, falling off to all sides."""
    reach = 2 * (_SMOOTH_CELLS // 2)
    x = F.pad(x, (reach, reach, reach, reach), mode="replicate")
    for size in ((1, _SMOOTH_CELLS), (_SMOOTH_CELLS, 1)) * 2:
        x = F.avg_pool2d(x, size, 1)
    return x


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
