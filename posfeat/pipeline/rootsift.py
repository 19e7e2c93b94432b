"""RootSIFT: OpenCV's SIFT with its defaults, descriptors being the square roots of the L1-normalised ones.

A stand-in for a model wherever features are asked for: it needs no weights, and shows what a model is worth.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from posfeat.types import Features

RGB = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

NAME = "rootsift"
FINGERPRINT = f"rootsift opencv {cv2.__version__}"


def extract_rootsift(image: RGB, max_keypoints: int, allowed: Mask | None = None) -> Features:
    """The features of RGB pixels (H, W, 3); nothing is found where ``allowed`` (H, W) is False."""
    mask = None if allowed is None else allowed.astype(np.uint8) * 255
    detector = cv2.SIFT.create(nfeatures=max_keypoints)
    found, raw = detector.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), mask)
    descriptors = np.zeros((0, 128), np.float32) if raw is None else raw
    rooted = np.sqrt(descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-12))
    return opencv_features(found, rooted.astype(np.float32), image, max_keypoints)


def opencv_features(found: Any, descriptors: npt.NDArray[np.float32], image: RGB, max_keypoints: int) -> Features:
    """What an OpenCV detector found."""
    positions = np.array([keypoint.pt for keypoint in found], np.float32).reshape(-1, 2)
    scores = np.array([keypoint.response for keypoint in found], np.float32)
    tensors = torch.from_numpy(positions), torch.from_numpy(scores), torch.from_numpy(descriptors)
    return best_features(*tensors, image, max_keypoints)


def best_features(keypoints: Tensor, scores: Tensor, descriptors: Tensor, image: RGB, max_keypoints: int) -> Features:
    """Best first, at most ``max_keypoints``, descriptors of unit length."""
    best = scores.argsort(descending=True, stable=True)[:max_keypoints]
    return Features(
        keypoints=keypoints[best].float(),
        scores=scores[best].float(),
        descriptors=F.normalize(descriptors[best].float(), dim=-1),
        image_size=(image.shape[1], image.shape[0]),
    )
