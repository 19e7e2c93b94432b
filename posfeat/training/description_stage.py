"""Stage 1: the description network learns from epipolar lines (Section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posfeat.geometry.pose import invert_pose
from posfeat.losses.epipolar_loss import epipolar_loss
from posfeat.losses.epipolar_targets import EpipolarTargets, epipolar_targets
from posfeat.losses.line_contrast import line_contrast_loss
from posfeat.losses.line_to_window import SearchOptions, search_line_to_window
from posfeat.losses.query_points import grid_query_points
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested
from posfeat.training.stage import Stage, StageLoss
from posfeat.types import DescriptionMaps, PairBatch


@dataclass(frozen=True)
class DescriptionOptions:
    """The description stage's losses."""

    query_cell_px: int = described(16, "one random query point in each cell of this size (g_d)", low=2)
    search: SearchOptions = nested(SearchOptions, "line-to-window search")
    epipolar_weight: float = described(1.0, "weight of the paper's epipolar loss, in pixels", low=0)
    contrast_weight: float = described(0.0, "weight of the line contrast (beyond the paper)", low=0)
    contrast_band_px: float = described(4.0, "half width of the band around the line that counts as near it", low=0.5)

    def __post_init__(self) -> None:
        check_options(self)


class DescriptionStage(Stage):
    """Trains ``model.description``; the detector is left alone."""

    def __init__(self, model: PoSFeat, options: DescriptionOptions) -> None:
        super().__init__()
        self.model, self.options = model, options
        model.detection.requires_grad_(False)
        self.prepare()

    def prepare(self) -> None:
        self.model.description.train()
        self.model.detection.eval()

    def forward(self, batch: PairBatch, generators: list[torch.Generator]) -> StageLoss:
        maps = self.model.description(torch.cat([batch.image0, batch.image1]))
        return description_loss(maps, batch, self.options, generators, self.model.description.stride)


def description_loss(
    maps: DescriptionMaps, batch: PairBatch, options: DescriptionOptions, generators: list[torch.Generator], stride: int
) -> StageLoss:
    """The loss of both directions, from the maps of all images 0 followed by all images 1."""
    height, width = batch.image0.shape[-2:]
    draws = [_draw(height, width, options.query_cell_px, generator) for _ in range(2) for generator in generators]
    xy, uniform = (torch.stack(parts).to(batch.image0.device) for parts in zip(*draws, strict=True))
    targets = _both_ways(batch, xy, height, width)
    own, other = maps.descriptors, torch.cat(maps.descriptors.chunk(2)[::-1])
    band = options.contrast_band_px if options.contrast_weight > 0 else None
    search = search_line_to_window(own, other, xy, targets, options.search, stride, band, uniform)
    distance, counted = epipolar_loss(search, targets, min(height, width))
    contrast = line_contrast_loss(search.log_mass, targets.valid)
    # the sum over both directions, the mean over pairs
    loss = 2 * (options.epipolar_weight * distance + options.contrast_weight * contrast).mean()
    metrics = {
        "epipolar_px": float(distance.detach().mean()),
        "valid_share": float(counted.float().mean()),
        "sigma": float(search.sigma.detach()[counted].mean()) if bool(counted.any()) else 0.0,
    }
    if band is not None:
        metrics["line_contrast"] = float(contrast.detach().mean())
    return StageLoss(loss, metrics)


def _draw(height: int, width: int, cell_px: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Query points of one image, and the random numbers of their windows."""
    xy = grid_query_points(height, width, cell_px, generator)
    return xy, torch.rand(xy.shape, generator=generator)


def _both_ways(batch: PairBatch, xy: Tensor, height: int, width: int) -> EpipolarTargets:
    return epipolar_targets(
        xy,
        torch.cat([batch.intrinsics0, batch.intrinsics1]),
        torch.cat([batch.intrinsics1, batch.intrinsics0]),
        torch.cat([batch.cam1_from_cam0, invert_pose(batch.cam1_from_cam0)]),
        torch.cat([batch.has_baseline, batch.has_baseline]),
        height,
        width,
    )
