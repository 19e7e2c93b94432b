"""Turning, scaling and cropping a photo keeps its camera exactly true."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.data.geometric import GeometricOptions, split_affine_camera, warp_view

INTRINSICS = np.array([[310.0, 0, 158.5], [0, 305.0, 121.25], [0, 0, 1]])


def blob_photo(centre: tuple[float, float]) -> np.ndarray:
    y, x = np.mgrid[:240, :320]
    blob = 255 * np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * 5.0**2))
    return np.repeat(np.rint(blob)[..., None], 3, -1).astype(np.uint8)


def test_split_gives_a_camera_and_a_turn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        angle, scale = rng.uniform(-np.pi, np.pi), rng.uniform(0.3, 3)
        affine = np.array([[np.cos(angle), -np.sin(angle), rng.normal()], [np.sin(angle), np.cos(angle), rng.normal()]])
        affine = np.vstack([affine * [[scale, scale, 100]], [0, 0, 1]])
        upper, rotation = split_affine_camera(affine @ INTRINSICS)
        np.testing.assert_allclose(upper @ rotation, affine @ INTRINSICS, atol=1e-9)
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(rotation[2], [0, 0, 1])
        assert np.linalg.det(rotation) == pytest.approx(1)
        assert upper[0, 0] > 0
        assert upper[1, 1] > 0
        np.testing.assert_array_equal(upper[[1, 2, 2], [0, 0, 1]], 0)


def test_content_goes_where_the_new_camera_projects_it() -> None:
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        centre = rng.uniform([120, 90], [200, 150])
        view = warp_view(blob_photo(tuple(centre)), INTRINSICS, 160, 208, rng, GeometricOptions(any_turn_share=0.7))
        ray = view.new_from_old[:3, :3] @ np.linalg.inv(INTRINSICS) @ [*centre, 1]
        x, y = (view.intrinsics @ ray)[:2] / (view.intrinsics @ ray)[2]
        if not (25 < x < 182 and 25 < y < 134):
            continue
        row, column = np.mgrid[int(y) - 22 : int(y) + 23, int(x) - 22 : int(x) + 23]
        weight = view.image[row, column, 0].astype(np.float64)
        found.append([(column * weight).sum() / weight.sum() - x, (row * weight).sum() / weight.sum() - y])
    assert len(found) > 15
    assert np.abs(found).max() < 0.05
    assert np.abs(np.mean(found, axis=0)).max() < 0.01


def test_no_strength_only_fits_the_photo_into_the_size() -> None:
    view = warp_view(
        blob_photo((100, 100)), INTRINSICS, 120, 160, np.random.default_rng(0), GeometricOptions(strength=0)
    )
    half = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]])
    np.testing.assert_allclose(view.intrinsics, half @ INTRINSICS, atol=1e-9)
    np.testing.assert_allclose(view.new_from_old, np.eye(4), atol=1e-12)


def test_nothing_is_made_up_beyond_the_photo() -> None:
    """Mirrored content would obey no epipolar line."""
    photo = np.full((240, 320, 3), 200, np.uint8)
    views = (
        warp_view(photo, INTRINSICS, 160, 208, np.random.default_rng(seed), GeometricOptions(any_turn_share=1.0))
        for seed in range(20)
    )
    assert any(((view.image < 130) & (view.image > 100)).all(-1).mean() > 0.05 for view in views)
