"""Rigid poses as 4x4 matrices: compose, invert, relative pose, angular errors."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor


def pose_from_rotation_translation(
    rotation: Annotated[Tensor, "*batch 3 3"], translation: Annotated[Tensor, "*batch 3"]
) -> Annotated[Tensor, "*batch 4 4"]:
    """The 4x4 matrix of x -> R x + t."""
    top = torch.cat([rotation, translation.unsqueeze(-1)], dim=-1)
    bottom = torch.zeros_like(top[..., :1, :])
    bottom[..., 0, 3] = 1
    return torch.cat([top, bottom], dim=-2)


def invert_pose(pose: Annotated[Tensor, "*batch 4 4"]) -> Annotated[Tensor, "*batch 4 4"]:
    """The inverse rigid motion."""
    rotation_t = pose[..., :3, :3].transpose(-1, -2)
    return pose_from_rotation_translation(rotation_t, -(rotation_t @ pose[..., :3, 3:]).squeeze(-1))


def relative_pose(
    cam0_from_world: Annotated[Tensor, "*batch 4 4"], cam1_from_world: Annotated[Tensor, "*batch 4 4"]
) -> Annotated[Tensor, "*batch 4 4"]:
    """cam1_from_cam0 of two posed cameras."""
    return cam1_from_world @ invert_pose(cam0_from_world)


def camera_centre(cam_from_world: Annotated[Tensor, "*batch 4 4"]) -> Annotated[Tensor, "*batch 3"]:
    """The camera's position in the world."""
    return invert_pose(cam_from_world)[..., :3, 3]


def rotation_angle_deg(rotation: Annotated[Tensor, "*batch 3 3"]) -> Annotated[Tensor, "*batch"]:
    """Angle of a rotation in degrees, exact near 0 and near 180."""
    skew = torch.stack(
        [
            rotation[..., 2, 1] - rotation[..., 1, 2],
            rotation[..., 0, 2] - rotation[..., 2, 0],
            rotation[..., 1, 0] - rotation[..., 0, 1],
        ],
        dim=-1,
    )
    trace = rotation.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.rad2deg(torch.atan2(skew.norm(dim=-1), trace - 1))


def vector_angle_deg(a: Annotated[Tensor, "*batch 3"], b: Annotated[Tensor, "*batch 3"]) -> Annotated[Tensor, "*batch"]:
    """Angle between two directions in degrees; 0 where one has no length."""
    return torch.rad2deg(torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1)))


def pose_error_deg(
    estimated: Annotated[Tensor, "*batch 4 4"], true: Annotated[Tensor, "*batch 4 4"]
) -> tuple[Annotated[Tensor, "*batch"], Annotated[Tensor, "*batch"]]:
    """Rotation error and translation direction error (0..180) of a relative pose, in degrees."""
    rotation = rotation_angle_deg(estimated[..., :3, :3].transpose(-1, -2) @ true[..., :3, :3])
    return rotation, vector_angle_deg(estimated[..., :3, 3], true[..., :3, 3])


def rotation_from_quaternion(wxyz: Annotated[Tensor, "*batch 4"]) -> Annotated[Tensor, "*batch 3 3"]:
    """Rotation matrix of a quaternion of any non-zero length, scalar first (COLMAP's files)."""
    w, x, y, z = (wxyz / wxyz.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).reshape(*wxyz.shape[:-1], 3, 3)


def quaternion_from_rotation(rotation: Annotated[Tensor, "*batch 3 3"]) -> Annotated[Tensor, "*batch 4"]:
    """The unit quaternion of a rotation matrix, scalar first and not negative."""
    r = rotation
    xx, yy, zz = r.diagonal(dim1=-2, dim2=-1).unbind(-1)
    wx, wy, wz = r[..., 2, 1] - r[..., 1, 2], r[..., 0, 2] - r[..., 2, 0], r[..., 1, 0] - r[..., 0, 1]
    xy, xz, yz = r[..., 1, 0] + r[..., 0, 1], r[..., 0, 2] + r[..., 2, 0], r[..., 2, 1] + r[..., 1, 2]
    diagonal = torch.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz], dim=-1)
    # 4 q q^T; each row is a multiple of q, the one with the largest diagonal entry the most exact one
    rows = [diagonal[..., 0], wx, wy, wz, wx, diagonal[..., 1], xy, xz, wy, xy, diagonal[..., 2], yz]
    outer = torch.stack([*rows, wz, xz, yz, diagonal[..., 3]], dim=-1).unflatten(-1, (4, 4))
    largest = diagonal.argmax(dim=-1)[..., None, None].expand(*diagonal.shape[:-1], 1, 4)
    wxyz = outer.gather(-2, largest).squeeze(-2)
    wxyz = wxyz / wxyz.norm(dim=-1, keepdim=True)
    return torch.where(wxyz[..., :1] < 0, -wxyz, wxyz)


def rotation_from_axis_angle(vector: Annotated[Tensor, "*batch 3"]) -> Annotated[Tensor, "*batch 3 3"]:
    """Rotation by the vector's length (radians) about its direction."""
    angle = vector.norm(dim=-1, keepdim=True)
    half = angle / 2
    # sin(a/2)/a -> 1/2 - a^2/48 near 0
    factor = torch.where(angle < 1e-4, 0.5 - angle * angle / 48, torch.sin(half) / angle.clamp(min=1e-12))
    return rotation_from_quaternion(torch.cat([torch.cos(half), vector * factor], dim=-1))
