"""Score map -> keypoints: local maxima, threshold, border, mask, the best k, and where between pixels they lie.

Everything depends on a pixel's neighbourhood alone: shift the score map by whole pixels and the same keypoints come out,
shifted. A plateau of equal scores gives one keypoint, its first pixel in reading order, not a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.options import check_options, described
from posfeat.types import OptionsError

SubPixel = Literal["none", "mean", "quadratic"]


@dataclass(frozen=True)
class SelectionOptions:
    """Which pixels of a score map become keypoints."""

    max_keypoints: int = described(4096, "keep at most this many keypoints, the best first", low=1)
    nms_size: int = described(3, "a keypoint is the best of its window of this many pixels a side (odd)", low=1)
    threshold: float = described(
        1e-4, "a keypoint's score is above this; what is hardly above 0 differs between programs"
    )
    border_px: int = described(1, "no keypoint this close to the rim, in pixels", low=0)
    subpixel: SubPixel = described(
        "quadratic", "position between pixels: none, the paper's score-weighted 3x3 mean, or the peak of a quadratic"
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.nms_size % 2 == 0:
            raise OptionsError(f"option nms_size={self.nms_size} must be odd, so that a window has a middle")


class Peaks(NamedTuple):
    """Pixels that are local maxima, in reading order, with their scores."""

    x: Annotated[Tensor, "num_peaks"]
    y: Annotated[Tensor, "num_peaks"]
    scores: Annotated[Tensor, "num_peaks"]


def select_keypoints(
    scores: Annotated[Tensor, "1 1 height width"],
    options: SelectionOptions,
    mask: Annotated[Tensor, "height width"] | None = None,
) -> tuple[Annotated[Tensor, "num_keypoints 2"], Annotated[Tensor, "num_keypoints"]]:
    """Keypoints (x, y) and their scores, best first. Nothing is detected where ``mask`` is False."""
    score_map = scores[0, 0].float()
    height, width = score_map.shape
    border = options.border_px
    peaks = find_peaks(score_map, options, (border, border, width - border, height - border), mask)
    peaks = best_peaks(peaks, options.max_keypoints)
    return refine_positions(score_map, peaks, options.subpixel), peaks.scores


def find_peaks(
    score_map: Annotated[Tensor, "height width"],
    options: SelectionOptions,
    region: tuple[int, int, int, int],
    mask: Annotated[Tensor, "height width"] | None = None,
) -> Peaks:
    """All pixels above the threshold that no pixel of their window beats, in [left, right) x [top, bottom) of the map."""
    height, width = score_map.shape
    radius = options.nms_size // 2
    # a frame of False around the map, so that looking at neighbours by their distance in memory never wraps around
    framed = score_map.new_zeros((height + 2 * radius, width + 2 * radius), dtype=torch.bool)
    wanted = framed[radius : radius + height, radius : radius + width]
    above = float(np.nextafter(np.float32(options.threshold), np.float32(np.inf)))  # the threshold
    torch.eq(score_map, window_maximum(score_map, options.nms_size).clamp(min=above), out=wanted)
    if mask is not None:
        wanted &= mask
    index = _first_of_ties(framed, radius)
    row_length = width + 2 * radius
    y = torch.div(index, row_length, rounding_mode="floor")
    x = index - y * row_length - radius
    y = y - radius
    left, top, right, bottom = region
    inner = (x >= left) & (x < right) & (y >= top) & (y < bottom)
    x, y = x[inner], y[inner]
    return Peaks(x, y, score_map[y, x])


def peak_map(
    scores: Annotated[Tensor, "batch 1 height width"], options: SelectionOptions
) -> Annotated[Tensor, "batch 1 height width"]:
    """Which pixels find_peaks would give, for several maps and as a map: without waiting for how many there are."""
    radius = options.nms_size // 2
    wanted = (scores == F.max_pool2d(scores, options.nms_size, 1, radius)) & (scores > options.threshold)
    if radius:
        # of equal maxima in one window the first counts: look for others in the rows above, and to the left
        maxima = wanted.to(scores.dtype)
        above = F.max_pool2d(F.pad(maxima, (radius, radius, radius, -1)), (radius, options.nms_size), 1)
        before = F.max_pool2d(F.pad(maxima, (radius, -1, 0, 0)), (1, radius), 1)
        wanted = wanted & (above + before == 0)
    return wanted


def best_peaks(peaks: Peaks, count: int) -> Peaks:
    """The ``count`` peaks with the highest scores, best first; equal scores stay in reading order."""
    if len(peaks.scores) > 2 * count:  # sorting all would take longer than all the rest
        lowest = torch.topk(peaks.scores, count, sorted=False).values.min()
        good = peaks.scores >= lowest
        peaks = Peaks(*(column[good] for column in peaks))
    order = best_first(peaks.scores)[:count]
    return Peaks(*(column[order] for column in peaks))


def best_first(scores: Annotated[Tensor, "count"]) -> Annotated[Tensor, "count"]:
    """The order of falling scores; equal ones stay as they are."""
    if scores.device.type != "cpu":
        return torch.sort(scores, descending=True, stable=True).indices
    # stable sorts of floats are slow. As whole numbers, which have the same order, and with their places behind, no two
    # are equal and any sort will do
    bits = scores.detach().float().numpy().view(np.int32)
    rising = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    return torch.from_numpy(np.sort((~rising << 32) | np.arange(len(rising))) & 0xFFFFFFFF)


def window_maximum(score_map: Annotated[Tensor, "height width"], size: int) -> Annotated[Tensor, "height width"]:
    """The maximum over a window of ``size`` (odd) pixels a side around each pixel.

    One direction after the other, each by doubling the reach: far fewer passes than a pooling layer's window.
    """
    radius = size // 2
    if radius == 0:
        return score_map
    padded = F.pad(score_map, (radius, radius, radius, radius), value=float("-inf"))
    return _running_maximum(_running_maximum(padded, size, dim=1), size, dim=0)


def _running_maximum(values: Tensor, size: int, dim: int) -> Tensor:
    """Maxima of ``size`` neighbours; the result is shorter by ``size - 1``."""
    reach = 1
    while reach < size:
        step = min(reach, size - reach)
        length = values.shape[dim] - step
        values = torch.maximum(values.narrow(dim, 0, length), values.narrow(dim, step, length))
        reach += step
    return values


def _first_of_ties(
    framed: Annotated[Tensor, "framed_height framed_width"], radius: int
) -> Annotated[Tensor, "num_peaks"]:
    """Flat positions of the maxima without those that have another one before them in reading order in their window.

    Two maxima in one window have the same score, or one of them would be none.
    """
    flat, row = framed.reshape(-1), framed.shape[1]
    index = torch.from_numpy(np.flatnonzero(flat)) if flat.device.type == "cpu" else flat.nonzero().squeeze(1)
    tied = torch.zeros_like(index, dtype=torch.bool)
    for dy in range(-radius, 1):
        for dx in range(-radius, radius + 1 if dy else 0):
            tied |= flat[index + (dy * row + dx)]
    return index[~tied]


def refine_positions(
    score_map: Annotated[Tensor, "height width"], peaks: Peaks, subpixel: SubPixel
) -> Annotated[Tensor, "num_peaks 2"]:
    """Positions (x, y) of peaks, between pixels unless ``subpixel`` is none."""
    xy = torch.stack([peaks.x, peaks.y], dim=-1).to(score_map.dtype)
    if subpixel == "none" or not len(peaks.x):
        return xy
    around = _neighbourhoods(score_map, peaks)
    return xy + (_weighted_mean(around) if subpixel == "mean" else _quadratic_peak(around))


def _neighbourhoods(score_map: Tensor, peaks: Peaks) -> Annotated[Tensor, "3 3 num_peaks"]:
    """The 3x3 scores around each peak; beyond the rim the rim is repeated."""
    height, width = score_map.shape
    steps = torch.arange(-1, 2, device=score_map.device)[:, None]
    rows, columns = (peaks.y + steps).clamp(0, height - 1), (peaks.x + steps).clamp(0, width - 1)
    return score_map.reshape(-1)[(rows * width)[:, None] + columns]


def _weighted_mean(around: Annotated[Tensor, "3 3 num_peaks"]) -> Annotated[Tensor, "num_peaks 2"]:
    """The paper's: the mean of the nine positions, weighted by their scores (negative ones count 0)."""
    weights = around.clamp(min=0)
    total = weights.sum(dim=(0, 1)).clamp(min=torch.finfo(around.dtype).tiny)
    x = (weights[:, 2] - weights[:, 0]).sum(dim=0) / total
    y = (weights[2] - weights[0]).sum(dim=0) / total
    return torch.stack([x, y], dim=-1)


