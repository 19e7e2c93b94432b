"""Relative poses from matches of posed images: pose AUC, epipolar precision, matches.

A pair's error is the larger of the rotation's angle and the angle between the translation directions; as is usual, a
translation and its opposite count as the same direction. A pair without an estimate has an infinite error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from posfeat.benchmarks.homography_scores import FeaturesOf, Matcher, Progress
from posfeat.benchmarks.metrics import POSE_THRESHOLDS_DEG, epipolar_precision, recall_auc
from posfeat.data.distortion import is_distorted, undistort_pixels
from posfeat.geometry.epipolar import fundamental_from_cameras
from posfeat.geometry.pose import pose_error_deg, relative_pose
from posfeat.types import Camera, Features, Pair

PRECISION_THRESHOLDS_PX = (1.0, 1.5, 3.0, 5.0)
PoseEstimator = Callable[[Tensor, Tensor, Camera, Camera], Tensor | None]


@dataclass(frozen=True)
class PoseScore:
    """One pair: matches, their precision, and the error of the pose that they give."""

    scene: str
    name0: str
    name1: str
    matches: int
    precision: tuple[float, ...]  # share within 1, 1.5, 3, 5 px of the true epipolar lines, in both images
    rotation_error_deg: float
    translation_error_deg: float

    @property
    def error_deg(self) -> float:
        """The pair's error."""
        return max(self.rotation_error_deg, self.translation_error_deg)


@dataclass(frozen=True)
class PoseSummary:
    """Means over the pairs of a scene, or of all."""

    scene: str
    pairs: int
    auc: tuple[float, ...]  # below 5, 10, 20 degrees
    precision: tuple[float, ...]
    matches: float


def score_pose_pairs(
    pairs: Sequence[Pair],
    features_of: FeaturesOf,
    matcher: Matcher,
    estimate: PoseEstimator,
    progress: Progress | None = None,
) -> list[PoseScore]:
    """Score pairs in order; each image's features are asked for when they are needed and the last few kept."""
    recent: dict[Path, Features] = {}
    scores = []
    for done, pair in enumerate(pairs, start=1):
        features0, features1 = (_recent(recent, view.image_path, features_of) for view in (pair.view0, pair.view1))
        scores.append(score_pose_pair(pair, features0, features1, matcher, estimate))
        if progress is not None:
            progress(done, len(pairs))
    return scores


def score_pose_pair(
    pair: Pair, features0: Features, features1: Features, matcher: Matcher, estimate: PoseEstimator
) -> PoseScore:
    """Match, measure against the true epipolar geometry, estimate the pose, measure it."""
    indices = matcher(features0, features1).indices
    camera0, camera1 = pair.view0.camera, pair.view1.camera
    xy0 = straight_pixels(camera0, features0.keypoints[indices[:, 0]])
    xy1 = straight_pixels(camera1, features1.keypoints[indices[:, 1]])
    usable = (xy0.isfinite() & xy1.isfinite()).all(dim=1)
    xy0, xy1 = xy0[usable], xy1[usable]
    true = relative_pose(torch.from_numpy(pair.view0.cam_from_world), torch.from_numpy(pair.view1.cam_from_world))
    matrices = torch.from_numpy(camera0.matrix), torch.from_numpy(camera1.matrix)
    fundamental = fundamental_from_cameras(*matrices, true)
    rotation, translation = _errors_deg(estimate(xy0, xy1, camera0, camera1), true)
    return PoseScore(
        scene=pair.view0.scene,
        name0=pair.view0.name,
        name1=pair.view1.name,
        matches=len(indices),
        precision=tuple(epipolar_precision(fundamental, xy0, xy1, PRECISION_THRESHOLDS_PX).tolist()),
        rotation_error_deg=rotation,
        translation_error_deg=translation,
    )


def summarise_poses(scores: Sequence[PoseScore]) -> list[PoseSummary]:
    """All pairs first, then each scene where there are several."""
    scenes = sorted({score.scene for score in scores})
    summaries = [_mean_over("all", scores)]
    if len(scenes) > 1:
        summaries += [_mean_over(scene, [score for score in scores if score.scene == scene]) for scene in scenes]
    return summaries


def straight_pixels(camera: Camera, xy: Annotated[Tensor, "points 2"]) -> Annotated[Tensor, "points 2"]:
    """Where the pixels would be without the lens's distortion, under the same pinhole matrix."""
    if not is_distorted(camera):
        return xy.double()
    pinhole = Camera(camera.width, camera.height, camera.matrix)
    return torch.from_numpy(undistort_pixels(camera, xy.double().numpy(), pinhole))


def _mean_over(scene: str, scores: Sequence[PoseScore]) -> PoseSummary:
    precision = torch.tensor([score.precision for score in scores], dtype=torch.float64).mean(dim=0)
    errors = torch.tensor([score.error_deg for score in scores], dtype=torch.float64)
    return PoseSummary(
        scene=scene,
        pairs=len(scores),
        auc=tuple(recall_auc(errors, POSE_THRESHOLDS_DEG)),
        precision=tuple(precision.tolist()),
        matches=sum(score.matches for score in scores) / len(scores),
    )


def _errors_deg(estimated: Tensor | None, true: Tensor) -> tuple[float, float]:
    if estimated is None:
        return float("inf"), float("inf")
    rotation, translation = pose_error_deg(estimated.double(), true)
    return float(rotation), min(float(translation), 180 - float(translation))


def _recent(recent: dict[Path, Features], path: Path, features_of: FeaturesOf, most: int = 32) -> Features:
    if path not in recent:
        if len(recent) >= most:
            del recent[next(iter(recent))]
        recent[path] = features_of(path)
    return recent[path]
