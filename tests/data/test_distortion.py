"""Cameras of COLMAP's parameters against pycolmap, and photos with their distortion taken out."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.data.distortion import (
    camera_from_colmap,
    is_distorted,
    pinhole_camera,
    project_points,
    undistort_image,
    undistort_pixels,
    undistorted_camera,
    undistortion_map,
)
from posfeat.types import DataError
from tests.data.colmap_models import LENSES, colmap_camera, colmap_params, known_to_pycolmap

FULL_OF_POINTS = np.random.default_rng(0).uniform(-0.6, 0.6, (500, 3)) * [1, 0.8, 0] + [0, 0, 1]


@pytest.mark.parametrize("model", known_to_pycolmap())
def test_projections_agree_with_pycolmap(model: str) -> None:
    ours = project_points(camera_from_colmap(model, 640, 480, colmap_params(model)), FULL_OF_POINTS * 2.5)
    theirs = colmap_camera(model).img_from_cam(FULL_OF_POINTS)
    assert np.abs(ours + 0.5 - theirs).max() < 1e-6


@pytest.mark.parametrize("model", known_to_pycolmap())
def test_undistorted_pixels_agree_with_pycolmap(model: str) -> None:
    camera = camera_from_colmap(model, 640, 480, colmap_params(model))
    pixels = np.random.default_rng(1).uniform(0, 1, (500, 2)) * [639, 479]
    target = undistorted_camera(camera)
    ours = undistort_pixels(camera, pixels, target)
    plane = np.array(colmap_camera(model).cam_from_img(pixels + 0.5), dtype=np.float64)[:, :2]
    theirs = plane @ target.matrix[:2, :2].T + target.matrix[:2, 2]
    assert np.isfinite(ours).all()
    assert np.abs(ours - theirs).max() < 1e-6


@pytest.mark.parametrize("model", sorted(LENSES))
def test_undistorted_camera_shows_no_blank_pixel(model: str) -> None:
    camera = camera_from_colmap(model, 640, 480, colmap_params(model))
    target = undistorted_camera(camera)
    positions = undistortion_map(camera, target)
    assert positions.shape == (target.height, target.width, 2)
    assert positions.min() >= -0.5
    assert (positions <= [639.5, 479.5]).all()
    assert target.width * target.height > 0.4 * 640 * 480
    assert not is_distorted(target)


@pytest.mark.parametrize("model", sorted(LENSES))
def test_map_and_pixels_are_inverse(model: str) -> None:
    camera = camera_from_colmap(model, 640, 480, colmap_params(model))
    target = undistorted_camera(camera)
    positions = undistortion_map(camera, target)
    back = undistort_pixels(camera, positions[::37, ::41].reshape(-1, 2).astype(np.float64), target)
    y, x = np.mgrid[0 : target.height : 37, 0 : target.width : 41]
    assert np.abs(back - np.stack([x, y], axis=-1).reshape(-1, 2)).max() < 1e-2  # the map is single precision


def test_an_image_of_a_grid_of_lines_becomes_straight() -> None:
    """Dots drawn at distorted projections come to lie at undistorted ones."""
    camera = camera_from_colmap("SIMPLE_RADIAL", 320, 240, (300, 160, 120, -0.15))
    target = undistorted_camera(camera)
    points = np.array([[x, y, 1.0] for x in (-0.3, 0.0, 0.3) for y in (-0.2, 0.0, 0.2)])
    y, x = np.mgrid[0:240, 0:320]
    image = np.zeros((240, 320))
    for u, v in project_points(camera, points):
        image += 255 * np.exp(-((x - u) ** 2 + (y - v) ** 2) / 8)
    straight = undistort_image(np.repeat(image[..., None], 3, axis=2).clip(0, 255).astype(np.uint8), camera)[..., 0]
    for u, v in project_points(target, points):
        left, top = round(u) - 6, round(v) - 6
        patch = straight[top : top + 13, left : left + 13].astype(np.float64)
        rows, columns = np.mgrid[0:13, 0:13]
        assert (columns * patch).sum() / patch.sum() + left == pytest.approx(u, abs=0.05)
        assert (rows * patch).sum() / patch.sum() + top == pytest.approx(v, abs=0.05)


def test_a_pinhole_stays_what_it_is() -> None:
    camera = pinhole_camera(100, 80, (90.0, 91.0, 50.0, 40.0))
    target = undistorted_camera(camera)
    assert (target.width, target.height) == (100, 80)
    assert np.array_equal(target.matrix, camera.matrix)
    assert np.abs(undistortion_map(camera, target)[7, 9] - [9, 7]).max() < 1e-5


def test_a_fisheye_that_sees_everything_is_cut() -> None:
    camera = camera_from_colmap("OPENCV_FISHEYE", 1000, 1000, (300, 300, 500, 500, 0.0, 0.0, 0.0, 0.0))
    target = undistorted_camera(camera)
    assert target.width <= 2 * 300 * np.tan(np.radians(55)) + 2
    assert np.isfinite(undistortion_map(camera, target)).all()


def test_half_a_pixel_is_taken_away_once() -> None:
    camera = camera_from_colmap("SIMPLE_PINHOLE", 640, 480, (500, 320, 240))
    assert camera.matrix[0, 2] == 319.5
    assert camera.matrix[1, 2] == 239.5


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("EQUIRECTANGULAR", (640, 480)),
        ("PINHOLE", (500, 500, 320)),
        ("PINHOLE", (-500, 500, 320, 240)),
        ("PINHOLE", (float("nan"), 500, 320, 240)),
    ],
)
def test_impossible_cameras_are_errors(model: str, params: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match=r"camera"):
        camera_from_colmap(model, 640, 480, params)
