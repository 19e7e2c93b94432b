"""An exactly known scene as a map with features, to localize in, and photos that are not part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from posfeat.data.cameras_txt import write_cameras_txt
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.triangulate import triangulate
from posfeat.types import Array, Camera, Features, View
from tests.pipeline.projected_scene import CAMERA, ProjectedScene, pose, seen_features, write_scene

MAP_ANGLES = tuple(range(-28, 29, 8))
QUERY_ANGLES = (-21.0, 3.0, 17.0)


@dataclass(frozen=True)
class MappedScene:
    """A map's folder, what it was made of, and queries with their true views."""

    folder: Path
    scene: ProjectedScene
    posed: Path  # cameras.txt
    queries: tuple[tuple[View, Features], ...]


def write_map(folder: Path, camera: Camera = CAMERA, noise_px: float = 0.0, num_points: int = 250) -> MappedScene:
    """Eight photos on an arc, matched and triangulated by their true poses, and three between them."""
    poses = [pose(angle) for angle in MAP_ANGLES]
    scene = write_scene(folder, poses, camera, num_points, noise_px)
    posed = folder / "cameras.txt"
    views = [View(view.image_path, camera, view.cam_from_world, f"photos/{view.name}") for view in scene.views]
    write_cameras_txt(posed, views)
    match_pairs(scene.features, all_pairs([view.name for view in scene.views]), folder / "matches.h5")
    triangulate(posed, scene.features, folder / "matches.h5", folder / "sparse" / "0")
    return MappedScene(folder, scene, posed, queries_of(QUERY_ANGLES, camera, noise_px, num_points))


def queries_of(
    angles: Sequence[float], camera: Camera = CAMERA, noise_px: float = 0.0, num_points: int = 250
) -> tuple[tuple[View, Features], ...]:
    """Photos of the same points (those of write_scene) by a camera of one's choice."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(num_points, 3))
    points *= (rng.uniform(0.2, 1.5, num_points) / np.linalg.norm(points, axis=1))[:, None]
    descriptors = F.normalize(torch.from_numpy(rng.normal(size=(num_points, 32))).float(), dim=1)
    own = np.random.default_rng(7)
    found = []
    for angle in angles:
        cam_from_world = pose(angle, 5.0)
        view = View(Path(f"query{angle}.png"), camera, cam_from_world, f"query{angle}.png")
        found.append((view, seen_features(points, descriptors, camera, cam_from_world, noise_px, own)))
    return tuple(found)


def write_query_features(path: Path, queries: Sequence[tuple[View, Features]]) -> None:
    """A feature file of the queries."""
    with FeatureStore(path, "a") as store:
        for view, features in queries:
            store.write(view.name, features)


def pose_errors(found: Array, true: Array) -> tuple[float, float]:
    """Distance of the centres, and angle in degrees."""
    centres = [-one[:3, :3].T @ one[:3, 3] for one in (found, true)]
    turn = found[:3, :3] @ true[:3, :3].T
    skew = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    angle = np.degrees(np.arctan2(np.linalg.norm(skew), np.trace(turn) - 1))
    return float(np.linalg.norm(centres[0] - centres[1])), float(angle)
