"""Photos that are there twice: the same picture under two names teaches nothing, and may stand on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from posfeat.data.images import read_image, resize_image
from posfeat.types import View

_SIDE_PX, _BLOCK_PX = 32, 8
_MEAN_DIFFERENCE, _MOST_DIFFERENCE = 0.04, 0.3  # between two thumbnails, as shares of their own spread


def without_copies(views: Sequence[View]) -> tuple[list[View], list[View]]:
    """The views that differ from all before them, and the others: recompressed or renamed, but the same picture."""
    kept: list[View] = []
    copies: list[View] = []
    thumbnails = np.zeros((len(views), _SIDE_PX * _SIDE_PX), dtype=np.float32)
    for view in views:
        thumbnail = _thumbnail(view)
        difference = np.abs(thumbnails[: len(kept)] - thumbnail)
        same = (difference.mean(axis=1) <= _MEAN_DIFFERENCE) & (difference.max(axis=1, initial=0) <= _MOST_DIFFERENCE)
        if bool(same.any()):
            copies.append(view)
        else:
            thumbnails[len(kept)] = thumbnail
            kept.append(view)
    return kept, copies


def _thumbnail(view: View) -> npt.NDArray[np.float32]:
    """A small grey picture of unit spread: in haze, too, different photos differ."""
    side = _SIDE_PX * _BLOCK_PX
    pixels = resize_image(read_image(view.image_path), side, side).mean(axis=2, dtype=np.float32)
    small = pixels.reshape(_SIDE_PX, _BLOCK_PX, _SIDE_PX, _BLOCK_PX).mean(axis=(1, 3)).ravel()
    return (small - small.mean()) / max(float(small.std()), 1.0)
