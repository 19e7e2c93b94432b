"""Our model behind the interface of vismatch's matchers (formerly image-matching-models), without importing that package.

    matcher = VismatchMatcher(posfeat.load())
    result = matcher("a.jpg", "b.jpg")

The result has the keys that every vismatch matcher gives. To enter it among vismatch's own, let a subclass of its BaseMatcher
hand its ``_forward`` to this one's. Positions are those of the images as they are given, the top-left pixel's centre at (0, 0).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from posfeat.data.images import as_rgb, as_rgb_tensor, read_image
from posfeat.interop.opencv import find_homography
from posfeat.matching import MatchOptions, match
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import PoSFeat

HOMOGRAPHY_THRESHOLD_PX = 3.0

Forwarded = tuple[
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
]


class VismatchMatcher(nn.Module):
    """Two images in, vismatch's dictionary out."""

    name = "PoSFeat"

    def __init__(
        self,
        model: PoSFeat,
        max_num_keypoints: int = 2048,
        extraction: ExtractionOptions | None = None,
        matching: MatchOptions | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.max_num_keypoints, self.extraction, self.matching = max_num_keypoints, extraction, matching
        self.skip_ransac = False

    @property
    def device(self) -> str:
        """Where the model is, by vismatch's names."""
        return str(self.model.device)

    def forward(self, img0: Any, img1: Any) -> dict[str, Any]:
        """Match two images: paths, PIL pictures, or (3, H, W) in [0, 1]."""
        xy0, xy1, all0, all1, descriptors0, descriptors1, confidence = self._forward(img0, img1)
        homography, inliers = (None, np.zeros(len(xy0), dtype=bool))
        if not self.skip_ransac:
            homography, inliers = find_homography(xy0, xy1, HOMOGRAPHY_THRESHOLD_PX)
        return {
            "num_inliers": int(inliers.sum()),
            "H": homography,
            "all_kpts0": all0,
            "all_kpts1": all1,
            "all_desc0": descriptors0,
            "all_desc1": descriptors1,
            "matched_kpts0": xy0,
            "matched_kpts1": xy1,
            "inlier_kpts0": xy0[inliers],
            "inlier_kpts1": xy1[inliers],
            "matched_confidences": confidence,
        }

    def extract(self, img: Any) -> dict[str, npt.NDArray[np.float32]]:
        """Keypoints and descriptors of one image."""
        features = self._features(img)
        return {"all_kpts0": features.keypoints.numpy(), "all_desc0": features.descriptors.numpy()}

    def _forward(self, img0: Any, img1: Any) -> Forwarded:
        """Matched positions, all positions, all descriptors, and each match's cosine."""
        features0, features1 = self._features(img0), self._features(img1)
        matches = match(features0, features1, self.matching)
        index0, index1 = matches.indices.T
        return (
            features0.keypoints[index0].numpy(),
            features1.keypoints[index1].numpy(),
            features0.keypoints.numpy(),
            features1.keypoints.numpy(),
            features0.descriptors.numpy(),
            features1.descriptors.numpy(),
            matches.scores.numpy(),
        )

    def _features(self, image: Any) -> Any:
        return self.model.extract(_pixels(image), self.max_num_keypoints, options=self.extraction)


def _pixels(image: Any) -> npt.NDArray[np.uint8]:
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    if isinstance(image, Tensor):
        return as_rgb_tensor(image)
    pixels = np.asarray(image)
    is_channels_first = pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3, 4)
    return as_rgb(np.moveaxis(pixels, 0, 2) if is_channels_first else pixels)
