"""Large images in tiles, so that memory depends on the tile and not on the image.

Each tile is run with a margin of true image around its core, and only the core's results count; cores partition the
image. Tiles start at multiples of 16, where the networks' own grids start. Results then equal those of the whole image
wherever the network looks no further than the margin. Two things in the paper's networks do look further: the
detector's instance norms (scores are relative to the tile) and upsampling with aligned corners (positions of coarse
cells depend a little on the tile's size). Keypoints of such networks differ between tiled and whole images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

ALIGNMENT_PX = 16


class Tile(NamedTuple):
    """A tile's pixels [left, right) x [top, bottom), and the core of it that is its own."""

    left: int
    top: int
    right: int
    bottom: int
    core_left: int
    core_top: int
    core_right: int
    core_bottom: int


def tiles(height: int, width: int, max_pixels: int, overlap_px: int) -> Iterator[Tile]:
    """Tiles of at most about ``max_pixels`` each; one that covers everything where the image is small enough."""
    side = _aligned(math.sqrt(max_pixels))
    margin = _aligned(overlap_px + ALIGNMENT_PX - 1) if overlap_px else 0
    if height * width <= max_pixels:
        columns, rows = [(0, width, 0, width)], [(0, height, 0, height)]
    else:
        # a narrow strip is cut along its length only
        tile_width = side if height > side else _aligned(max_pixels / height)
        tile_height = side if width > side else _aligned(max_pixels / width)
        columns, rows = list(_spans(width, tile_width, margin)), list(_spans(height, tile_height, margin))
    for top, bottom, core_top, core_bottom in rows:
        for left, right, core_left, core_right in columns:
            yield Tile(left, top, right, bottom, core_left, core_top, core_right, core_bottom)


def _spans(length: int, tile: int, margin: int) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, and start and end of the core, of the tiles along one direction."""
    core = max(tile - 2 * margin, ALIGNMENT_PX)
    for start in range(0, length, core):
        end = min(start + core, length)
        yield max(start - margin, 0), min(end + margin, length), start, end


def _aligned(length: float) -> int:
    return max(int(length) // ALIGNMENT_PX, 1) * ALIGNMENT_PX
