"""Random cameras, poses and points, in float64."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from posfeat.geometry.pose import pose_from_rotation_translation, rotation_from_axis_angle

SEEDS = st.integers(0, 2**31 - 1)


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def vectors(low: float, high: float, size: int = 3) -> st.SearchStrategy[Tensor]:
    return st.lists(floats(low, high), min_size=size, max_size=size).map(
        lambda values: torch.tensor(values, dtype=torch.float64)
    )


@st.composite
def intrinsics(draw: st.DrawFn) -> Tensor:
    """Pinhole matrices of photos around 640x480."""
    fx, fy = draw(floats(200, 1500)), draw(floats(200, 1500))
    cx, cy = draw(floats(250, 400)), draw(floats(180, 300))
    return torch.tensor([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=torch.float64)


@st.composite
def rotations(draw: st.DrawFn, largest_rad: float = 3.0) -> Tensor:
    return rotation_from_axis_angle(draw(vectors(-largest_rad / 2, largest_rad / 2)))


@st.composite
def poses(draw: st.DrawFn, largest_rad: float = 3.0) -> Tensor:
    return pose_from_rotation_translation(draw(rotations(largest_rad)), draw(vectors(-3, 3)))


@st.composite
def baselines(draw: st.DrawFn) -> Tensor:
    """Relative poses whose translation has a length between 0.2 and 3."""
    direction = draw(vectors(-1, 1).filter(lambda v: float(v.norm()) > 0.1))
    return pose_from_rotation_translation(draw(rotations(0.8)), direction / direction.norm() * draw(floats(0.2, 3.0)))


def points_before_both(cam1_from_cam0: Tensor, seed: int, count: int = 50) -> Tensor:
    """Points of camera 0's frame with depths between 1 and 30, as far as they lie before camera 1 too."""
    random = torch.Generator().manual_seed(seed)
    depth = 1 + 29 * torch.rand(count, 1, generator=random, dtype=torch.float64)
    plane = torch.rand(count, 2, generator=random, dtype=torch.float64) - 0.5
    points = torch.cat([plane * depth, depth], dim=-1)
    return points[moved(cam1_from_cam0, points)[:, 2] > 0.1]


def moved(pose: Tensor, points: Tensor) -> Tensor:
    return points @ pose[:3, :3].T + pose[:3, 3]
