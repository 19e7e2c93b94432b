"""The pose of one image from matches of its keypoints with points of a model, by pycolmap's LO-RANSAC and refinement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from posfeat.data.distortion import project_points
from posfeat.interop.colmap import (
    from_colmap_camera,
    from_rigid,
    load_pycolmap,
    to_colmap_camera,
    to_colmap_pixels,
    to_rigid,
)
from posfeat.options import check_options, described
from posfeat.types import Array, Camera

FEWEST_MATCHES = 4
_ENOUGH_FOR_DISTORTION = 50
_REFINEMENTS = 2
_LIMIT_SHARE, _LEAST_LIMIT_PX = 0.01, 4.0

FocalLength = Literal["known", "about", "unknown"]
"""Kept as it is; a good guess, which is refined; or found together with the pose."""


@dataclass(frozen=True)
class AbsolutePoseOptions:
    """When a match supports a pose, and how long one is sought."""

    max_error_px: float | None = described(
        None, "largest distance of a keypoint from its point's projection; by default 1 % of the longer side", low=0
    )
    min_inliers: int = described(12, "fewer matches that agree are no pose", low=4)
    max_trials: int = described(50_000, "the most trials of RANSAC", low=1)
    confidence: float = described(0.99999, "wanted probability of having tried the right matches", low=0, high=1)
    seed: int = described(0, "seed of RANSAC; -1 takes another each time", low=-1)

    def __post_init__(self) -> None:
        check_options(self)

    def limit_px(self, camera: Camera) -> float:
        """The largest distance for a photo of this camera's size."""
        if self.max_error_px is not None:
            return self.max_error_px
        return max(_LEAST_LIMIT_PX, _LIMIT_SHARE * max(camera.width, camera.height))


@dataclass(frozen=True)
class AbsolutePose:
    """A pose, the camera as it is after refinement, and which matches support both."""

    cam_from_world: Array  # (4, 4)
    camera: Camera
    inliers: npt.NDArray[np.bool_]

    @property
    def num_inliers(self) -> int:
        """How many matches support it."""
        return int(self.inliers.sum())


def estimate_absolute_pose(
    xy: Array, points: Array, camera: Camera, focal: FocalLength, options: AbsolutePoseOptions
) -> AbsolutePose | None:
    """The pose that most matches of positions (N, 2) with points (N, 3) support; None where too few agree."""
    if len(xy) < FEWEST_MATCHES:
        return None
    pycolmap = load_pycolmap()
    estimation = pycolmap.AbsolutePoseEstimationOptions()
    estimation.estimate_focal_length = focal == "unknown"
    estimation.ransac.max_error = options.limit_px(camera)
    estimation.ransac.max_num_trials = options.max_trials
    estimation.ransac.min_num_trials = min(estimation.ransac.min_num_trials, options.max_trials)
    estimation.ransac.confidence = options.confidence
    estimation.ransac.random_seed = options.seed
    colmap_camera = to_colmap_camera(camera)  # estimation changes it
    found = pycolmap.estimate_absolute_pose(to_colmap_pixels(xy), points, colmap_camera, estimation)
    if found is None or found["num_inliers"] < options.min_inliers:
        return None
    inliers = np.asarray(found["inlier_mask"], dtype=bool)
    estimate = AbsolutePose(from_rigid(found["cam_from_world"]), from_colmap_camera(colmap_camera), inliers)
    for _ in range(_REFINEMENTS):
        refined = _refined(estimate, xy, points, focal, options)
        if refined is None or refined.num_inliers < options.min_inliers:
            break
        estimate = refined
    return estimate


def reprojection_errors(cam_from_world: Array, camera: Camera, xy: Array, points: Array) -> Array:
    """Distance in pixels (N) of each position from its point's projection; infinite behind the camera."""
    in_camera = points @ cam_from_world[:3, :3].T + cam_from_world[:3, 3]
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.linalg.norm(project_points(camera, in_camera) - xy, axis=1)
    return np.where((in_camera[:, 2] > 0) & np.isfinite(errors), errors, np.inf)


def _refined(
    estimate: AbsolutePose, xy: Array, points: Array, focal: FocalLength, options: AbsolutePoseOptions
) -> AbsolutePose | None:
    """Least squares over the matches that support the estimate, and which matches support the result."""
    pycolmap = load_pycolmap()
    refinement = pycolmap.AbsolutePoseRefinementOptions()
    refinement.refine_focal_length = focal != "known"
    refinement.refine_extra_params = focal != "known" and estimate.num_inliers >= _ENOUGH_FOR_DISTORTION
    colmap_camera: Any = to_colmap_camera(estimate.camera)
    found = pycolmap.refine_absolute_pose(
        to_rigid(estimate.cam_from_world), to_colmap_pixels(xy), points, estimate.inliers, colmap_camera, refinement
    )
    if found is None or not np.isfinite(colmap_camera.params).all() or min(colmap_camera.focal_length_x, 1) <= 0:
        return None
    pose, camera = from_rigid(found["cam_from_world"]), from_colmap_camera(colmap_camera)
    if not np.isfinite(pose).all():
        return None
    return AbsolutePose(pose, camera, reprojection_errors(pose, camera, xy, points) <= options.limit_px(camera))
