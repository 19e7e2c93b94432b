"""Features of several images of one size at once, for accelerators: nothing waits for the device until all is computed.

How many keypoints an image has is known only when its score map is, and asking for that number would stop the host. So
every image gets as many as are wanted at most, those that are none with a score of -inf, and these are cut off at the end.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posfeat.networks.descriptor_sampling import sample_descriptors
from posfeat.networks.inference import FastNetworks
from posfeat.networks.keypoint_selection import Peaks, SelectionOptions, peak_map, refine_positions
from posfeat.types import Features

_NONE = float("-inf")


def batch_features(
    networks: FastNetworks,
    pixels: Annotated[npt.NDArray[np.uint8], "batch height width 3"],
    region: tuple[int, int, int, int],
    allowed: Annotated[npt.NDArray[np.bool_], "height width"] | None,
    selection: SelectionOptions,
) -> list[Features]:
    """The best features of each image that lie in [left, right) x [top, bottom) and where ``allowed``."""
    maps = networks.dense(pixels)
    score_maps = maps.scores.float()
    wanted = peak_map(score_maps, selection) & _in_region(score_maps, region)
    if allowed is not None:
        wanted &= torch.from_numpy(allowed).to(wanted.device)
    found = _best(torch.where(wanted, score_maps, _NONE)[:, 0], selection.max_keypoints)
    xy = [
        refine_positions(score_map[0], Peaks(*columns), selection.subpixel)
        for score_map, *columns in zip(score_maps, *found, strict=True)
    ]
    descriptors = [
        sample_descriptors(map_[None], positions, networks.descriptor_stride)
        for map_, positions in zip(maps.descriptors, xy, strict=True)
    ]
    size = (pixels.shape[2], pixels.shape[1])
    fetched = (part.cpu() for part in (torch.stack(xy), found.scores, torch.stack(descriptors)))
    return [_cut(positions, scores, rows, size) for positions, scores, rows in zip(*fetched, strict=True)]


def _in_region(score_maps: Tensor, region: tuple[int, int, int, int]) -> Annotated[Tensor, "height width"]:
    left, top, right, bottom = region
    inside = torch.zeros(score_maps.shape[-2:], dtype=torch.bool, device=score_maps.device)
    inside[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = True
    return inside


def _best(score_maps: Annotated[Tensor, "batch height width"], count: int) -> Peaks:
    """The ``count`` highest of each map, best first, as (batch, count)."""
    width = score_maps.shape[2]
    scores, index = score_maps.flatten(1).topk(min(count, score_maps[0].numel()), dim=1)
    y = torch.div(index, width, rounding_mode="floor")
    return Peaks(index - y * width, y, scores)


def _cut(xy: Tensor, scores: Tensor, descriptors: Tensor, size: tuple[int, int]) -> Features:
    """Without those that are none, in memory of their own; they stand last."""
    count = int((scores > _NONE).sum())
    return Features(xy[:count].clone(), scores[:count].clone(), descriptors[:count].clone(), size)
