"""A scene of points and cameras that are known exactly, and a feature store of what the cameras see of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from posfeat.data.distortion import project_points
from posfeat.data.images import write_image
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import Array, Camera, Features, View

WIDTH, HEIGHT = 640, 480
CAMERA = Camera(WIDTH, HEIGHT, np.array([[600.0, 0, 319.5], [0, 600, 239.5], [0, 0, 1]]))


@dataclass(frozen=True)
class ProjectedScene:
    """Where everything is: photos, features, and the views that they are of."""

    photos: Path
    features: Path
    views: tuple[View, ...]


def pose(angle_deg: float, distance: float = 6.0) -> Array:
    """A camera on a circle around the scene that looks at its middle."""
    turn = torch.tensor([0.0, np.radians(angle_deg), 0.0], dtype=torch.float64)
    cam_from_world = np.eye(4)
    cam_from_world[:3, :3] = rotation_from_axis_angle(turn).numpy()
    cam_from_world[:3, 3] = [0, 0, distance]
    return cam_from_world


def write_scene(
    folder: Path,
    poses: Sequence[Array],
    camera: Camera = CAMERA,
    num_points: int = 250,
    noise_px: float = 0.2,
    names: Sequence[str] | None = None,
) -> ProjectedScene:
    """Photos (which show nothing) and features of points in a ball; a point has nearly the same descriptor everywhere."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(num_points, 3))
    points *= (rng.uniform(0.2, 1.5, num_points) / np.linalg.norm(points, axis=1))[:, None]
    descriptors = F.normalize(torch.from_numpy(rng.normal(size=(num_points, 32))).float(), dim=1)
    names = names or [f"{number:03d}.png" for number in range(len(poses))]
    views = []
    with FeatureStore(folder / "features.h5", "a") as store:
        for name, cam_from_world in zip(names, poses, strict=True):
            path = folder / "photos" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_image(path, np.full((camera.height, camera.width, 3), 90, np.uint8))
            views.append(View(path, camera, cam_from_world, name=name))
            store.write(name, seen_features(points, descriptors, camera, cam_from_world, noise_px, rng))
    return ProjectedScene(folder / "photos", folder / "features.h5", tuple(views))


def seen_features(
    points: Array,
    descriptors: torch.Tensor,
    camera: Camera,
    cam_from_world: Array,
    noise_px: float,
    rng: np.random.Generator,
) -> Features:
    """The points in the picture, in an order of the picture's own."""
    in_camera = points @ cam_from_world[:3, :3].T + cam_from_world[:3, 3]
    xy = project_points(camera, in_camera) + rng.normal(0, noise_px, (len(points), 2))
    inside = (xy >= 0).all(axis=1) & (xy <= [camera.width - 1, camera.height - 1]).all(axis=1) & (in_camera[:, 2] > 0)
    rows = rng.permutation(np.flatnonzero(inside))
    noisy = descriptors[rows] + 0.02 * torch.from_numpy(rng.normal(size=(len(rows), descriptors.shape[1]))).float()
    return Features(
        torch.from_numpy(xy[rows]).float(),
        torch.linspace(1, 0.1, len(rows)),
        F.normalize(noisy, dim=1),
        (camera.width, camera.height),
    )
