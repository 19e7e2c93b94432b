"""How likely it is that so many matches agree on something by mere chance (a contrario; Moisan and Stival, 2004)."""

from __future__ import annotations

import math


def log10_chance_poses(num_matches: int, num_inliers: int, limit_px: float, width: int, height: int) -> float:
    """Logarithm of the number of poses, or homographies, that as many matches would agree with if all were wrong.

    A wrong match falls within ``limit_px`` of its place with the probability of that disc in the photo. Below 0 such a
    pose is not expected even once.
    """
    return _log10_expected(num_matches, num_inliers, math.pi * limit_px**2 / (width * height), sample=4)


def log10_chance_geometries(num_matches: int, num_inliers: int, limit_px: float, width: int, height: int) -> float:
    """The same of epipolar geometries: a wrong match falls within ``limit_px`` of its line, which crosses the photo."""
    return _log10_expected(
        num_matches, num_inliers, 2 * limit_px * math.hypot(width, height) / (width * height), sample=7
    )


def _log10_expected(num_matches: int, num_inliers: int, probability: float, sample: int) -> float:
    """``sample`` matches settle what all are measured against, and so agree with it in any case."""
    if num_inliers <= sample:
        return math.inf
    return (
        math.log10(max(num_matches - sample, 1))
        + _log10_choose(num_matches, num_inliers)
        + _log10_choose(num_inliers, sample)
        + (num_inliers - sample) * math.log10(min(1.0, probability))
    )


def _log10_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
