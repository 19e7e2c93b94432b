"""How much matching accuracy is left when a photo is turned in its plane.

The first image of a sequence is a photo, the others are copies of it, shrunk alike and turned by 0, 10, .. 350 degrees on a
canvas that holds all of it. Shrinking makes the upright copy more than the same file: what it scores is what other angles
are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posfeat.benchmarks.homography_scores import PairScore, summarise
from posfeat.benchmarks.hpatches import HomographySequence
from posfeat.data.images import RGB, read_image, resize_image, resize_longest, rotate_image, write_image
from posfeat.options import check_options, described
from posfeat.types import Array, OptionsError


@dataclass(frozen=True)
class TurnOptions:
    """Which copies are made of a photo."""

    step_deg: int = described(10, "degrees from one copy to the next; a divisor of 360", low=1, high=180)
    copy_scale: float = described(0.8, "size of the copies relative to the photo", low=0.1, high=1)
    longest_px: int = described(640, "photos are shrunk to this longer side first", low=64)

    def __post_init__(self) -> None:
        check_options(self)
        if 360 % self.step_deg:
            raise OptionsError(f"option step_deg={self.step_deg} does not divide 360")

    @property
    def angles_deg(self) -> range:
        """From upright all the way round."""
        return range(0, 360, self.step_deg)


@dataclass(frozen=True)
class AngleScore:
    """Means over photos at one angle."""

    angle_deg: int
    mma_score: float
    mma_1px: float
    matches: float
    correct: float


def turned_copy(photo: RGB, angle_deg: float, scale: float) -> tuple[RGB, Array]:
    """The photo shrunk, turned counter-clockwise, and the homography from the photo's pixels to the copy's."""
    height, width = photo.shape[:2]
    small_width, small_height = max(1, round(width * scale)), max(1, round(height * scale))
    x, y = small_width / width, small_height / height
    small_from_photo = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]])
    turned, _, small_from_turned = rotate_image(resize_image(photo, small_width, small_height), angle_deg)
    return turned, np.linalg.inv(small_from_turned) @ small_from_photo


def write_turned(path: Path, name: str, folder: Path, options: TurnOptions) -> HomographySequence:
    """One photo and its turned copies as files of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    photo = resize_longest(read_image(path), options.longest_px)
    write_image(folder / "photo.png", photo)
    targets, homographies = [], []
    for angle in options.angles_deg:
        turned, homography = turned_copy(photo, angle, options.copy_scale)
        targets.append(folder / f"{angle:03d}.png")
        homographies.append(homography)
        write_image(targets[-1], turned)
    return HomographySequence(name, "rotation", folder / "photo.png", tuple(targets), tuple(homographies), ())


def scores_by_angle(pairs: Sequence[PairScore]) -> list[AngleScore]:
    """Means over photos at each angle, upright first."""
    by_angle: dict[int, list[PairScore]] = {}
    for pair in pairs:
        by_angle.setdefault(int(Path(pair.target).stem), []).append(pair)
    scores = []
    for angle, of_angle in sorted(by_angle.items()):
        mean = summarise(of_angle)[0]
        scores.append(AngleScore(angle, mean.mma_score, mean.mma[0], mean.matches, mean.correct))
    return scores
