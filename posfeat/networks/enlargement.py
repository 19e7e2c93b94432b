"""Bilinear enlargement for processors: of few channels as a matrix product and a convolution, of many as weighted means."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_CHANNELS = 16
CONVOLUTION: Any = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)  # with what follows it


def enlarge(
    x: Annotated[Tensor, "batch channels rows columns"],
    other: Annotated[Tensor, "batch channels height width"] | None,
    size: tuple[int, int] | None,
    scale_factor: float | None,
) -> Annotated[Tensor, "batch channels height width"]:
    """Bilinear enlargement (pixels as areas: ``align_corners=False``) plus another map, if there is one.

    Along y it is a product with a matrix. Along x, by a whole factor s, it is a convolution of 3 cells from c to s * c
    channels: with the channels last in memory, s * c channels of one cell are c channels of s pixels.
    """
    batch, channels, rows, columns = x.shape
    if size is None:
        assert scale_factor is not None
        size = int(rows * scale_factor), int(columns * scale_factor)
    height, width = size
    factor, uneven = divmod(width, columns)
    if channels > FEW_CHANNELS or uneven or factor < 2:
        enlarged = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        return enlarged if other is None else enlarged.add_(other)
    tall = enlargement(rows, height, x.dtype) @ x.permute(0, 2, 3, 1).reshape(batch, rows, columns * channels)
    tall = tall.view(batch, height, columns, channels)
    framed = torch.cat([tall[:, :, :1], tall, tall[:, :, -1:]], dim=2).permute(0, 3, 1, 2)
    kernel, geometry = phases(factor, channels, x.dtype), ([0, 0], [1, 1], [1, 1], 1)
    if other is None:
        wide = CONVOLUTION(framed, kernel, None, *geometry, "none", [], "")
    else:
        cells = other.permute(0, 2, 3, 1).reshape(batch, height, columns, factor * channels).permute(0, 3, 1, 2)
        wide = CONVOLUTION.binary(framed, cells, kernel, None, *geometry, "add", 1.0, None, [], None)
    return wide.permute(0, 2, 3, 1).reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def double(
    x: Annotated[Tensor, "batch channels rows columns"],
) -> Annotated[Tensor, "batch channels double_rows double_columns"]:
    """Bilinear enlargement by 2: of every number and each of its neighbours a mean of 3 to 1, along y and then along x."""
    x = x.permute(0, 2, 3, 1)
    for dim in (1, 2):
        size = x.shape[dim]
        framed = torch.cat([x.narrow(dim, 0, 1), x, x.narrow(dim, size - 1, 1)], dim)
        parts = x.new_empty(*x.shape[: dim + 1], 2, *x.shape[dim + 1 :])
        for part in (0, 1):
            torch.lerp(x, framed.narrow(dim, 2 * part, size), 0.25, out=parts.select(dim + 1, part))
        x = parts.flatten(dim, dim + 1)
    return x.permute(0, 3, 1, 2)


@lru_cache(maxsize=64)
def enlargement(size_in: int, size_out: int, dtype: torch.dtype) -> Annotated[Tensor, "size_out size_in"]:
    """The matrix that enlarges along one direction."""
    unit = torch.eye(size_in)[None]
    return F.interpolate(unit, size=size_out, mode="linear", align_corners=False)[0].T.to(dtype).contiguous()


@lru_cache(maxsize=64)
def phases(factor: int, channels: int, dtype: torch.dtype) -> Annotated[Tensor, "factor*channels channels 1 3"]:
    """The convolution that gives a cell's ``factor`` pixels, each with all channels, from the cell and its neighbours."""
    middle = enlargement(3, 3 * factor, torch.float32)[factor : 2 * factor]
    kernel = torch.einsum("pk,io->poik", middle, torch.eye(channels)).reshape(factor * channels, channels, 1, 3)
    return kernel.to(dtype).contiguous(memory_format=torch.channels_last)
