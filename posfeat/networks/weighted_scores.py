"""The compact detector's scores on processors: its maps weighed and summed without full-resolution maps of float32.

What compact.weighted_scores gives, in other steps. Smoothing and enlarging are linear, so along y both are matrix products
of small maps. Along x a cell of the smoothed map is 8 pixels, and with the channels last in memory the channels of 8
pixels are those of one cell: enlarging is a convolution (see enlargement), which multiplies its float32 results with the
image's maps before it writes them, and a 1x1 convolution sums the products of each pixel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.networks.compact import smoothed, weighted_scores
from posfeat.networks.enlargement import CONVOLUTION, enlargement, phases

LOWEST = -20.0  # its softplus is 2e-9; of numbers far below it is slow, as these lead to denormal ones
LONGEST_PX = 4096  # of longer sides the matrices would be large
_GEOMETRY = ([0, 0], [1, 1], [1, 1], 1)


def fast_weighted_scores(
    where: Annotated[Tensor, "batch channels height width"],
    worth: Annotated[Tensor, "batch channels_and_one rows columns"],
) -> Annotated[Tensor, "batch 1 height width"]:
    """The sum of the image's maps, each times what it is worth there, and of the last map of the worth."""
    batch, channels, height, width = where.shape
    rows, columns = worth.shape[2:]
    cell = width // columns
    if (height, width) != (cell * rows, cell * columns) or cell < 2 or max(height, width) > LONGEST_PX:
        return weighted_scores(where, worth)
    # along x smoothed, the first and the last column repeated once
    small = worth.float().transpose(1, 2) @ _framed_smoothing(columns)
    weights, base = small[:, :, :-1].transpose(2, 3).flatten(2), small[:, :, -1]
    framed = _smooth_enlargement(rows, height, where.dtype) @ weights.to(where.dtype)
    products = CONVOLUTION.binary(
        _cells(framed, channels), _cells(where.permute(0, 2, 3, 1).flatten(2), cell * channels),
        phases(cell, channels, where.dtype), None, *_GEOMETRY, "mul", 1.0, None, [], None,
    )  # fmt: skip
    framed = _cells(_smooth_enlargement(rows, height, torch.float32) @ base, 1)
    bases = CONVOLUTION(framed, phases(cell, 1, torch.float32), None, *_GEOMETRY, "none", [], "")
    total = _total(cell, channels)
    sums = CONVOLUTION.binary(products.float(), bases, total, None, *_GEOMETRY, "add", 1.0, None, [], None)
    return F.softplus(sums.permute(0, 2, 3, 1).reshape(batch, 1, height, width).clamp_(min=LOWEST))


def _cells(
    rows: Annotated[Tensor, "batch height row_length"], channels: int
) -> Annotated[Tensor, "batch channels height columns"]:
    """A map whose rows hold the channels of one cell after the other."""
    return rows.unflatten(2, (-1, channels)).permute(0, 3, 1, 2)


@lru_cache(maxsize=16)
def _framed_smoothing(size: int) -> Annotated[Tensor, "size framed_size"]:
    """The matrix that smooths rows from the right and repeats their first and last number once."""
    return F.pad(_smoothing(size).T[None], (1, 1), mode="replicate")[0]


@lru_cache(maxsize=32)
def _smooth_enlargement(size_in: int, size_out: int, dtype: torch.dtype) -> Annotated[Tensor, "size_out size_in"]:
    """The matrix that smooths and enlarges along one direction."""
    return (enlargement(size_in, size_out, torch.float32) @ _smoothing(size_in)).to(dtype)


def _smoothing(size: int) -> Annotated[Tensor, "size size"]:
    """The matrix that smooths along one direction."""
    return smoothed(torch.eye(size)[:, None, :, None])[:, 0, :, 0].T


@lru_cache(maxsize=4)
def _total(cell: int, channels: int) -> Annotated[Tensor, "cell cell_channels 1 1"]:
    """The convolution that sums the channels of each pixel of a cell."""
    kernel = torch.eye(cell).repeat_interleave(channels, dim=1)[:, :, None, None]
    return kernel.contiguous(memory_format=torch.channels_last)
