"""Lists of visuallocalization.net (and hloc): queries with their intrinsics, and the poses found for them.

A query's line is ``name MODEL width height parameters`` as COLMAP counts pixels, or its name alone where nothing is known. A
pose's line is ``name qw qx qy qz tx ty tz``, world to camera, under the file's name without folders.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import torch

from posfeat.data.distortion import camera_from_colmap
from posfeat.data.images import shown
from posfeat.data.poses import pose_from_quaternion
from posfeat.geometry.pose import quaternion_from_rotation
from posfeat.types import Array, Camera, DataError, StoreError


def read_queries(path: Path) -> dict[str, Camera | None]:
    """Names of queries and their cameras, None where they are unknown, in the order of the list."""
    queries: dict[str, Camera | None] = {}
    for number, words in _lines(path):
        try:
            name, *rest = words
            if not rest:
                queries[name] = None
                continue
            model, width, height, *params = rest
            queries[name] = camera_from_colmap(model, int(width), int(height), [float(value) for value in params])
        except (ValueError, DataError) as error:
            raise DataError(
                f"line {number} of {shown(path)} is not a name, or a name with camera model, size and parameters: {error}"
            ) from None
    if not queries:
        raise DataError(f"{shown(path)} lists no queries; write a photo's name on each line")
    return queries


def write_poses(path: Path, poses: Mapping[str, Array], full_names: bool = False) -> None:
    """Write cam_from_world (4, 4) of photos; all or nothing."""
    names = listed_names(poses, full_names)
    lines = []
    for name, pose in poses.items():
        require_no_space(names[name])
        numbers = [*quaternion_from_rotation(torch.from_numpy(pose[:3, :3])).tolist(), *pose[:3, 3].tolist()]
        lines.append(f"{names[name]} {' '.join(f'{value:.17g}' for value in numbers)}\n")
    part = path.with_name(path.name + ".part")
    try:
        part.write_text("".join(lines), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"cannot write {shown(path)}: {error.strerror}; choose another place") from None


def listed_names(names: Iterable[str], full_names: bool = False) -> dict[str, str]:
    """What photos are called in a list of poses; DataError where it could not tell them apart."""
    listed = {name: name if full_names else PurePosixPath(name).name for name in names}
    twice = [name for name, count in Counter(listed.values()).items() if count > 1]
    if twice:
        raise DataError(f"two photos are named {twice[0]}; write full names to tell them apart")
    return listed


def require_no_space(name: str) -> None:
    """Refuse a name that a list of poses cannot hold."""
    if any(c.isspace() for c in name):
        raise DataError(f"a list of poses cannot hold the name {name!r}; rename the photo without spaces")


def read_poses(path: Path) -> dict[str, Array]:
    """cam_from_world (4, 4) by the names in a list of poses."""
    poses = {}
    for number, words in _lines(path):
        try:
            poses[words[0]] = pose_from_quaternion([float(value) for value in words[1:]])
        except ValueError as error:
            raise DataError(f"line {number} of {shown(path)} is not a name and seven numbers: {error}") from None
    return poses


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Number and words of every line that is neither empty nor a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DataError(f"cannot read {shown(path)}: {reason}; check the file") from None
    return [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
