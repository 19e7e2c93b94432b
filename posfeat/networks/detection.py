"""The paper's detection network: three layers that read the frozen description maps and the image (Section 3.3).

Describe-then-detect: nothing flows back into the description network, its maps are detached. Instance norms (without
learnt scale) bring the maps and the image to a common footing. The result is the score map at full resolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfeat.options import check_options, described
from posfeat.types import DescriptionMaps


@dataclass(frozen=True)
class PaperDetectionOptions:
    """The paper's detection network."""

    image_channels: int = described(64, "channels of the image branch", low=1, high=1024)
    hidden_channels: int = described(128, "channels of the full-resolution layer", low=1, high=1024)

    def __post_init__(self) -> None:
        check_options(self)


class PaperDetection(nn.Module):
    """Image and description maps -> score map (B, 1, H, W), positive, higher is better."""

    def __init__(self, options: PaperDetectionOptions, dim: int, stem_channels: int) -> None:
        super().__init__()
        self.options = options
        features = dim + stem_channels
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.convimg = nn.Conv2d(3, options.image_channels, 3, padding=1)
        self.conv2 = nn.Conv2d(features + options.image_channels, options.hidden_channels, 3, padding=1)
        self.conv3 = nn.Conv2d(options.hidden_channels, 1, 1)
        self.relu = nn.PReLU()  # one slope, shared by both hidden layers

    def forward(
        self, image: Annotated[Tensor, "batch 3 height width"], maps: DescriptionMaps
    ) -> Annotated[Tensor, "batch 1 height width"]:
        features = torch.cat([maps.descriptors, maps.stem], dim=1).detach()
        features = self.relu(F.instance_norm(self.conv1(features)))
        features = F.interpolate(features, size=image.shape[-2:], mode="bilinear", align_corners=False)
        hidden = torch.cat([features, F.instance_norm(self.convimg(image))], dim=1)
        hidden = self.relu(F.instance_norm(self.conv2(hidden)))
        return F.softplus(F.instance_norm(self.conv3(hidden)))
