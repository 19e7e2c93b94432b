"""The search that line-to-window replaces, for the ablation (Model 4 of the paper, after CAPS): coarse, then fine.

The pose does not help here. An expectation over the whole 1/16 map says roughly where the correspondence is, and an
expectation over a window of the 1/4 map around that place says where exactly. The epipolar loss is taken at both levels.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.pixels import pixel_from_cell, pixel_grid, sample_map
from posfeat.losses.epipolar_targets import EpipolarTargets
from posfeat.losses.line_to_window import SearchOptions, SearchResult, search_line_to_window
from posfeat.losses.similarity_pass import normalised_rows

COARSE_STRIDE = 16


class CoarseToFineResult(NamedTuple):
    """Where the query points are expected in image 1 at either level."""

    coarse: SearchResult
    fine: SearchResult


def search_coarse_to_fine(
    coarse0: Annotated[Tensor, "batch dim coarse_rows coarse_columns"],
    coarse1: Annotated[Tensor, "batch dim coarse_rows1 coarse_columns1"],
    fine0: Annotated[Tensor, "batch dim rows columns"],
    fine1: Annotated[Tensor, "batch dim rows1 columns1"],
    xy0: Annotated[Tensor, "batch points 2"],
    targets: EpipolarTargets,
    options: SearchOptions,
    stride: int = 4,
) -> CoarseToFineResult:
    """Expected positions in image 1 of points of image 0; of the options the window and the temperature matter."""
    coarse = expectation_over_map(coarse0, coarse1, xy0, targets.valid, options.temperature)
    # a line of no length: its best point is the coarse position, and the window is cut around that
    around = dataclasses.replace(targets, start=coarse.centre, end=coarse.centre)
    in_window = dataclasses.replace(options, line_points=2, noise="none")
    return CoarseToFineResult(coarse, search_line_to_window(fine0, fine1, xy0, around, in_window, stride))


def expectation_over_map(
    map0: Annotated[Tensor, "batch dim rows columns"],
    map1: Annotated[Tensor, "batch dim rows1 columns1"],
    xy0: Annotated[Tensor, "batch points 2"],
    valid: Annotated[Tensor, "batch points"],
    temperature: float,
) -> SearchResult:
    """The mean and spread of each query's match distribution over all of a 1/16 map."""
    unit0, unit1 = normalised_rows(map0), normalised_rows(map1)
    queries = F.normalize(sample_map(unit0.permute(0, 3, 1, 2), xy0, COARSE_STRIDE), dim=1)
    probability = ((temperature * queries.transpose(1, 2)) @ unit1.flatten(1, 2).transpose(1, 2)).softmax(dim=-1)
    rows, columns = map1.shape[-2:]
    points = pixel_from_cell(pixel_grid(rows, columns, xy0.dtype, xy0.device), COARSE_STRIDE).reshape(-1, 2)
    expected = probability @ points
    half_size = points.new_tensor([columns * COARSE_STRIDE / 2, rows * COARSE_STRIDE / 2])
    # sum of p |x - m|^2 without the (batch, points, cells, 2) differences; taken about the middle, so little is lost
    middle = points - half_size
    squares = probability @ (middle / half_size).square() - ((expected - half_size) / half_size).square()
    sigma = squares.clamp(min=1e-10).sqrt().sum(-1)
    return SearchResult(expected, sigma, valid, expected.detach(), torch.zeros_like(sigma))
