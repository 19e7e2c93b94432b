"""nerfstudio's and instant-ngp's ``transforms.json`` as Views.

Their poses are camera to world with OpenGL's axes (x right, y up, z backward), in a world that nerfstudio has turned by
``applied_transform`` and may have scaled by ``applied_scale``; both are taken back, so that the poses agree with the COLMAP model that they
came from. Principal points are COLMAP's (the centre of the top-left pixel is (0.5, 0.5)).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from posfeat.data.distortion import camera_from_colmap
from posfeat.data.images import image_size
from posfeat.data.poses import pose_from_matrix
from posfeat.types import Array, Camera, DataError, ImageError, View

_OPENGL_FROM_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
_FISHEYE_NAMES = ("OPENCV_FISHEYE", "FISHEYE", "fisheye")
_PERSPECTIVE_NAMES = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "FULL_OPENCV", "perspective")


def read_transforms(path: Path) -> list[View]:
    """The posed images of a transforms.json, in its order; settings of a frame go before those of the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        frames = content["frames"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no transforms.json: {type(error).__name__} {error}") from error
    try:
        world = _original_from_applied(content)
        return [_view(path, {**content, **frame}, world) for frame in frames]
    except (KeyError, ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise DataError(f"{path} lacks or garbles a value: {type(error).__name__} {error}") from error


def _view(path: Path, frame: dict[str, Any], world: Array) -> View:
    name = str(frame["file_path"]).replace("\\", "/").removeprefix("./")
    image_path = _with_ending(path.parent / name)
    mask = frame.get("mask_path")
    return View(
        image_path=image_path,
        camera=_camera(frame, image_path),
        cam_from_world=_pose(np.array(frame["transform_matrix"], dtype=np.float64), world),
        name=name,
        mask_path=path.parent / str(mask) if mask else None,
    )


def _with_ending(path: Path) -> Path:
    """Synthetic sets leave out the ending of their pictures, which is .png."""
    return path if path.suffix or path.is_file() else path.with_suffix(".png")


def _original_from_applied(content: dict[str, Any]) -> Array:
    """What takes the file's world back to the one before nerfstudio's own change."""
    applied = np.eye(4)
    rows = np.array(content.get("applied_transform", np.eye(4)[:3]), dtype=np.float64)
    applied[:3] = rows[:3]
    applied[:3] *= float(content.get("applied_scale", 1.0))
    return np.asarray(np.linalg.inv(applied), dtype=np.float64)


def _pose(world_from_gl: Array, original_from_applied: Array) -> Array:
    """cam_from_world with axes x right, y down, z forward; a scale in the world's change stays out of the rotation."""
    if world_from_gl.shape == (3, 4):
        world_from_gl = np.concatenate([world_from_gl, [[0, 0, 0, 1]]])
    world_from_cam = original_from_applied @ world_from_gl @ _OPENGL_FROM_OPENCV
    scale = np.cbrt(np.linalg.det(world_from_cam[:3, :3]))
    if not scale > 0:
        raise ValueError("a transform_matrix mirrors or flattens the world")
    cam_from_world_rotation = world_from_cam[:3, :3].T / scale
    return pose_from_matrix(cam_from_world_rotation, -cam_from_world_rotation @ world_from_cam[:3, 3])


def _camera(frame: dict[str, Any], image_path: Path) -> Camera:
    width, height = (int(frame[key]) if key in frame else 0 for key in ("w", "h"))
    if not (width and height):
        try:
            width, height = image_size(image_path)
        except ImageError as error:
            raise DataError(
                f"the size of {image_path.name} is neither in transforms.json nor to be read: {error}"
            ) from error
    fx = _focal(frame, "fl_x", "camera_angle_x", width)
    fy = _focal(frame, "fl_y", "camera_angle_y", height) if {"fl_y", "camera_angle_y"} & frame.keys() else fx
    centre = (float(frame.get("cx", width / 2)), float(frame.get("cy", height / 2)))
    model, distortion = _lens(frame)
    return camera_from_colmap(model, width, height, (fx, fy, *centre, *distortion))


def _focal(frame: dict[str, Any], key: str, angle_key: str, side: int) -> float:
    return float(frame[key]) if key in frame else side / 2 / math.tan(float(frame[angle_key]) / 2)


def _lens(frame: dict[str, Any]) -> tuple[str, tuple[float, ...]]:
    """COLMAP's model and its distortion parameters; k3 is the third radial term, k4 belongs to fisheyes only."""
    name = str(frame.get("camera_model", "OPENCV_FISHEYE" if frame.get("is_fisheye") else "OPENCV"))
    k1, k2, k3, k4, p1, p2 = (float(frame.get(key, 0.0)) for key in ("k1", "k2", "k3", "k4", "p1", "p2"))
    if name in _FISHEYE_NAMES:
        return "OPENCV_FISHEYE", (k1, k2, k3, k4)
    if name not in _PERSPECTIVE_NAMES:
        raise DataError(f"transforms.json has camera_model {name}, of which no flat photo can be made")
    if k4:
        raise DataError(
            "transforms.json has k4 without being a fisheye; tools disagree on what it means, so it is not read"
        )
    if k3:
        return "FULL_OPENCV", (k1, k2, p1, p2, k3, 0.0, 0.0, 0.0)
    if any((k1, k2, p1, p2)):
        return "OPENCV", (k1, k2, p1, p2)
    return "PINHOLE", ()
