"""COLMAP models, binary and text, as Views: a small reader that needs no pycolmap.

Models with ``rigs`` and ``frames`` (since 3.12) still write every image's own pose into ``images``, so both layouts read alike.
COLMAP's poses take the world to the camera with the axes x right, y down, z forward, as here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from posfeat.data.distortion import camera_from_colmap, num_colmap_params
from posfeat.data.poses import pose_from_quaternion
from posfeat.types import Array, Camera, DataError, View

MODEL_NAMES = (
    "SIMPLE_PINHOLE",
    "PINHOLE",
    "SIMPLE_RADIAL",
    "RADIAL",
    "OPENCV",
    "OPENCV_FISHEYE",
    "FULL_OPENCV",
    "FOV",
    "SIMPLE_RADIAL_FISHEYE",
    "RADIAL_FISHEYE",
    "THIN_PRISM_FISHEYE",
    "RAD_TAN_THIN_PRISM_FISHEYE",
    "SIMPLE_DIVISION",
    "DIVISION",
    "SIMPLE_FISHEYE",
    "FISHEYE",
    "EUCM",
    "EQUIRECTANGULAR",
)
"""COLMAP's models by their number in binary files."""

_DEPTH_PERCENTILES = (5, 95)


def is_colmap_model(folder: Path) -> bool:
    """Whether a folder holds a model's files."""
    return any((folder / f"cameras.{end}").is_file() and (folder / f"images.{end}").is_file() for end in ("bin", "txt"))


def read_colmap(model_dir: Path, image_dir: Path) -> list[View]:
    """The posed images of a model, in the order of their ids, with the points each sees and how far they are."""
    if not is_colmap_model(model_dir):
        raise DataError(f"no COLMAP model in {model_dir}: cameras and images, both .bin or both .txt, are needed")
    binary = (model_dir / "cameras.bin").is_file() and (model_dir / "images.bin").is_file()
    end = "bin" if binary else "txt"
    try:
        cameras = dict((_cameras_bin if binary else _cameras_txt)(model_dir / f"cameras.{end}"))
        images = list((_images_bin if binary else _images_txt)(model_dir / f"images.{end}"))
        points_path = model_dir / f"points3D.{end}"
        ids, points = (_points_bin if binary else _points_txt)(points_path) if points_path.is_file() else _no_points()
    except (ValueError, IndexError, OverflowError, MemoryError, struct.error) as error:
        raise DataError(f"COLMAP model {model_dir} is damaged or cut off: {error}") from error
    return [_view(image, cameras, ids, points, model_dir, image_dir) for image in sorted(images, key=lambda i: i.id)]


class _Image:
    """One entry of the images file."""

    def __init__(self, number: int, pose: list[float], camera: int, name: str, seen: npt.NDArray[np.int64]) -> None:
        self.id, self.pose, self.camera, self.name = number, pose, camera, name
        self.seen = np.unique(seen[seen >= 0])


def _view(
    image: _Image, cameras: dict[int, Camera], ids: npt.NDArray[np.int64], points: Array, model: Path, folder: Path
) -> View:
    if image.camera not in cameras:
        raise DataError(f"COLMAP model {model}: image {image.name} has camera {image.camera}, which is not in cameras")
    try:
        pose = pose_from_quaternion(image.pose)
    except ValueError as error:
        raise DataError(f"COLMAP model {model}: image {image.name} has {error}") from error
    has_points = len(image.seen) > 0
    return View(
        image_path=folder / image.name,
        camera=cameras[image.camera],
        cam_from_world=pose,
        name=image.name,
        point_ids=image.seen if has_points else None,
        depth_range=_depth_range(pose, image.seen, ids, points) if has_points else None,
    )


def _depth_range(
    pose: Array, seen: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], points: Array
) -> tuple[float, float] | None:
    """Near and far percentile of the depths of the points seen."""
    if len(ids) == 0:
        return None
    rows = np.searchsorted(ids, seen).clip(max=len(ids) - 1)
    depths = (points[rows[ids[rows] == seen]] @ pose[:3, :3].T + pose[:3, 3])[:, 2]
    depths = depths[depths > 0]
    if len(depths) < 3:
        return None
    near, far = np.percentile(depths, _DEPTH_PERCENTILES)
    return float(near), float(far)


