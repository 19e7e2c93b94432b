"""Stage 1: the description network learns from epipolar lines (Section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posfeat.data.sift_queries import sift_query_points
from posfeat.geometry.pose import invert_pose
from posfeat.losses.coarse_to_fine import search_coarse_to_fine
from posfeat.losses.epipolar_loss import epipolar_loss
from posfeat.losses.epipolar_targets import EpipolarTargets, epipolar_targets
from posfeat.losses.line_contrast import line_contrast_loss
from posfeat.losses.line_to_window import SearchOptions, SearchResult, search_line_to_window
from posfeat.losses.query_points import grid_query_points
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested
from posfeat.training.stage import Stage, StageLoss, full_precision
from posfeat.types import DescriptionMaps, OptionsError, PairBatch


@dataclass(frozen=True)
class DescriptionOptions:
    """The description stage's losses."""

    query_cell_px: int = described(16, "one random query point in each cell of this size (g_d)", low=2)
    query_points: Literal["grid", "sift"] = described(
        "grid", "the paper's random points of a grid, or as many of SIFT's keypoints, which these replace (ablation)"
    )
    strategy: Literal["line_to_window", "coarse_to_fine"] = described(
        "line_to_window", "the paper's search, or the one it replaces (the network must have a coarse map)"
    )
    search: SearchOptions = nested(SearchOptions, "line-to-window search")
    epipolar_weight: float = described(1.0, "weight of the paper's epipolar loss, in pixels", low=0)
    contrast_weight: float = described(0.0, "weight of the line contrast (beyond the paper), at the start", low=0)
    contrast_steps: int | None = described(
        None, "steps after which the line contrast has faded out, evenly; none: it stays", low=1
    )
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

    def forward(self, batch: PairBatch, generators: list[torch.Generator], step: int = 0) -> StageLoss:
        maps = self.model.description(torch.cat([batch.image0, batch.image1]))
        with full_precision(batch.image0.device):
            return description_loss(maps, batch, self.options, generators, self.model.description.stride, step)


def contrast_weight(step: int, options: DescriptionOptions) -> float:
    """The line contrast's weight at a step (counted from 0): it helps most while the network knows nothing."""
    left = 1.0 if options.contrast_steps is None else max(0.0, 1 - step / options.contrast_steps)
    return options.contrast_weight * left


def description_loss(
    maps: DescriptionMaps,
    batch: PairBatch,
    options: DescriptionOptions,
    generators: list[torch.Generator],
    stride: int,
    step: int = 0,
) -> StageLoss:
    """The loss of both directions, from the maps of all images 0 followed by all images 1."""
    height, width = batch.image0.shape[-2:]
    xy, uniform = _draw(batch, options, [*generators, *generators])
    targets = _both_ways(batch, xy, height, width)
    of_contrast = contrast_weight(step, options)
    band = options.contrast_band_px if of_contrast > 0 else None
    searches = _search(maps, xy, targets, uniform, options, stride, band)
    judged = [epipolar_loss(search, targets, min(height, width)) for search in searches]
    distance, counted = torch.stack([loss for loss, _ in judged]).sum(0), judged[-1][1]
    loss = options.epipolar_weight * distance
    metrics = {
        "epipolar_px": float(distance.detach().mean()),
        "valid_share": float(counted.float().mean()),
        "sigma": float(searches[-1].sigma.detach()[counted].mean()) if bool(counted.any()) else 0.0,
    }
    if band is not None:
        contrast = line_contrast_loss(searches[-1].log_mass, targets.valid)
        loss = loss + of_contrast * contrast
        metrics["line_contrast"] = float(contrast.detach().mean())
    return StageLoss(2 * loss.mean(), metrics)  # the sum over both directions, the mean over pairs


def _search(
    maps: DescriptionMaps,
    xy: Tensor,
    targets: EpipolarTargets,
    uniform: Tensor,
    options: DescriptionOptions,
    stride: int,
    band_px: float | None,
) -> list[SearchResult]:
    """Where the query points are expected, from every image in its partner: one result for each level of the search."""
    own, other = maps.descriptors, _partners(maps.descriptors)
    if options.strategy == "line_to_window":
        return [search_line_to_window(own, other, xy, targets, options.search, stride, band_px, uniform)]
    if maps.coarse is None or band_px is not None:
        raise OptionsError("coarse_to_fine needs a network with coarse=true, and contrast_weight=0")
    return list(
        search_coarse_to_fine(maps.coarse, _partners(maps.coarse), own, other, xy, targets, options.search, stride)
    )


def _partners(maps: Tensor) -> Tensor:
    """Maps of images 0 then 1, as maps of images 1 then 0."""
    return torch.cat(maps.chunk(2)[::-1])


def _draw(batch: PairBatch, options: DescriptionOptions, generators: list[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Query points of all images 0, then of all images 1, and the random numbers of their windows."""
    (height, width), cell_px = batch.image0.shape[-2:], options.query_cell_px
    if options.query_points == "sift":
        images, count = torch.cat([batch.image0, batch.image1]), (height // cell_px) * (width // cell_px)
        draws = [
            (xy, torch.rand(xy.shape, generator=generator))
            for xy, generator in zip(sift_query_points(images, count, generators), generators, strict=True)
        ]
    else:
        draws = []
        for generator in generators:
            xy = grid_query_points(height, width, cell_px, generator)
            draws.append((xy, torch.rand(xy.shape, generator=generator)))
    xy, uniform = (torch.stack(parts).to(batch.image0.device) for parts in zip(*draws, strict=True))
    return xy, uniform


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
