"""Pictures are read where they are asked for, without aliasing and without displacement."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from posfeat.data.texture import Texture, lay_over, opaque


def positions(scale: float, shift: float, height: int, width: int) -> tuple[npt.NDArray[np.float32], ...]:
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return tuple((scale * axis + shift).astype(np.float32) for axis in (x, y))


def test_whole_positions_give_the_pixels_themselves() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (40, 56, 3)).astype(np.uint8)
    read = opaque(Texture(picture).read(*positions(1.0, 0.0, 40, 56)))
    np.testing.assert_array_equal(read, picture)


@pytest.mark.parametrize("size", [256, 301])
@pytest.mark.parametrize("scale", [0.7, 1.0, 1.7, 2.0, 3.1, 6.0])
def test_nothing_is_displaced_at_any_scale(scale: float, size: int) -> None:
    """Centroids of Gaussian blobs at random sub-pixel places."""
    errors = []
    for seed in range(6):
        centre = np.random.default_rng(seed).uniform(size * 0.4, size * 0.6, 2)
        y, x = np.mgrid[:size, :size]
        blob = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * (3 * max(scale, 1)) ** 2))
        picture = np.repeat(np.rint(255 * blob)[..., None], 3, -1).astype(np.uint8)
        x, y = positions(scale, 0.1 * seed, int(size / scale) - 1, int(size / scale) - 1)
        weight = Texture(picture).read(x, y)[..., 0].astype(np.float64)
        found = np.array([(axis * weight).sum() / weight.sum() for axis in (x, y)])
        errors.append((found - centre) / scale)
    assert np.abs(errors).max() < 0.03
    assert np.abs(np.mean(errors, axis=0)).max() < 0.012


def test_a_fine_pattern_becomes_grey_instead_of_moire() -> None:
    x, y = np.meshgrid(np.arange(256), np.arange(256))
    board = np.repeat((255 * ((x + y) % 2))[..., None], 3, -1).astype(np.uint8)
    for scale in (2.3, 3.7, 5.1):
        size = int(250 / scale)
        read = Texture(board).read(*positions(scale, 0.0, size, size))
        assert read[..., :3].std() < 12


def test_a_stretched_reading_stays_sharp_across() -> None:
    """Seen at a slant, lines along the long axis of the pixel's footprint are not blurred away."""
    x, _ = np.meshgrid(np.arange(256), np.arange(256))
    stripes = np.repeat((127 + 127 * np.sin(x * (2 * np.pi / 5)))[..., None], 3, -1).astype(np.uint8)
    column, row = np.meshgrid(np.arange(200, dtype=np.float32), np.arange(100, dtype=np.float32))
    assert Texture(stripes).read(column, row * 2)[..., 0].std() > 60


def test_beyond_the_rim_there_is_nothing_or_a_mirror() -> None:
    picture = np.full((32, 32, 3), 200, np.uint8)
    x, y = positions(1.0, -16.0, 32, 32)
    mirrored, ending = Texture(picture).read(x, y), Texture(picture, mirrored=False).read(x, y)
    assert mirrored[..., 3].min() == 255
    assert (ending[:15, :15] == 0).all()
    assert (ending[17:, 17:] == [200, 200, 200, 255]).all()


def test_laying_over_is_exact_where_nothing_is_mixed() -> None:
    above, below = np.zeros((2, 2, 4), np.uint8), np.full((2, 2, 4), 255, np.uint8)
    below[..., :3] = 90
    above[0] = [10, 20, 30, 255]
    mixed = lay_over(above, below)
    np.testing.assert_array_equal(mixed[0, 0], [10, 20, 30, 255])
    np.testing.assert_array_equal(mixed[1, 0], [90, 90, 90, 255])
