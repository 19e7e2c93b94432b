"""Homographies and relative poses from matches by RANSAC (PoseLib), the same result each time."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from posfeat.types import Camera, MissingExtraError

HOMOGRAPHY_THRESHOLD_PX = 3.0
POSE_THRESHOLD_PX = 1.0
MOST_TRIALS = 50_000  # a tenth of a second
_FEWEST_FOR_HOMOGRAPHY = 4
_FEWEST_FOR_POSE = 5


def estimate_homography(
    xy0: Annotated[Tensor, "matches 2"], xy1: Annotated[Tensor, "matches 2"]
) -> Annotated[Tensor, "3 3"] | None:
    """The homography 0 -> 1 that most matches support, or None where there is none."""
    if len(xy0) < _FEWEST_FOR_HOMOGRAPHY:
        return None
    options = {"max_reproj_error": HOMOGRAPHY_THRESHOLD_PX, "max_iterations": MOST_TRIALS, "seed": 0}
    matrix, report = _poselib().estimate_homography(_points(xy0), _points(xy1), options, {})
    if report["num_inliers"] < _FEWEST_FOR_HOMOGRAPHY or not np.isfinite(matrix).all() or matrix[2, 2] == 0:
        return None
    return torch.from_numpy(matrix / matrix[2, 2])


def estimate_relative_pose(
    xy0: Annotated[Tensor, "matches 2"], xy1: Annotated[Tensor, "matches 2"], camera0: Camera, camera1: Camera
) -> Annotated[Tensor, "4 4"] | None:
    """cam1_from_cam0 with a translation of unit length, or None where no pose is supported."""
    if len(xy0) < _FEWEST_FOR_POSE:
        return None
    options = {"max_epipolar_error": POSE_THRESHOLD_PX, "max_iterations": MOST_TRIALS, "seed": 0}
    cameras = (_poselib_camera(camera) for camera in (camera0, camera1))
    pose, report = _poselib().estimate_relative_pose(_points(xy0), _points(xy1), *cameras, options, {})
    if report["num_inliers"] < _FEWEST_FOR_POSE:
        return None
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3], matrix[:3, 3] = torch.from_numpy(np.array(pose.R)), torch.from_numpy(np.array(pose.t))
    length = matrix[:3, 3].norm()
    if not (matrix.isfinite().all() and length > 0):
        return None
    matrix[:3, 3] /= length
    return matrix


def has_poselib() -> bool:
    """Whether estimates can be made here."""
    try:
        _poselib()
    except MissingExtraError:
        return False
    return True


def _poselib() -> Any:
    try:
        import poselib
    except ImportError as error:
        raise MissingExtraError("estimating poses needs PoseLib: pip install 'posfeat[sfm]'") from error
    return poselib


def _points(xy: Tensor) -> Any:
    return xy.double().cpu().numpy()


def _poselib_camera(camera: Camera) -> dict[str, Any]:
    """The pinhole part only: whoever calls has taken the distortion out of the points."""
    matrix = camera.matrix
    parameters = [matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]]
    return {"model": "PINHOLE", "width": camera.width, "height": camera.height, "params": parameters}
