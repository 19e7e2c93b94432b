"""The paper's description network: a ResUNet that gives a 128-dimensional descriptor for every 4x4 pixels (Section 3.2).

A residual encoder (maps at 1/4, 1/8, 1/16) and a decoder that comes back up to 1/4: twice bilinear x2, 3x3 convolution,
concatenation with the encoder's map of that size, 3x3 convolution; at last a 1x1 convolution to the descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfeat.networks.norm import BatchNorm2d
from posfeat.networks.resnet import EncoderName, ResNetEncoder, StrideConvention
from posfeat.options import check_options, described
from posfeat.types import DescriptionMaps


@dataclass(frozen=True)
class PaperDescriptionOptions:
    """The paper's description network."""

    encoder: EncoderName = described("resnet50", "residual encoder; the paper's is resnet50")
    encoder_stride: StrideConvention = described(
        "conv3x3",
        "which convolution of a bottleneck carries the stride: conv3x3 (torchvision) or conv1x1 (original Caffe weights)",
    )
    dim: int = described(128, "number of descriptor dimensions", low=1, high=4096)
    coarse: bool = described(False, "also give a 1/16 descriptor map, which only the coarse-to-fine search needs")

    def __post_init__(self) -> None:
        check_options(self)


class ConvNormElu(nn.Module):
    """Convolution with bias, batch norm, ELU: every convolution of the decoder, the last included."""

    def __init__(self, in_channels: int, out_channels: int, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, size, padding=size // 2)
        self.bn = BatchNorm2d(out_channels)

    def forward(self, x: Annotated[Tensor, "batch c h w"]) -> Annotated[Tensor, "batch c2 h w"]:
        return F.elu(self.bn(self.conv(x)), inplace=True)


class UpConvNormElu(ConvNormElu):
    """Bilinear x2 with corners aligned, then 3x3 convolution, batch norm, ELU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3)

    def forward(self, x: Annotated[Tensor, "batch c h w"]) -> Annotated[Tensor, "batch c2 2*h 2*w"]:
        return super().forward(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True))


class PaperDescription(nn.Module):
    """Normalised image -> descriptor map (not yet of unit length) and stem map, both at 1/4 resolution."""

    stride: int = 4

    def __init__(self, options: PaperDescriptionOptions) -> None:
        super().__init__()
        self.options = options
        self.dim = options.dim
        self.encoder = ResNetEncoder(options.encoder, options.encoder_stride)
        quarter, eighth, sixteenth = self.encoder.channels
        self.conv_coarse = ConvNormElu(sixteenth, options.dim, 1) if options.coarse else None
        self.upconv3 = UpConvNormElu(sixteenth, 512)
        self.iconv3 = ConvNormElu(512 + eighth, 512, 3)
        self.upconv2 = UpConvNormElu(512, 256)
        self.iconv2 = ConvNormElu(256 + quarter, 256, 3)
        self.conv_fine = ConvNormElu(256, options.dim, 1)

    def forward(self, image: Annotated[Tensor, "batch 3 height width"]) -> DescriptionMaps:
        """Height and width are multiples of 16, so that every map has exactly the size of its neighbour to join."""
        assert all(size % 16 == 0 for size in image.shape[-2:]), f"image size {tuple(image.shape[-2:])}"
        maps = self.encoder(image)
        # the upsampled map comes first: the published weights want this order
        decoded = self.iconv3(torch.cat([self.upconv3(maps.sixteenth), maps.eighth], dim=1))
        decoded = self.iconv2(torch.cat([self.upconv2(decoded), maps.quarter], dim=1))
        coarse = None if self.conv_coarse is None else self.conv_coarse(maps.sixteenth)
        return DescriptionMaps(self.conv_fine(decoded), maps.stem, coarse)
