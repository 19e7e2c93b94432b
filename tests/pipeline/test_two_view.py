"""Verification keeps what one epipolar geometry explains, and claims nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from posfeat.pipeline.two_view import FEWEST_MATCHES, estimate_geometry, verified


def two_views(count: int, outliers: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact positions of random points in two cameras; the first ``outliers`` of image 1 lie anywhere."""
    rng = np.random.default_rng(0)
    intrinsics = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    points = rng.uniform([-2, -1.5, 4], [2, 1.5, 8], (count, 3))
    xy0, xy1 = (
        ((p @ intrinsics.T)[:, :2] / p[:, 2:]).astype(np.float32) for p in (points, points + np.array([0.6, 0.1, 0.2]))
    )
    xy1[:outliers] = rng.uniform(0, 480, (outliers, 2))
    return xy0, xy1


def test_true_matches_pass_and_random_ones_fail() -> None:
    mask = verified(*two_views(300, outliers=100))
    assert mask[100:].all()
    assert mask[:100].sum() <= 5  # by chance a few lie on their lines


def test_the_same_each_time() -> None:
    xy0, xy1 = two_views(200, outliers=120)
    assert (verified(xy0, xy1) == verified(xy0, xy1)).all()


def test_too_few_matches_prove_nothing() -> None:
    for count in range(FEWEST_MATCHES):
        xy0, xy1 = two_views(count, outliers=0)
        assert not verified(xy0, xy1).any()


def test_coinciding_positions_prove_nothing() -> None:
    same = np.full((50, 2), 7, dtype=np.float32)
    assert verified(same, same).shape == (50,)


def test_the_fundamental_matrix_has_every_inlier_on_its_line() -> None:
    xy0, xy1 = two_views(300, outliers=100)
    found = estimate_geometry(xy0, xy1, "fundamental")
    assert found.matrix is not None
    assert np.linalg.norm(found.matrix) == pytest.approx(1)
    rows0, rows1 = (np.column_stack([xy[100:], np.ones(200)]) for xy in (xy0, xy1))
    lines = rows0 @ found.matrix.T
    assert np.abs((lines * rows1).sum(axis=1) / np.linalg.norm(lines[:, :2], axis=1)).max() < 0.5


def test_the_homography_takes_image_0_to_image_1() -> None:
    truth = np.array([[1.1, 0.05, 12], [-0.04, 0.95, -7], [1e-4, -5e-5, 1]])
    xy0, xy1 = two_views(200, outliers=0)
    mapped = np.column_stack([xy0, np.ones(200)]) @ truth.T
    xy1[:150] = (mapped[:, :2] / mapped[:, 2:])[:150]
    found = estimate_geometry(xy0, xy1, "homography")
    assert found.matrix is not None
    assert found.matrix / found.matrix[2, 2] == pytest.approx(truth, rel=1e-3, abs=1e-5)
    assert found.inliers[:150].all()


def test_no_matrix_without_agreement() -> None:
    found = estimate_geometry(*two_views(FEWEST_MATCHES - 1, outliers=0), "homography")
    assert found.matrix is None
    assert not found.inliers.any()
