"""OpenCV's KeyPoint and DMatch. The centre of the top-left pixel is (0, 0) there too, so positions stay as they are.

``DMatch.distance`` is the Euclidean distance of two unit descriptors, the square root of 2 - 2 cosine, as OpenCV's own
brute-force matcher would give. A KeyPoint's size and angle are not known here: size is 1 (or the caller's), angle -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from posfeat.types import Array, Features, Matches

HOMOGRAPHY_TRIALS, HOMOGRAPHY_CONFIDENCE = 2000, 0.995


def to_keypoints(features: Features, size_px: float = 1.0) -> list[Any]:
    """A list of cv2.KeyPoint; their descriptors are ``features.descriptors.numpy()``."""
    import cv2

    rows = zip(features.keypoints.tolist(), features.scores.tolist(), strict=True)
    return [cv2.KeyPoint(x, y, size_px, -1, score) for (x, y), score in rows]


def from_keypoints(keypoints: Sequence[Any], descriptors: npt.NDArray[Any], image_size: tuple[int, int]) -> Features:
    """What ``detectAndCompute`` gave, as Features: best response first, descriptors of unit length."""
    xy = torch.tensor([keypoint.pt for keypoint in keypoints], dtype=torch.float32).reshape(-1, 2)
    scores = torch.tensor([keypoint.response for keypoint in keypoints], dtype=torch.float32)
    rows = torch.from_numpy(np.asarray(descriptors, dtype=np.float32))
    order = scores.argsort(descending=True, stable=True)
    return Features(xy[order], scores[order], torch.nn.functional.normalize(rows[order], dim=1), image_size)


def to_matches(matches: Matches) -> list[Any]:
    """A list of cv2.DMatch: queryIdx is the row in image 0, trainIdx that in image 1."""
    import cv2

    distances = (2 - 2 * matches.scores.double()).clamp(min=0).sqrt().tolist()
    return [cv2.DMatch(i, j, d) for (i, j), d in zip(matches.indices.tolist(), distances, strict=True)]


def from_matches(matches: Sequence[Any]) -> Matches:
    """Matches of unit descriptors under the Euclidean norm (cv2.NORM_L2), best first."""
    rows = [(match.queryIdx, match.trainIdx) for match in matches]
    indices = torch.tensor(rows, dtype=torch.long).reshape(-1, 2)
    scores = 1 - torch.tensor([match.distance for match in matches], dtype=torch.float64) ** 2 / 2
    order = scores.argsort(descending=True, stable=True)
    return Matches(indices[order], scores[order].float())


def find_homography(
    xy0: npt.NDArray[Any], xy1: npt.NDArray[Any], threshold_px: float
) -> tuple[Array | None, npt.NDArray[np.bool_]]:
    """The homography 0 -> 1 that most positions (M, 2) support (MAGSAC), and which do."""
    import cv2

    none = np.zeros(len(xy0), dtype=bool)
    if len(xy0) < 4:
        return None, none
    cv2.setRNGSeed(0)
    found: tuple[Any, Any] = cv2.findHomography(
        xy0, xy1, cv2.USAC_MAGSAC, threshold_px, maxIters=HOMOGRAPHY_TRIALS, confidence=HOMOGRAPHY_CONFIDENCE
    )
    matrix, mask = found
    return (None, none) if matrix is None else (np.asarray(matrix), mask.ravel().astype(bool))
