"""Working copies of posed photos: straight, 8-bit, no larger than training needs, with masked parts painted over.

Everything after this sees pinhole photos only, decodes little, and can never learn from what a mask hides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from posfeat.data.distortion import is_distorted, pinhole_camera, undistort_image, undistorted_camera
from posfeat.data.images import RGB, read_image, read_mask, resize_image, write_image
from posfeat.geometry.camera import scale_intrinsics
from posfeat.types import Camera, DataError, ImageError, View

HIDDEN = (124, 116, 104)  # the even grey that also lies beyond turned photos in training
_FEW_LEVELS, _LOOKED_AT = 16, 40
_SAME_SHAPE = 0.02  # by so much the sides' ratio of a photo may differ from its camera's

Progress = Callable[[int, int], None]


def prepare_photos(
    views: Sequence[View],
    folder: Path,
    longest_px: int,
    progress: Progress | None = None,
    report: Callable[[str], None] | None = None,
) -> list[View]:
    """The views of the copies, with pinhole cameras; copies that are there already are kept.

    A photo that cannot be used costs itself and one line to ``report``.
    """
    prepared = []
    for done, view in enumerate(views, start=1):
        try:
            prepared.append(_prepare(view, folder, longest_px))
        except (ImageError, DataError) as error:
            if report is not None:
                report(f"{view.name} is left out: {error}")
        if progress is not None:
            progress(done, len(views))
    return prepared


def told_of_tones(views: Sequence[View]) -> list[str]:
    """A warning where photos have hardly any contrast: nothing is stretched, as then extraction would have to be too."""
    step = max(1, len(views) // _LOOKED_AT)
    spreads = [np.ptp(np.percentile(read_image(view.image_path), (1, 99))) for view in views[::step]]
    levels = float(np.median(spreads)) if spreads else 256.0
    if levels >= _FEW_LEVELS:
        return []
    return [
        f"the photos use {levels:.0f} of 256 levels, as raw 16-bit pictures do: stretch them, all by one rule, here and "
        "wherever the weights are used"
    ]


def _prepare(view: View, folder: Path, longest_px: int) -> View:
    straight = undistorted_camera(view.camera)
    camera = _shrunk(straight, longest_px)
    path = folder / "photos" / f"{view.name}.png"
    mask = None if view.mask_path is None else folder / "masks" / f"{view.name}.png"
    if not path.is_file() or (mask is not None and not mask.is_file()):
        pixels = _straight(_fitted(read_image(view.image_path), view), view.camera, straight, camera)
        path.parent.mkdir(parents=True, exist_ok=True)
        if mask is not None:
            allowed = _straight_mask(view, straight, camera)
            mask.parent.mkdir(parents=True, exist_ok=True)
            write_image(mask, allowed.astype(np.uint8) * 255)
            pixels[~allowed] = HIDDEN
        write_image(path, pixels)
    return replace(view, image_path=path, camera=camera, mask_path=mask)


def _shrunk(camera: Camera, longest_px: int) -> Camera:
    scale = min(1.0, longest_px / max(camera.width, camera.height))
    width, height = max(1, round(camera.width * scale)), max(1, round(camera.height * scale))
    matrix = scale_intrinsics(torch.from_numpy(camera.matrix), width / camera.width, height / camera.height).numpy()
    return pinhole_camera(width, height, (matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]))


def _fitted(pixels: RGB, view: View) -> RGB:
    """The photo at its camera's size; a photo of another shape is another photo."""
    height, width = pixels.shape[:2]
    camera = view.camera
    if (width, height) == (camera.width, camera.height):
        return pixels
    if abs(width * camera.height / (height * camera.width) - 1) > _SAME_SHAPE:
        raise ImageError(f"the photo is {width}x{height} pixels, but its camera is {camera.width}x{camera.height}")
    return resize_image(pixels, camera.width, camera.height)


def _straight(pixels: RGB, camera: Camera, straight: Camera, small: Camera) -> RGB:
    pixels = undistort_image(pixels, camera, straight) if is_distorted(camera) else pixels
    fits = pixels.shape[:2] == (small.height, small.width)
    return pixels.copy() if fits else resize_image(pixels, small.width, small.height)


def _straight_mask(view: View, straight: Camera, small: Camera) -> npt.NDArray[np.bool_]:
    """Where the copy shows only what the mask allows."""
    assert view.mask_path is not None
    allowed = read_mask(view.mask_path).astype(np.uint8) * 255
    picture = _fitted(np.repeat(allowed[..., None], 3, axis=2), view)
    return _straight(picture, view.camera, straight, small)[..., 0] > 250
