"""Our own plain ``cameras.txt``: one line an image, for poses that come from anywhere (docs/data.md describes it).

    # MODEL WIDTH HEIGHT PARAMS... QW QX QY QZ TX TY TZ NAME
    PINHOLE 640 480 520.9 521.0 319.5 239.5 1 0 0 0 0 0 0 images/0001.jpg

Models and parameters are COLMAP's; poses take the world to the camera (x right, y down, z forward). Two settings may stand before the
first image: ``pixel_centre 0.5`` where the centre of the top-left pixel is (0.5, 0.5) as in COLMAP (default 0), and
``pose world_from_cam`` where the poses take the camera to the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from posfeat.data.distortion import camera_from_colmap, num_colmap_params, num_focal_lengths
from posfeat.data.poses import pose_from_quaternion
from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.geometry.pose import invert_pose, quaternion_from_rotation
from posfeat.types import Array, DataError, View

_PIXEL_CENTRES = {"0": COLMAP_OFFSET_PX, "0.0": COLMAP_OFFSET_PX, "0.5": 0.0}
"""What is added to a principal point to make it COLMAP's, whose reader then takes half a pixel away."""

_POSES = ("cam_from_world", "world_from_cam")


def read_cameras_txt(path: Path) -> list[View]:
    """The posed images of a cameras.txt, in its order; names are relative to its folder."""
    to_colmap, pose_kind = COLMAP_OFFSET_PX, _POSES[0]
    views: list[View] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if words[0] == "pixel_centre" and not views:
                to_colmap = _PIXEL_CENTRES[words[1]]
            elif words[0] == "pose" and not views and words[1] in _POSES:
                pose_kind = words[1]
            else:
                views.append(_view(line, path.parent, to_colmap, pose_kind))
        except (KeyError, ValueError, IndexError) as error:
            raise DataError(
                f"{path.name} line {number} is not 'MODEL WIDTH HEIGHT PARAMS QW QX QY QZ TX TY TZ NAME': {error}"
            ) from error
        except DataError as error:
            raise DataError(f"{path.name} line {number}: {error}") from error
    return views


def write_cameras_txt(path: Path, views: Sequence[View]) -> None:
    """The file that read_cameras_txt reads, with every digit; images are named relative to its folder."""
    lines = ["# MODEL WIDTH HEIGHT PARAMS... QW QX QY QZ TX TY TZ NAME"]
    for view in views:
        camera, pose = view.camera, view.cam_from_world
        focals = [camera.matrix[0, 0], camera.matrix[1, 1]][: num_focal_lengths(camera.model)]
        quaternion = quaternion_from_rotation(torch.from_numpy(pose[:3, :3])).tolist()
        numbers = [*focals, camera.matrix[0, 2], camera.matrix[1, 2], *camera.distortion, *quaternion, *pose[:3, 3]]
        words = [camera.model, str(camera.width), str(camera.height), *(repr(float(number)) for number in numbers)]
        lines.append(" ".join([*words, view.image_path.relative_to(path.parent).as_posix()]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _view(line: str, folder: Path, to_colmap: float, pose_kind: str) -> View:
    model = line.split(maxsplit=1)[0]
    num_params = num_colmap_params(model)
    *words, name = line.strip().split(maxsplit=10 + num_params)
    numbers = [float(word) for word in words[3:]]
    if len(numbers) != num_params + 7:
        raise ValueError(f"{len(numbers)} numbers after the size, not {num_params + 7}")
    params, pose = np.array(numbers[:num_params]), pose_from_quaternion(numbers[num_params:])
    focals = num_focal_lengths(model)
    params[focals : focals + 2] += to_colmap
    return View(
        image_path=folder / name,
        camera=camera_from_colmap(model, int(words[1]), int(words[2]), params.tolist()),
        cam_from_world=_inverse(pose) if pose_kind == "world_from_cam" else pose,
        name=name,
    )


def _inverse(pose: Array) -> Array:
    return invert_pose(torch.from_numpy(pose)).numpy()
