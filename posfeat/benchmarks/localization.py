"""Photos of a scene left out, the rest mapped with its known poses, and the photos localized in that map.

An error is the distance between the true and the found camera centre, in percent of the scene's size (the largest distance
between two of its cameras), and the angle between the two rotations. A photo without a pose has infinite errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from posfeat.geometry.pose import camera_centre, rotation_angle_deg
from posfeat.interop.colmap_triangulation import TriangulationOptions
from posfeat.matching import MatchOptions
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.localize import Localization, LocalizationOptions, Localizer
from posfeat.pipeline.map import ModelSummary
from posfeat.pipeline.match import match_pairs
from posfeat.pipeline.select_pairs import natural_order, near_pairs
from posfeat.pipeline.triangulate import triangulate_views
from posfeat.types import Array, DataError, Features, ReconstructionError, View

THRESHOLDS = ((0.1, 0.1), (0.5, 0.5), (2.0, 2.0))  # percent of the scene's size and degrees
QUERY_EVERY = 5
FEWEST_PHOTOS = 5
_PARTNERS = 20  # of a photo of the map, the nearest ones that look its way
_MAX_TURN_DEG = 60.0

FeaturesOf = Callable[[Path], Features]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LocalizedPhoto:
    """One photo that was left out, and how well it was found again; null errors where it was not."""

    scene: str
    name: str
    centre_error_percent: float
    rotation_error_deg: float
    num_matches: int
    num_inliers: int
    reason: str = ""  # why there is no pose


@dataclass(frozen=True)
class MapSummary:
    """The map that one method's features gave."""

    scene: str
    num_photos: int
    num_points: int
    mean_track_length: float
    mean_reprojection_error_px: float


@dataclass(frozen=True)
class LocalizationSummary:
    """Medians and recall over the photos of a scene, or of all."""

    scene: str
    queries: int
    localized: int
    median_centre_percent: float
    median_rotation_deg: float
    recall: tuple[float, ...]  # within both limits of each of THRESHOLDS
    inliers: float


def split_views(views: Sequence[View]) -> tuple[list[View], list[View]]:
    """The photos to map and the photos to localize: every fifth in the order of names, 20 %."""
    ordered = sorted(views, key=lambda view: natural_order(view.name))
    if len(ordered) < FEWEST_PHOTOS:
        raise DataError(f"{len(ordered)} posed photos are too few: a map and queries need at least {FEWEST_PHOTOS}")
    queries = ordered[QUERY_EVERY // 2 :: QUERY_EVERY]
    left_out = {view.name for view in queries}
    return [view for view in ordered if view.name not in left_out], queries


def map_views(
    views: Sequence[View], features_of: FeaturesOf, matching: MatchOptions | None, folder: Path
) -> ModelSummary:
    """Features, matches of neighbouring photos, and points by the known poses, in ``folder``."""
    with FeatureStore(folder / "features.h5", "a") as store:
        for view in views:
            store.write(view.name, features_of(view.image_path))
    pairs = sorted({(min(pair), max(pair)) for pair in near_pairs(views, _PARTNERS, _MAX_TURN_DEG)})
    match_pairs(folder / "features.h5", pairs, folder / "matches.h5", matching)
    by_name = {view.name: view for view in views}
    report = triangulate_views(
        by_name, folder / "features.h5", folder / "matches.h5", folder / "sparse" / "0", TriangulationOptions()
    )
    return report.model


def localize_views(
    queries: Sequence[View],
    features_of: FeaturesOf,
    localizer: Localizer,
    size: float,
    known_cameras: bool,
    progress: Callable[[], None] | None = None,
) -> list[LocalizedPhoto]:
    """Localize posed photos and measure the errors."""
    found = []
    for view in queries:
        features = features_of(view.image_path)
        try:
            result = localizer.localize_features(features, view.camera if known_cameras else None, name=view.name)
            found.append(_measured(view, result, size))
        except ReconstructionError as error:
            infinity = float("inf")
            found.append(LocalizedPhoto(view.scene, view.name, infinity, infinity, 0, 0, str(error)))
        if progress:
            progress()
    return found


def localize_scene(
    views: Sequence[View],
    features_of: FeaturesOf,
    options: LocalizationOptions,
    known_cameras: bool,
    folder: Path,
    progress: Callable[[], None] | None = None,
) -> tuple[MapSummary, list[LocalizedPhoto]]:
    """One scene from posed photos to errors; ``folder`` holds the map meanwhile."""
    mapped, queries = split_views(views)
    model = map_views(mapped, features_of, options.matching, folder)
    summary = MapSummary(
        views[0].scene, model.num_images, model.num_points, model.mean_track_length, model.mean_reprojection_error_px
    )
    with Localizer(folder, options=options) as localizer:
        size = scene_size(views)
        return summary, localize_views(queries, features_of, localizer, size, known_cameras, progress)


def scene_size(views: Sequence[View]) -> float:
    """The largest distance between two cameras."""
    centres = camera_centre(torch.from_numpy(np.stack([view.cam_from_world for view in views])))
    return float(torch.cdist(centres, centres).max())


def summarise_localization(photos: Sequence[LocalizedPhoto]) -> list[LocalizationSummary]:
    """All photos first, then each scene where there are several."""
    scenes = sorted({photo.scene for photo in photos})
    summaries = [_over("all", photos)]
    if len(scenes) > 1:
        summaries += [_over(scene, [photo for photo in photos if photo.scene == scene]) for scene in scenes]
    return summaries


def _measured(view: View, found: Localization, size: float) -> LocalizedPhoto:
    pose, true = torch.from_numpy(found.cam_from_world), torch.from_numpy(view.cam_from_world)
    distance = float((camera_centre(pose) - camera_centre(true)).norm())
    angle = float(rotation_angle_deg(pose[:3, :3] @ true[:3, :3].T))
    return LocalizedPhoto(view.scene, view.name, 100 * distance / size, angle, found.num_matches, found.num_inliers)


def _over(scene: str, photos: Sequence[LocalizedPhoto]) -> LocalizationSummary:
    centre: Array = np.array([photo.centre_error_percent for photo in photos])
    rotation: Array = np.array([photo.rotation_error_deg for photo in photos])
    return LocalizationSummary(
        scene=scene,
        queries=len(photos),
        localized=int(np.isfinite(centre).sum()),
        median_centre_percent=_median(centre),
        median_rotation_deg=_median(rotation),
        recall=tuple(float(((centre <= c) & (rotation <= r)).mean()) for c, r in THRESHOLDS),
        inliers=float(np.mean([photo.num_inliers for photo in photos])),
    )


def _median(errors: Array) -> float:
    """Infinite where half of the photos have no pose; the mean of the two in the middle is never half infinite."""
    ordered = np.sort(errors)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(high if np.isinf(high) else (low + high) / 2)
