"""Whether a model's binary files are whole. COLMAP's own reader believes their heads and takes all memory where one is cut off."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from posfeat.data.colmap import MODEL_NAMES
from posfeat.data.distortion import num_colmap_params
from posfeat.types import DataError

_COUNT = struct.Struct("<Q")
_NUMBER = struct.Struct("<I")
_CAMERA = struct.Struct("<IiQQ")
_IMAGE_BYTES = 4 + 7 * 8 + 4  # number, pose, camera; then the name
_OBSERVATION_BYTES = 2 * 8 + 8
_POINT_BYTES = 8 + 3 * 8 + 3 + 8  # number, place, colour, error; then the track
_SENSOR_BYTES = 4 + 4
_POSE_BYTES = 7 * 8


def require_whole(model: Path) -> None:
    """Refuse a binary model of which a file holds more or less than it says."""
    for name, end_of_entry in _ENDS.items():
        path = model / f"{name}.bin"
        if path.is_file() and not _is_whole(path.read_bytes(), end_of_entry):
            raise DataError(f"{path} is damaged or cut off; make the model again, or wait until it is written")


def _is_whole(data: bytes, end_of_entry: Callable[[bytes, int], int]) -> bool:
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        for _ in range(count):
            at = end_of_entry(data, at)
    except (struct.error, ValueError, IndexError, OverflowError):
        return False
    return at == len(data)


def _end_of_camera(data: bytes, at: int) -> int:
    _, model, _, _ = _CAMERA.unpack_from(data, at)
    if model < 0:
        raise ValueError("no camera model has a number below 0")
    return at + _CAMERA.size + 8 * num_colmap_params(MODEL_NAMES[model])


def _end_of_image(data: bytes, at: int) -> int:
    at = data.index(b"\0", at + _IMAGE_BYTES) + 1
    return at + _COUNT.size + _OBSERVATION_BYTES * _COUNT.unpack_from(data, at)[0]


def _end_of_point(data: bytes, at: int) -> int:
    at += _POINT_BYTES
    return at + _COUNT.size + _SENSOR_BYTES * _COUNT.unpack_from(data, at)[0]


def _end_of_rig(data: bytes, at: int) -> int:
    (num_sensors,) = _NUMBER.unpack_from(data, at + 4)
    at += 8 + (_SENSOR_BYTES if num_sensors else 0)
    for _ in range(1, num_sensors):  # all but the one that the others are placed by
        at += _SENSOR_BYTES
        at += 1 + (_POSE_BYTES if data[at] else 0)
    return at


def _end_of_frame(data: bytes, at: int) -> int:
    at += 4 + 4 + _POSE_BYTES
    return at + 4 + (_SENSOR_BYTES + 8) * _NUMBER.unpack_from(data, at)[0]


_ENDS = {
    "cameras": _end_of_camera,
    "images": _end_of_image,
    "points3D": _end_of_point,
    "rigs": _end_of_rig,
    "frames": _end_of_frame,
}
