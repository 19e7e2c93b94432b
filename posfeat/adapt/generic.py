"""Pictures of nothing in particular, against forgetting where there are no other photos.

Leaves of all sizes and colours that fell on one another, each with a grain of its own: such pictures have the edges that
photos have, and as many at every scale (the "dead leaves" model of natural images), and belong to no domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from posfeat.data.images import RGB, write_image
from posfeat.types import Array32

HEIGHT, WIDTH = 360, 480
NUM_PICTURES = 24
_LEAVES = 3000
_LARGEST, _SMALLEST = 0.5, 0.02  # radii of leaves, as shares of the height
_SHOWN_BY_LEAVES = 0.2  # measured: weights that lose 3.5 % on photos lose 0.6 % on these
_EVERY = 4  # of the pictures, one in so many judges what is forgotten


@dataclass(frozen=True)
class Generic:
    """Pictures of anything: some to train on, and others that tell what is forgotten."""

    to_learn: list[Path]
    to_judge: list[Path]
    shows: float = 1.0  # of what is forgotten on photos, the part that these pictures show

    @staticmethod
    def of_photos(photos: Sequence[Path]) -> Generic:
        """Somebody's photos."""
        return Generic(*_apart(photos))

    @staticmethod
    def computed(folder: Path) -> Generic:
        """Computed pictures, kept in a folder."""
        return Generic(*_apart(generic_pictures(folder)), shows=_SHOWN_BY_LEAVES)


def generic_pictures(folder: Path) -> list[Path]:
    """The pictures' files; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:02d}.png" for number in range(NUM_PICTURES)]
    for number, path in enumerate(paths):
        if not path.is_file():
            write_image(path, fallen_leaves(number))
    return paths


def _apart(photos: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """To learn from, and to judge by; the same ones where there are very few."""
    if len(photos) < 2 * _EVERY:
        return list(photos), list(photos)
    return [photo for number, photo in enumerate(photos) if number % _EVERY], list(photos[::_EVERY])


def fallen_leaves(seed: int) -> RGB:
    """One picture."""
    rng = np.random.default_rng([seed, 2])
    # the density of radii falls with their cube: leaves of each scale cover the same area, so that small ones are many
    radii = HEIGHT * rng.uniform(_LARGEST**-2, _SMALLEST**-2, _LEAVES) ** -0.5
    leaf_of_pixel = np.zeros((HEIGHT, WIDTH), np.int32)
    for number, radius in enumerate(radii):
        cv2.fillPoly(leaf_of_pixel, [_outline(rng, radius)], number)
    colours = rng.uniform(20, 235, (_LEAVES, 1)) + rng.normal(0, 25, (_LEAVES, 3))
    picture = colours.astype(np.float32)[leaf_of_pixel]
    for cell in (2, 4, 8, 32):
        amplitudes = rng.uniform(0, 15, _LEAVES).astype(np.float32)
        picture += (amplitudes[leaf_of_pixel] * _grain(rng, cell))[..., None]
    return np.clip(cv2.GaussianBlur(picture, (0, 0), 0.6), 0, 255).astype(np.uint8)


def _outline(rng: np.random.Generator, radius: float) -> npt.NDArray[np.int32]:
    """An ellipse, or a polygon of a few corners, somewhere."""
    corners = int(rng.choice([3, 4, 5, 32]))
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    reach = radius * (np.ones(corners) if corners == 32 else rng.uniform(0.6, 1.3, corners))
    shape = np.stack([np.cos(angles), rng.uniform(0.4, 1.0) * np.sin(angles)], axis=1) * reach[:, None]
    turn = rng.uniform(0, 2 * np.pi)
    turned = shape @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.rint(turned + rng.uniform(0, [WIDTH, HEIGHT])).astype(np.int32)


def _grain(rng: np.random.Generator, cell: int) -> Array32:
    """Noise of unit spread, smooth over so many pixels."""
    coarse = rng.standard_normal((HEIGHT // cell + 2, WIDTH // cell + 2), dtype=np.float32)
    return np.asarray(cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), dtype=np.float32)
