"""A map to localize in: a COLMAP model's points, the keypoints that saw them, and their descriptors. It is only read.

The keypoints of the feature file must be those that the model was made of: row k of an image's features is the k-th 2D point
of that image in the model, as ``posfeat reconstruct`` and ``posfeat triangulate`` (and hloc) leave them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from posfeat.data.colmap import is_colmap_model
from posfeat.interop.colmap import from_colmap_camera, observations, point_rows, read_model, registered_images
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.retrieval import ImageIndex, index_images
from posfeat.types import Camera, DataError, Features

Progress = Callable[[int, int], None]

_MODEL_FOLDERS = (".", "sparse/0", "sparse", "model", "0")
_FEATURE_FILE = "features.h5"
_SAME_PLACE_PX = 0.1  # both come from one number, but for rounding


@dataclass(frozen=True)
class ObservedFeatures:
    """The features of an image of the map, and the row among the map's points of each, or -1."""

    features: Features
    points: npt.NDArray[np.int64]


class LocalizationMap:
    """Opens a map; use with ``with``, or close it.

    ``folder`` is a model's folder or one with ``sparse/0`` in it; the feature file is sought in it and in the folders above.
    """

    def __init__(self, folder: Path, features: Path | None = None, images_in_memory: int = 256) -> None:
        self.folder = find_model(folder)
        model = read_model(self.folder)
        ids, self.points, _ = point_rows(model)
        if len(ids) == 0:
            raise DataError(f"the model in {self.folder} has no points; make them with posfeat triangulate")
        self._row_of_id = dict(zip(ids.tolist(), range(len(ids)), strict=True))
        self.store = FeatureStore(features or find_features(self.folder))
        self._images = {str(image.name): image for image in registered_images(model)}
        self.names = [name for name in self._images if name in self.store]
        if not self.names:
            example = next(iter(self._images), "none")
            raise DataError(
                f"{self.store.path} has features of no image of the map, such as {example}; check the names"
            )
        self.cameras: dict[str, Camera] = {name: from_colmap_camera(self._images[name].camera) for name in self.names}
        self._model, self._most = model, images_in_memory  # images belong to the model and live as long as it does
        self._recent: OrderedDict[str, ObservedFeatures] = OrderedDict()

    def __enter__(self) -> LocalizationMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the feature file."""
        self.store.close()

    @cached_property
    def index(self) -> ImageIndex:
        """The images' vectors, computed when they are first needed."""
        return index_images(self.store, self.names)

    def observed(self, name: str) -> ObservedFeatures:
        """An image's features and the points that they saw."""
        if name not in self._recent:
            if len(self._recent) >= self._most:
                self._recent.popitem(last=False)
            self._recent[name] = self._read(name)
        self._recent.move_to_end(name)
        return self._recent[name]

    def _read(self, name: str) -> ObservedFeatures:
        features = self.store.read(name)
        positions, ids, rows = observations(self._images[name])
        xy = features.keypoints.numpy()
        if len(rows) and (rows.max() >= len(xy) or np.abs(xy[rows] - positions).max() > _SAME_PLACE_PX):
            raise DataError(
                f"the model in {self.folder} was not made of the keypoints of {name} in {self.store.path}; name the feature "
                "file that it was made of, or make points of these features with posfeat triangulate"
            )
        points = np.full(len(xy), -1, dtype=np.int64)
        points[rows] = [self._row_of_id[number] for number in ids.tolist()]
        return ObservedFeatures(features, points)


def find_model(folder: Path) -> Path:
    """The model in a map's folder."""
    found = next((folder / name for name in _MODEL_FOLDERS if is_colmap_model(folder / name)), None)
    if found is None:
        raise DataError(f"there is no COLMAP model in {folder} or its sparse/0; make one with posfeat reconstruct")
    return found


def find_features(model: Path) -> Path:
    """The feature file beside a model, or up to two folders above it."""
    places = [model, *model.resolve().parents[:2]]
    found = next((place / _FEATURE_FILE for place in places if (place / _FEATURE_FILE).is_file()), None)
    if found is None:
        raise DataError(f"there is no {_FEATURE_FILE} beside the model {model}; name the map's feature file")
    return found