def _no_points() -> tuple[npt.NDArray[np.int64], Array]:
    return np.zeros(0, dtype=np.int64), np.zeros((0, 3))


def _sorted_points(ids: npt.NDArray[np.int64], points: Array) -> tuple[npt.NDArray[np.int64], Array]:
    order = np.argsort(ids)
    return ids[order], points[order]


def _lines(path: Path) -> Iterator[list[str]]:
    """The words of every line that is neither empty nor a comment."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.split()


def _cameras_txt(path: Path) -> Iterator[tuple[int, Camera]]:
    for number, model, width, height, *params in _lines(path):
        yield int(number), camera_from_colmap(model, int(width), int(height), [float(value) for value in params])


def _images_txt(path: Path) -> Iterator[_Image]:
    """Two lines an image: its pose and name, then its 2D points (x, y, id of the 3D point), which may be empty."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    while lines and not lines[0].strip():
        lines.pop(0)
    for head, tail in zip(lines[0::2], [*lines[1::2], ""], strict=False):
        if not head.strip():
            continue
        number, *pose, camera, name = head.strip().split(maxsplit=9)
        words = tail.split()
        if len(words) % 3:
            raise ValueError(f"the line after image {name} does not hold triples of x, y and point")
        seen = np.array(words[2::3], dtype=np.int64)
        yield _Image(int(number), [float(value) for value in pose], int(camera), name, seen)


def _points_txt(path: Path) -> tuple[npt.NDArray[np.int64], Array]:
    rows = [(int(number), float(x), float(y), float(z)) for number, x, y, z, *_ in _lines(path)]
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    return _sorted_points(ids, np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 3))


def _unpack(file: BinaryIO, layout: str) -> tuple[float, ...]:
    size = struct.calcsize("<" + layout)
    return struct.unpack("<" + layout, file.read(size))


def _cameras_bin(path: Path) -> Iterator[tuple[int, Camera]]:
    with path.open("rb") as file:
        (count,) = _unpack(file, "Q")
        for _ in range(int(count)):
            number, model, width, height = _unpack(file, "IiQQ")
            if not 0 <= model < len(MODEL_NAMES):
                raise DataError(f"{path} has a camera of model number {model}, which is not known here")
            name = MODEL_NAMES[int(model)]
            params = _unpack(file, f"{num_colmap_params(name)}d")
            yield int(number), camera_from_colmap(name, int(width), int(height), params)


def _images_bin(path: Path) -> Iterator[_Image]:
    points2d = np.dtype([("xy", "<f8", 2), ("point", "<i8")])
    with path.open("rb") as file:
        (count,) = _unpack(file, "Q")
        for _ in range(int(count)):
            number, *pose, camera = _unpack(file, "I7dI")
            name = bytearray()
            while (byte := file.read(1)) != b"\0":
                if not byte:
                    raise ValueError("the file of images ends inside a name")
                name += byte
            (num_points,) = _unpack(file, "Q")
            raw = file.read(int(num_points) * points2d.itemsize)
            seen = np.frombuffer(raw, dtype=points2d, count=int(num_points))["point"]
            yield _Image(int(number), pose, int(camera), name.decode("utf-8"), seen)


def _points_bin(path: Path) -> tuple[npt.NDArray[np.int64], Array]:
    """Every point: id, xyz, colour, error, then a track whose length differs."""
    data = path.read_bytes()
    head = struct.Struct("<Q3d3BdQ")
    (count,) = struct.unpack_from("<Q", data)
    if count * head.size > len(data):
        raise ValueError(f"{path.name} is too short for {count} points")
    ids, points, at = np.zeros(count, dtype=np.int64), np.zeros((count, 3)), 8
    for row in range(count):
        ids[row], *points[row], _, _, _, _, length = head.unpack_from(data, at)
        at += head.size + 8 * length
    if at > len(data):
        raise ValueError(f"{path.name} ends inside a track")
    return _sorted_points(ids, points)