def _quadratic_peak(around: Annotated[Tensor, "3 3 num_peaks"]) -> Annotated[Tensor, "num_peaks 2"]:
    """The top of the quadratic through the neighbourhood, at most half a pixel away in x and in y.

    Where the mixed term would make the surface open upwards, each direction is fitted by itself.
    """
    centre, left, right, up, down = around[1, 1], around[1, 0], around[1, 2], around[0, 1], around[2, 1]
    gradient_x, gradient_y = (right - left) / 2, (down - up) / 2
    smallest = torch.finfo(around.dtype).tiny
    curve_x, curve_y = (2 * centre - left - right).clamp(min=smallest), (2 * centre - up - down).clamp(min=smallest)
    mixed = (around[0, 0] + around[2, 2] - around[0, 2] - around[2, 0]) / 4
    determinant = curve_x * curve_y - mixed * mixed
    joint = determinant > 0.05 * curve_x * curve_y
    determinant = torch.where(joint, determinant, torch.ones_like(determinant))
    x = torch.where(joint, (curve_y * gradient_x + mixed * gradient_y) / determinant, gradient_x / curve_x)
    y = torch.where(joint, (curve_x * gradient_y + mixed * gradient_x) / determinant, gradient_y / curve_y)
    return torch.stack([x, y], dim=-1).clamp_(-0.5, 0.5)
