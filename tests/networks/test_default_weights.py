"""The shipped weights: trained, good on a real stereo pair, exact in position, with scores that tell keypoints apart."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from posfeat.data.images import RGB, read_image, resize_image
from posfeat.data.relief_scene import render
from posfeat.demo.gallery import HEIGHT, WIDTH, gallery_cameras, gallery_scene
from posfeat.demo.sample_photos import StereoPair, motorcycle_pair
from posfeat.demo.truth import rendered_residuals_px, stereo_errors_px
from posfeat.geometry.pixels import rescale_pixels
from posfeat.matching import match
from posfeat.networks.checkpoint import DEFAULT_WEIGHTS, load, read_card
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import PoSFeat
from posfeat.types import Features

EXACT = ExtractionOptions(SelectionOptions(max_keypoints=1000), precision="fp32")


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


@pytest.fixture(scope="module")
def photo(pair: StereoPair) -> RGB:
    return read_image(pair.left)[:480, :640]


def residuals(found: Features, expected: Tensor, margin: int = 64) -> Tensor:
    """From expected positions well inside the image to the keypoints found there; nearly all have to be there."""
    inside = ((expected > margin) & (expected < torch.tensor(found.image_size) - margin)).all(1)
    difference = found.keypoints.double() - expected[inside].double()[:, None]
    nearest = difference.norm(dim=2).argmin(1)
    there = difference[torch.arange(len(nearest)), nearest]
    same = there.norm(dim=1) < 1
    assert float(same.double().mean()) > 0.95
    return there[same]


@pytest.mark.parametrize("shift", [(16, 32), (8, 4), (1, 0), (3, 5), (7, 2), (0, 9)])
def test_keypoints_move_with_the_image(model: PoSFeat, photo: RGB, shift: tuple[int, int]) -> None:
    x, y = shift
    whole = model.extract(photo, options=EXACT)
    moved = model.extract(np.ascontiguousarray(photo[y:, x:]), options=EXACT)
    assert float(residuals(moved, whole.keypoints - torch.tensor(shift)).norm(dim=1).mean()) < 0.02


def test_keypoints_stay_where_they_are_when_the_frame_grows(model: PoSFeat, photo: RGB) -> None:
    whole = model.extract(photo, options=EXACT)
    for left, top, right, bottom in ((0, 0, 51, 37), (13, 6, 0, 3)):
        padded = model.extract(np.pad(photo, ((top, bottom), (left, right), (0, 0)), mode="edge"), options=EXACT)
        inner = whole.keypoints[
            ((whole.keypoints > 64) & (whole.keypoints < torch.tensor([640 - 64, 480 - 64]))).all(1)
        ]
        assert float(residuals(padded, inner + torch.tensor([left, top])).norm(dim=1).mean()) < 0.02


def test_tiles_find_the_same_keypoints(model: PoSFeat, photo: RGB) -> None:
    whole = model.extract(photo, options=EXACT)
    tiles = ExtractionOptions(EXACT.selection, precision="fp32", tile_pixels=512**2)  # 80 tiles
    assert float(residuals(model.extract(photo, options=tiles), whole.keypoints, 0).norm(dim=1).mean()) < 0.001


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_rescaling_moves_keypoints_without_bias(model: PoSFeat, photo: RGB, scale: float) -> None:
    resized = resize_image(photo, round(640 * scale), round(480 * scale))
    whole, other = (model.extract(image, 2048) for image in (photo, resized))
    i, j = match(whole, other).indices.T
    difference = rescale_pixels(other.keypoints[j], 1 / scale, 1 / scale) - whole.keypoints[i]
    right = difference.norm(dim=1) < 3
    assert int(right.sum()) > 250
    # with another pixel convention it would be |1 / scale - 1| / 2
    assert float(difference[right].median(dim=0).values.abs().max()) < 0.1 / min(scale, 1)


def test_a_rendered_scene_shows_no_half_pixel_bias(model: PoSFeat) -> None:
    scene, (camera0, camera1) = gallery_scene(), gallery_cameras()[5:7]
    views = [model.extract(render(scene, camera, HEIGHT, WIDTH), 2048) for camera in (camera0, camera1)]
    i, j = match(*views).indices.T
    residual = rendered_residuals_px(
        scene, camera0, camera1, views[0].keypoints[i].numpy(), views[1].keypoints[j].numpy()
    )
    assert len(residual) > 1000
    assert np.abs(np.median(residual, axis=0)).max() < 0.05
