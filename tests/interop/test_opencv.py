"""OpenCV's own matcher, detector and drawing take what we give, and what they give comes back."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F

from posfeat.interop.opencv import find_homography, from_keypoints, from_matches, to_keypoints, to_matches
from posfeat.matching import match
from posfeat.types import Features


def features_of(seed: int, count: int = 300) -> Features:
    generator = torch.Generator().manual_seed(seed)
    descriptors = F.normalize(torch.randn(count, 32, generator=generator), dim=1)
    return Features(torch.rand(count, 2, generator=generator) * 500, torch.rand(count), descriptors, (500, 500))


def test_keypoints_come_back_best_first() -> None:
    features = features_of(1)
    back = from_keypoints(to_keypoints(features, 8.0), features.descriptors.numpy(), features.image_size)
    order = features.scores.argsort(descending=True, stable=True)
    assert torch.equal(back.keypoints, features.keypoints[order])
    assert torch.equal(back.scores, features.scores[order])
    torch.testing.assert_close(back.descriptors, features.descriptors[order])
    np.testing.assert_array_equal(cv2.KeyPoint.convert(to_keypoints(features)), features.keypoints.numpy())


def test_opencvs_matcher_finds_our_matches() -> None:
    features0, features1 = features_of(1), features_of(2)
    ours = match(features0, features1)
    theirs = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(
        features0.descriptors.numpy(), features1.descriptors.numpy()
    )
    back = from_matches(theirs)
    assert {tuple(row) for row in back.indices.tolist()} == {tuple(row) for row in ours.indices.tolist()}
    torch.testing.assert_close(back.scores, ours.scores, atol=1e-5, rtol=0)
    again = from_matches(to_matches(ours))
    assert torch.equal(again.indices, ours.indices)
    torch.testing.assert_close(again.scores, ours.scores, atol=1e-5, rtol=0)


def test_sift_of_opencv_draws_and_converts() -> None:
    grey = np.kron(np.random.default_rng(0).integers(0, 256, (20, 30), np.uint8), np.ones((8, 8), np.uint8))
    keypoints, descriptors = cv2.SIFT.create().detectAndCompute(grey, None)
    features = from_keypoints(keypoints, descriptors, (240, 160))
    assert len(features) == len(keypoints) > 20
    torch.testing.assert_close(features.descriptors.norm(dim=1), torch.ones(len(features)))
    drawn = cv2.drawMatches(
        grey, to_keypoints(features), grey, to_keypoints(features), to_matches(match(features, features)), None
    )
    assert drawn.shape == (160, 480, 3)


def test_nothing_found() -> None:
    nothing = Features(torch.zeros(0, 2), torch.zeros(0), torch.zeros(0, 32), (10, 10))
    assert to_keypoints(nothing) == to_matches(match(nothing, nothing)) == []
    assert from_keypoints([], np.zeros((0, 32), np.float32), (10, 10)).keypoints.shape == (0, 2)
    assert from_matches([]).indices.shape == (0, 2)


def test_homography_of_few_positions_is_none() -> None:
    xy = np.random.default_rng(0).random((50, 2)) * 100
    matrix, inliers = find_homography(xy, xy + np.array([3, 4]), 1.0)
    assert matrix is not None
    np.testing.assert_allclose(matrix, [[1, 0, 3], [0, 1, 4], [0, 0, 1]], atol=1e-4)
    assert inliers.all()
    assert find_homography(xy[:3], xy[:3], 1.0)[0] is None
