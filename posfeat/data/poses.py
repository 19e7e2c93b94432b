"""Poses as files write them, as cam_from_world matrices; rounding in the file is put right, anything worse is a ValueError."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from posfeat.geometry.pose import pose_from_rotation_translation, rotation_from_quaternion
from posfeat.types import Array

_MAX_ROUNDING = 1e-3


def pose_from_quaternion(qw_qx_qy_qz_tx_ty_tz: Sequence[float]) -> Array:
    """A pose of seven numbers in COLMAP's order."""
    values = torch.tensor(qw_qx_qy_qz_tx_ty_tz, dtype=torch.float64)
    if len(values) != 7 or not bool(values.isfinite().all()) or float(values[:4].norm()) < 1e-9:
        raise ValueError(f"no pose: {list(qw_qx_qy_qz_tx_ty_tz)}")
    return pose_from_rotation_translation(rotation_from_quaternion(values[:4]), values[4:]).numpy()


def pose_from_matrix(rotation: Array, translation: Array) -> Array:
    """A pose of a rotation matrix and a translation."""
    if not (np.isfinite(rotation).all() and np.isfinite(translation).all()):
        raise ValueError("the pose is not finite")
    u, scales, vt = np.linalg.svd(rotation)
    if np.abs(scales - 1).max() > _MAX_ROUNDING or np.linalg.det(rotation) < 0:
        raise ValueError("the rotation matrix is not a rotation")
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = u @ vt, translation
    return pose
