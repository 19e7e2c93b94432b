"""Pictures to lay over a photo: scores, descriptors as colours, similarity to one keypoint. Each has the size looked at."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posfeat.data.images import RGB, resize_image
from posfeat.page.methods import MAP_STRIDE, DenseMaps

PCA_SAMPLES = 4096
# dark to bright, so that it reads without colours too: black, violet, red, orange, light yellow
_RAMP = np.array([[0, 0, 4], [80, 18, 123], [182, 54, 121], [251, 136, 97], [252, 253, 191]], dtype=np.float32)


def score_overlay(maps: DenseMaps) -> RGB:
    """The detector's score map, stretched to its own range; dark is low."""
    scores = maps.scores
    low, high = float(scores.min()), float(np.quantile(scores[::2, ::2], 0.999))
    # the square root shows what lies between the peaks
    return coloured(np.sqrt(np.clip((scores - low) / max(high - low, 1e-9), 0, 1)))


def similarity_overlay(maps: DenseMaps, descriptor: Annotated[Tensor, "dim"]) -> RGB:
    """How alike each place is to one descriptor: from nothing in common (dark) to the most alike place (bright)."""
    similarity = (maps.descriptors.float() @ descriptor.float()).numpy()
    low, high = float(np.quantile(similarity, 0.5)), float(similarity.max())
    return _at_full_size(coloured(np.clip((similarity - low) / max(high - low, 1e-9), 0, 1)), maps)


def descriptor_overlay(maps: DenseMaps, other: DenseMaps | None = None) -> RGB:
    """The three principal directions of the descriptors as red, green and blue, the same for both photos of a pair."""
    both = [_sample(m) for m in (maps, other) if m is not None]
    rows = torch.cat(both)
    middle = rows.mean(dim=0)
    _, _, directions = torch.linalg.svd(rows - middle, full_matrices=False)
    directions = directions[:3]
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    directions = directions * largest.sign()  # a direction and its opposite are one: take the same each time
    projected = (rows - middle) @ directions.T
    low, high = (torch.quantile(projected, q, dim=0) for q in (0.02, 0.98))
    values = (maps.descriptors.float() - middle) @ directions.T
    pixels = ((values - low) / (high - low).clamp(min=1e-6)).clamp(0, 1) * 255
    return _at_full_size(pixels.round().to(torch.uint8).numpy(), maps)


def coloured(values: npt.NDArray[np.float32]) -> RGB:
    """Values in [0, 1] as colours."""
    places = np.linspace(0, 1, len(_RAMP))
    table = np.stack([np.interp(np.linspace(0, 1, 256), places, channel) for channel in _RAMP.T], axis=1)
    return table.round().astype(np.uint8)[np.rint(values * 255).astype(np.uint8)]


def _sample(maps: DenseMaps) -> Annotated[Tensor, "num_samples dim"]:
    flat = maps.descriptors.flatten(0, 1)
    return flat[:: max(1, len(flat) // PCA_SAMPLES)].float()


def _at_full_size(cells: RGB, maps: DenseMaps) -> RGB:
    """A picture of cells enlarged to pixels, without the padding at its right and bottom."""
    height, width = maps.scores.shape
    large = resize_image(np.ascontiguousarray(cells), cells.shape[1] * MAP_STRIDE, cells.shape[0] * MAP_STRIDE)
    return np.ascontiguousarray(large[:height, :width])
