"""How likely two keypoints are matched: softmax over rows times softmax over columns (supplement, section 3).

The similarity is the cosine times a temperature. Keypoints that were not accepted take no part.
"""

from __future__ import annotations

from typing import Annotated

import torch
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
    accepted0: Annotated[Tensor, "*batch points0"] | None = None,
    accepted1: Annotated[Tensor, "*batch points1"] | None = None,
) -> Annotated[Tensor, "*batch points0 points1"]:
    """P_m of every two keypoints, given descriptors of unit length; 0 for those that are not accepted."""
    similarity = (temperature * descriptors0) @ descriptors1.transpose(-1, -2)
    if accepted0 is None or accepted1 is None:
        return similarity.softmax(dim=-1) * similarity.softmax(dim=-2)
    rows, columns = accepted0.unsqueeze(-1), accepted1.unsqueeze(-2)
    # finite, so that a row without any other keypoint gives no NaN; exp() of it is 0 beside any similarity
    absent = similarity.new_full((), -1e4 * max(1.0, temperature))
    over_row = torch.where(columns, similarity, absent).softmax(dim=-1)
    over_column = torch.where(rows, similarity, absent).softmax(dim=-2)
    return torch.where(rows & columns, over_row * over_column, torch.zeros_like(similarity))
