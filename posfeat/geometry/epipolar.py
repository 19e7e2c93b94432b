"""Fundamental and essential matrices from two cameras, epipolar lines, their clipping to the image, distances.

A line (a, b, c) holds the points with a x + b y + c = 0; with normal (a, b) of unit length, a x + b y + c is a signed distance
in pixels. Where there is no line (no baseline, or the point is the epipole) the line is (0, 0, 0): callers mask it, nothing divides by zero.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import torch
from torch import Tensor


class LineSegments(NamedTuple):
    """Epipolar lines clipped to the image; ``start`` and ``end`` are finite but meaningless where not ``valid``."""

    start: Annotated[Tensor, "*batch 2"]
    end: Annotated[Tensor, "*batch 2"]
    valid: Annotated[Tensor, "*batch"]


def cross_matrix(vector: Annotated[Tensor, "*batch 3"]) -> Annotated[Tensor, "*batch 3 3"]:
    """The matrix whose product with b is the cross product of ``vector`` and b."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).reshape(*vector.shape[:-1], 3, 3)


def essential_from_pose(cam1_from_cam0: Annotated[Tensor, "*batch 4 4"]) -> Annotated[Tensor, "*batch 3 3"]:
    """E = [t]x R, with x1' E x0 = 0 for normalised image points."""
    return cross_matrix(cam1_from_cam0[..., :3, 3]) @ cam1_from_cam0[..., :3, :3]


def fundamental_from_cameras(
    intrinsics0: Annotated[Tensor, "*batch 3 3"],
    intrinsics1: Annotated[Tensor, "*batch 3 3"],
    cam1_from_cam0: Annotated[Tensor, "*batch 4 4"],
) -> Annotated[Tensor, "*batch 3 3"]:
    """F = K1^-T E K0^-1, scaled to unit Frobenius norm (zero where there is no baseline)."""
    essential = essential_from_pose(cam1_from_cam0)
    fundamental = torch.linalg.inv(intrinsics1).transpose(-1, -2) @ essential @ torch.linalg.inv(intrinsics0)
    norm = torch.linalg.matrix_norm(fundamental)[..., None, None]
    return torch.where(
        norm > 0, fundamental / norm.clamp(min=torch.finfo(norm.dtype).tiny), torch.zeros_like(fundamental)
    )


def epipolar_lines(
    fundamental: Annotated[Tensor, "*batch 3 3"], xy0: Annotated[Tensor, "*batch points 2"]
) -> Annotated[Tensor, "*batch points 3"]:
    """Unit-normal lines in image 1 of points of image 0."""
    homogeneous = torch.cat([xy0, torch.ones_like(xy0[..., :1])], dim=-1)
    lines = homogeneous @ fundamental.transpose(-1, -2)
    normal = lines[..., :2].norm(dim=-1, keepdim=True)
    # relative to the line's own size, so that the scale of F does not matter
    degenerate = normal <= 1e-12 * (1 + lines[..., 2:].abs())
    return torch.where(
        degenerate, torch.zeros_like(lines), lines / torch.where(degenerate, torch.ones_like(normal), normal)
    )


def signed_distance(
    lines: Annotated[Tensor, "*#batch 3"], xy: Annotated[Tensor, "*#batch 2"]
) -> Annotated[Tensor, "*#batch"]:
    """Signed distance in pixels of points to unit-normal lines (shapes broadcast)."""
    return lines[..., 0] * xy[..., 0] + lines[..., 1] * xy[..., 1] + lines[..., 2]


def clip_lines(lines: Annotated[Tensor, "*batch 3"], height: int, width: int) -> LineSegments:
    """The part of each unit-normal line inside the rectangle of pixel centres [0, width-1] x [0, height-1]."""
    a, b, c = lines.unbind(-1)
    direction = torch.stack([-b, a], dim=-1)
    foot = torch.stack([-a * c, -b * c], dim=-1)  # the point of the line nearest the origin
    high = torch.tensor([width - 1, height - 1], dtype=lines.dtype, device=lines.device)
    steep = direction.abs() > 1e-9
    safe = torch.where(steep, direction, torch.ones_like(direction))
    at_low, at_high = -foot / safe, (high - foot) / safe
    infinity = torch.full_like(foot, float("inf"))
    enter = torch.where(steep, torch.minimum(at_low, at_high), -infinity).amax(dim=-1)
    leave = torch.where(steep, torch.maximum(at_low, at_high), infinity).amin(dim=-1)
    between = (steep | ((foot >= 0) & (foot <= high))).all(dim=-1)
    valid = between & (leave > enter) & (lines[..., :2].abs().sum(-1) > 0)
    enter, leave = (torch.where(valid, t, torch.zeros_like(t)).unsqueeze(-1) for t in (enter, leave))
    start = torch.where(valid.unsqueeze(-1), foot + enter * direction, torch.zeros_like(foot))
    end = torch.where(valid.unsqueeze(-1), foot + leave * direction, torch.zeros_like(foot))
    return LineSegments(start, end, valid)


def symmetric_epipolar_distance(
    fundamental: Annotated[Tensor, "*batch 3 3"],
    xy0: Annotated[Tensor, "*batch points 2"],
    xy1: Annotated[Tensor, "*batch points 2"],
) -> tuple[Annotated[Tensor, "*batch points"], Annotated[Tensor, "*batch points"]]:
    """Distance in image 0 and in image 1 of matched points to each other's lines; infinite where there is no line."""
    distances = []
    for matrix, source, target in ((fundamental.transpose(-1, -2), xy1, xy0), (fundamental, xy0, xy1)):
        lines = epipolar_lines(matrix, source)
        missing = lines[..., :2].abs().sum(-1) == 0
        distances.append(
            torch.where(missing, torch.full_like(lines[..., 0], float("inf")), signed_distance(lines, target).abs())
        )
    return distances[0], distances[1]


def has_baseline(
    cam1_from_cam0: Annotated[Tensor, "*batch 4 4"], scene_depth: float | Tensor = 1.0, minimum_ratio: float = 1e-3
) -> Annotated[Tensor, "*batch"]:
    """Whether the cameras are far enough apart, relative to the scene's depth, for epipolar lines to mean anything."""
    return cam1_from_cam0[..., :3, 3].norm(dim=-1) > minimum_ratio * scene_depth
