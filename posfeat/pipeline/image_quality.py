"""How well each photo of a model is held: its points, its reprojection error, its partners; and which are weakest, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posfeat.data.distortion import project_points
from posfeat.interop.colmap import (
    Model,
    cam_from_world,
    from_colmap_camera,
    observations,
    point_rows,
    registered_images,
)
from posfeat.interop.colmap_database import PairSummary

FEW_POINTS = 0.25  # of the median photo's
LARGE_ERROR = 1.6  # times the median photo's
SHOWN = 20


@dataclass(frozen=True)
class ImageQuality:
    """A photo of a model in numbers."""

    name: str
    num_points: int
    num_keypoints: int
    mean_error_px: float
    num_partners: int  # other photos of the model that it has verified matches with
    focal_px: float


def image_qualities(model: Model, pairs: Sequence[PairSummary]) -> list[ImageQuality]:
    """All photos of a model, in the order of their names."""
    images = registered_images(model)
    names = {str(image.name) for image in images}
    partners = dict.fromkeys(names, 0)
    for pair in pairs:
        if pair.num_inliers and pair.name0 in names and pair.name1 in names:
            partners[pair.name0] += 1
            partners[pair.name1] += 1
    ids, positions, _ = point_rows(model)
    found = []
    for image in images:
        xy, point_ids, _ = observations(image)
        pose, camera = cam_from_world(image), from_colmap_camera(image.camera)
        seen = positions[np.searchsorted(ids, point_ids)] @ pose[:3, :3].T + pose[:3, 3]
        errors = np.linalg.norm(project_points(camera, seen) - xy, axis=1) if len(xy) else np.zeros(0)
        found.append(
            ImageQuality(
                name=str(image.name),
                num_points=len(xy),
                num_keypoints=int(image.num_points2D()),
                mean_error_px=float(errors.mean()) if len(errors) else 0.0,
                num_partners=partners[str(image.name)],
                focal_px=float(camera.matrix[0, 0]),
            )
        )
    return found


def weakest(qualities: Sequence[ImageQuality], most: int = SHOWN) -> dict[str, str]:
    """Photos that are held worse than the others, the worst first, and in what; none where all are alike."""
    if not qualities:
        return {}
    points = float(np.median([quality.num_points for quality in qualities]))
    error = float(np.median([quality.mean_error_px for quality in qualities]))
    reasons: dict[str, str] = {}
    for quality in sorted(qualities, key=lambda q: (q.num_points / max(points, 1)) / max(q.mean_error_px, 0.1)):
        problems = []
        if quality.num_points < FEW_POINTS * points:
            problems.append(f"it sees {quality.num_points} points, the median photo {points:.0f}")
        if quality.mean_error_px > LARGE_ERROR * error:
            problems.append(f"its keypoints are {quality.mean_error_px:.2f} px off, the median photo's {error:.2f}")
        if quality.num_partners < 2 and len(qualities) > 2:
            problems.append(f"it is held by matches with {quality.num_partners} other photo only")
        if problems:
            reasons[quality.name] = "; ".join(problems)
    return dict(list(reasons.items())[:most])
