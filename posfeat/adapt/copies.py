"""Photos that are there twice: the same picture under two names teaches nothing, and may stand on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from posfeat.data.images import read_image, resize_image
from posfeat.types import View

_SIDE_PX = 32
_MEAN_LEVELS, _MOST_LEVELS = 0.7, 4  # by which two thumbnails may differ, of 255


def without_copies(views: Sequence[View]) -> tuple[list[View], list[View]]:
    """The views that differ from all before them, and the others: recompressed or renamed, but the same picture."""
    kept: list[View] = []
    copies: list[View] = []
    thumbnails = np.zeros((len(views), _SIDE_PX * _SIDE_PX), dtype=np.int16)
    for view in views:
        thumbnail = _thumbnail(view)
        difference = np.abs(thumbnails[: len(kept)] - thumbnail)
        same = (difference.mean(axis=1) <= _MEAN_LEVELS) & (difference.max(axis=1, initial=0) <= _MOST_LEVELS)
        if bool(same.any()):
            copies.append(view)
        else:
            thumbnails[len(kept)] = thumbnail
            kept.append(view)
    return kept, copies


def _thumbnail(view: View) -> npt.NDArray[np.int16]:
    small = resize_image(read_image(view.image_path), _SIDE_PX, _SIDE_PX)
    return small.astype(np.float32).mean(axis=2).round().astype(np.int16).ravel()
