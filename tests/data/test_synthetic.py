"""Rendered pairs are what their cameras say, to a small fraction of a pixel."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from posfeat.data.pair_sample import Pixels
from posfeat.data.random_views import ViewOptions, random_views
from posfeat.data.relief_scene import first_hit, true_map
from posfeat.data.synthetic import SyntheticOptions, random_scene, render_pair
from posfeat.geometry.camera import infinite_homography
from posfeat.geometry.epipolar import epipolar_lines, fundamental_from_cameras, signed_distance
from posfeat.geometry.homography import warp_points
from posfeat.types import Array, ImageError

HEIGHT, WIDTH = 120, 160
TRUE = SyntheticOptions(correspondences=True)


@cache
def textured_photo(seed: int = 0, height: int = 300, width: int = 400) -> Pixels:
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3)).astype(np.float32)
    soft = cv2.GaussianBlur(noise, (0, 0), 3)
    stretched = 128 + 6 * (soft - soft.mean())
    return np.asarray(np.clip(stretched, 0, 255), dtype=np.uint8)


def photo_with_blobs(spacing: int = 44, sigma: float = 4.5) -> tuple[Pixels, Array]:
    """White Gaussian blobs on black, at known sub-pixel positions."""
    height, width = 396, 484
    grid = np.stack(np.meshgrid(np.arange(30, width - 20, spacing), np.arange(30, height - 20, spacing)), -1)
    centres = grid.reshape(-1, 2) + np.random.default_rng(0).uniform(-5, 5, (grid.size // 2, 2))
    y, x = np.mgrid[:height, :width].astype(np.float64)
    photo = np.zeros((height, width))
    for cx, cy in centres:
        photo += np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * sigma**2))
    return np.repeat(np.rint(255 * photo)[..., None], 3, -1).astype(np.uint8), centres


def blob_centres(image: Pixels) -> Array:
    """Centroids of the white blobs that lie wholly inside."""
    grey = image[..., 0].astype(np.float64)
    count, labels, stats, _ = cv2.connectedComponentsWithStats((image[..., 0] > 3).astype(np.uint8))
    centres = []
    for index in range(1, count):
        left, top, width, height, area = stats[index]
        if area < 60 or left < 2 or top < 2 or left + width > image.shape[1] - 2 or top + height > image.shape[0] - 2:
            continue
        box = np.s_[top : top + height, left : left + width]
        y, x = np.nonzero(labels[box] == index)
        y, x = y + top, x + left
        weight = grey[y, x]
        if weight.max() > 150 and max(width, height) < 60:
            centres.append([(x * weight).sum() / weight.sum(), (y * weight).sum() / weight.sum()])
    return np.array(centres).reshape(-1, 2)


def read_map(mapping: npt.NDArray[np.float32], xy: Array) -> Array:
    column, row = np.floor(xy).astype(int).T
    fx, fy = (xy - np.floor(xy)).T[..., None]
    top = mapping[row, column] * (1 - fx) + mapping[row, column + 1] * fx
    bottom = mapping[row + 1, column] * (1 - fx) + mapping[row + 1, column + 1] * fx
    return np.asarray(top * (1 - fy) + bottom * fy, dtype=np.float64)


def epipolar_distance(sample_map: Array, xy0: Array, k0: Array, k1: Array, pose: Array) -> Array:
    fundamental = fundamental_from_cameras(*(torch.from_numpy(matrix) for matrix in (k0, k1, pose)))
    lines = epipolar_lines(fundamental, torch.from_numpy(xy0))
    return np.abs(signed_distance(lines, torch.from_numpy(sample_map)).numpy())


def test_surface_points_lie_on_epipolar_lines() -> None:
    options = SyntheticOptions(views=ViewOptions(no_baseline_share=0))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        photo = textured_photo()
        cameras = random_views(rng, HEIGHT, WIDTH, (300, 400), options.views)
        scene = random_scene(rng, photo, (photo,), cameras, HEIGHT, WIDTH, options)
        xy0 = rng.uniform(0, 1, (50, 2)) * [WIDTH - 1, HEIGHT - 1]
        points = first_hit(scene, cameras[0].centre, cameras[0].rays(*xy0.T))
        np.testing.assert_allclose(cameras[0].project(points), xy0, atol=1e-8)
        pose = cameras[1].cam_from_world @ np.linalg.inv(cameras[0].cam_from_world)
        xy1 = cameras[1].project(points)
        near = (np.abs(xy1 - [WIDTH / 2, HEIGHT / 2]) < WIDTH).all(-1)
        distance = epipolar_distance(xy1[near], xy0[near], cameras[0].intrinsics, cameras[1].intrinsics, pose)
        assert distance.max(initial=0) < 1e-6


def test_true_map_obeys_the_epipolar_lines() -> None:
    for seed in range(10):
        photo = textured_photo(seed)
        sample = render_pair(photo, HEIGHT, WIDTH, np.random.default_rng(seed), TRUE, (textured_photo(seed + 50),))
        assert sample.map1_from_map0 is not None
        row, column = np.nonzero(np.isfinite(sample.map1_from_map0).all(-1))
        assert len(row) > 0.05 * HEIGHT * WIDTH
        if not sample.has_baseline:
            continue
        xy0 = np.stack([column, row], -1).astype(np.float64)
        xy1 = sample.map1_from_map0[row, column].astype(np.float64)
        distance = epipolar_distance(xy1, xy0, sample.intrinsics0, sample.intrinsics1, sample.cam1_from_cam0)
        assert np.quantile(distance, 0.99) < 1e-4  # float32 positions


def test_rendered_blobs_lie_where_the_map_says() -> None:
    """Also catches any half-pixel bias of the rendering: residuals have no preferred direction."""
    photo, _ = photo_with_blobs()
    views = ViewOptions(max_zoom=1.8, max_tilt_deg=45)
    residuals = []
    for seed in range(10):
        sample = render_pair(photo, 288, 384, np.random.default_rng(seed), replace(TRUE, views=views))
        assert sample.map1_from_map0 is not None
        centres0, centres1 = blob_centres(sample.image0), blob_centres(sample.image1)
        expected = read_map(sample.map1_from_map0, centres0)
        for position in expected[np.isfinite(expected).all(-1)]:
            offsets = centres1 - position
            nearest = offsets[np.argmin((offsets**2).sum(-1))] if len(offsets) else np.full(2, np.inf)
            if np.abs(nearest).max() < 1:
                residuals.append(nearest)
    found = np.array(residuals)
    assert len(found) > 80
    assert np.abs(np.median(found, axis=0)).max() < 0.01
    assert np.median(np.linalg.norm(found, axis=-1)) < 0.05
    assert np.quantile(np.linalg.norm(found, axis=-1), 0.9) < 0.15


def test_content_agrees_through_the_map() -> None:
    """Image 1 read through the true map looks like image 0, occlusions and other pictures included."""
    errors = []
    for seed in range(6):
        sample = render_pair(textured_photo(1), HEIGHT, WIDTH, np.random.default_rng(seed), TRUE, (textured_photo(2),))
        assert sample.map1_from_map0 is not None
        x, y = np.nan_to_num(sample.map1_from_map0, nan=-1e4).transpose(2, 0, 1)
        warped = cv2.remap(sample.image1, x, y, cv2.INTER_LINEAR).astype(np.float64)
        seen = cv2.erode(np.isfinite(sample.map1_from_map0).all(-1).astype(np.uint8), np.ones((7, 7))) > 0
        errors.append(np.abs(warped - sample.image0)[seen].mean(-1))
    assert np.quantile(np.concatenate(errors), 0.75) < 12  # of 255; unrelated content differs by 60


def test_no_baseline_is_told_and_true() -> None:
    options = replace(TRUE, views=ViewOptions(no_baseline_share=1.0))
    sample = render_pair(textured_photo(), HEIGHT, WIDTH, np.random.default_rng(5), options, (textured_photo(1),))
    assert not sample.has_baseline
    assert sample.map1_from_map0 is not None
    np.testing.assert_array_equal(sample.cam1_from_cam0[:3, 3], 0)
    matrices = (sample.intrinsics0, sample.intrinsics1, sample.cam1_from_cam0)
    homography = infinite_homography(*(torch.from_numpy(matrix) for matrix in matrices))
    row, column = np.nonzero(np.isfinite(sample.map1_from_map0).all(-1))
    expected = warp_points(homography, torch.from_numpy(np.stack([column, row], -1).astype(np.float64))).numpy()
    np.testing.assert_allclose(sample.map1_from_map0[row, column], expected, atol=1e-4)


def test_the_generator_decides_everything() -> None:
    first, again, other = (
        render_pair(textured_photo(), HEIGHT, WIDTH, np.random.default_rng(seed), TRUE, (textured_photo(1),))
        for seed in (7, 7, 8)
    )
    np.testing.assert_array_equal(first.image0, again.image0)
    np.testing.assert_array_equal(first.image1, again.image1)
    np.testing.assert_array_equal(first.cam1_from_cam0, again.cam1_from_cam0)
    assert (first.image0 != other.image0).mean() > 0.5


def test_correspondences_change_nothing_else() -> None:
    plain, known = (
        render_pair(textured_photo(), HEIGHT, WIDTH, np.random.default_rng(2), options)
        for options in (SyntheticOptions(), TRUE)
    )
    assert plain.map1_from_map0 is None
    np.testing.assert_array_equal(plain.image1, known.image1)


def test_geometry_is_diverse() -> None:
    """Epipoles in and outside the image, every direction of baseline, zooms and any roll."""
    directions, zooms, epipoles = [], [], 0
    for seed in range(120):
        camera0, camera1 = random_views(np.random.default_rng(seed), 240, 320, (448, 600), ViewOptions())
        pose = camera1.cam_from_world @ np.linalg.inv(camera0.cam_from_world)
        if np.linalg.norm(pose[:3, 3]) > 1e-9:
            directions.append(pose[:3, 3] / np.linalg.norm(pose[:3, 3]))
            epipole = camera1.intrinsics @ pose[:3, 3]
            xy = epipole[:2] / epipole[2]
            epipoles += bool((xy > 0).all() and (xy < [320, 240]).all())
        zooms.append(
            np.log2(camera1.intrinsics[0, 0] / camera1.centre[2] / camera0.intrinsics[0, 0] * camera0.centre[2])
        )
    assert (np.abs(np.array(directions)) > 0.7).mean(axis=0).min() > 0.1
    assert 0.05 < epipoles / 120 < 0.5
    assert np.std(zooms) > 0.4


def test_every_ray_meets_the_relief_once() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        cameras = random_views(rng, 96, 128, (300, 400), ViewOptions())
        scene = random_scene(rng, np.zeros((300, 400, 3), np.uint8), (), cameras, 96, 128, SyntheticOptions())
        for camera in cameras:
            rays = camera.rays(*np.meshgrid(np.linspace(0, 127, 9), np.linspace(0, 95, 7))).reshape(-1, 3)
            z = np.linspace(-0.31, 0.31, 300)[:, None] * -camera.centre[2]
            along = (z - camera.centre[2]) / rays[:, 2]
            u, v = camera.centre[0] + along * rays[:, 0], camera.centre[1] + along * rays[:, 1]
            above = scene.relief.height_and_slope(u, v)[0] > z
            assert (np.diff(above, axis=0).sum(axis=0) <= 1).all()


def test_hidden_content_has_no_correspondence() -> None:
    options = replace(TRUE, patch_share=1.0, finite_share=1.0)
    hidden = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        photo = textured_photo()
        cameras = random_views(rng, HEIGHT, WIDTH, (300, 400), options.views)
        scene = random_scene(rng, photo, (photo,), cameras, HEIGHT, WIDTH, options)
        full = true_map(scene, *cameras, HEIGHT, WIDTH)
        bare = true_map(replace(scene, before=()), *cameras, HEIGHT, WIDTH)
        hidden += int((np.isfinite(bare).all(-1) & ~np.isfinite(full).all(-1)).sum())
    assert hidden > 100


@pytest.mark.parametrize("size", [(48, 64), (16, 400), (33, 17)])
def test_any_image_size(size: tuple[int, int]) -> None:
    sample = render_pair(textured_photo(), *size, np.random.default_rng(0), TRUE, (textured_photo(1),))
    assert sample.image0.shape == (*size, 3)


@pytest.mark.parametrize(
    "photo", [np.zeros((8, 100, 3), np.uint8), np.zeros((64, 64), np.uint8), np.zeros((64, 64, 3))]
)
def test_unusable_photos_are_named(photo: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(ImageError, match="photo to render"):
        render_pair(photo, 48, 64, np.random.default_rng(0))
