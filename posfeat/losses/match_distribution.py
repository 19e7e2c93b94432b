"""How likely two keypoints are matched: softmax over rows times softmax over columns (supplement, section 3).

The similarity is the cosine times a temperature. Keypoints that were not accepted take no part: leave their rows out.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.pixels import sample_map


def unit_descriptors(
    descriptor_map: Annotated[Tensor, "batch dim rows columns"],
    keypoints: Annotated[Tensor, "batch points 2"],
    stride: float = 4,
) -> Annotated[Tensor, "batch points dim"]:
    """Descriptors at pixel positions, read bilinearly from the map and then brought to unit length."""
    return F.normalize(sample_map(descriptor_map, keypoints, stride), dim=1).transpose(1, 2)


def match_probabilities(
    descriptors0: Annotated[Tensor, "*batch points0 dim"],
    descriptors1: Annotated[Tensor, "*batch points1 dim"],
    temperature: float = 60.0,
) -> Annotated[Tensor, "*batch points0 points1"]:
    """P_m of every two keypoints, given descriptors of unit length."""
    similarity = (temperature * descriptors0) @ descriptors1.transpose(-1, -2)
    return similarity.softmax(dim=-1) * similarity.softmax(dim=-2)
