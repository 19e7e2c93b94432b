"""Wrong matches agree on a geometry now and then; how many must agree before it means something."""

from __future__ import annotations

import cv2
import numpy as np

from posfeat.pipeline.chance import log10_chance_geometries, log10_chance_poses

SIZE = (640, 480)


def test_wrong_matches_are_chance_and_right_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    for num_matches in (40, 150, 400):
        xy0, xy1 = rng.uniform(0, SIZE, (2, num_matches, 2))
        cv2.setRNGSeed(0)
        _, mask = cv2.findFundamentalMat(xy0, xy1, cv2.USAC_DEFAULT, 4.0, 0.9999, 10_000)
        assert log10_chance_geometries(num_matches, int(mask.sum()), 4.0, *SIZE) > 0
        assert log10_chance_geometries(num_matches, num_matches // 2, 4.0, *SIZE) < -4


def test_fewer_must_agree_on_a_place_than_on_a_line() -> None:
    assert log10_chance_poses(100, 15, 4.0, *SIZE) < 0 < log10_chance_geometries(100, 15, 4.0, *SIZE)
    assert log10_chance_geometries(15, 15, 4.0, *SIZE) < 0
    assert log10_chance_geometries(9, 7, 4.0, *SIZE) == np.inf
