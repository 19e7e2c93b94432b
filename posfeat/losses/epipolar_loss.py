"""Distance of the expected correspondence to its epipolar line, weighted by certainty (equations 7 to 9)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from posfeat.losses.epipolar_targets import EpipolarTargets
from posfeat.losses.line_to_window import SearchResult


def certainty_weights(
    sigma: Annotated[Tensor, "batch points"], valid: Annotated[Tensor, "batch points"], floor: float = 1e-3
) -> Annotated[Tensor, "batch points"]:
    """M_i / sigma_i without gradient, scaled to mean 1 over each pair's valid queries; 0 where a query does not count.

    ``floor`` (in [-1, 1] coordinates, a fraction of a pixel) keeps one very certain query from outweighing all others.
    """
    weight = torch.where(valid, 1 / sigma.detach().clamp(min=floor), torch.zeros_like(sigma))
    count = valid.sum(-1, keepdim=True).clamp(min=1)
    return weight / (weight.sum(-1, keepdim=True) / count).clamp(min=torch.finfo(sigma.dtype).tiny)


def epipolar_loss(
    search: SearchResult, targets: EpipolarTargets, shorter_side: int, largest_share: float = 0.1
) -> tuple[Annotated[Tensor, "batch"], Annotated[Tensor, "batch points"]]:
    """Each pair's weighted mean distance in pixels, and which queries counted.

    A query counts if its line meets the image, its window's centre is inside, and its distance is below ``largest_share``
    of the shorter side. A pair without any such query has loss 0.
    """
    distance = targets.distance(search.expected)
    counted = search.valid & (distance.detach() < largest_share * shorter_side)
    weight = certainty_weights(search.sigma, counted)
    distance = torch.where(counted, distance, torch.zeros_like(distance))
    return (weight * distance).sum(-1) / counted.sum(-1).clamp(min=1), counted
