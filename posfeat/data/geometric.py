"""Turn, scale and crop a photo so that its camera stays exactly true.

Any such change is an affine map x' = M x of pixels with M's linear part a turn and a scale. Then M K = K' R with K' upper
triangular and R a rotation about the optical axis: the new photo is one that a camera with intrinsics K', turned by R,
would have taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from posfeat.data.pair_sample import Pixels
from posfeat.options import check_options, described
from posfeat.types import Array


@dataclass(frozen=True)
class GeometricOptions:
    """How posed photos are turned, scaled and cropped; ``strength`` 0 only fits them into the wanted size."""

    strength: float = described(1.0, "scales every change", low=0, high=1)
    any_turn_share: float = described(0.3, "share of photos turned by any angle in the image plane", low=0, high=1)
    small_turn_deg: float = described(10.0, "spread of the other photos' turn", low=0)
    max_zoom: float = described(2.0, "largest enlargement over the photo just filling the wanted size", low=1)

    def __post_init__(self) -> None:
        check_options(self)


class WarpedView(NamedTuple):
    """The changed photo, its intrinsics, and the turn of its camera about the optical axis."""

    image: Pixels
    intrinsics: Array  # (3, 3)
    new_from_old: Array  # (4, 4) rotation about the optical axis


def warp_view(
    image: Pixels, intrinsics: Array, height: int, width: int, rng: np.random.Generator, options: GeometricOptions
) -> WarpedView:
    """A photo of the wanted size: turned and enlarged about a random point, with the camera that would have taken it."""
    turn, zoom, middle = _draw(image, height, width, rng, options)
    scale = zoom * _filling_scale(image, height, width)
    cosine, sine = scale * math.cos(turn), scale * math.sin(turn)
    affine = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
    affine[:2, 2] = np.array([(width - 1) / 2, (height - 1) / 2]) - affine[:2, :2] @ middle
    new_intrinsics, rotation = split_affine_camera(affine @ intrinsics)
    pose = np.eye(4)
    pose[:3, :3] = rotation
    return WarpedView(_resample(image, affine, scale, height, width), new_intrinsics, pose)


def split_affine_camera(matrix: Array) -> tuple[Array, Array]:
    """M K = K' R: the upper triangular K' with positive diagonal, and the rotation R about the optical axis."""
    c, d = matrix[1, :2]
    length = math.hypot(c, d)
    rotation = np.array([[d / length, -c / length, 0.0], [c / length, d / length, 0.0], [0.0, 0.0, 1.0]])
    upper = np.eye(3)
    upper[:2, :2] = matrix[:2, :2] @ rotation[:2, :2].T
    upper[1, 0] = 0.0
    upper[:2, 2] = matrix[:2, 2]
    return upper, rotation


def _draw(
    image: Pixels, height: int, width: int, rng: np.random.Generator, options: GeometricOptions
) -> tuple[float, float, Array]:
    """Turn in radians, zoom, and the photo's pixel that comes to the middle."""
    anyhow = rng.random() < options.any_turn_share
    turn = rng.uniform(-180, 180) if anyhow else options.small_turn_deg * rng.normal()
    zoom = math.exp(rng.uniform(0, math.log(options.max_zoom)))
    size = np.array([image.shape[1], image.shape[0]])
    shift = rng.uniform(-0.5, 0.5, 2)
    turn, zoom = math.radians(turn) * options.strength, 1 + (zoom - 1) * options.strength
    # how far the middle can move until the wanted size, laid over the photo, leaves it
    spare = np.maximum(0, size - np.array([width, height]) / (zoom * _filling_scale(image, height, width)))
    return turn, zoom, (size - 1) / 2 + shift * spare * options.strength


def _filling_scale(image: Pixels, height: int, width: int) -> float:
    return max(width / image.shape[1], height / image.shape[0])


def _resample(image: Pixels, affine: Array, scale: float, height: int, width: int) -> Pixels:
    """The affine map of pixels; what is made smaller is blurred first, so that nothing aliases.

    Beyond the photo there is one even grey: mirrored content would obey no epipolar line.
    """
    soft = cv2.GaussianBlur(image, (0, 0), 0.5 * math.sqrt(1 / scale**2 - 1)) if scale < 0.8 else image
    warped = cv2.warpAffine(soft, affine[:2], (width, height), flags=cv2.INTER_LINEAR, borderValue=(124, 116, 104))
    return np.asarray(warped, dtype=np.uint8)
