"""Miniature data sets in the layouts of the real ones, and features on them whose scores are known by construction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch

from posfeat.types import Features

WIDTH, HEIGHT = 96, 64
HOMOGRAPHIES = tuple(
    np.array([[1 + 0.02 * k, 0.03 * k, 1.5 * k], [-0.02 * k, 1 - 0.01 * k, k], [1e-5 * k, -2e-5 * k, 1]])
    for k in range(1, 6)
)


def photo(seed: int, width: int = WIDTH, height: int = HEIGHT) -> npt.NDArray[np.uint8]:
    """Smooth random colours."""
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3)).astype(np.float32)
    blurred = cv2.GaussianBlur(noise, (0, 0), 2)
    return cv2.normalize(blurred, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def write_ppm(path: Path, image: npt.NDArray[np.uint8]) -> None:
    path.write_bytes(b"P6\n%d %d\n255\n" % (image.shape[1], image.shape[0]) + image.tobytes())


def write_sequence(folder: Path, oxford: bool = False, seed: int = 0) -> None:
    """Six images of one plane with their homographies."""
    folder.mkdir(parents=True)
    first = photo(seed)
    image_name, map_name = ("img{}.ppm", "H1to{}p") if oxford else ("{}.ppm", "H_1_{}")
    write_ppm(folder / image_name.format(1), first)
    for k, homography in enumerate(HOMOGRAPHIES, start=2):
        write_ppm(folder / image_name.format(k), cv2.warpPerspective(first, homography, (WIDTH, HEIGHT)))
        np.savetxt(folder / map_name.format(k), homography)


@dataclass(frozen=True)
class KnownFeatures:
    """Features that follow the true homographies, moved by ``shift_px`` in every image but the first.

    Every keypoint has a descriptor of its own, the same in all images, so that mutual nearest neighbours are true partners.
    """

    shift_px: tuple[float, float] = (0.0, 0.0)
    count: int = 40

    def features_of(self, image_path: Path) -> Features:
        index = int("".join(filter(str.isdigit, image_path.stem)))
        rng = np.random.default_rng(7)
        xy = np.column_stack([rng.uniform(10, WIDTH - 10, self.count), rng.uniform(10, HEIGHT - 10, self.count)])
        if index > 1:
            mapped = np.column_stack([xy, np.ones(len(xy))]) @ HOMOGRAPHIES[index - 2].T
            xy = mapped[:, :2] / mapped[:, 2:] + self.shift_px
        return Features(
            keypoints=torch.from_numpy(xy).float(),
            scores=torch.linspace(1, 0, self.count),
            descriptors=torch.eye(self.count),
            image_size=(WIDTH, HEIGHT),
        )
