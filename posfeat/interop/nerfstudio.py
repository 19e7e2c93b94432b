"""nerfstudio's ``transforms.json``: poses camera to world with OpenGL's axes, in a world turned so that z points up.

The file says how its world was turned (``applied_transform``); ``posfeat.data.nerfstudio`` reads it back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posfeat.geometry.pixels import COLMAP_OFFSET_PX
from posfeat.types import Array, Camera, DataError, View

APPLIED_ROTATION = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
"""What nerfstudio does to the world of a COLMAP model; points beside a transforms.json are turned by it as well."""

_OPENCV_FROM_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
_LENSES = {  # names of COLMAP's distortion parameters in transforms.json, by its models
    "SIMPLE_PINHOLE": ("OPENCV", ()),
    "PINHOLE": ("OPENCV", ()),
    "SIMPLE_RADIAL": ("OPENCV", ("k1",)),
    "RADIAL": ("OPENCV", ("k1", "k2")),
    "OPENCV": ("OPENCV", ("k1", "k2", "p1", "p2")),
    "SIMPLE_FISHEYE": ("OPENCV_FISHEYE", ()),
    "FISHEYE": ("OPENCV_FISHEYE", ()),
    "SIMPLE_RADIAL_FISHEYE": ("OPENCV_FISHEYE", ("k1",)),
    "RADIAL_FISHEYE": ("OPENCV_FISHEYE", ("k1", "k2")),
    "OPENCV_FISHEYE": ("OPENCV_FISHEYE", ("k1", "k2", "k3", "k4")),
}
_ALL_DISTORTION = {"OPENCV": ("k1", "k2", "p1", "p2"), "OPENCV_FISHEYE": ("k1", "k2", "k3", "k4")}


def write_transforms(path: Path, views: Sequence[View], points: str | None = None) -> None:
    """Write views, whose pictures are named relative to the file; ``points`` is a PLY file beside it."""
    lenses = {_lens(view.camera)[0] for view in views}
    if len(lenses) != 1:
        raise DataError("a transforms.json has fisheye cameras or others, not both; use the undistorted photos")
    world_from_original = np.eye(4)
    world_from_original[:3, :3] = APPLIED_ROTATION
    content: dict[str, Any] = {
        "camera_model": lenses.pop(),
        "frames": [_frame(view, path.parent, world_from_original) for view in views],
        "applied_transform": world_from_original[:3].tolist(),
    }
    if points is not None:
        content["ply_file_path"] = points
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(part, path)


def _frame(view: View, folder: Path, world_from_original: Array) -> dict[str, Any]:
    world_from_cam = world_from_original @ np.linalg.inv(view.cam_from_world) @ _OPENCV_FROM_OPENGL
    name = os.path.relpath(view.image_path.resolve(), folder.resolve()).replace(os.sep, "/")
    return {"file_path": name, **_intrinsics(view.camera), "transform_matrix": world_from_cam.tolist()}


def _intrinsics(camera: Camera) -> dict[str, float]:
    lens, values = _lens(camera)
    matrix = camera.matrix
    return {
        "w": camera.width,
        "h": camera.height,
        "fl_x": float(matrix[0, 0]),
        "fl_y": float(matrix[1, 1]),
        "cx": float(matrix[0, 2]) + COLMAP_OFFSET_PX,
        "cy": float(matrix[1, 2]) + COLMAP_OFFSET_PX,
        **dict.fromkeys(_ALL_DISTORTION[lens], 0.0),
        **values,
    }


def _lens(camera: Camera) -> tuple[str, dict[str, float]]:
    if camera.model not in _LENSES:
        raise DataError(f"transforms.json knows no {camera.model} camera; use the undistorted photos")
    lens, names = _LENSES[camera.model]
    return lens, dict(zip(names, camera.distortion, strict=True))
