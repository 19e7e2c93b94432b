"""Query points at SIFT's keypoints, as earlier methods chose them: for the ablation of grid-based sampling (supplement, section 2).

Where SIFT finds little, little is asked, and those parts of an image stay untrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import cv2
import numpy as np
import torch
from torch import Tensor

from posfeat.data.images import RGB, denormalise

_THREADS = 16  # OpenCV lets go of the interpreter's lock


def sift_query_points(
    images: Annotated[Tensor, "batch 3 height width"], count: int, generators: Sequence[torch.Generator]
) -> Annotated[Tensor, "batch count 2"]:
    """As many keypoints of each normalised image, drawn at random; all of them and some again where there are fewer."""
    pixels = denormalise(images.cpu())
    with ThreadPoolExecutor(min(_THREADS, len(pixels))) as pool:
        found = list(pool.map(sift_positions, pixels))
    drawn = [_draw(xy, count, generator) for xy, generator in zip(found, generators, strict=True)]
    return torch.stack(drawn).to(images.device)


def sift_positions(image: RGB) -> Annotated[Tensor, "keypoints 2"]:
    """Where OpenCV's SIFT, with its defaults, finds keypoints; each place once. The middle of an image without any."""
    keypoints = cv2.SIFT.create().detect(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), None)
    positions = np.unique(np.array([keypoint.pt for keypoint in keypoints], np.float32).reshape(-1, 2), axis=0)
    middle = np.array([[image.shape[1] / 2 - 0.5, image.shape[0] / 2 - 0.5]], np.float32)
    return torch.from_numpy(positions if len(positions) else middle)


def _draw(xy: Tensor, count: int, generator: torch.Generator) -> Tensor:
    order = torch.randperm(len(xy), generator=generator)
    again = torch.randint(len(xy), (max(0, count - len(xy)),), generator=generator)
    return xy[torch.cat([order, again])[:count]]
