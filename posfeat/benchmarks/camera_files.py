"""Files with which benchmarks hand out cameras: COLMAP databases, lists of intrinsics, and models of VisualSFM (NVM).

A given database is only read, and by SQLite itself: COLMAP would bring an old one up to date, and with that change the file.
Intrinsics stand in all of them as COLMAP counts pixels.
"""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path

from posfeat.data.colmap import MODEL_NAMES
from posfeat.data.distortion import camera_from_colmap, num_colmap_params
from posfeat.data.poses import pose_from_quaternion
from posfeat.types import Array, Camera, DataError


@dataclass(frozen=True)
class ListedCamera:
    """A camera of a given database."""

    camera: Camera
    focal_is_known: bool  # and not guessed


def read_database_cameras(path: Path) -> dict[str, ListedCamera]:
    """The camera of every image of a COLMAP database of any version, by the image's name."""
    query = (
        "SELECT images.name, cameras.model, cameras.width, cameras.height, cameras.params, cameras.prior_focal_length "
        "FROM images JOIN cameras ON images.camera_id = cameras.camera_id ORDER BY images.name"
    )
    if not path.is_file():
        raise DataError(f"there is no database {path}")
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            rows = connection.execute(query).fetchall()
        finally:
            connection.close()
        return {name: _database_camera(*rest) for name, *rest in rows}
    except (sqlite3.Error, struct.error, IndexError, TypeError) as error:
        raise DataError(f"{path} is no COLMAP database with cameras, or is damaged: {error}") from error


def read_intrinsics(path: Path) -> dict[str, Camera]:
    """A list of images with their cameras: ``name MODEL width height parameters`` in each line."""
    cameras = {}
    for number, fields in numbered_lines(path):
        try:
            name, model, width, height, *params = fields
            cameras[name] = camera_from_colmap(model, int(width), int(height), [float(value) for value in params])
        except (ValueError, DataError) as error:
            raise DataError(
                f"{path}:{number}: not an image's name, camera model, size and parameters ({error})"
            ) from error
    return cameras


def read_names(path: Path) -> list[str]:
    """The first word of every line of a list: images, whether or not their cameras follow."""
    return [fields[0] for _, fields in numbered_lines(path)]


def read_nvm_poses(path: Path) -> dict[str, Array]:
    """cam_from_world of every image of a model in VisualSFM's NVM_V3: a quaternion and the camera's centre in each line."""
    lines = [(number, fields) for number, fields in numbered_lines(path) if not fields[0].startswith("NVM_V3")]
    try:
        count = int(lines[0][1][0])
    except (IndexError, ValueError) as error:
        raise DataError(f"{path} is no NVM_V3 model: there is no number of images") from error
    if len(lines) <= count:
        raise DataError(f"{path} ends after {len(lines) - 1} of {count} images; get it again")
    poses = {}
    for number, fields in lines[1 : count + 1]:
        try:
            name, _, *numbers = fields
            pose = pose_from_quaternion([*map(float, numbers[:4]), 0.0, 0.0, 0.0])
            centre = [float(value) for value in numbers[4:7]]
            pose[:3, 3] = -pose[:3, :3] @ centre
        except (ValueError, IndexError) as error:
            raise DataError(
                f"{path}:{number}: not an image's name, focal length, rotation and centre ({error})"
            ) from error
        poses[name] = pose
    return poses


def _database_camera(model: int, width: int, height: int, params: bytes, prior: int | None) -> ListedCamera:
    name = MODEL_NAMES[model]
    values = struct.unpack(f"<{num_colmap_params(name)}d", params)
    return ListedCamera(camera_from_colmap(name, width, height, values), bool(prior))


def numbered_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Every line that is neither empty nor a comment, in words, with its number."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    numbered = enumerate(text.splitlines(), start=1)
    return [(number, line.split()) for number, line in numbered if line.strip() and not line.startswith("#")]
