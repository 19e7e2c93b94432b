"""COLMAP's database: cameras, images, keypoints, matches and two-view geometries, by the names of images.

Positions, cameras and fundamental matrices are ours (the top-left pixel's centre is (0, 0)) on this side of every method.
A two-view geometry is never written without its configuration: pycolmap 4.2 passes over those that have none, without a word.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.interop.colmap import (
    from_colmap_camera,
    from_colmap_pixels,
    from_rigid,
    load_pycolmap,
    to_colmap_camera,
    to_colmap_pixels,
    to_rigid,
)
from posfeat.types import Array, Camera, ReconstructionError, StoreError, TwoViewConfiguration, TwoViewGeometry

# what COLMAP's configurations are to us, and, the first of each kind, what ours are to COLMAP
_CONFIGURATIONS = {
    "CALIBRATED": TwoViewConfiguration.CALIBRATED,
    "CALIBRATED_RIG": TwoViewConfiguration.CALIBRATED,
    "UNCALIBRATED": TwoViewConfiguration.UNCALIBRATED,
    "PLANAR_OR_PANORAMIC": TwoViewConfiguration.PLANAR,
    "PLANAR": TwoViewConfiguration.PLANAR,
    "PANORAMIC": TwoViewConfiguration.PLANAR,
    "DEGENERATE": TwoViewConfiguration.DEGENERATE,
}
_SQLITE = b"SQLite format 3"
_LITTLE_ROOM = 2**20  # SQLite sets aside that much beside a database while it writes
_COLMAP_FROM_ZERO_CENTRED = np.array([[1.0, 0, COLMAP_OFFSET_PX], [0, 1, COLMAP_OFFSET_PX], [0, 0, 1]])


@dataclass(frozen=True)
class PairSummary:
    """A pair of a database: its matches, those that its geometry bears out, and COLMAP's word for the geometry."""

    name0: str
    name1: str
    num_matches: int
    num_inliers: int
    configuration: str  # UNDEFINED where the matches agree on nothing


