"""Wrong matches agree on a geometry now and then; how many must agree before it means something."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from posfeat.pipeline.chance import CERTAIN, log10_chance_geometries, log10_chance_poses
from posfeat.types import Array

SIZE = (640, 480)
LIMIT_PX = 4.0


def chance(xy0: Array, xy1: Array) -> float:
    """That of the geometry that most matches agree with."""
    return log10_chance_geometries(distances(xy0, xy1), xy0, xy1, LIMIT_PX)


def distances(xy0: Array, xy1: Array) -> Array:
    """Of matches from the lines of the geometry that most of them agree with."""
    cv2.setRNGSeed(0)
    fundamental, _ = cv2.findFundamentalMat(xy0, xy1, cv2.USAC_DEFAULT, LIMIT_PX, 0.9999, 10_000)
    ones = np.ones((len(xy0), 1))
    first, second = np.hstack([xy0, ones]), np.hstack([xy1, ones])
    lines0, lines1 = second @ fundamental, first @ fundamental.T
    return np.abs((second * lines1).sum(1)) / np.sqrt(np.square(lines0[:, :2]).sum(1) + np.square(lines1[:, :2]).sum(1))


def unrelated(rng: np.random.Generator, num_matches: int, spread_px: float) -> tuple[Array, Array]:
    """Wrong matches; with less spread, of lawn with lawn and of roof with roof: two bands at about the same height."""
    xy0, xy1 = rng.uniform(0, SIZE, (2, num_matches, 2))
    if spread_px < SIZE[1]:
        bands = rng.choice([120.0, 350.0], num_matches)
        xy0[:, 1], xy1[:, 1] = rng.normal(bands, spread_px), rng.normal(bands + 20, spread_px)
    return xy0, xy1


def seen_twice(rng: np.random.Generator, num_points: int) -> tuple[Array, Array]:
    """Points at different depths from two places, half a pixel off."""
    points = rng.uniform((-2, -1.5, 4), (2, 1.5, 9), (num_points, 3))
    moved = points @ cv2.Rodrigues(np.array([0.02, -0.1, 0.01]))[0].T + [1.0, 0.2, 0.1]
    xy0, xy1 = (500 * one[:, :2] / one[:, 2:] + [320, 240] for one in (points, moved))
    return xy0 + rng.normal(0, 0.5, xy0.shape), xy1 + rng.normal(0, 0.5, xy1.shape)


def joined(*parts: tuple[Array, Array]) -> tuple[Array, Array]:
    xy0, xy1 = (np.concatenate(one) for one in zip(*parts, strict=True))
    return xy0, xy1


@pytest.mark.parametrize("spread_px", [1000.0, 40.0, 15.0], ids=["even", "bands", "narrow bands"])
@pytest.mark.parametrize("num_matches", [40, 150, 700])
def test_matches_of_unrelated_photos_are_chance(num_matches: int, spread_px: float) -> None:
    for seed in range(5):
        assert chance(*unrelated(np.random.default_rng(seed), num_matches, spread_px)) > CERTAIN


@pytest.mark.parametrize("spread_px", [1000.0, 40.0], ids=["even", "bands"])
@pytest.mark.parametrize(("num_right", "num_wrong"), [(35, 0), (45, 100), (150, 600)])
def test_few_right_matches_among_wrong_ones_are_none(num_right: int, num_wrong: int, spread_px: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert chance(*joined(seen_twice(rng, num_right), unrelated(rng, num_wrong, spread_px))) < CERTAIN


def test_two_faces_are_no_geometry() -> None:
    """Of different people, in photos with nothing else in common: eyes, nose and mouth are where they are in any face."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        face = np.repeat(rng.uniform(-45, 45, (9, 2)), 8, axis=0) + rng.uniform(-6, 6, (72, 2))
        other = 1.1 * face + np.repeat(rng.normal(0, 4.0, (9, 2)), 8, axis=0)
        both = joined((face + np.array([200, 150]), other + np.array([380, 190])), unrelated(rng, 60, 1000.0))
        assert (distances(*both) <= LIMIT_PX).sum() > 45
        assert chance(*both) > CERTAIN


def test_an_even_spread_is_no_measure_of_bands() -> None:
    """In bands so many agree that an even spread would not have them once in a million pairs."""
    found = distances(*unrelated(np.random.default_rng(0), 700, 15.0))
    on_a_line = 2 * LIMIT_PX * np.hypot(*SIZE) / np.prod(SIZE)
    assert (found <= LIMIT_PX).sum() > 2 * on_a_line * len(found)


def apart(num_matches: int) -> tuple[Array, Array]:
    """Matches each of which joins other patches than the others."""
    xy = 100.0 * np.stack(np.divmod(np.arange(num_matches), 200), axis=1)
    return xy, xy


def test_fewer_must_agree_on_a_place_than_on_a_line() -> None:
    few = np.concatenate([np.full(15, 0.5), np.linspace(5, 16, 30)])
    assert log10_chance_poses(100, 15, LIMIT_PX, *SIZE) < 0 < log10_chance_geometries(few, *apart(45), LIMIT_PX)
    # the price: 15 matches that all agree prove nothing any more, 28 do
    assert log10_chance_geometries(np.zeros(28), *apart(28), LIMIT_PX) < CERTAIN
    assert log10_chance_geometries(np.zeros(15), *apart(15), LIMIT_PX) > CERTAIN
    assert log10_chance_geometries(np.zeros(7), *apart(7), LIMIT_PX) == np.inf
    assert log10_chance_geometries(np.zeros(0), *apart(0), LIMIT_PX) == np.inf
    assert log10_chance_poses(0, 0, LIMIT_PX, *SIZE) == np.inf


def test_many_matches_are_counted_without_overflow() -> None:
    many = np.concatenate([np.full(20_000, 0.5), np.full(20_000, 10.0)])
    assert -20_000 < log10_chance_geometries(many, *apart(40_000), LIMIT_PX) < -1000
    assert log10_chance_geometries(np.linspace(0, 16, 40_000), *apart(40_000), LIMIT_PX) > 0
