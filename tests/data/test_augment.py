"""Photometric change alters the look, never the place of anything."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from posfeat.data.augment import PhotometricOptions, photometric
from posfeat.data.pair_sample import Pixels

NOTHING = dict.fromkeys(("tone_share", "harsh_tone_share", "colour_share", "grey_share", "shade_share"), 0.0)
NOTHING |= dict.fromkeys(("occlusion_share", "blur_share", "noise_share", "jpeg_share"), 0.0)
CHANGES = sorted(set(NOTHING) - {"harsh_tone_share", "grey_share"})


def photo(seed: int = 0) -> Pixels:
    noise = np.random.default_rng(seed).uniform(0, 255, (120, 160, 3)).astype(np.float32)
    soft = cv2.GaussianBlur(noise, (0, 0), 2)
    return np.asarray(np.clip(128 + 5 * (soft - soft.mean()), 0, 255), dtype=np.uint8)


def test_no_strength_changes_nothing() -> None:
    image = photo()
    assert photometric(image, np.random.default_rng(0), PhotometricOptions(strength=0.0)) is image
    np.testing.assert_array_equal(photometric(image, np.random.default_rng(0), PhotometricOptions(**NOTHING)), image)


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_does_something_and_leaves_the_input_alone(change: str) -> None:
    image = photo()
    kept = image.copy()
    changed = photometric(image, np.random.default_rng(1), PhotometricOptions(**(NOTHING | {change: 1.0})), photo(1))
    assert changed.shape == image.shape
    assert changed.dtype == np.uint8
    assert (changed != image).mean() > 0.005
    np.testing.assert_array_equal(image, kept)


def test_the_generator_decides_everything() -> None:
    first, again, other = (
        photometric(photo(), np.random.default_rng(seed), PhotometricOptions(), photo(1)) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_no_change_moves_content() -> None:
    """Phase correlation between the image and its changed self."""
    options = PhotometricOptions(occlusion_share=0, harsh_tone_share=0)
    shifts = []
    for seed in range(30):
        image = photo(seed)
        changed = photometric(image, np.random.default_rng(seed), options)
        grey = [cv2.cvtColor(one, cv2.COLOR_RGB2GRAY).astype(np.float32) for one in (image, changed)]
        window = cv2.createHanningWindow((160, 120), cv2.CV_32F)
        shifts.append(cv2.phaseCorrelate(grey[0], grey[1], window)[0])
    assert np.abs(np.median(shifts, axis=0)).max() < 0.02
    assert np.abs(shifts).max() < 0.3


def test_the_papers_colour_jitter() -> None:
    options = PhotometricOptions(kind="colour_jitter")
    jittered = [photometric(photo(), np.random.default_rng(seed), options) for seed in range(300)]
    means = np.array([image.mean() for image in jittered])
    assert means.min() < 20  # brightness goes down to nothing, and up to twice as much
    assert means.max() > 200
    grey = np.repeat(photo()[..., :1], 3, axis=2)
    for seed in range(20):  # neither saturation nor hue gives colour to what has none
        changed = photometric(grey, np.random.default_rng(seed), options).astype(int)
        assert np.ptp(changed, axis=2).max() <= 1
    barely = photometric(photo(), np.random.default_rng(0), PhotometricOptions(kind="colour_jitter", strength=1e-6))
    assert np.abs(barely.astype(int) - photo()).max() <= 1


def test_something_is_always_left_to_see() -> None:
    contrasts = [photometric(photo(), np.random.default_rng(seed)).std() for seed in range(200)]
    assert np.quantile(contrasts, 0.02) > 8
