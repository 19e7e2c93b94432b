"""COLMAP models as the page shows them: cameras, points, who sees what, and where the photos lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from posfeat.data.colmap import is_colmap_model
from posfeat.interop.colmap import observations, point_rows, read_model, registered_images, views_of_model
from posfeat.page.roots import Roots
from posfeat.types import Array, Array32, Camera, DataError, View

MODEL_FILES = [
    f"{name}.{end}" for name in ("cameras", "images", "points3D", "rigs", "frames") for end in ("bin", "txt")
]
MOST_POINTS = 400_000  # those seen by the most photos
_PARENTS = 4  # folders above a model in which its photos may lie
_NUMBER = re.compile(rb"# Number of (?:images|points): (\d+)")


class Observations(NamedTuple):
    """Who sees what: rows sorted by point, and by camera within a point."""

    point: npt.NDArray[np.int32]
    camera: npt.NDArray[np.int32]
    xy: Array32  # in the photo's pixels


@dataclass(frozen=True)
class Scene:
    """A model in arrays. Points and cameras are named by their row."""

    views: list[View]
    positions: Array32  # (N, 3)
    colours: npt.NDArray[np.uint8]  # (N, 3)
    total_points: int
    observations: Observations
    photos: Path | None  # the folder of the photos, where it was found

    @property
    def num_bytes(self) -> int:
        """Memory that the scene takes."""
        return sum(a.nbytes for a in (self.positions, self.colours, *self.observations)) + 2000 * len(self.views)

    def seen_by(self, camera: int) -> list[list[float]]:
        """Rows of point, x, y of what a camera sees."""
        rows = self.observations.camera == camera
        return _rows(self.observations.point[rows], self.observations.xy[rows])

    def track(self, point: int) -> list[list[float]]:
        """Rows of camera, x, y of those that see a point."""
        low, high = np.searchsorted(self.observations.point, [point, point + 1])
        return _rows(self.observations.camera[low:high], self.observations.xy[low:high])


def read_scene(folder: Path, roots: Roots) -> Scene:
    """Read a model; this takes a while for a large one."""
    model = read_model(folder)
    images = registered_images(model)
    if not images:
        raise DataError(f"the model in {folder.name} has no image with a pose")
    ids, positions, colours = point_rows(model)
    cameras, points, places = [], [], []
    for number, image in enumerate(images):
        xy, seen, _ = observations(image)
        rows = np.searchsorted(ids, seen)
        cameras.append(np.full(len(rows), number, np.int32))
        points.append(rows.astype(np.int32))
        places.append(xy.astype(np.float32))
    found = Observations(np.concatenate(points), np.concatenate(cameras), np.concatenate(places))
    kept = np.arange(len(ids))
    if len(ids) > MOST_POINTS:
        kept = np.sort(np.argsort(-np.bincount(found.point, minlength=len(ids)), kind="stable")[:MOST_POINTS])
        found = _only(found, kept, len(ids))
    order = np.lexsort((found.camera, found.point))
    photos = find_photos(folder, str(images[0].name), roots)
    return Scene(
        views_of_model(model, photos or folder),
        positions[kept].astype(np.float32),
        colours[kept],
        len(ids),
        Observations(found.point[order], found.camera[order], found.xy[order]),
        photos,
    )


def find_photos(model: Path, name: str, roots: Roots) -> Path | None:
    """The folder in which a model's photos lie: near the model, or in a root; it has to be inside a root."""
    above = [model, *model.parents[:_PARENTS]]
    for base in [*above, *(roots.resolve(root) for root in roots.names())]:
        for folder in (base / "images", base, base / "photos"):
            path = folder / name
            if path.is_file() and roots.reference(path) is not None:
                return folder
    return None


def camera_json(view: View, num_points: int, roots: Roots, photos: Path | None) -> dict[str, Any]:
    """A camera for the viewer."""
    return {
        "name": view.name,
        "num_points": num_points,
        "photo": None if photos is None else roots.reference(photos / view.name),
        **frustum_json(view.camera, view.cam_from_world),
    }


def frustum_json(camera: Camera, cam_from_world: Array) -> dict[str, Any]:
    """What the viewer draws of a camera."""
    world_from_cam = np.linalg.inv(cam_from_world)
    return {
        "width": camera.width,
        "height": camera.height,
        "world_from_cam": [float(f"{value:.8g}") for value in world_from_cam.ravel()],
        "tan_x": round(camera.width / 2 / float(camera.matrix[0, 0]), 6),
        "tan_y": round(camera.height / 2 / float(camera.matrix[1, 1]), 6),
    }


def counts(folder: Path) -> tuple[int | None, int | None]:
    """How many images and points a model has, from the heads of its files; None where they don't say."""
    return _count(folder / "images"), _count(folder / "points3D")


def version_of(folder: Path) -> float:
    """Changes when the model is written again."""
    return max((path.stat().st_mtime for path in folder.iterdir() if path.suffix in (".bin", ".txt")), default=0.0)


def is_scene(folder: Path) -> bool:
    """Whether a folder holds a model."""
    return is_colmap_model(folder)


def _count(stem: Path) -> int | None:
    try:
        with stem.with_suffix(".bin").open("rb") as file:
            return int.from_bytes(file.read(8), "little")
    except OSError:
        pass
    try:
        with stem.with_suffix(".txt").open("rb") as file:
            found = _NUMBER.search(file.read(1000))
    except OSError:
        return None
    return int(found[1]) if found else None


def _only(found: Observations, kept: npt.NDArray[np.int64], count: int) -> Observations:
    """The observations of some points, whose numbers are their places among these."""
    place = np.full(count, -1, np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    good = place[found.point] >= 0
    return Observations(place[found.point[good]], found.camera[good], found.xy[good])


def _rows(numbers: npt.NDArray[np.int32], xy: Array32) -> list[list[float]]:
    places = np.round(xy.astype(np.float64), 2).tolist()
    return [[number, x, y] for number, (x, y) in zip(numbers.tolist(), places, strict=True)]
