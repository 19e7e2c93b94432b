"""One training pair before batching, and what a source of such pairs looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from posfeat.types import Array, Array32

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PairSample:
    """Two RGB images of equal size with exact cameras; fields as in PairBatch, without the batch axis."""

    image0: Pixels  # (H, W, 3) RGB
    image1: Pixels
    intrinsics0: Array  # (3, 3)
    intrinsics1: Array
    cam1_from_cam0: Array  # (4, 4)
    has_baseline: bool
    map1_from_map0: Array32 | None = None  # (H, W, 2)
    name: str = ""


class PairSource(Protocol):
    """Where pairs come from: everything random about a pair is drawn from the generator that is handed in."""

    def draw(self, rng: np.random.Generator, height: int, width: int) -> PairSample:
        """One pair whose images have the given size."""
        ...
