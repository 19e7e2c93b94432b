"""The policy that turns a score map into keypoints: at most one in every 8x8 cell (supplement, section 3).

In each cell a categorical over its pixels' scores proposes one pixel, and a Bernoulli on that pixel's own score accepts
it: P_kp(x) = Softmax(cell)_x * Sigmoid(score_x). Every cell gives one row, accepted or not, so that batches stay
rectangular; rows that were not accepted are masked by whoever reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class KeypointSample(NamedTuple):
    """One draw of keypoints, a row for every cell."""

    keypoints: Annotated[Tensor, "batch cells 2"]  # pixels, whole numbers
    log_prob: Annotated[Tensor, "batch cells"]  # of what was drawn: this proposal and its acceptance or refusal
    accepted: Annotated[Tensor, "batch cells"]
    expected_count: Annotated[Tensor, "batch"]  # number of keypoints that the policy accepts on average


def sample_keypoints(
    scores: Annotated[Tensor, "batch 1 height width"],
    cell_px: int = 8,
    generators: Sequence[torch.Generator] | torch.Generator | None = None,
) -> KeypointSample:
    """Draw keypoints; log-probabilities and the expected count carry gradients to the scores.

    ``generators`` is one for all, or one for each image of the batch.
    """
    cells = into_cells(scores, cell_px)
    log_proposal = cells.log_softmax(dim=-1)
    # drawn on the generator's own device, so that one seed gives one draw wherever the scores live
    uniform = _uniform(cells.shape[0], cells.shape[1], generators).to(cells.device)
    pixel = _draw(log_proposal.detach().double().exp(), uniform[0])
    score = cells.gather(-1, pixel)
    accepted = uniform[1] < score.detach().double().sigmoid()
    log_prob = log_proposal.gather(-1, pixel) + F.logsigmoid(torch.where(accepted, score, -score))
    expected_count = (log_proposal.exp() * cells.sigmoid()).sum(dim=(1, 2))
    keypoints = _pixel_positions(pixel, scores.shape[-1] // cell_px, cell_px).to(scores.dtype)
    return KeypointSample(keypoints, log_prob.squeeze(-1), accepted.squeeze(-1), expected_count)


def _uniform(
    batch: int, cells: int, generators: Sequence[torch.Generator] | torch.Generator | None
) -> Annotated[Tensor, "2 batch cells 1"]:
    if isinstance(generators, Sequence):
        return torch.cat([_uniform(1, cells, generator) for generator in generators], dim=1)
    return torch.rand(2, batch, cells, 1, generator=generators, dtype=torch.float64)


def into_cells(
    scores: Annotated[Tensor, "batch 1 height width"], cell_px: int
) -> Annotated[Tensor, "batch cells pixels"]:
    """The scores of every full cell, cells and the pixels in each one row by row."""
    batch, _, height, width = scores.shape
    rows, columns = height // cell_px, width // cell_px
    full = scores[:, 0, : rows * cell_px, : columns * cell_px]
    blocks = full.reshape(batch, rows, cell_px, columns, cell_px).transpose(2, 3)
    return blocks.reshape(batch, rows * columns, cell_px * cell_px)


def _draw(
    probability: Annotated[Tensor, "batch cells pixels"], uniform: Annotated[Tensor, "batch cells 1"]
) -> Annotated[Tensor, "batch cells 1"]:
    """One pixel of each cell by inverting the cumulative distribution: a single random number a cell."""
    index = (probability.cumsum(dim=-1) <= uniform).sum(dim=-1, keepdim=True)
    return index.clamp(max=probability.shape[-1] - 1)  # rounding may leave the last sum a little below 1


def _pixel_positions(
    pixel: Annotated[Tensor, "batch cells 1"], columns: int, cell_px: int
) -> Annotated[Tensor, "batch cells 2"]:
    cell = torch.arange(pixel.shape[1], device=pixel.device)
    corner = torch.stack([cell % columns, cell // columns], dim=-1) * cell_px
    return corner + torch.cat([pixel % cell_px, pixel // cell_px], dim=-1)
