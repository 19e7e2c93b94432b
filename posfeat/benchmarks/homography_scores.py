"""Matching accuracy on image sequences joined by homographies: features in, the numbers of Fig. 5 and Table 1 out.

Features come from a callable that is asked once for each image, matches from another; six images are held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from posfeat.benchmarks.hpatches import HomographySequence
from posfeat.benchmarks.metrics import mma_score, recall_auc, share_within, transfer_errors
from posfeat.geometry.homography import corner_error
from posfeat.types import Features, Matches

FeaturesOf = Callable[[Path], Features]
Matcher = Callable[[Features, Features], Matches]
HomographyEstimator = Callable[[Tensor, Tensor], Tensor | None]
Progress = Callable[[int, int], None]

CORNER_THRESHOLDS_PX = (1.0, 3.0, 5.0)
CORRECT_PX = 3  # what "correct matches" means in counts


@dataclass(frozen=True)
class JudgedMatches:
    """Matched positions of a pair and their errors in image 1."""

    xy0: Annotated[Tensor, "matches 2"]
    xy1: Annotated[Tensor, "matches 2"]
    errors_px: Annotated[Tensor, "matches"]


@dataclass(frozen=True)
class PairScore:
    """One pair of a sequence: counts, and shares of matches within 1..10 px."""

    sequence: str
    change: str
    target: str  # name of the second image
    keypoints0: int
    keypoints1: int
    matches: int
    correct: int
    accuracy: tuple[float, ...]
    corner_error_px: float | None = None  # of the estimated homography; infinite where none was found


@dataclass(frozen=True)
class SplitScore:
    """Means over the pairs of a split."""

    split: str
    pairs: int
    mma: tuple[float, ...]
    mma_score: float
    keypoints: float
    matches: float
    correct: float
    homography_auc: tuple[float, ...] | None = None  # corner error below 1, 3, 5 px


def score_sequences(
    sequences: Sequence[HomographySequence],
    features_of: FeaturesOf,
    matcher: Matcher,
    estimate: HomographyEstimator | None = None,
    progress: Progress | None = None,
) -> list[PairScore]:
    """Score every pair (image 1, image k) of every sequence."""
    scores: list[PairScore] = []
    for done, sequence in enumerate(sequences):
        scores.extend(score_sequence(sequence, features_of, matcher, estimate))
        if progress is not None:
            progress(done + 1, len(sequences))
    return scores


def score_sequence(
    sequence: HomographySequence,
    features_of: FeaturesOf,
    matcher: Matcher,
    estimate: HomographyEstimator | None = None,
) -> Iterator[PairScore]:
    """Score the pairs of one sequence, reading image k's features just before they are matched."""
    features0 = features_of(sequence.reference)
    for target, homography in zip(sequence.targets, sequence.homographies, strict=True):
        features1 = features_of(target)
        true = torch.from_numpy(homography)
        matched = judge_matches(features0, features1, matcher, true)
        corner = None if estimate is None else _corner_error(matched, estimate, true, features0.image_size)
        yield PairScore(
            sequence=sequence.name,
            change=sequence.change,
            target=target.name,
            keypoints0=len(features0),
            keypoints1=len(features1),
            matches=len(matched.xy0),
            correct=int((matched.errors_px <= CORRECT_PX).sum()),
            accuracy=tuple(share_within(matched.errors_px).tolist()),
            corner_error_px=corner,
        )


def judge_matches(features0: Features, features1: Features, matcher: Matcher, homography: Tensor) -> JudgedMatches:
    """Match two images and measure how far from the truth each match is."""
    indices = matcher(features0, features1).indices
    xy0, xy1 = features0.keypoints[indices[:, 0]], features1.keypoints[indices[:, 1]]
    return JudgedMatches(xy0, xy1, transfer_errors(homography, xy0, xy1))


def summarise(scores: Sequence[PairScore]) -> list[SplitScore]:
    """Means over all pairs first, then over those of each kind of change."""
    changes = sorted({score.change for score in scores})
    return [
        _mean_over("overall", scores),
        *(_mean_over(change, [score for score in scores if score.change == change]) for change in changes),
    ]


def _mean_over(split: str, scores: Sequence[PairScore]) -> SplitScore:
    mma = torch.tensor([score.accuracy for score in scores], dtype=torch.float64).mean(dim=0)
    errors = [score.corner_error_px for score in scores if score.corner_error_px is not None]
    return SplitScore(
        split=split,
        pairs=len(scores),
        mma=tuple(mma.tolist()),
        mma_score=mma_score(mma),
        keypoints=_mean_keypoints(scores),
        matches=sum(score.matches for score in scores) / len(scores),
        correct=sum(score.correct for score in scores) / len(scores),
        homography_auc=tuple(recall_auc(torch.tensor(errors), CORNER_THRESHOLDS_PX)) if errors else None,
    )


def _mean_keypoints(scores: Sequence[PairScore]) -> float:
    """Mean over images, each counted once although a sequence's first image is in all of its pairs."""
    counts = {(score.sequence, ""): score.keypoints0 for score in scores}
    counts |= {(score.sequence, score.target): score.keypoints1 for score in scores}
    return sum(counts.values()) / len(counts)


def _corner_error(matched: JudgedMatches, estimate: HomographyEstimator, true: Tensor, size: tuple[int, int]) -> float:
    estimated = estimate(matched.xy0, matched.xy1)
    if estimated is None:
        return float("inf")
    error = corner_error(estimated.double(), true, height=size[1], width=size[0])
    return float(error) if error.isfinite() else float("inf")
