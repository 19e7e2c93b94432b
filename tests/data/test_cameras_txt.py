"""cameras.txt: what is written is read back to the digit, both pixel centres and both directions of poses, and mistakes by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.data.cameras_txt import read_cameras_txt, write_cameras_txt
from posfeat.data.distortion import pinhole_camera
from posfeat.geometry.pose import pose_from_rotation_translation, rotation_from_axis_angle
from posfeat.types import DataError, View


def pose(*numbers: float) -> torch.Tensor:
    values = torch.tensor(numbers, dtype=torch.float64)
    return pose_from_rotation_translation(rotation_from_axis_angle(values[:3]), values[3:])


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    lenses = [("PINHOLE", (), 510.5), ("OPENCV", (0.1, -0.02, 1e-4, 2e-4), 520.25), ("SIMPLE_RADIAL", (0.05,), 500.5)]
    views = [
        View(
            image_path=tmp_path / "photos" / f"ünï {number}.jpg",
            camera=pinhole_camera(640, 480, (500.5, fy, 319.5 + number, 1 / 3), model, lens),
            cam_from_world=pose(0.1 * number, -2.0, 0.3, 1.5, -2.5, number / 7).numpy(),
        )
        for number, (model, lens, fy) in enumerate(lenses)
    ]
    write_cameras_txt(tmp_path / "cameras.txt", views)
    read = read_cameras_txt(tmp_path / "cameras.txt")
    assert [view.image_path for view in read] == [view.image_path for view in views]
    for view, expected in zip(read, views, strict=True):
        assert (view.camera.model, view.camera.distortion) == (expected.camera.model, expected.camera.distortion)
        np.testing.assert_allclose(view.camera.matrix, expected.camera.matrix, rtol=0, atol=1e-12)
        np.testing.assert_allclose(view.cam_from_world, expected.cam_from_world, rtol=0, atol=1e-12)


def test_settings_before_the_first_image(tmp_path: Path) -> None:
    line = "PINHOLE 640 480 500 500 320 240 0.5 0.5 0.5 0.5 1 2 3 a b.jpg"
    (tmp_path / "cameras.txt").write_text(f"pixel_centre 0.5\npose world_from_cam\n\n# one image\n{line}\n")
    (view,) = read_cameras_txt(tmp_path / "cameras.txt")
    assert view.name == "a b.jpg"
    assert view.camera.matrix[:2, 2].tolist() == [319.5, 239.5]
    np.testing.assert_allclose(np.linalg.inv(view.cam_from_world)[:3, 3], [1, 2, 3], atol=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        "PINHOLE 640 480 500 500 320 240 1 0 0 0 0 0 a.jpg",
        "PINHOLE 640 480 500 500 320 240 0 0 0 0 0 0 0 a.jpg",
        "PINHOLE wide 480 500 500 320 240 1 0 0 0 0 0 0 a.jpg",
        "PINEHOLE 640 480 500 500 320 240 1 0 0 0 0 0 0 a.jpg",
        "pixel_centre 0.25",
        "pose cam_from_cam",
    ],
)
def test_mistakes_are_named_by_their_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "cameras.txt").write_text(f"# poses\n{line}\n")
    with pytest.raises(DataError, match=r"cameras\.txt line 2"):
        read_cameras_txt(tmp_path / "cameras.txt")


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    example = next(block for block in text.split("```") if "# MODEL WIDTH HEIGHT" in block)
    (tmp_path / "cameras.txt").write_text(example)
    first, second = read_cameras_txt(tmp_path / "cameras.txt")
    assert first.name == "photos/0001.jpg"
    assert np.array_equal(first.cam_from_world, np.eye(4))
    assert (second.name, second.camera.distortion) == ("photos/second one.jpg", (0.1, -0.02, 0, 0))
