"""The detector's expected reward without sampling, where the pose alone fixes the point (beyond the paper).

Two images taken from one place are related by the rotation K1 R K0^-1, which sends each pixel x to one pixel x'. The
expected reward of the policy is then a sum over pixels that can be written down:

    E = sum_x P_kp(x) [ s(x) - c S ],    s(x) = m(x) sum_y P_kp(y) r(|y - x'|)

where r falls from 1 at no distance to 0 over about a pixel, m(x) is how surely the frozen descriptors match x at x' (their
softmax mass near it), and S is the mean success s of the policy's keypoints as it is now: a keypoint that does worse than a
share c of the mean loses its place. A fixed cost would empty the image at first, when nothing is found again. The
gradient is exact and dense, where a drawn keypoint meets one of the other image by luck; it pays for coincidence to the
pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.geometry.homography import warp_points
from posfeat.geometry.pixels import inside_image, pixel_grid
from posfeat.losses.keypoint_policy import into_cells
from posfeat.options import check_options, described


@dataclass(frozen=True)
class ExpectedRewardOptions:
    """The expected reward of pairs without baseline."""

    weight: float = described(0.0, "weight beside the policy gradient; 0: only the paper's loss", low=0)
    reach_px: float = described(0.8, "distance over which the reward of two keypoints falls off", low=0.1)
    cost: float = described(0.7, "keypoints that succeed less than this share of the mean lose their place", low=0)
    mass_band_px: float = described(6.0, "how near the true point the descriptors' softmax mass must fall", low=1)

    def __post_init__(self) -> None:
        check_options(self)


class ExpectedReward(NamedTuple):
    """Of each pair: the loss, and the expected share of visible keypoints that the other image has too."""

    loss: Annotated[Tensor, "batch"]
    found_again: Annotated[Tensor, "batch"]


def expected_reward_loss(
    scores0: Annotated[Tensor, "batch 1 height width"],
    scores1: Annotated[Tensor, "batch 1 height width"],
    homography: Annotated[Tensor, "batch 3 3"],
    reliability: Annotated[Tensor, "batch cells"],
    cell_px: int,
    options: ExpectedRewardOptions,
) -> ExpectedReward:
    """Minus the expected reward of the keypoints of image 0, a cell; ``homography`` sends pixels of image 0 to image 1."""
    height, width = scores0.shape[-2:]
    probability0 = keypoint_probability(scores0, cell_px)
    arrival, visible = _arrivals(homography, height, width)
    nearby = _blur(keypoint_probability(scores1, cell_px), options.reach_px)
    grid = (arrival + 0.5) * 2 / arrival.new_tensor([width, height]) - 1
    met = F.grid_sample(nearby, grid.to(nearby.dtype), padding_mode="zeros", align_corners=False)
    trust = _spread(reliability, height, width, cell_px)
    seen = visible[:, None].to(probability0)
    chosen = probability0 * seen
    success = trust * met
    count = chosen.detach().sum(dim=(1, 2, 3)).clamp(min=1e-6)
    mean = ((chosen * success).detach().sum(dim=(1, 2, 3)) / count).view(-1, 1, 1, 1)
    gain = (chosen * (success - options.cost * mean)).sum(dim=(1, 2, 3))
    return ExpectedReward(-gain / reliability.shape[1], (chosen * met).detach().sum(dim=(1, 2, 3)) / count)


def keypoint_probability(
    scores: Annotated[Tensor, "batch 1 height width"], cell_px: int
) -> Annotated[Tensor, "batch 1 height width"]:
    """P_kp of every pixel: that its cell proposes it and that it is then accepted; sides are multiples of the cell."""
    batch, _, height, width = scores.shape
    cells = into_cells(scores, cell_px)
    probability = cells.softmax(dim=-1) * cells.sigmoid()
    blocks = probability.view(batch, height // cell_px, width // cell_px, cell_px, cell_px)
    return blocks.transpose(2, 3).reshape(batch, 1, height, width)


def _arrivals(
    homography: Annotated[Tensor, "batch 3 3"], height: int, width: int
) -> tuple[Annotated[Tensor, "batch height width 2"], Annotated[Tensor, "batch height width"]]:
    """Where every pixel goes, and whether the other image shows that place."""
    grid = pixel_grid(height, width, torch.float64, homography.device)
    flat = grid.reshape(1, -1, 2).expand(len(homography), -1, -1)
    depth = torch.cat([flat, torch.ones_like(flat[..., :1])], dim=-1) @ homography.double()[:, 2, :, None]
    arrival = warp_points(homography.double(), flat)
    visible = (depth[..., 0] > 0) & inside_image(arrival, height, width)
    arrival = torch.where(visible.unsqueeze(-1), arrival, arrival.new_full((), -1e4))
    return arrival.view(-1, height, width, 2), visible.view(-1, height, width)


def _blur(probability: Annotated[Tensor, "batch 1 height width"], reach_px: float) -> Tensor:
    """Sum of P(y) r(|y - x|) at every pixel x, with r a Gaussian of height 1."""
    radius = max(1, round(3 * reach_px))
    offset = torch.arange(-radius, radius + 1, dtype=probability.dtype, device=probability.device)
    kernel = torch.exp(-0.5 * (offset / reach_px).square())
    rows = F.conv2d(probability, kernel.view(1, 1, 1, -1), padding=(0, radius))
    return F.conv2d(rows, kernel.view(1, 1, -1, 1), padding=(radius, 0))


def _spread(cells: Annotated[Tensor, "batch cells"], height: int, width: int, cell_px: int) -> Tensor:
    """A number a cell as a map of pixels."""
    small = cells.view(len(cells), 1, height // cell_px, width // cell_px)
    return small.repeat_interleave(cell_px, dim=2).repeat_interleave(cell_px, dim=3)
