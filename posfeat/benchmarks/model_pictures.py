"""Pictures of COLMAP models: the points and cameras, and which of a photo's keypoints became landmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posfeat.benchmarks.pictures import landmarks, sparse_model
from posfeat.data.images import read_image
from posfeat.interop.colmap import cam_from_world, observations, point_rows, read_model, registered_images
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.types import DataError


def picture_of_model(model_folder: Path, kind: str = "png") -> bytes:
    """A model's points and cameras, seen as its cameras look and from above."""
    model = read_model(model_folder)
    _, positions, colours = point_rows(model)
    if len(positions) == 0:
        raise DataError(f"{model_folder} has no points to draw")
    return sparse_model(positions, colours, [cam_from_world(image) for image in registered_images(model)], kind)


def landmarks_of_model(
    model_folder: Path, features: Path, images: Path, name: str | None = None, kind: str = "jpg"
) -> tuple[bytes, str, int, int]:
    """Fig. 1 for a photo, or for the one that sees most of the model: the picture, its name, keypoints that succeed, and all.

    The feature file must be the one that the model was made of: its rows are the model's.
    """
    model = read_model(model_folder)
    registered = {str(image.name): image for image in registered_images(model)}
    if name is None:
        name = max(registered, key=lambda key: int(registered[key].num_points3D))
    if name not in registered:
        raise DataError(
            f"{name} is not an image of the model {model_folder}; it has {', '.join(sorted(registered)[:3])} ..."
        )
    with FeatureStore(features) as store:
        xy = store.read(name).keypoints.numpy()
    positions, _, rows = observations(registered[name])
    if len(rows) and (rows.max() >= len(xy) or np.abs(xy[rows] - positions).max() > 0.01):
        raise DataError(
            f"{features} is not the feature file that {model_folder} was made of: keypoints of {name} differ"
        )
    succeeded = np.zeros(len(xy), dtype=bool)
    succeeded[rows] = True
    return landmarks(read_image(images / name), xy, succeeded, kind), name, int(succeeded.sum()), len(xy)
