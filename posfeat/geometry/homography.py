"""Plane-to-plane maps: warping points, corner error."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor


def warp_points(
    homography: Annotated[Tensor, "*batch 3 3"], xy: Annotated[Tensor, "*batch points 2"]
) -> Annotated[Tensor, "*batch points 2"]:
    """Points mapped by a homography; not finite where they go to infinity."""
    homogeneous = torch.cat([xy, torch.ones_like(xy[..., :1])], dim=-1) @ homography.transpose(-1, -2)
    return homogeneous[..., :2] / homogeneous[..., 2:]


def corner_error(
    estimated: Annotated[Tensor, "*batch 3 3"], true: Annotated[Tensor, "*batch 3 3"], height: int, width: int
) -> Annotated[Tensor, "*batch"]:
    """Mean distance in pixels of the four image corners under two homographies."""
    corners = torch.tensor(
        [[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]], dtype=true.dtype, device=true.device
    )
    corners = corners.expand(*true.shape[:-2], 4, 2)
    return (warp_points(estimated, corners) - warp_points(true, corners)).norm(dim=-1).mean(-1)
