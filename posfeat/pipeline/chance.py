"""How likely it is that so many matches agree on something by mere chance (a contrario; Moisan and Stival, 2004)."""

from __future__ import annotations

import math

import numpy as np

from posfeat.types import Array

CERTAIN = -3.0  # once in a thousand photos, or pairs
NEIGHBOURHOOD = 4  # limits
PATCH = 8  # limits
_GEOMETRY_SAMPLE = 7


def log10_chance_poses(num_matches: int, num_inliers: int, limit_px: float, width: int, height: int) -> float:
    """Logarithm of the number of poses, or homographies, that as many matches would agree with if all were wrong.

    A wrong match falls within ``limit_px`` of its place with the probability of that disc in the photo. Below 0 such a
    pose is not expected even once.
    """
    return _log10_expected(num_matches, num_inliers, math.pi * limit_px**2 / (width * height), sample=4)


def log10_chance_geometries(distances_px: Array, xy0: Array, xy1: Array, limit_px: float) -> float:
    """The same of epipolar geometries, from the matches (M, 2), best first, and how far each lies from its line.

    Wrong matches are not spread over the photo: lawn is matched with lawn and roof with roof, so that far more of them
    than an even spread would have lie near the lines of a well-chosen geometry. But they know no line: they lie as densely
    a few limits beside it as on it, where right ones crowd within the limit. So of the matches in the neighbourhood of
    their line, a wrong one falls within the limit with the probability of the limit in the neighbourhood.
    Nor are they independent: where one eye is matched with another's, all of the face is. A patch that is matched with
    a patch counts once.
    """
    near = distances_px <= NEIGHBOURHOOD * limit_px
    patches = np.floor(np.hstack([xy0, xy1])[near] / (PATCH * limit_px))
    _, first = np.unique(patches, axis=0, return_index=True)
    num_inliers = int((distances_px[near][first] <= limit_px).sum())
    return _log10_expected(len(first), num_inliers, 1 / NEIGHBOURHOOD, sample=_GEOMETRY_SAMPLE)


def _log10_expected(num_matches: int, num_inliers: int, probability: float, sample: int) -> float:
    """The number of samples, and how likely as many of the other matches agree with what one of them says.

    ``sample`` matches settle what all are measured against, and so agree with it in any case.
    """
    if num_inliers <= sample:
        return math.inf
    return (
        math.log10(max(num_matches - sample, 1))
        + _log10_choose(num_inliers, sample)
        + _log10_at_least(num_inliers - sample, num_matches - sample, probability)
    )


def _log10_at_least(k: int, n: int, probability: float) -> float:
    """Logarithm of the probability of k or more successes out of n."""
    if k <= n * probability:
        return 0.0
    odds = math.log10(probability) - math.log10(1 - probability)
    terms = [_log10_choose(n, i) + i * odds for i in range(k, n + 1)]
    most = max(terms)
    return most + math.log10(sum(10 ** (term - most) for term in terms)) + n * math.log10(1 - probability)


def _log10_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
