"""Descriptor maps that know the truth: random Fourier features of where each cell's content lies in image 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posfeat.data.loader import batch_samples
from posfeat.data.random_views import ViewOptions
from posfeat.data.synthetic import SyntheticOptions, render_pair
from posfeat.geometry.pixels import pixel_from_cell, pixel_grid, sample_map
from posfeat.types import PairBatch

LENGTH_PX = 24.0  # of a similarity peak: wide enough for an expectation over cells of 4 px to be exact


@dataclass(frozen=True)
class PerfectPair:
    """A rendered pair with its truth and perfect maps."""

    batch: PairBatch
    map0: Tensor
    map1: Tensor

    def truth(self, xy0: Tensor) -> Tensor:
        """True positions in image 1; NaN where unseen."""
        assert self.batch.map1_from_map0 is not None
        return sample_map(self.batch.map1_from_map0.permute(0, 3, 1, 2).to(xy0), xy0).transpose(1, 2)


def perfect_pair(seed: int, height: int = 240, width: int = 320, dim: int = 256) -> PerfectPair:
    """A rendered pair whose two maps hold the same feature wherever they show the same point of the scene."""
    rng = np.random.default_rng(seed)
    photo = rng.integers(0, 255, (300, 400, 3), dtype=np.uint8)
    views = ViewOptions(any_roll_share=0.0, strong_zoom_share=0.0, strong_tilt_share=0.0, no_baseline_share=0.0)
    sample = render_pair(photo, height, width, rng, SyntheticOptions(views=views, correspondences=True))
    batch = batch_samples([sample])
    cells = pixel_from_cell(pixel_grid(height // 4, width // 4), 4)
    assert batch.map1_from_map0 is not None
    truth = sample_map(batch.map1_from_map0.permute(0, 3, 1, 2), cells[None])[0].permute(1, 2, 0)
    # what image 1 does not show gets features of far away places of their own
    far = 1e4 + 300 * cells
    return PerfectPair(batch, _features(torch.where(truth.isnan(), far, truth), dim), _features(cells, dim))


def _features(xy: Tensor, dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    frequency = torch.randn(2, dim // 2, generator=generator) / LENGTH_PX
    phase = xy @ frequency
    return torch.cat([phase.cos(), phase.sin()], dim=-1).permute(2, 0, 1)[None] / (dim / 2) ** 0.5
