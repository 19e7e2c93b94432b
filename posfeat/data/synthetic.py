"""Any plain photo -> two rendered views with exact cameras.

The photo is draped over a gently curved relief and seen from two random cameras; pieces of another photo may hang before it, and
another photo behind it. Each pixel's ray is intersected with the surfaces and the photo is read there, smoothed to the local
scale. Fundamental matrix and correspondences are exact by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from posfeat.data.pair_sample import PairSample, Pixels
from posfeat.data.random_views import RIM, PosedCamera, ViewOptions, random_views
from posfeat.data.relief import Relief, random_relief
from posfeat.data.relief_scene import Plane, Scene, render, true_map
from posfeat.data.texture import Texture
from posfeat.options import check_options, described, nested
from posfeat.types import Array, ImageError

STEEPEST = 0.65  # slope of the relief times tangent of a ray's incidence: below 1 the ray meets the relief once
HIGHEST = 0.3  # of the relief, over the distance of the nearer camera; other pictures keep clear of it
MIN_PHOTO_PX = 16


@dataclass(frozen=True)
class SyntheticOptions:
    """How a photo becomes two views."""

    views: ViewOptions = nested(ViewOptions, "how different the two views may be")
    flat_share: float = described(0.1, "share of pairs whose photo is a plane", low=0, high=1)
    relief_height: float = described(1.0, "scales the relief of the others", low=0)
    num_waves: int = described(4, "long waves of the relief", low=0)
    max_folds: int = described(3, "most folds of the relief", low=0)
    finite_share: float = described(0.7, "share of photos that end, another behind them; else mirrored", low=0, high=1)
    patch_share: float = described(0.3, "share of pairs with pieces of another photo before it", low=0, high=1)
    max_patches: int = described(3, "most such pieces", low=1)
    correspondences: bool = described(False, "also give the true position in image 1 of every pixel of image 0")

    def __post_init__(self) -> None:
        check_options(self)


def render_pair(
    photo: Pixels,
    height: int,
    width: int,
    rng: np.random.Generator,
    options: SyntheticOptions = SyntheticOptions(),
    others: Sequence[Pixels] = (),
) -> PairSample:
    """Two views, each height x width, of ``photo`` (H, W, 3); of ``others`` the first is seen behind, the last before it."""
    for picture in (photo, *others):
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise ImageError(f"a photo to render must be RGB (H, W, 3) of uint8, not {picture.dtype} {picture.shape}")
        if min(picture.shape[:2]) < MIN_PHOTO_PX:
            raise ImageError(f"a photo to render must have {MIN_PHOTO_PX} pixels a side, not {picture.shape[:2]}")
    cameras = random_views(rng, height, width, photo.shape[:2], options.views)
    scene = random_scene(rng, photo, others, cameras, height, width, options)
    image0, image1 = (render(scene, camera, height, width) for camera in cameras)
    pose = cameras[1].cam_from_world @ np.linalg.inv(cameras[0].cam_from_world)
    has_baseline = bool(np.linalg.norm(pose[:3, 3]) > 1e-9 * -cameras[0].centre[2])
    if not has_baseline:
        pose[:3, 3] = 0
    known = true_map(scene, *cameras, height, width) if options.correspondences else None
    return PairSample(image0, image1, cameras[0].intrinsics, cameras[1].intrinsics, pose, has_baseline, known)


def random_scene(
    rng: np.random.Generator,
    photo: Pixels,
    others: Sequence[Pixels],
    cameras: tuple[PosedCamera, PosedCamera],
    height: int,
    width: int,
    options: SyntheticOptions,
) -> Scene:
    """The photo on a relief that suits the two cameras, with pictures before and behind it by chance."""
    rows, columns = photo.shape[:2]
    side = max(rows, columns)
    distance = min(-camera.centre[2] for camera in cameras)
    footprint = min(min(height, width) * -camera.centre[2] / camera.intrinsics[0, 0] for camera in cameras)
    flat, finite, patched = rng.random(3) < [options.flat_share, options.finite_share, options.patch_share]
    num_waves, num_folds = (0, 0) if flat else (options.num_waves, int(rng.integers(options.max_folds + 1)))
    relief = random_relief(rng, footprint, num_waves, num_folds).scaled(options.relief_height)
    behind, before = None, []
    if others and finite:
        placement = _placement(rng, others[0], 0.6 * side, np.zeros(2))
        behind = Plane(Texture(others[0]), distance * rng.uniform(0.35, 1.0), placement)
    if others and patched:
        depths = np.sort(distance * rng.uniform(-0.6, -0.35, int(rng.integers(1, options.max_patches + 1))))
        before = [_random_patch(rng, others[-1], float(depth), footprint, cameras) for depth in depths]
    return Scene(
        photo=Texture(photo, mirrored=behind is None),
        relief=_lowered(relief, cameras, height, width),
        photo_to_pixels=np.array([[side, 0, (columns - 1) / 2], [0, side, (rows - 1) / 2]]),
        before=tuple(before),
        behind=behind,
    )


def _placement(rng: np.random.Generator, picture: Pixels, pixels_per_unit: float, centre: Array) -> Array:
    """From (u, v) to pixels of a picture whose middle hangs at ``centre``, upright or nearly so."""
    angle = rng.normal(0, 0.1)
    turn = pixels_per_unit * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    middle = (np.array(picture.shape[1::-1]) - 1) / 2
    return np.column_stack([turn, middle - turn @ centre])


def _random_patch(
    rng: np.random.Generator,
    picture: Pixels,
    depth: float,
    footprint: float,
    cameras: tuple[PosedCamera, PosedCamera],
) -> Plane:
    """An elliptic or four-cornered piece of a picture, somewhere in the sight of one of the cameras."""
    camera = cameras[int(rng.integers(2))]
    sight = camera.rays(*(camera.intrinsics[:2, 2] * rng.uniform(0.2, 1.8, 2)))
    centre = camera.centre[:2] + sight[:2] * (depth - camera.centre[2]) / sight[2]
    size = int(min(picture.shape[:2]) * rng.uniform(0.25, 0.6))
    top, left = (int(rng.integers(extent - size + 1)) for extent in picture.shape[:2])
    piece = np.dstack([picture[top : top + size, left : left + size], _random_shape(rng, size)])
    placement = _placement(rng, piece, size / (footprint * rng.uniform(0.12, 0.35)), centre)
    return Plane(Texture(piece, mirrored=False), depth, placement)


def _random_shape(rng: np.random.Generator, size: int) -> Pixels:
    """An opaque ellipse or quadrilateral on transparent ground."""
    alpha = np.zeros((size, size), np.uint8)
    if rng.random() < 0.5:
        axes = (float(size - 2), float((size - 2) * rng.uniform(0.5, 1)))
        cv2.ellipse(alpha, ((size / 2, size / 2), axes, float(rng.uniform(0, 180))), (255,), -1, cv2.LINE_AA)
    else:
        corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) + rng.uniform(-0.2, 0.2, (4, 2))
        cv2.fillConvexPoly(alpha, np.rint(corners.clip(0.02, 0.98) * size).astype(np.int32), (255,), cv2.LINE_AA)
    return alpha


def _lowered(relief: Relief, cameras: tuple[PosedCamera, PosedCamera], height: int, width: int) -> Relief:
    """The relief lowered until every ray of both cameras, a little beyond the image included, meets it exactly once."""
    steepest, tallest = 1e-9, 1e-9
    margin = RIM * min(height, width)
    x, y = (np.linspace(-margin, size - 1 + margin, count) for size, count in ((width, 21), (height, 17)))
    for camera in cameras:
        rays = camera.rays(*np.meshgrid(x, y))
        plane = camera.centre - rays * (camera.centre[2] / rays[..., 2])[..., None]
        z, z_u, z_v = relief.height_and_slope(plane[..., 0], plane[..., 1])
        incidence = np.hypot(rays[..., 0], rays[..., 1]) / rays[..., 2]
        steepest = max(steepest, float((np.hypot(z_u, z_v) * incidence).max()))
        tallest = max(tallest, float(np.abs(z).max() / -camera.centre[2]))
    return relief.scaled(min(1.0, STEEPEST / steepest, HIGHEST / tallest))
