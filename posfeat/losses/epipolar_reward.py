"""What two keypoints earn if they are matched: do they agree with the camera poses? (Section 3.3)

They do if each lies within a few pixels of the other's epipolar line. Where the cameras share their centre there is no
line; the rotation alone then sends each pixel to one pixel, and the keypoints must lie that near to each other's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from posfeat.geometry.camera import infinite_homography
from posfeat.geometry.epipolar import epipolar_lines, fundamental_from_cameras
from posfeat.geometry.homography import warp_points
from posfeat.options import check_options, described


@dataclass(frozen=True)
class EpipolarRewardOptions:
    """What a pair of keypoints earns."""

    positive: float = described(1.0, "reward where the pair agrees with the poses (lambda_p)", low=0)
    negative: float = described(-0.25, "reward where it does not (lambda_n)", high=0)
    threshold_px: float = described(2.0, "largest distance in pixels that still agrees (epsilon)", low=0)

    def __post_init__(self) -> None:
        check_options(self)


class PoseConstraint(NamedTuple):
    """What the poses of a batch of pairs say about where points of one image lie in the other, in float64."""

    fundamental: Annotated[Tensor, "*batch 3 3"]
    rotation_only: Annotated[Tensor, "*batch 3 3"]  # the homography of two cameras with one centre
    has_baseline: Annotated[Tensor, "*batch"]


def pose_constraint(
    intrinsics0: Annotated[Tensor, "*batch 3 3"],
    intrinsics1: Annotated[Tensor, "*batch 3 3"],
    cam1_from_cam0: Annotated[Tensor, "*batch 4 4"],
    has_baseline: Annotated[Tensor, "*batch"],
) -> PoseConstraint:
    """The constraint of each pair of cameras."""
    k0, k1, pose = intrinsics0.double(), intrinsics1.double(), cam1_from_cam0.double()
    return PoseConstraint(fundamental_from_cameras(k0, k1, pose), infinite_homography(k0, k1, pose), has_baseline)


def epipolar_reward(agrees: Annotated[Tensor, "*pairs"], options: EpipolarRewardOptions) -> Annotated[Tensor, "*pairs"]:
    """The reward of pairs of keypoints that do or do not agree with the poses."""
    return torch.where(agrees, options.positive, options.negative)


def agrees_with_poses(
    xy0: Annotated[Tensor, "*batch points0 2"],
    xy1: Annotated[Tensor, "*batch points1 2"],
    constraint: PoseConstraint,
    threshold_px: float,
) -> Annotated[Tensor, "*batch points0 points1"]:
    """Whether two keypoints of a pair lie within the threshold of each other's line (or point), in both images."""
    with_line = constraint.has_baseline
    if bool(with_line.all()):
        return _agree_both_ways(_near_lines, constraint.fundamental, constraint.fundamental.mT, xy0, xy1, threshold_px)
    turned = constraint.rotation_only
    at_points = _agree_both_ways(_near_points, turned, torch.linalg.inv(turned), xy0, xy1, threshold_px)
    if not bool(with_line.any()):
        return at_points
    on_lines = _agree_both_ways(_near_lines, constraint.fundamental, constraint.fundamental.mT, xy0, xy1, threshold_px)
    return torch.where(with_line[..., None, None], on_lines, at_points)


def _agree_both_ways(
    near: Callable[[Tensor, Tensor, Tensor, float], Tensor],
    forward: Annotated[Tensor, "*batch 3 3"],
    backward: Annotated[Tensor, "*batch 3 3"],
    xy0: Tensor,
    xy1: Tensor,
    threshold_px: float,
) -> Annotated[Tensor, "*batch points0 points1"]:
    return near(forward, xy0, xy1, threshold_px).logical_and_(near(backward, xy1, xy0, threshold_px).mT)


def _near_lines(
    fundamental: Annotated[Tensor, "*batch 3 3"],
    source: Annotated[Tensor, "*batch sources 2"],
    target: Annotated[Tensor, "*batch targets 2"],
    threshold_px: float,
) -> Annotated[Tensor, "*batch sources targets"]:
    lines = epipolar_lines(fundamental, source.double())
    exists = lines[..., :2].abs().sum(-1, keepdim=True) > 0  # the epipole itself has no line
    lines = lines.to(target.dtype)
    distance = (lines[..., :2] @ target.mT).add_(lines[..., 2:]).abs_()
    return (distance <= threshold_px).logical_and_(exists)


def _near_points(
    homography: Annotated[Tensor, "*batch 3 3"],
    source: Annotated[Tensor, "*batch sources 2"],
    target: Annotated[Tensor, "*batch targets 2"],
    threshold_px: float,
) -> Annotated[Tensor, "*batch sources targets"]:
    source = source.double()
    depth = torch.cat([source, torch.ones_like(source[..., :1])], dim=-1) @ homography[..., 2, :, None]
    expected = torch.where(depth > 0, warp_points(homography, source), float("inf"))
    # differences first: |a|^2 - 2ab + |b|^2 loses a tenth of a pixel at 600 px in single precision
    distance = torch.cdist(expected.to(target.dtype), target, compute_mode="donot_use_mm_for_euclid_dist")
    return distance <= threshold_px
