"""kornia's own functions and matcher take our frames and our module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from posfeat.interop.kornia import KorniaLocalFeature, from_lafs, to_lafs
from posfeat.matching import match
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import Features

KF: Any = pytest.importorskip("kornia.feature")
Photos = tuple[np.ndarray, np.ndarray]


def batch_of(rgb: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rgb).permute(2, 0, 1)[None].float() / 255


def test_frames_come_back() -> None:
    features = Features(torch.rand(9, 2) * 100, torch.linspace(1, 0.1, 9), torch.eye(9), (100, 100))
    lafs = to_lafs(features, 6.0)
    assert lafs.shape == (1, 9, 2, 3)
    torch.testing.assert_close(KF.get_laf_center(lafs)[0], features.keypoints)
    torch.testing.assert_close(KF.get_laf_scale(lafs).flatten(), torch.full((9,), 6.0))
    assert KF.get_laf_orientation(lafs).abs().max() == 0
    padded = [
        torch.cat([tensor[None], torch.zeros(1, 2, *tensor.shape[1:])], 1) for tensor in (lafs[0], features.scores)
    ]
    descriptors = torch.cat([features.descriptors[None], torch.ones(1, 2, 9)], 1)
    back = from_lafs(*padded, descriptors, (100, 100))
    torch.testing.assert_close(back.keypoints, features.keypoints)
    assert torch.equal(back.descriptors, features.descriptors)


def test_kornias_matcher_runs_our_module(model: PoSFeat, two_photos: Photos) -> None:
    features0, features1 = (model.extract(photo, 200) for photo in two_photos)
    ours = match(features0, features1)
    matcher = KF.LocalFeatureMatcher(KorniaLocalFeature(model, 200), KF.DescriptorMatcher("mnn"))
    theirs = matcher({"image0": batch_of(two_photos[0]), "image1": batch_of(two_photos[1])})
    mine = torch.cat([features0.keypoints[ours.indices[:, 0]], features1.keypoints[ours.indices[:, 1]]], 1)
    found = torch.cat([theirs["keypoints0"], theirs["keypoints1"]], 1)
    assert len(mine) > 20
    assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in mine.tolist()}


def test_a_batch_is_padded_with_slots_that_kornia_calls_empty(model: PoSFeat, two_photos: Photos) -> None:
    module, both = KorniaLocalFeature(model, 400), torch.cat([batch_of(photo) for photo in two_photos])
    mask = torch.ones(2, 1, *both.shape[2:])
    mask[1, :, :, 30:] = 0
    lafs, responses, descriptors = module(both, mask)
    assert lafs.shape == (2, lafs.shape[1], 2, 3)
    assert responses.shape == lafs.shape[:2]
    assert descriptors.shape[:2] == lafs.shape[:2]
    filled = KF.laf_is_filled(lafs)
    assert filled[0].all()
    assert 0 < filled[1].sum() < filled.shape[1]
    assert (KF.get_laf_center(lafs)[1][filled[1]][:, 0] < 30).all()


def test_grey_images_are_taken(model: PoSFeat, two_photos: Photos) -> None:
    lafs, _, _ = KorniaLocalFeature(model, 50)(batch_of(two_photos[0]).mean(1, keepdim=True))
    assert 0 < lafs.shape[1] <= 50
