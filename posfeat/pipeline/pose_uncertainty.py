"""How certain a pose is: the covariance that the noise of its keypoints gives it."""

from __future__ import annotations

import numpy as np

from posfeat.data.distortion import pinhole_camera, project_points
from posfeat.types import Array, Camera

_STEP = 1e-6


def pose_covariance(
    cam_from_world: Array, camera: Camera, xy: Array, points: Array, focal_is_estimated: bool = False
) -> Array:
    """Covariance (6, 6) of a small turn of the camera (radians, about its own axes) and of its centre in the world.

    The noise of the positions (N, 2) is taken from their distances to the projections of the points (N, 3). All of them are
    taken for right matches. A focal length that was estimated with the pose makes it less certain.
    """
    rotation, centre = cam_from_world[:3, :3], -cam_from_world[:3, :3].T @ cam_from_world[:3, 3]
    in_camera = (points - centre) @ rotation.T
    scale = float(np.median(np.linalg.norm(in_camera, axis=1)))
    columns = []
    for axis in np.eye(3):
        columns.append(_slope(camera, in_camera, np.cross(axis, in_camera)))
    for axis in np.eye(3):
        columns.append(_slope(camera, in_camera, -np.broadcast_to(rotation @ axis, in_camera.shape) * scale) / scale)
    if focal_is_estimated:
        columns.append(_focal_slope(camera, in_camera))
    jacobian = np.stack(columns, axis=1)
    residuals = (xy - project_points(camera, in_camera)).ravel()
    variance = float(residuals @ residuals) / max(len(residuals) - jacobian.shape[1], 1)
    # columns of one length: metres and radians differ in size, and the inverse should not suffer from it
    lengths = np.maximum(np.linalg.norm(jacobian, axis=0), np.finfo(float).tiny)
    inverse = np.linalg.pinv((jacobian / lengths).T @ (jacobian / lengths), hermitian=True)
    covariance: Array = variance * (inverse / np.outer(lengths, lengths))[:6, :6]
    return covariance


def _slope(camera: Camera, in_camera: Array, direction: Array) -> Array:
    """How the projections (2N) move with the points."""
    ahead, behind = (project_points(camera, in_camera + sign * _STEP * direction) for sign in (1, -1))
    return ((ahead - behind) / (2 * _STEP)).ravel()


def _focal_slope(camera: Camera, in_camera: Array) -> Array:
    """How the projections move with the focal length, in parts of itself."""

    def scaled(factor: float) -> Array:
        fx, fy, cx, cy = (float(camera.matrix[at]) for at in ((0, 0), (1, 1), (0, 2), (1, 2)))
        other = pinhole_camera(
            camera.width, camera.height, (fx * factor, fy * factor, cx, cy), camera.model, camera.distortion
        )
        return project_points(other, in_camera)

    return ((scaled(1 + _STEP) - scaled(1 - _STEP)) / (2 * _STEP)).ravel()
