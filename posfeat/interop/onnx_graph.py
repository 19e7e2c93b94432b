"""The whole way from pixels to keypoints and descriptors as one graph, for ONNX: any image size, any number of keypoints.

Inputs and outputs are those of the ALIKED models that COLMAP 4 loads, so that COLMAP can load ours in their place:
``image`` (1, 3, H, W) RGB in [0, 1], ``max_keypoints`` and ``min_score``; ``keypoints`` (1, K, 2) in [-1, 1] with -1 and 1
at the centres of the outer pixels, ``descriptors`` (1, K, dim) of unit length, and ``scores`` (1, K), best first.
Scores lie in [LOWEST_SCORE, 1]: COLMAP leaves out what is below 0.2 unless told otherwise, and here the threshold of
selection has decided already what counts.

The steps are those of networks.keypoint_selection and networks.descriptor_sampling, written so that no size is fixed
when they are traced.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posfeat.data.images import IMAGENET_MEAN, IMAGENET_STD
from posfeat.networks.inference import inference_copy
from posfeat.networks.keypoint_selection import Peaks, SelectionOptions, peak_map, refine_positions
from posfeat.networks.posfeat import DenseNetworks, PoSFeat
from posfeat.networks.tiling import ALIGNMENT_PX

LOWEST_SCORE = 0.201


class KeypointGraph(nn.Module):
    """Pixels to keypoints, descriptors and scores."""

    def __init__(self, model: PoSFeat, selection: SelectionOptions, dtype: torch.dtype) -> None:
        super().__init__()
        self.selection, self.stride, self.dtype = selection, model.description.stride, dtype
        self.networks = inference_copy(
            DenseNetworks(model.description, model.detection),
            dtype,
            torch.zeros(1, 3, 4 * ALIGNMENT_PX, 4 * ALIGNMENT_PX),
            portable=True,
        )
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(IMAGENET_STD)[:, None, None])
        self.mean: Tensor
        self.std: Tensor

    def forward(
        self,
        image: Annotated[Tensor, "1 3 height width"],
        max_keypoints: Annotated[Tensor, ""],
        min_score: Annotated[Tensor, ""],
    ) -> tuple[
        Annotated[Tensor, "1 num_keypoints 2"],
        Annotated[Tensor, "1 num_keypoints dim"],
        Annotated[Tensor, "1 num_keypoints"],
    ]:
        descriptors, score_map = self._dense(image)
        peaks = _best_peaks(score_map, self.selection, max_keypoints, uncalibrated(min_score))
        xy = refine_positions(score_map, peaks, self.selection.subpixel)
        last = (torch._shape_as_tensor(image)[[3, 2]] - 1).to(xy.dtype)
        sampled = _sample(descriptors, xy, self.stride)
        return (xy * 2 / last - 1)[None], sampled[None], calibrated(peaks.scores)[None]

    def _dense(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Descriptor map, and score map (H, W)."""
        height, width = image.shape[-2:]
        right, bottom = ((ALIGNMENT_PX - size % ALIGNMENT_PX) % ALIGNMENT_PX for size in (width, height))
        padded = F.pad((image - self.mean) / self.std, (0, right, 0, bottom), mode="replicate").to(self.dtype)
        maps = self.networks.description(padded)
        scores = self.networks.detection(padded, maps)
        return maps.descriptors.float(), scores[0, 0, :height, :width].float()


def calibrated(scores: Tensor) -> Tensor:
    """Scores from [0, inf) in [LOWEST_SCORE, 1), in the same order."""
    return LOWEST_SCORE + (1 - LOWEST_SCORE) * scores / (1 + scores)


def uncalibrated(scores: Any) -> Any:
    """The inverse of calibrated, below 0 for what lies below LOWEST_SCORE."""
    share = (scores - LOWEST_SCORE) / (1 - LOWEST_SCORE)
    return share / (1 - share)


def _best_peaks(
    score_map: Annotated[Tensor, "height width"], options: SelectionOptions, max_keypoints: Tensor, lowest: Tensor
) -> Peaks:
    """What find_peaks and best_peaks give for the whole map."""
    border = options.border_px
    height, width = torch._shape_as_tensor(score_map)
    scores = score_map[None, None]
    wanted = peak_map(scores, options) & (scores > lowest)
    index = wanted.flatten().nonzero()[:, 0]
    y = torch.div(index, width, rounding_mode="floor")
    x = index - y * width
    inner = (x >= border) & (x < width - border) & (y >= border) & (y < height - border)
    index = index[inner]
    count: Any = torch.minimum(max_keypoints, torch._shape_as_tensor(index)[0])
    found, order = score_map.flatten()[index].topk(count)
    y = torch.div(index[order], width, rounding_mode="floor")
    return Peaks(index[order] - y * width, y, found)


def _sample(
    descriptors: Annotated[Tensor, "1 dim map_height map_width"], xy: Annotated[Tensor, "num_keypoints 2"], stride: int
) -> Annotated[Tensor, "num_keypoints dim"]:
    """What sample_descriptors gives."""
    size = torch._shape_as_tensor(descriptors)[[3, 2]]
    rows = descriptors[0].flatten(1).T
    cells = torch.minimum(((xy + 0.5) / stride - 0.5).clamp(min=0), (size - 1).to(xy.dtype))
    corner = torch.minimum(cells.floor(), (size - 2).to(xy.dtype))  # maps are at least 4 cells wide and high
    x, y = (cells - corner).split(1, dim=1)
    first = (corner[:, 1] * size[0] + corner[:, 0]).long()
    sampled = (rows[first] * (1 - x) + rows[first + 1] * x) * (1 - y)
    below = first + size[0]
    sampled = sampled + (rows[below] * (1 - x) + rows[below + 1] * x) * y
    return F.normalize(sampled, dim=-1)
