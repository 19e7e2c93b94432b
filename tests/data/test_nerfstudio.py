"""transforms.json: OpenGL's axes, the world's change taken back, every kind of lens, and mistakes in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posfeat.data.images import write_image
from posfeat.data.nerfstudio import read_transforms
from posfeat.geometry.pose import rotation_from_axis_angle
from posfeat.types import DataError
from tests.benchmarks.miniature_scene import cam_from_world

INTRINSICS = {"w": 640, "h": 480, "fl_x": 500.0, "fl_y": 510.0, "cx": 321.0, "cy": 238.5}
GL_FROM_CV = np.diag([1.0, -1.0, -1.0, 1.0])


def gl_pose(index: int) -> np.ndarray:
    """Camera to world with OpenGL's axes."""
    return np.linalg.inv(cam_from_world(index)) @ GL_FROM_CV


def write(folder: Path, *frames: dict[str, Any], **settings: Any) -> Path:
    """A transforms.json; a frame without a pose gets the identity."""
    whole = [{"file_path": f"images/{i}.png", "transform_matrix": np.eye(4).tolist()} | f for i, f in enumerate(frames)]
    (folder / "transforms.json").write_text(json.dumps(INTRINSICS | settings | {"frames": whole}))
    return folder / "transforms.json"


def test_axes() -> None:
    """What OpenGL's camera sees above and before it, ours sees at negative y and positive z."""
    above_and_before = gl_pose(1) @ [0.1, 0.2, -2.0, 1.0]
    np.testing.assert_allclose(cam_from_world(1) @ above_and_before, [0.1, -0.2, 2.0, 1.0], atol=1e-12)


def test_cameras_and_poses(tmp_path: Path) -> None:
    frames = [{"file_path": f"./images/{i}.png", "transform_matrix": gl_pose(i).tolist()} for i in range(3)]
    frames[2] |= {"fl_x": 700.0, "transform_matrix": gl_pose(2)[:3].tolist(), "mask_path": "masks/2.png"}
    views = read_transforms(write(tmp_path, *frames))
    for index, view in enumerate(views):
        np.testing.assert_allclose(view.cam_from_world, cam_from_world(index), rtol=0, atol=1e-9)
        expected = [[700.0 if index == 2 else 500.0, 0, 320.5], [0, 510, 238], [0, 0, 1]]
        np.testing.assert_allclose(view.camera.matrix, expected, rtol=0, atol=1e-12)
        assert (view.camera.width, view.camera.height, view.camera.model) == (640, 480, "PINHOLE")
        assert view.name == f"images/{index}.png"
        assert view.image_path == tmp_path / "images" / f"{index}.png"
    assert [view.mask_path for view in views] == [None, None, tmp_path / "masks" / "2.png"]


def test_nerfstudios_change_of_the_world_is_taken_back(tmp_path: Path) -> None:
    """It turns and moves the cameras as a whole, then scales their positions."""
    applied = np.eye(4)
    applied[:3, :3] = rotation_from_axis_angle(torch.tensor([0.4, -1.0, 0.3], dtype=torch.float64)).numpy()
    applied[:3, 3] = [1.0, -2.0, 0.5]
    frames = []
    for index in range(3):
        pose = applied @ gl_pose(index)
        pose[:3, 3] *= 0.25
        frames.append({"transform_matrix": pose.tolist()})
    path = write(tmp_path, *frames, applied_transform=applied[:3].tolist(), applied_scale=0.25)
    for index, view in enumerate(read_transforms(path)):
        np.testing.assert_allclose(view.cam_from_world, cam_from_world(index), rtol=0, atol=1e-9)


def test_synthetic_sets_leave_out_ending_size_and_focal_length(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    write_image(tmp_path / "train" / "r_0.png", np.zeros((60, 80, 3), np.uint8))
    frame = {"file_path": "./train/r_0", "transform_matrix": np.eye(4).tolist()}
    path = tmp_path / "transforms_train.json"
    path.write_text(json.dumps({"camera_angle_x": 0.8, "frames": [frame]}))
    (view,) = read_transforms(path)
    focal = 40 / math.tan(0.4)
    assert view.image_path == tmp_path / "train" / "r_0.png"
    np.testing.assert_allclose(view.camera.matrix, [[focal, 0, 39.5], [0, focal, 29.5], [0, 0, 1]])
    (tmp_path / "train" / "r_0.png").unlink()
    with pytest.raises(DataError, match=r"size of r_0\.png is neither"):
        read_transforms(path)


@pytest.mark.parametrize(
    ("settings", "model", "distortion"),
    [
        ({"k1": 0.1, "k2": 0.02, "p1": 1e-3, "p2": 2e-3}, "OPENCV", (0.1, 0.02, 1e-3, 2e-3)),
        ({"camera_model": "SIMPLE_RADIAL", "k1": 0.1}, "OPENCV", (0.1, 0.0, 0.0, 0.0)),
        ({"k1": 0.1, "k3": 0.3}, "FULL_OPENCV", (0.1, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.0)),
        ({"camera_model": "OPENCV_FISHEYE", "k1": 0.1, "k4": 0.4}, "OPENCV_FISHEYE", (0.1, 0.0, 0.0, 0.4)),
        ({"is_fisheye": True, "k2": 0.2}, "OPENCV_FISHEYE", (0.0, 0.2, 0.0, 0.0)),
    ],
)
def test_lenses(settings: dict[str, Any], model: str, distortion: tuple[float, ...], tmp_path: Path) -> None:
    (view,) = read_transforms(write(tmp_path, {}, **settings))
    assert (view.camera.model, view.camera.distortion) == (model, distortion)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"camera_model": "EQUIRECTANGULAR"}, "EQUIRECTANGULAR, of which no flat photo"),
        ({"k4": 0.1}, "k4 without being a fisheye"),
        ({"fl_x": "wide"}, "lacks or garbles a value: ValueError"),
        ({"applied_transform": np.zeros((3, 4)).tolist()}, "lacks or garbles a value: LinAlgError"),
        ({"frames": [{"file_path": "a.png"}]}, "lacks or garbles a value: KeyError 'transform_matrix'"),
        (
            {"frames": [{"file_path": "a.png", "transform_matrix": np.diag([1.0, 1, -1, 1]).tolist()}]},
            "mirrors or flattens the world",
        ),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path, {})
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(DataError, match=message) as error:
        read_transforms(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"no": "frames"}'])
def test_files_that_are_something_else(content: str, tmp_path: Path) -> None:
    (tmp_path / "transforms.json").write_text(content)
    with pytest.raises(DataError, match=r"is no transforms\.json"):
        read_transforms(tmp_path / "transforms.json")
