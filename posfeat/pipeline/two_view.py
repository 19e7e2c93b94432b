"""Two photos, matched: features, matches, and which of these agree on one epipolar geometry.

Cameras are unknown here, so the geometry is a fundamental matrix; a flat scene or a mere turn of the camera satisfies
many of them, and its matches count as verified too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from posfeat.data.images import read_image, write_image
from posfeat.matching import MatchOptions, match
from posfeat.networks.extraction import read_pixels
from posfeat.pipeline.draw import draw_matches
from posfeat.pipeline.extract import Extractor
from posfeat.types import Array, Features, Matches

GeometryKind = Literal["fundamental", "homography"]
FEWEST_MATCHES = 8  # any seven matches agree on some fundamental matrix, so seven prove nothing
CONFIDENCE = 0.9999
MOST_TRIALS = 10_000


@dataclass(frozen=True)
class MatchedPhotos:
    """Two photos, their features, their matches, and which of the matches (M,) the geometry bears out."""

    path0: Path
    path1: Path
    features0: Features
    features1: Features
    matches: Matches
    verified: npt.NDArray[np.bool_]

    def positions(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Positions (M, 2) of the matched keypoints in photo 0 and in photo 1."""
        return matched_positions(self.features0, self.features1, self.matches)


def match_photos(extractor: Extractor, path0: Path, path1: Path, matching: MatchOptions) -> MatchedPhotos:
    """Features of both photos, their matches, verified."""
    features0, features1 = (extractor.extract(*read_pixels(path, None)) for path in (path0, path1))
    matches = match(features0, features1, matching)
    inliers = verified(*matched_positions(features0, features1, matches))
    return MatchedPhotos(path0, path1, features0, features1, matches, inliers)


def write_match_picture(path: Path, matched: MatchedPhotos) -> None:
    """Both photos side by side with their matches."""
    caption = f"{len(matched.matches)} matches, {int(matched.verified.sum())} of them fit one epipolar geometry (green)"
    photos = read_image(matched.path0), read_image(matched.path1)
    write_image(path, draw_matches(*photos, *matched.positions(), matched.verified, caption))


def matched_positions(
    features0: Features, features1: Features, matches: Matches
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Positions (M, 2) of the matched keypoints in image 0 and in image 1."""
    indices = matches.indices.cpu()
    xy0 = features0.keypoints.cpu()[indices[:, 0]].numpy()
    xy1 = features1.keypoints.cpu()[indices[:, 1]].numpy()
    return xy0, xy1


@dataclass(frozen=True)
class EstimatedGeometry:
    """The geometry that most matched positions support; no matrix where too few agree.

    The matrix has unit norm: F with x1^T F x0 = 0, or H that takes homogeneous positions of image 0 to those of image 1.
    """

    kind: GeometryKind
    matrix: Array | None  # (3, 3)
    inliers: npt.NDArray[np.bool_]  # (M,): which of the matches agree with it


def verified(
    xy0: npt.NDArray[np.float32], xy1: npt.NDArray[np.float32], threshold_px: float = 1.5
) -> npt.NDArray[np.bool_]:
    """Which matched positions (M, 2) fit the epipolar geometry that most of them support."""
    return estimate_geometry(xy0, xy1, "fundamental", threshold_px).inliers


def estimate_geometry(
    xy0: npt.NDArray[np.float32], xy1: npt.NDArray[np.float32], kind: GeometryKind, threshold_px: float = 1.5
) -> EstimatedGeometry:
    """The geometry of matched positions (M, 2), found by MAGSAC, the same each time."""
    import cv2

    nothing = EstimatedGeometry(kind, None, np.zeros(len(xy0), dtype=bool))
    if len(xy0) < FEWEST_MATCHES:
        return nothing
    cv2.setRNGSeed(0)
    try:
        if kind == "homography":
            matrix, mask = cv2.findHomography(xy0, xy1, cv2.USAC_MAGSAC, threshold_px, None, MOST_TRIALS, CONFIDENCE)
        else:
            matrix, mask = cv2.findFundamentalMat(xy0, xy1, cv2.USAC_MAGSAC, threshold_px, CONFIDENCE, MOST_TRIALS)
    except cv2.error:  # positions that all coincide, for one
        return nothing
    if mask is None or matrix is None or matrix.shape != (3, 3) or mask.sum() < FEWEST_MATCHES:
        return nothing
    found: Array = np.asarray(matrix, dtype=np.float64)
    norm = float(np.linalg.norm(found))
    if not (np.isfinite(norm) and norm > 0):
        return nothing
    return EstimatedGeometry(kind, found / norm, mask.ravel().astype(bool))
