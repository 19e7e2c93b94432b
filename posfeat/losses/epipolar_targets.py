"""What the pose alone says about where a query point may lie in the other image.

With a baseline it is the epipolar line, clipped to the image. Without one (both images taken from one place) the line
shrinks to a single point, K1 R K0^-1 x: the search and the losses then work on a segment of no length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from posfeat.geometry.camera import infinite_homography
from posfeat.geometry.epipolar import clip_lines, epipolar_lines, fundamental_from_cameras, signed_distance
from posfeat.geometry.pixels import inside_image


@dataclass(frozen=True)
class EpipolarTargets:
    """Lines (or points) in image 1 of the query points of image 0."""

    lines: Annotated[Tensor, "batch points 3"]  # unit normal; zero where there is none
    start: Annotated[Tensor, "batch points 2"]  # ends of the line inside the image; equal for a point
    end: Annotated[Tensor, "batch points 2"]
    is_point: Annotated[Tensor, "batch"]
    valid: Annotated[Tensor, "batch points"]  # the line (or point) meets the image

    def distance(self, xy1: Annotated[Tensor, "batch points 2"]) -> Annotated[Tensor, "batch points"]:
        """Distance in pixels of positions in image 1 to their line (or point); 0 where there is no target."""
        to_point = xy1 - self.start
        # the root's slope at 0 is infinite: keep it finite, at a cost below 1e-6 px
        length = (to_point.square().sum(-1) + 1e-12).sqrt()
        distance = torch.where(self.is_point[:, None], length, signed_distance(self.lines, xy1).abs())
        return torch.where(self.valid, distance, torch.zeros_like(distance))


def epipolar_targets(
    xy0: Annotated[Tensor, "batch points 2"],
    intrinsics0: Annotated[Tensor, "batch 3 3"],
    intrinsics1: Annotated[Tensor, "batch 3 3"],
    cam1_from_cam0: Annotated[Tensor, "batch 4 4"],
    has_baseline: Annotated[Tensor, "batch"],
    height: int,
    width: int,
) -> EpipolarTargets:
    """Targets in image 1 (height x width) of points of image 0. Computed in float64, returned in xy0's type."""
    k0, k1, pose, xy = (t.double() for t in (intrinsics0, intrinsics1, cam1_from_cam0, xy0))
    lines = epipolar_lines(fundamental_from_cameras(k0, k1, pose), xy)
    lines = torch.where(has_baseline[:, None, None], lines, torch.zeros_like(lines))
    start, end, on_image = clip_lines(lines, height, width)
    homogeneous = torch.cat([xy, torch.ones_like(xy[..., :1])], -1) @ infinite_homography(k0, k1, pose).transpose(
        -1, -2
    )
    in_front = homogeneous[..., 2] > 1e-9
    point = homogeneous[..., :2] / torch.where(
        in_front, homogeneous[..., 2], torch.ones_like(homogeneous[..., 2])
    ).unsqueeze(-1)
    seen = in_front & inside_image(point, height, width)
    point = torch.where(seen.unsqueeze(-1), point, torch.zeros_like(point))
    chosen = has_baseline[:, None, None]
    return EpipolarTargets(
        lines=lines.to(xy0.dtype),
        start=torch.where(chosen, start, point).to(xy0.dtype),
        end=torch.where(chosen, end, point).to(xy0.dtype),
        is_point=~has_baseline,
        valid=torch.where(has_baseline[:, None], on_image, seen),
    )
