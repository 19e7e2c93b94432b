"""Where the description loss asks its questions: one random point in every cell of a grid (supplement, section 2).

Points spread evenly leave no part of an image untrained, as predefined keypoints would.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor


def grid_query_points(
    height: int, width: int, cell_px: int, generator: torch.Generator | None = None
) -> Annotated[Tensor, "points 2"]:
    """One uniformly random position in every full cell_px x cell_px cell of an image, rows first."""
    rows, columns = height // cell_px, width // cell_px
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    corner = torch.stack([x, y], dim=-1).reshape(rows * columns, 2).float() * cell_px
    # a cell covers [corner - 0.5, corner + cell_px - 0.5): its rim lies half a pixel beyond its outer pixel centres
    return corner + torch.rand(rows * columns, 2, generator=generator) * cell_px - 0.5
