"""Judging progress by what matters: matching accuracy and repeatability on held-out pairs, never the loss.

On rendered pairs the truth is known at every pixel: ``dense_4px`` is the share of grid points whose nearest neighbour in
the whole other map lies within 4 px of the truth; with a detector, ``repeatability`` is the share of keypoints that the
other image has too (3 px) and ``mma`` the MMAscore of mutual nearest neighbours at 1..10 px. On posed photos only lines
are known: ``posed_3px`` is the share of mutual nearest neighbours within 3 px of each other's epipolar line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.benchmarks.metrics import mma_score, share_within
from posfeat.data.images import denormalise
from posfeat.geometry.epipolar import fundamental_from_cameras, symmetric_epipolar_distance
from posfeat.geometry.pixels import pixel_from_cell, sample_map
from posfeat.losses.match_distribution import unit_descriptors
from posfeat.losses.query_points import grid_query_points
from posfeat.matching import mutual_nearest
from posfeat.networks.keypoint_selection import SelectionOptions, select_keypoints
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described
from posfeat.training.stage import full_precision
from posfeat.types import DescriptionMaps, PairBatch

RGB = npt.NDArray[np.uint8]
DrawMatches = Callable[[RGB, RGB, npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], str], RGB]


@dataclass(frozen=True)
class ValidationOptions:
    """What is measured during training."""

    pairs: int = described(48, "rendered pairs of held-out photos", low=1)
    posed_pairs: int = described(48, "pairs of each held-out posed scene", low=1)
    keypoints: int = described(512, "keypoints an image for repeatability and matching", low=8)
    pictures: int = described(3, "pairs whose matches and score maps are kept as pictures", low=0)

    def __post_init__(self) -> None:
        check_options(self)


class KeypointsOfView(NamedTuple):
    """Keypoints and unit descriptors of one image of a validation pair."""

    xy: Annotated[Tensor, "points 2"]
    descriptors: Annotated[Tensor, "points dim"]


def validate(
    model: PoSFeat,
    rendered: Sequence[PairBatch],
    posed: Sequence[PairBatch],
    options: ValidationOptions,
    with_detector: bool,
    picture: Callable[[str, RGB], None] | None = None,
    draw: DrawMatches | None = None,
) -> dict[str, float]:
    """Means over pairs of held-out batches; the model is in evaluation mode."""
    rows: list[dict[str, float]] = []
    pictures_left = options.pictures if picture is not None and draw is not None else 0
    for batch in [*rendered, *posed]:
        images = torch.cat([batch.image0, batch.image1]).to(model.device)
        maps = model.description(images)
        scores = model.detection(images, maps).float() if with_detector else None
        for item in range(len(batch.image0)):
            with full_precision(images.device):
                if with_detector or batch.map1_from_map0 is None:
                    views = [_view(maps, scores, item + side * len(batch.image0), options) for side in (0, 1)]
                    row, matched = _judge_sparse(batch, item, views, with_detector)
                else:
                    row, matched = _judge_dense(batch, item, maps)
            rows.append(row)
            if pictures_left > 0 and picture is not None and draw is not None:
                number = options.pictures - pictures_left
                picture(f"matches_{number}", _drawn(batch, item, matched, draw))
                if scores is not None:
                    picture(f"scores_{number}", score_picture(scores[item, 0].cpu()))
                pictures_left -= 1
    names = sorted({name for row in rows for name in row})
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def _view(maps: DescriptionMaps, scores: Tensor | None, item: int, options: ValidationOptions) -> KeypointsOfView:
    descriptors = maps.descriptors[item : item + 1].float()
    if scores is None:
        height, width = descriptors.shape[-2] * 4, descriptors.shape[-1] * 4
        cell = max(4, int((height * width / options.keypoints) ** 0.5))
        xy = grid_query_points(height, width, cell, torch.Generator().manual_seed(item)).to(descriptors)
    else:
        xy, _ = select_keypoints(scores[item : item + 1], SelectionOptions(max_keypoints=options.keypoints))
    return KeypointsOfView(xy, unit_descriptors(descriptors, xy[None])[0])


def _judge_dense(
    batch: PairBatch, item: int, maps: DescriptionMaps
) -> tuple[dict[str, float], tuple[Tensor, Tensor, Tensor]]:
    """Nearest neighbours, in the whole map of image 1, of a grid of points of image 0."""
    map0, map1 = (maps.descriptors[item + side * len(batch.image0)].float() for side in (0, 1))
    height, width = batch.image0.shape[-2:]
    xy0 = grid_query_points(height, width, 16, torch.Generator().manual_seed(item)).to(map0)
    queries = unit_descriptors(map0[None], xy0[None])[0]
    nearest = (queries @ F.normalize(map1, dim=0).flatten(1)).argmax(dim=1)
    columns = map1.shape[-1]
    xy1 = pixel_from_cell(torch.stack([nearest % columns, nearest // columns], dim=-1).float(), 4)
    error = (xy1 - true_positions(batch, item, xy0)).norm(dim=-1)
    seen = ~error.isnan()
    if not bool(seen.any()):
        return {}, (xy0[:0], xy1[:0], seen[:0])
    row = {f"dense_{limit}px": float((error[seen] <= limit).float().mean()) for limit in (2, 4)}
    return row, (xy0[seen], xy1[seen], error[seen] <= 4)


def _judge_sparse(
    batch: PairBatch, item: int, views: list[KeypointsOfView], with_detector: bool
) -> tuple[dict[str, float], tuple[Tensor, Tensor, Tensor]]:
    """Mutual nearest neighbours of both images' keypoints, and how many keypoints come again."""
    indices, _ = mutual_nearest(views[0].descriptors, views[1].descriptors)
    xy0, xy1 = views[0].xy[indices[:, 0]], views[1].xy[indices[:, 1]]
    if batch.map1_from_map0 is None:
        cameras = (batch.intrinsics0[item].double(), batch.intrinsics1[item].double())
        fundamental = fundamental_from_cameras(*cameras, batch.cam1_from_cam0[item].double()).to(xy0.device)
        error = torch.maximum(*symmetric_epipolar_distance(fundamental, xy0.double(), xy1.double()))
        row = {f"posed_{limit}px": float((error <= limit).float().mean()) if len(error) else 0.0 for limit in (1, 3)}
        return row | {"posed_matches": float(len(error))}, (xy0, xy1, error <= 3)
    error = (true_positions(batch, item, xy0) - xy1).norm(dim=-1).nan_to_num(torch.inf)
    truth = true_positions(batch, item, views[0].xy)
    truth = truth[~truth.isnan().any(-1)]
    if not len(truth) or not len(views[1].xy):
        return {}, (xy0, xy1, error <= 3)
    nearest = torch.cdist(truth, views[1].xy).amin(dim=1)
    accuracy = share_within(error.cpu())
    row = {
        "repeatability": float((nearest <= 3).float().mean()),
        "repeatability_1px": float((nearest <= 1).float().mean()),
        "mma": mma_score(accuracy),
        "mma_1px": float(accuracy[0]),
        "matches_3px": float((error <= 3).sum()),
    }
    return row, (xy0, xy1, error <= 3)


def true_positions(batch: PairBatch, item: int, xy0: Tensor) -> Annotated[Tensor, "points 2"]:
    """Where points of image 0 really are in image 1 of a rendered pair; NaN where they are not seen."""
    assert batch.map1_from_map0 is not None
    truth = batch.map1_from_map0[item].permute(2, 0, 1)[None].to(xy0)
    return sample_map(truth, xy0[None])[0].T


def score_picture(scores: Annotated[Tensor, "height width"]) -> RGB:
    """A score map as a grey picture, stretched to its own range."""
    low, high = scores.min(), torch.quantile(scores, 0.999)
    grey = ((scores - low) / (high - low).clamp(min=1e-9)).clamp(0, 1) * 255
    return np.repeat(grey.byte().numpy()[..., None], 3, axis=2)


def _drawn(batch: PairBatch, item: int, matched: tuple[Tensor, Tensor, Tensor], draw: DrawMatches) -> RGB:
    image0, image1 = (denormalise(image[item : item + 1])[0] for image in (batch.image0, batch.image1))
    xy0, xy1, right = matched
    caption = f"{int(right.sum())} of {len(right)} right"
    return draw(image0, image1, xy0.cpu().numpy(), xy1.cpu().numpy(), right.cpu().numpy(), caption)
