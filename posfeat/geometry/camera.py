"""Intrinsics: what scaling, cropping and turning an image do to them; projection and lens distortion.

Distortion models and the order of their parameters are COLMAP's; points on the normalised plane z = 1.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor


def scale_intrinsics(
    intrinsics: Annotated[Tensor, "*batch 3 3"], scale_x: float, scale_y: float
) -> Annotated[Tensor, "*batch 3 3"]:
    """Intrinsics after the image is resized; pixel centres move by (x + 0.5) * scale - 0.5."""
    change = torch.tensor(
        [[scale_x, 0, (scale_x - 1) / 2], [0, scale_y, (scale_y - 1) / 2], [0, 0, 1]],
        dtype=intrinsics.dtype,
        device=intrinsics.device,
    )
    return change @ intrinsics


def crop_intrinsics(
    intrinsics: Annotated[Tensor, "*batch 3 3"], left: float, top: float
) -> Annotated[Tensor, "*batch 3 3"]:
    """Intrinsics after ``left`` columns and ``top`` rows are cut off (negative: added)."""
    change = torch.tensor([[1, 0, -left], [0, 1, -top], [0, 0, 1]], dtype=intrinsics.dtype, device=intrinsics.device)
    return change @ intrinsics


def project(
    intrinsics: Annotated[Tensor, "*batch 3 3"], points: Annotated[Tensor, "*batch points 3"]
) -> Annotated[Tensor, "*batch points 2"]:
    """Pixels of points in the camera's frame; the sign of z is the caller's business."""
    image = points @ intrinsics.transpose(-1, -2)
    return image[..., :2] / image[..., 2:]


def unproject(
    intrinsics: Annotated[Tensor, "*batch 3 3"], xy: Annotated[Tensor, "*batch points 2"]
) -> Annotated[Tensor, "*batch points 3"]:
    """Rays (z = 1) of pixels in the camera's frame."""
    homogeneous = torch.cat([xy, torch.ones_like(xy[..., :1])], dim=-1)
    return homogeneous @ torch.linalg.inv(intrinsics).transpose(-1, -2)


def infinite_homography(
    intrinsics0: Annotated[Tensor, "*batch 3 3"],
    intrinsics1: Annotated[Tensor, "*batch 3 3"],
    cam1_from_cam0: Annotated[Tensor, "*batch 4 4"],
) -> Annotated[Tensor, "*batch 3 3"]:
    """K1 R K0^-1: where infinitely far points go, and every point when the two cameras share their centre."""
    return intrinsics1 @ cam1_from_cam0[..., :3, :3] @ torch.linalg.inv(intrinsics0)
