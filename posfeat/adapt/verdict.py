"""Better, or not worth it: a plain sentence, and the rule behind it.

Every pair is measured twice, so that what counts is the mean of differences. How sure it is comes from drawing the photos
again with replacement (pairs of one photo are not independent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from posfeat.adapt.measure import Measured, Numbers, precision, right_matches
from posfeat.benchmarks.relative_pose import PoseScore
from posfeat.types import Array

_DRAWS = 2000
_SURE = 0.9  # the share of draws that decides
_LEAST_GAIN = 0.01  # less is not worth another file of weights
_LEAST_LOSS = 0.02  # less, in one number, does not outweigh a sure gain in another
_POSE_DEG = 10.0


@dataclass(frozen=True)
class Change:
    """One number before and after, as means over the same pairs; ``rises`` is the share of draws in which it grows."""

    before: float
    after: float
    rises: float

    @property
    def gain(self) -> float:
        """Relative to before."""
        return self.after / max(self.before, 1e-9) - 1

    @property
    def surely_better(self) -> bool:
        """Whether it grows, by enough to matter."""
        return self.rises >= _SURE and self.gain >= _LEAST_GAIN

    @property
    def surely_worse(self) -> bool:
        """Whether it falls, by enough to matter."""
        return self.rises <= 1 - _SURE and self.gain <= -_LEAST_LOSS


@dataclass(frozen=True)
class Verdict:
    """Whether to use the tuned weights; ``poses`` is nearly the pose AUC@10 and None without PoseLib."""

    better: bool
    sentence: str
    precision: Change | None = None
    right_matches: Change | None = None
    poses: Change | None = None


def judge(before: Measured, after: Measured, start_name: str, by_place: bool) -> Verdict:
    """Better is what is surely better in one of the numbers, and surely worse in none."""
    precisions = _change(before.scores, after.scores, precision)
    matches = _change(before.scores, after.scores, right_matches)
    poses = None if before.numbers.auc is None else _change(before.scores, after.scores, pose_value)
    changes = [change for change in (precisions, matches, poses) if change is not None]
    better = any(change.surely_better for change in changes) and not any(change.surely_worse for change in changes)
    words = f"precision of matches at 3 px changed by {precisions.gain:+.1%}, right matches by {matches.gain:+.1%}"
    if before.numbers.auc is not None and after.numbers.auc is not None:
        words += f", pose AUC@10 by {100 * (after.numbers.auc[1] - before.numbers.auc[1]):+.1f} points"
    where = "on places never trained on" if by_place else "on photos never trained on, of the same place"
    advice = "Use the new weights." if better else f"Keep {start_name}."
    sentence = f"{'Better' if better else 'Not worth it'}: {words}, {where}. {advice}"
    return Verdict(better, sentence, precisions, matches, poses)


def unchanged(start_name: str) -> Verdict:
    """What to say where validation liked the start weights best."""
    sentence = (
        f"Not worth it: no mixture with the tuned weights beat the old ones on validation pairs. Keep {start_name}."
    )
    return Verdict(False, sentence)


def merit(numbers: Numbers, start: Numbers) -> float:
    """By how much precision, right matches and poses get better, alike: the number that chooses among mixtures of weights."""
    ratios = [
        (numbers.precision_3px + 1e-4) / (start.precision_3px + 1e-4),
        (numbers.right_matches + 0.1) / (start.right_matches + 0.1),
    ]
    if numbers.auc is not None and start.auc is not None:
        ratios.append((numbers.auc[1] + 0.05) / (start.auc[1] + 0.05))
    return float(np.log(ratios).mean())


def pose_value(score: PoseScore) -> float:
    """What a pair adds to the area under recall over error up to 10 degrees."""
    return max(0.0, 1 - score.error_deg / _POSE_DEG)


def _change(before: Sequence[PoseScore], after: Sequence[PoseScore], value_of: Callable[[PoseScore], float]) -> Change:
    old, new = (np.array([value_of(score) for score in scores]) for scores in (before, after))
    return Change(float(old.mean()), float(new.mean()), _rises(before, new - old))


def _rises(scores: Sequence[PoseScore], differences: Array) -> float:
    """The share of draws of photos in which the mean difference is above 0; a pair counts as often as both its photos do."""
    names, index = np.unique([name for s in scores for name in (s.name0, s.name1)], return_inverse=True)
    ends = index.reshape(-1, 2)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_DRAWS)
    weights = drawn[:, ends[:, 0]] * drawn[:, ends[:, 1]]
    counted = weights.sum(axis=1) > 0
    return float(((weights @ differences)[counted] > 0).mean()) if counted.any() else 0.0
