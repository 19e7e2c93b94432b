"""The same image at several scales and in-plane rotations, and the way back to its own pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from posfeat.data.images import MAX_PIXELS, RGB, resize_image, rotate_image
from posfeat.types import Array, ImageError

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ImageView:
    """A scaled and turned copy of an image."""

    rgb: RGB
    allowed: Mask | None  # where keypoints may lie
    image_from_view: Array  # (2, 3): pixel positions of the image from those of this copy

    def to_image(self, xy: Annotated[Tensor, "num_keypoints 2"]) -> Annotated[Tensor, "num_keypoints 2"]:
        """Positions on the image of positions on this copy."""
        if np.array_equal(self.image_from_view, np.eye(2, 3)):
            return xy
        affine = torch.from_numpy(self.image_from_view).to(xy.device)
        return (xy.double() @ affine[:, :2].T + affine[:, 2]).to(xy.dtype)


def image_views(
    rgb: RGB, allowed: Mask | None, scales: Sequence[float], rotations_deg: Sequence[float]
) -> Iterator[ImageView]:
    """Every scale in every rotation, one after the other so that only one is held in memory."""
    for scale in scales:
        for rotation in rotations_deg:
            yield _view(rgb, allowed, scale, rotation)


def _view(rgb: RGB, allowed: Mask | None, scale: float, rotation_deg: float) -> ImageView:
    image_from_view = np.eye(3)
    if scale != 1:
        height, width = rgb.shape[:2]
        new_width, new_height = max(1, round(width * scale)), max(1, round(height * scale))
        if new_width * new_height > MAX_PIXELS:
            raise ImageError(f"at scale {scale:g} the image has {new_width}x{new_height} pixels; take a smaller scale")
        rgb = resize_image(rgb, new_width, new_height)
        allowed = None if allowed is None else resize_image(allowed.astype(np.uint8) * 255, new_width, new_height) > 127
        x, y = width / new_width, height / new_height  # pixel centres: (x + 0.5) * factor - 0.5
        image_from_view = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]])
    if rotation_deg % 360:
        rgb, covered, upright_from_turned = rotate_image(rgb, rotation_deg)
        if allowed is not None:
            turned, _, _ = rotate_image(allowed.astype(np.uint8) * 255, rotation_deg)
            allowed = (turned > 127) if covered is None else (turned > 127) & covered
        else:
            allowed = covered
        image_from_view = image_from_view @ upright_from_turned
    return ImageView(rgb, allowed, image_from_view[:2])
