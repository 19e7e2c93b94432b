"""The shipped weights: trained, good on a real stereo pair, and with scores that tell keypoints apart."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from posfeat.data.images import read_image
from posfeat.demo.sample_photos import StereoPair, motorcycle_pair
from posfeat.demo.truth import stereo_errors_px
from posfeat.matching import match
from posfeat.networks.checkpoint import DEFAULT_WEIGHTS, load, read_card
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import Features


@pytest.fixture(scope="module")
def pair() -> StereoPair:
    pytest.importorskip("skimage")
    return motorcycle_pair()


@pytest.fixture(scope="module")
def model() -> PoSFeat:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which would say that the weights are untrained
        return load(device="cpu")


@pytest.fixture(scope="module")
def features(model: PoSFeat, pair: StereoPair) -> tuple[Features, Features]:
    left, right = (model.extract(path, max_keypoints=2048) for path in (pair.left, pair.right))
    return left, right


def test_the_card_says_what_they_are() -> None:
    card = read_card(DEFAULT_WEIGHTS)
    assert card.trained
    assert card.licence == "Apache-2.0"
    assert all((card.name, card.recipe, card.data, card.notes))
    assert DEFAULT_WEIGHTS.stat().st_size < 10e6


def test_scores_tell_the_best_keypoints_apart(features: tuple[Features, Features]) -> None:
    """Scores that saturate would tie, and ties are cut in reading order: everything in the upper rows."""
    scores = features[0].scores
    assert len(torch.unique(scores)) > 0.97 * len(scores)
    rows = features[0].keypoints[:500, 1] / features[0].image_size[1]
    counts, _ = np.histogram(rows.numpy(), bins=4, range=(0, 1))
    assert counts.min() > 25


@pytest.mark.parametrize(("count", "right_share"), [(512, 0.8), (2048, 0.7)])
def test_a_real_stereo_pair(
    features: tuple[Features, Features], pair: StereoPair, count: int, right_share: float
) -> None:
    best = [Features(f.keypoints[:count], f.scores[:count], f.descriptors[:count], f.image_size) for f in features]
    indices = match(*best).indices
    xy0, xy1 = best[0].keypoints[indices[:, 0]].numpy(), best[1].keypoints[indices[:, 1]].numpy()
    errors = stereo_errors_px(pair, xy0, xy1)
    known = errors[np.isfinite(errors)]
    print(
        f"{count} keypoints: {len(known)} matches, {(known < 3).mean():.3f} within 3 px, median {np.median(known):.2f} px"
    )
    assert len(known) > 0.3 * count
    assert (known < 3).mean() > right_share


def test_a_grey_and_a_colour_photo_are_alike(model: PoSFeat, pair: StereoPair) -> None:
    colour = read_image(pair.left)
    grey = np.repeat(colour.mean(axis=2, keepdims=True).round().astype(np.uint8), 3, axis=2)
    indices = match(model.extract(colour, 1000), model.extract(grey, 1000)).indices
    assert len(indices) > 600
