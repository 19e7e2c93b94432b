"""How likely it is that so many matches agree with a pose by mere chance (a contrario; Moisan and Stival, 2004)."""

from __future__ import annotations

import math

_SAMPLE = 4  # matches that settle a pose, and so agree with it in any case


def log10_chance_poses(num_matches: int, num_inliers: int, limit_px: float, width: int, height: int) -> float:
    """Logarithm of the number of poses that as many matches would agree with if all matches were wrong.

    A wrong match falls within ``limit_px`` of its place with the probability of that disc in the photo. Below 0 such a
    pose is not expected even once.
    """
    if num_inliers <= _SAMPLE:
        return math.inf
    probability = min(1.0, math.pi * limit_px**2 / (width * height))
    return (
        math.log10(max(num_matches - _SAMPLE, 1))
        + _log10_choose(num_matches, num_inliers)
        + _log10_choose(num_inliers, _SAMPLE)
        + (num_inliers - _SAMPLE) * math.log10(probability)
    )


def _log10_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
