"""Which matches of a pair agree on one epipolar geometry: what a picture colours and a summary counts.

Cameras are unknown here, so the geometry is a fundamental matrix; a flat scene or a mere turn of the camera satisfies
many of them, and its matches count as verified too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from posfeat.types import Features, Matches

FEWEST_MATCHES = 8  # any seven matches agree on some geometry, so seven prove nothing
CONFIDENCE = 0.9999
MOST_TRIALS = 10_000


def matched_positions(
    features0: Features, features1: Features, matches: Matches
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Positions (M, 2) of the matched keypoints in image 0 and in image 1."""
    indices = matches.indices.cpu()
    xy0 = features0.keypoints.cpu()[indices[:, 0]].numpy()
    xy1 = features1.keypoints.cpu()[indices[:, 1]].numpy()
    return xy0, xy1


def verified(
    xy0: npt.NDArray[np.float32], xy1: npt.NDArray[np.float32], threshold_px: float = 1.5
) -> npt.NDArray[np.bool_]:
    """Which matched positions (M, 2) fit the epipolar geometry that most of them support (MAGSAC, the same each time)."""
    import cv2

    nothing = np.zeros(len(xy0), dtype=bool)
    if len(xy0) < FEWEST_MATCHES:
        return nothing
    cv2.setRNGSeed(0)
    try:
        _, mask = cv2.findFundamentalMat(xy0, xy1, cv2.USAC_MAGSAC, threshold_px, CONFIDENCE, MOST_TRIALS)
    except cv2.error:  # positions that all coincide, for one
        return nothing
    if mask is None or mask.sum() < FEWEST_MATCHES:
        return nothing
    return mask.ravel().astype(bool)
