"""How good weights are on one's own photos: matches against known poses, poses from matches, and points found again.

Precision is the share of matches whose two points lie within 3 px of each other's epipolar line, right matches are their
number, and recall is their share of the keypoints that a photo may have. Whether a keypoint is found again needs the true
place of each pixel, which rendered views of the same photos give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from posfeat.benchmarks.metrics import POSE_THRESHOLDS_DEG, recall_auc
from posfeat.benchmarks.relative_pose import PRECISION_THRESHOLDS_PX, PoseScore, score_pose_pairs
from posfeat.benchmarks.robust_estimation import estimate_relative_pose, has_poselib
from posfeat.data.augment import PhotometricOptions
from posfeat.data.loader import PairLoader
from posfeat.data.pairs import PairOptions, limit_pairs
from posfeat.data.photo_source import PhotoSource
from posfeat.data.synthetic import SyntheticOptions
from posfeat.matching import match
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described
from posfeat.training.validation import ValidationOptions, validate
from posfeat.types import Camera, Features, Pair, PairBatch, View

RIGHT_PX = 3.0
_RENDERED_KEYPOINTS = 512  # of views of a few hundred pixels
_SEED = 7

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured before and after."""

    keypoints: int = described(1024, "keypoints of a photo", low=8)
    pairs: int = described(120, "most pairs of photos, evenly over their overlaps", low=1)
    rendered_pairs: int = described(32, "pairs of rendered views of the photos", low=4)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Numbers:
    """One model on one set of pairs."""

    pairs: int
    precision_1px: float
    precision_3px: float
    right_matches: float  # within 3 px, a pair
    recall_3px: float  # of the keypoints that a photo may have, the share that is matched rightly
    auc: tuple[float, ...] | None  # of poses, below 5, 10 and 20 degrees; None without PoseLib
    repeatability: float
    registered: int | None = None  # photos in a model of these photos alone
    photos: int = 0


@dataclass(frozen=True)
class Measured:
    """Numbers, and what they are the means of."""

    numbers: Numbers
    scores: list[PoseScore]


def chosen_pairs(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """At most so many of the pairs, easy and hard ones alike."""
    return limit_pairs(list(pairs), PairOptions(max_rotation_deg=180, max_pairs_per_scene=most))


def measure(
    model: PoSFeat,
    pairs: Sequence[Pair],
    rendered: Sequence[PairBatch],
    options: MeasureOptions,
    progress: Progress | None = None,
) -> Measured:
    """All numbers but registered photos; without rendered pairs, no repeatability either."""
    poses = has_poselib()
    scores = score_pairs(model, pairs, options.keypoints, poses, progress)
    found = _of_rendered(model, rendered, min(_RENDERED_KEYPOINTS, options.keypoints))
    right = float(np.mean([right_matches(score) for score in scores]))
    errors = torch.tensor([score.error_deg for score in scores], dtype=torch.float64)
    return Measured(
        Numbers(
            pairs=len(scores),
            precision_1px=float(np.mean([precision(score, 1.0) for score in scores])),
            precision_3px=float(np.mean([precision(score) for score in scores])),
            right_matches=right,
            recall_3px=right / options.keypoints,
            auc=tuple(recall_auc(errors, POSE_THRESHOLDS_DEG)) if poses else None,
            repeatability=found.get("repeatability", float("nan")),
        ),
        scores,
    )


def score_pairs(
    model: PoSFeat, pairs: Sequence[Pair], keypoints: int, poses: bool, progress: Progress | None = None
) -> list[PoseScore]:
    """Every pair's matches against its poses; nothing is found where a photo's mask hides it."""
    views = {view.image_path: view for pair in pairs for view in (pair.view0, pair.view1)}

    def features_of(path: Path) -> Features:
        return features_of_view(model, views[path], keypoints)

    return score_pose_pairs(pairs, features_of, match, estimate_relative_pose if poses else _no_pose, progress)


def features_of_view(model: PoSFeat, view: View, keypoints: int) -> Features:
    """A photo's features outside its mask."""
    return model.extract(view.image_path, keypoints, mask=view.mask_path)


def rendered_pairs(photos: Sequence[Path], count: int, height: int, width: int) -> list[PairBatch]:
    """The same rendered views of photos each time, with the true place of each pixel."""
    known = SyntheticOptions(correspondences=True)
    source = PhotoSource(list(photos), known, PhotometricOptions(strength=0.5))
    batch = min(8, count)
    return list(PairLoader([source], None, batch, height, width, _SEED, num_steps=max(1, count // batch)))


def rendered_mma(model: PoSFeat, rendered: Sequence[PairBatch]) -> float:
    """MMAscore on rendered pairs."""
    return _of_rendered(model, rendered, _RENDERED_KEYPOINTS).get("mma", 0.0)


def _of_rendered(model: PoSFeat, rendered: Sequence[PairBatch], keypoints: int) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        return validate(model, rendered, [], ValidationOptions(keypoints=keypoints, pictures=0), True)


def precision(score: PoseScore, limit_px: float = RIGHT_PX) -> float:
    """The share of a pair's matches that agree with its poses."""
    return score.precision[PRECISION_THRESHOLDS_PX.index(limit_px)]


def right_matches(score: PoseScore) -> float:
    """The number of a pair's matches that agree with its poses."""
    return precision(score) * score.matches


def _no_pose(xy0: torch.Tensor, xy1: torch.Tensor, camera0: Camera, camera1: Camera) -> None:
    """Nothing is estimated."""
