"""The pixel convention, and how a dense map is read at pixel positions.

The centre of the top-left pixel is (0, 0); positions are (x, y). Cell (column, row) of a map with stride s covers the
s x s pixels from (s*column, s*row), so its centre is the pixel s*column + (s - 1)/2. COLMAP puts the centre of the
top-left pixel at (0.5, 0.5): 0.5 is added when positions leave for COLMAP and taken away when they come from it.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

COLMAP_OFFSET_PX = 0.5


def cell_from_pixel(xy: Annotated[Tensor, "*shape"], stride: float) -> Annotated[Tensor, "*shape"]:
    """Position on a map of the given stride, in cells (cell centres are whole numbers)."""
    return (xy + 0.5) / stride - 0.5


def pixel_from_cell(xy: Annotated[Tensor, "*shape"], stride: float) -> Annotated[Tensor, "*shape"]:
    """Pixel position of a position on a map of the given stride."""
    return (xy + 0.5) * stride - 0.5


def rescale_pixels(xy: Annotated[Tensor, "*batch 2"], scale_x: float, scale_y: float) -> Annotated[Tensor, "*batch 2"]:
    """Where pixels go when the image is resized by the given factors."""
    scale = torch.tensor([scale_x, scale_y], dtype=xy.dtype, device=xy.device)
    return (xy + 0.5) * scale - 0.5


def pixel_grid(
    height: int, width: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> Annotated[Tensor, "height width 2"]:
    """The position (x, y) of every pixel."""
    y, x = torch.meshgrid(
        torch.arange(height, dtype=dtype, device=device), torch.arange(width, dtype=dtype, device=device), indexing="ij"
    )
    return torch.stack([x, y], dim=-1)


def sample_map(
    dense: Annotated[Tensor, "batch channels height width"],
    xy: Annotated[Tensor, "batch *points 2"],
    stride: float = 1.0,
) -> Annotated[Tensor, "batch channels *points"]:
    """Read a map bilinearly at pixel positions; beyond the rim the rim's value is repeated."""
    height, width = dense.shape[-2:]
    size = torch.tensor([width, height], dtype=xy.dtype, device=xy.device)
    grid = (cell_from_pixel(xy, stride) + 0.5) * 2 / size - 1
    # positions rounded to half precision would be off by whole pixels
    precise = torch.promote_types(dense.dtype, torch.float32)
    flat = grid.reshape(grid.shape[0], -1, 1, 2).to(precise)
    sampled = F.grid_sample(dense.to(precise), flat, mode="bilinear", padding_mode="border", align_corners=False)
    sampled = sampled.to(dense.dtype)
    return sampled.reshape(dense.shape[0], dense.shape[1], *xy.shape[1:-1])


def inside_image(
    xy: Annotated[Tensor, "*batch 2"], height: int, width: int, margin: float = 0.0
) -> Annotated[Tensor, "*batch"]:
    """Whether positions lie on the image (its rim is half a pixel beyond the outer centres), ``margin`` px from the rim."""
    x, y = xy[..., 0], xy[..., 1]
    return (x >= margin - 0.5) & (y >= margin - 0.5) & (x <= width - 0.5 - margin) & (y <= height - 0.5 - margin)