class ColmapDatabase:
    """A COLMAP database, made if it is missing; use with ``with``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pycolmap = load_pycolmap()
        with self._problems():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = self._pycolmap.Database.open(path)
            self._images = {str(image.name): image for image in self._database.read_all_images()}

    def __enter__(self) -> ColmapDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What happens inside is kept as a whole or, if the process dies meanwhile, not at all; and it is faster."""
        with self._problems(), self._pycolmap.DatabaseTransaction(self._database):
            yield

    def add_camera(self, camera: Camera, focal_is_known: bool = False) -> int:
        """Add a camera for one or several images; its id."""
        with self._problems():
            made = to_colmap_camera(camera, focal_is_known=focal_is_known)
            made.camera_id = self._database.write_camera(made)
            rig = self._pycolmap.Rig()
            rig.add_ref_sensor(made.sensor_id)
            self._database.write_rig(rig)
        return int(made.camera_id)

    def add_image(self, name: str, camera_id: int) -> int:
        """Add an image taken by a camera that was added; its id."""
        if name in self._images:
            raise StoreError(f"{self.path} has an image {name} already")
        with self._problems():
            image = self._pycolmap.Image(name=name, camera_id=camera_id)
            image.image_id = self._database.write_image(image)
            camera = self._database.read_camera(camera_id)
            frame = self._pycolmap.Frame()
            frame.rig_id = self._database.read_rig_with_sensor(camera.sensor_id).rig_id
            frame.add_data_id(image.data_id)
            self._database.write_frame(frame)
        self._images[name] = image
        return int(image.image_id)

    def image_ids(self) -> dict[str, int]:
        """The id of every image."""
        return {name: int(image.image_id) for name, image in self._images.items()}

    def camera_ids(self) -> dict[str, int]:
        """The id of every image's camera."""
        return {name: int(image.camera_id) for name, image in self._images.items()}

    def camera(self, name: str) -> Camera:
        """An image's camera."""
        return from_colmap_camera(self._database.read_camera(self._image(name).camera_id))

    def size(self, name: str) -> tuple[int, int]:
        """An image's width and height."""
        camera = self._database.read_camera(self._image(name).camera_id)
        return int(camera.width), int(camera.height)

    def write_keypoints(self, name: str, xy: npt.ArrayLike) -> None:
        """Write an image's keypoints (N, 2)."""
        with self._problems():
            self._database.write_keypoints(self._id(name), to_colmap_pixels(xy).astype(np.float32))

    def has_keypoints(self, name: str) -> bool:
        """Whether an image's keypoints are written."""
        return bool(self._database.exists_keypoints(self._id(name)))

    def keypoints(self, name: str) -> Array:
        """An image's keypoints (N, 2)."""
        return from_colmap_pixels(self._database.read_keypoints(self._id(name))[:, :2])

    def write_matches(self, name0: str, name1: str, indices: npt.NDArray[np.int64]) -> None:
        """Write a pair's matches: rows (M, 2) of the keypoints of image 0 and image 1."""
        with self._problems():
            self._database.write_matches(self._id(name0), self._id(name1), indices.astype(np.uint32))

    def has_matches(self, name0: str, name1: str) -> bool:
        """Whether a pair's matches are written, in either order."""
        return bool(self._database.exists_matches(self._id(name0), self._id(name1)))

    def matches(self, name0: str, name1: str) -> npt.NDArray[np.int64]:
        """A pair's matches (M, 2)."""
        return np.asarray(self._database.read_matches(self._id(name0), self._id(name1))).astype(np.int64)

    def write_geometry(self, name0: str, name1: str, geometry: TwoViewGeometry) -> None:
        """Write a pair's geometry, in place of what there is."""
        configuration = next(key for key, ours in _CONFIGURATIONS.items() if ours is geometry.configuration)
        values: dict[str, Any] = {
            "config": self._pycolmap.TwoViewGeometryConfiguration(configuration),
            "inlier_matches": geometry.inliers.astype(np.uint32),
        }
        if geometry.fundamental is not None:
            back = np.linalg.inv(_COLMAP_FROM_ZERO_CENTRED)
            values["F"] = back.T @ geometry.fundamental @ back
        if geometry.cam1_from_cam0 is not None:
            values["cam2_from_cam1"] = to_rigid(geometry.cam1_from_cam0)
        ids = self._id(name0), self._id(name1)
        with self._problems():
            if self._database.exists_two_view_geometry(*ids):
                self._database.delete_two_view_geometry(*ids)
            self._database.write_two_view_geometry(*ids, self._pycolmap.TwoViewGeometry(**values))

    def geometry(self, name0: str, name1: str) -> TwoViewGeometry | None:
        """A pair's geometry; None where it was not looked for, or nothing was found."""
        ids = self._id(name0), self._id(name1)
        if not self._database.exists_two_view_geometry(*ids):
            return None
        read = self._database.read_two_view_geometry(*ids)
        configuration = _CONFIGURATIONS.get(self._configuration_name(read))
        if configuration is None:
            return None
        shift, pose = _COLMAP_FROM_ZERO_CENTRED, read.cam2_from_cam1
        return TwoViewGeometry(
            configuration=configuration,
            inliers=np.asarray(read.inlier_matches).astype(np.int64).reshape(-1, 2),
            fundamental=None if read.F is None else shift.T @ np.asarray(read.F) @ shift,
            cam1_from_cam0=None if pose is None else from_rigid(pose),
        )

    def parallax_deg(self, name0: str, name1: str) -> float:
        """The median angle at which the rays of a pair's verified matches meet; 0 where both were taken from one place."""
        ids = self._id(name0), self._id(name1)
        cameras = [self._database.read_camera(self._image(name).camera_id) for name in (name0, name1)]
        points = [np.asarray(self._database.read_keypoints(i), dtype=np.float64)[:, :2] for i in ids]
        geometry = self._database.read_two_view_geometry(*ids)
        estimate = self._pycolmap.estimate_two_view_geometry_pose
        found = estimate(cameras[0], points[0], cameras[1], points[1], geometry)
        return float(np.degrees(max(geometry.tri_angle, 0.0))) if found else 0.0

    def focal_is_known(self, name: str) -> bool:
        """Whether the focal length of an image's camera is more than a guess."""
        return bool(self._database.read_camera(self._image(name).camera_id).has_prior_focal_length)

    def pairs(self) -> list[PairSummary]:
        """Every matched pair, in the order of its images' ids."""
        names = {image_id: name for name, image_id in self.image_ids().items()}
        geometries = dict(zip(*self._database.read_two_view_geometries(), strict=True))
        found = []
        for pair_id, num_matches in sorted(zip(*self._database.read_num_matches(), strict=True)):
            name0, name1 = (names[image_id] for image_id in self._pycolmap.pair_id_to_image_pair(pair_id))
            geometry = geometries.get(pair_id)
            num_inliers = 0 if geometry is None else len(geometry.inlier_matches)
            word = "UNDEFINED" if geometry is None else self._configuration_name(geometry)
            found.append(PairSummary(name0, name1, num_matches, num_inliers, word))
        return found

    def _configuration_name(self, geometry: Any) -> str:
        return str(self._pycolmap.TwoViewGeometryConfiguration(geometry.config).name)

    def _image(self, name: str) -> Any:
        if name not in self._images:
            raise StoreError(f"{self.path} has no image {name}; add it first")
        return self._images[name]

    def _id(self, name: str) -> int:
        return int(self._image(name).image_id)

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """What SQLite reports through pycolmap, as one line."""
        try:
            yield
        except OSError as error:
            raise ReconstructionError(f"cannot write {self.path}: {error.strerror or error}") from None
        except (RuntimeError, ValueError) as error:
            raise ReconstructionError(f"cannot use the database {self.path}: {_reason(self.path, error)}") from None


def _reason(path: Path, error: Exception) -> str:
    """What is wrong with a database; pycolmap says the same of many things."""
    with suppress(OSError):
        if path.is_dir() or (path.is_file() and path.stat().st_size and path.open("rb").read(15) != _SQLITE):
            return "it is no SQLite file; choose another name"
        if shutil.disk_usage(path.parent).free < _LITTLE_ROOM:
            return "there is no space left on the disk; make room, or choose another place"
        if not os.access(path.parent, os.W_OK):
            return "its folder cannot be written to; choose another place"
    return " ".join(str(error).split())
