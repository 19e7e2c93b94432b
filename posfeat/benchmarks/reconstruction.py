"""Whole reconstructions of posed photos: how many photos are placed, how long tracks are, and how far cameras are off.

Every method has the same pairs, the same verification and the same mapper. The error of a pair of photos is that of its
relative pose, taken from the reconstruction: the larger of the rotation's angle and the angle between the directions of
translation. All pairs of a scene count; those of a photo that was not placed have an infinite error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posfeat.benchmarks.camera_errors import FEWEST_CAMERAS, camera_errors
from posfeat.benchmarks.feature_sources import FeatureSource
from posfeat.benchmarks.metrics import POSE_THRESHOLDS_DEG, recall_auc
from posfeat.benchmarks.work_files import Progress, extract_and_match
from posfeat.geometry.pose import pose_error_deg, relative_pose
from posfeat.interop.colmap import Model, read_model, views_of_model
from posfeat.interop.colmap_mapping import MappingOptions, VerificationOptions
from posfeat.matching import MatchOptions
from posfeat.pipeline.choose_cameras import CameraOptions
from posfeat.pipeline.map import map_scene, model_folders, summarise
from posfeat.pipeline.match import all_pairs
from posfeat.pipeline.select_pairs import covisible_pairs, natural_order, near_pairs
from posfeat.pipeline.verify import verify_pairs
from posfeat.types import ReconstructionError, View

MOST_EXHAUSTIVE = 60
_NEIGHBOURS = 30
_MAX_TURN_DEG = 75.0
_FEWEST_SHARED = 15


@dataclass(frozen=True)
class ReconstructionScore:
    """One method's reconstruction of one scene; null where too little was placed to be measured."""

    scene: str
    photos: int
    registered: int
    points: int
    track_length: float
    observations_per_photo: float
    reprojection_error_px: float
    auc: tuple[float, ...]  # below 5, 10, 20 degrees
    centre_error_percent: float  # mean, of the scene's size, of the photos that were placed
    rotation_error_deg: float
    verified_pairs: int
    pairs: int
    seconds: float
    failure: str = ""


def scene_pairs(views: Sequence[View]) -> list[tuple[str, str]]:
    """The pairs that all methods match: all of a small scene, else those that share points or, without points, are near."""
    ordered = sorted(views, key=lambda view: natural_order(view.name))
    if len(ordered) <= MOST_EXHAUSTIVE:
        return all_pairs([view.name for view in ordered])
    if all(view.point_ids is not None for view in ordered):
        pairs = covisible_pairs(ordered, _NEIGHBOURS, _FEWEST_SHARED)
    else:
        pairs = near_pairs(ordered, _NEIGHBOURS, _MAX_TURN_DEG)
    return sorted({(min(pair), max(pair)) for pair in pairs})


def reconstruct_scene(
    views: Sequence[View],
    source: FeatureSource,
    matching: MatchOptions,
    work: Path,
    mapping: MappingOptions,
    known_cameras: bool,
    progress: Progress | None = None,
) -> ReconstructionScore:
    """Extract, match, verify and map one scene's photos, and measure the largest model."""
    begun = time.perf_counter()
    names, pairs = [view.name for view in views], scene_pairs(views)
    images = views[0].image_path.parents[views[0].name.count("/")]
    known = {view.name: view.camera for view in views} if known_cameras else {}
    files = extract_and_match(source, images, names, pairs, matching, work / views[0].scene, known, progress)
    one_camera = len({repr(view.camera) for view in views}) == 1
    verified = verify_pairs(
        files.features,
        files.matches,
        images,
        files.database,
        VerificationOptions(),
        CameraOptions(share="single" if one_camera else "auto"),
        known_cameras=known,
        progress=progress,
    )
    model, failure = None, ""
    try:
        map_scene(files.database, images, files.models, mapping, progress=progress)
        model = read_model(model_folders(files.models)[0])
    except ReconstructionError as error:
        failure = str(error)
    numbers = (verified.num_verified, verified.num_pairs, time.perf_counter() - begun)
    return _score(views, model, images, numbers, failure)


def pair_errors_deg(found: Sequence[View], true: Sequence[View]) -> Tensor:
    """Errors of the relative poses of all pairs of true views; infinite where one of them was not found."""
    by_name = {view.name: view for view in found}
    common = [view for view in true if view.name in by_name]
    errors = torch.full((len(true) * (len(true) - 1) // 2,), float("inf"), dtype=torch.float64)
    estimated, right = (_poses(views) for views in ([by_name[view.name] for view in common], common))
    filled = 0
    for i in range(len(common) - 1):
        found_pose, true_pose = (
            relative_pose(poses[i].expand(len(poses) - i - 1, 4, 4), poses[i + 1 :]) for poses in (estimated, right)
        )
        rotation, translation = pose_error_deg(found_pose, true_pose)
        errors[filled : filled + len(rotation)] = torch.maximum(rotation, translation)
        filled += len(rotation)
    return errors


def _score(
    views: Sequence[View], model: Model | None, images: Path, numbers: tuple[int, int, float], failure: str
) -> ReconstructionScore:
    nothing = float("nan")
    found = [] if model is None else views_of_model(model, images)
    summary = None if model is None else summarise(model)
    errors = camera_errors(found, views) if len(found) >= FEWEST_CAMERAS else None
    return ReconstructionScore(
        scene=views[0].scene,
        photos=len(views),
        registered=len(found),
        points=summary.num_points if summary else 0,
        track_length=summary.mean_track_length if summary else 0.0,
        observations_per_photo=summary.num_observations / len(found) if summary and found else 0.0,
        reprojection_error_px=summary.mean_reprojection_error_px if summary else nothing,
        auc=tuple(recall_auc(pair_errors_deg(found, views), POSE_THRESHOLDS_DEG)),
        centre_error_percent=errors.mean_centre_percent if errors else nothing,
        rotation_error_deg=errors.mean_rotation_deg if errors else nothing,
        verified_pairs=numbers[0],
        pairs=numbers[1],
        seconds=numbers[2],
        failure=failure,
    )


def _poses(views: Sequence[View]) -> Tensor:
    return torch.from_numpy(np.stack([view.cam_from_world for view in views]) if views else np.zeros((0, 4, 4)))
