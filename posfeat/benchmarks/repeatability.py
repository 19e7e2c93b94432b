"""Whether a detector finds the same points again: two views rendered from a photo, where the truth is known at every pixel.

Of the keypoints of view 0 that view 1 shows as well, repeatability is the share that have a keypoint of view 1 within 3 px of
their true position. Points that crowd together are found again more easily, so the share of the image's cells that hold a
keypoint is told beside it, and what the keypoints are worth once they are matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from posfeat.benchmarks.homography_scores import FeaturesOf, Matcher, Progress
from posfeat.benchmarks.metrics import mma_score, share_within
from posfeat.data.augment import PhotometricOptions
from posfeat.data.images import write_image
from posfeat.data.photo_source import PhotoSource
from posfeat.data.synthetic import SyntheticOptions
from posfeat.geometry.pixels import sample_map
from posfeat.options import check_options, described, nested
from posfeat.types import Features

DISTANCES_PX = (1.0, 3.0)
CELL_PX = 32  # of the grid on which spread is counted


@dataclass(frozen=True)
class RenderingOptions:
    """Which views are rendered."""

    pairs: int = described(50, "pairs of views", low=1)
    width: int = described(640, "width of a view in pixels", low=64)
    height: int = described(480, "height of a view in pixels", low=64)
    views: SyntheticOptions = nested(SyntheticOptions, "how different the two views of a photo may be")
    look: PhotometricOptions = nested(PhotometricOptions, "how the views' looks are changed")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class RenderedPair:
    """Files of two views, and of the true position in view 1 of every pixel of view 0 (NaN where it is not seen)."""

    photo: str
    image0: Path
    image1: Path
    truth: Path


@dataclass(frozen=True)
class PairRepeatability:
    """One method on one pair."""

    photo: str
    keypoints0: int
    keypoints1: int
    seen: int  # keypoints of view 0 that view 1 shows as well
    repeatability: tuple[float, ...]  # within 1 and 3 px
    spread: float  # share of both images' cells that hold a keypoint
    matches: int
    accuracy: tuple[float, ...]  # share of matches within 1..10 px


@dataclass(frozen=True)
class RepeatabilitySummary:
    """Means over pairs."""

    pairs: int
    keypoints: float
    repeatability: tuple[float, ...]
    standard_error: tuple[float, ...]  # of the means over pairs
    spread: float
    matches: float
    mma_score: float
    mma_1px: float


def render_pairs(
    photos: Sequence[Path], folder: Path, options: RenderingOptions, seed: int, progress: Progress | None = None
) -> list[RenderedPair]:
    """Views of randomly drawn photos, as files of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    source = PhotoSource(list(photos), replace(options.views, correspondences=True), options.look)
    pairs = []
    for number in range(options.pairs):
        sample = source.draw(np.random.default_rng((seed, number)), options.height, options.width)
        pair = RenderedPair(
            sample.name, folder / f"{number:04d}_0.png", folder / f"{number:04d}_1.png", folder / f"{number:04d}.npy"
        )
        write_image(pair.image0, sample.image0)
        write_image(pair.image1, sample.image1)
        assert sample.map1_from_map0 is not None
        np.save(pair.truth, sample.map1_from_map0)
        pairs.append(pair)
        if progress is not None:
            progress(number + 1, options.pairs)
    return pairs


def score_pairs(
    pairs: Sequence[RenderedPair], features_of: FeaturesOf, matcher: Matcher, progress: Progress | None = None
) -> list[PairRepeatability]:
    """Score one pair after another."""
    scores = []
    for done, pair in enumerate(pairs, start=1):
        truth = torch.from_numpy(np.load(pair.truth, allow_pickle=False))
        features0, features1 = features_of(pair.image0), features_of(pair.image1)
        scores.append(score_pair(pair.photo, features0, features1, truth, matcher))
        if progress is not None:
            progress(done, len(pairs))
    return scores


def score_pair(
    photo: str,
    features0: Features,
    features1: Features,
    map1_from_map0: Annotated[Tensor, "height width 2"],
    matcher: Matcher,
) -> PairRepeatability:
    """Which keypoints of view 0 come again in view 1, and which matches are right; nothing to find again scores 0."""
    true1 = true_positions(map1_from_map0, features0.keypoints)
    seen = true1[~true1.isnan().any(dim=1)]
    if len(seen) and len(features1):
        nearest = torch.cdist(seen, features1.keypoints.double()).amin(dim=1)
    else:
        nearest = seen.new_full((len(seen),), float("inf"))
    indices = matcher(features0, features1).indices
    errors = (true1[indices[:, 0]] - features1.keypoints[indices[:, 1]].double()).norm(dim=1).nan_to_num(float("inf"))
    return PairRepeatability(
        photo,
        len(features0),
        len(features1),
        len(seen),
        tuple(share_within(nearest, DISTANCES_PX).tolist()),
        (spread(features0) + spread(features1)) / 2,
        len(indices),
        tuple(share_within(errors).tolist()),
    )


def true_positions(
    map1_from_map0: Annotated[Tensor, "height width 2"], xy0: Annotated[Tensor, "points 2"]
) -> Annotated[Tensor, "points 2"]:
    """Where points of view 0 are in view 1; NaN where view 1 does not show them."""
    return sample_map(map1_from_map0.double().permute(2, 0, 1)[None], xy0.double()[None])[0].T


def spread(features: Features) -> float:
    """Share of the image's cells that hold a keypoint."""
    columns, rows = (-(-side // CELL_PX) for side in features.image_size)
    column, row = ((features.keypoints + 0.5) / CELL_PX).floor().long().T
    held = torch.unique(row.clamp(0, rows - 1) * columns + column.clamp(0, columns - 1))
    return len(held) / (rows * columns)


def summarise_repeatability(scores: Sequence[PairRepeatability]) -> RepeatabilitySummary:
    """Means over pairs."""
    shares = torch.tensor([score.repeatability for score in scores], dtype=torch.float64)
    mma = torch.tensor([score.accuracy for score in scores], dtype=torch.float64).mean(dim=0)
    deviation = shares.std(dim=0) if len(scores) > 1 else torch.zeros(len(DISTANCES_PX), dtype=torch.float64)
    return RepeatabilitySummary(
        pairs=len(scores),
        keypoints=sum(score.keypoints0 + score.keypoints1 for score in scores) / (2 * len(scores)),
        repeatability=tuple(shares.mean(dim=0).tolist()),
        standard_error=tuple((deviation / len(scores) ** 0.5).tolist()),
        spread=sum(score.spread for score in scores) / len(scores),
        matches=sum(score.matches for score in scores) / len(scores),
        mma_score=mma_score(mma),
        mma_1px=float(mma[0]),
    )
