"""Better, or not worth it: a plain sentence, and the rule behind it.

Every pair is measured twice, so that what counts is the mean of differences. How sure it is comes from drawing the photos
again with replacement (pairs of one photo are not independent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posfeat.adapt.measure import Measured, Numbers, precision, right_matches
from posfeat.benchmarks.relative_pose import PoseScore
from posfeat.types import Array

_DRAWS = 2000
_SURE = 0.9
_LEAST_GAIN = 0.01  # of precision or right matches, relative: less is not worth another file of weights
_TOLERATED = 0.02  # by so much another number may fall


@dataclass(frozen=True)
class Verdict:
    """Whether to use the tuned weights."""

    better: bool
    sentence: str
    precision_gain: float  # at 3 px, relative to before
    precision_sure: float  # share of draws in which precision rose
    right_gain: float  # of right matches, relative
    auc10_gain: float | None  # in points of 100


def judge(before: Measured, after: Measured, start_name: str, by_place: bool) -> Verdict:
    """Compare two models on the same held-out pairs."""
    gains = _relative(before, after)
    sure_precision = _certainty(before.scores, _differences(before.scores, after.scores, precision_of))
    sure_right = _certainty(before.scores, _differences(before.scores, after.scores, right_of))
    auc = _auc10_gain(before.numbers, after.numbers)
    nothing_lost = min(gains) >= -_TOLERATED and (auc is None or auc >= -100 * _TOLERATED)
    risen = (gains[0] >= _LEAST_GAIN and sure_precision >= _SURE) or (gains[1] >= _LEAST_GAIN and sure_right >= _SURE)
    better = bool(nothing_lost and risen)
    return Verdict(better, _sentence(better, gains, auc, start_name, by_place), gains[0], sure_precision, gains[1], auc)


def unchanged(start_name: str) -> Verdict:
    """What to say where validation liked the start weights best."""
    sentence = (
        f"Not worth it: no mixture with the tuned weights beat the old ones on validation pairs. Keep {start_name}."
    )
    return Verdict(False, sentence, 0.0, 0.0, 0.0, None)


def merit(numbers: Numbers, start: Numbers) -> float:
    """By how much precision and right matches grow, alike: the number that chooses among mixtures of weights."""
    ratios = [
        (numbers.precision_3px + 1e-4) / (start.precision_3px + 1e-4),
        (numbers.right_matches + 0.1) / (start.right_matches + 0.1),
    ]
    return float(np.log(ratios).mean())


def precision_of(score: PoseScore) -> float:
    """The share of a pair's matches within 3 px."""
    return precision(score)


def right_of(score: PoseScore) -> float:
    """The number of a pair's matches within 3 px."""
    return right_matches(score)


def _relative(before: Measured, after: Measured) -> tuple[float, float]:
    old, new = before.numbers, after.numbers
    return (
        new.precision_3px / max(old.precision_3px, 1e-9) - 1,
        new.right_matches / max(old.right_matches, 1e-9) - 1,
    )


def _auc10_gain(before: Numbers, after: Numbers) -> float | None:
    return None if before.auc is None or after.auc is None else 100 * (after.auc[1] - before.auc[1])


def _differences(before: Sequence[PoseScore], after: Sequence[PoseScore], value_of) -> Array:  # type: ignore[no-untyped-def]
    return np.array([value_of(new) - value_of(old) for old, new in zip(before, after, strict=True)])


def _certainty(scores: Sequence[PoseScore], differences: Array) -> float:
    """The share of draws of photos in which the mean difference is above 0; a pair counts as often as both its photos do."""
    names, index = np.unique([name for s in scores for name in (s.name0, s.name1)], return_inverse=True)
    ends = index.reshape(-1, 2)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_DRAWS)
    weights = drawn[:, ends[:, 0]] * drawn[:, ends[:, 1]]
    counted = weights.sum(axis=1) > 0
    return float(((weights @ differences)[counted] > 0).mean()) if counted.any() else 0.0


def _sentence(better: bool, gains: tuple[float, float], auc: float | None, start_name: str, by_place: bool) -> str:
    poses = "" if auc is None else f", pose AUC@10 by {auc:+.1f} points"
    change = f"precision of matches at 3 px changed by {gains[0]:+.1%}, right matches by {gains[1]:+.1%}{poses}"
    where = "on places never trained on" if by_place else "on photos never trained on, of the same place"
    if better:
        return f"Better: {change}, {where}. Use the new weights."
    return f"Not worth it: {change}, {where}. Keep {start_name}."
