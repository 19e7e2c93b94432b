"""Descriptors at keypoints: read between the cells of the descriptor map, then brought to unit length.

The same reading as geometry.pixels.sample_map, arranged for few points and many channels: with channels-last memory a
descriptor is four whole rows of the map, not one number from each of 128 planes.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.pixels import cell_from_pixel


def sample_descriptors(
    descriptors: Annotated[Tensor, "1 dim map_height map_width"],
    xy: Annotated[Tensor, "num_keypoints 2"],
    stride: int,
) -> Annotated[Tensor, "num_keypoints dim"]:
    """Unit float32 descriptors at pixel positions, bilinear between cells; beyond the rim the rim's value is repeated."""
    dim, height, width = descriptors.shape[1:]
    rows = descriptors.permute(0, 2, 3, 1).reshape(height * width, dim)
    index, weights = _corners(cell_from_pixel(xy, stride), height, width)
    if rows.device.type == "cpu":
        sampled = F.embedding_bag(index, rows, per_sample_weights=weights.to(rows.dtype), mode="sum").float()
    else:
        sampled = torch.einsum("nc,ncd->nd", weights, rows[index].float())
    return F.normalize(sampled, dim=-1)


def _corners(
    cells: Annotated[Tensor, "num_keypoints 2"], height: int, width: int
) -> tuple[Annotated[Tensor, "num_keypoints 4"], Annotated[Tensor, "num_keypoints 4"]]:
    """The four cells around each position, as row numbers, and their bilinear weights."""
    x, y = cells[:, 0].clamp(0, width - 1), cells[:, 1].clamp(0, height - 1)
    left, top = x.floor().clamp(max=max(width - 2, 0)), y.floor().clamp(max=max(height - 2, 0))
    x, y = x - left, y - top
    first = (top * width + left).long()
    right, below = min(1, width - 1), width * min(1, height - 1)
    index = torch.stack([first, first + right, first + below, first + below + right], dim=1)
    weights = torch.stack([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], dim=1)
    return index, weights
