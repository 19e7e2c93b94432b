"""Any plain photo -> two rendered views with exact cameras.

The photo is draped over a gently curved relief and seen from two random cameras. Each pixel's ray is intersected with the surface
and the photo is read there, smoothed to the local scale. Fundamental matrix and correspondences are exact by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from posfeat.data.pair_sample import PairSample, Pixels
from posfeat.data.random_views import PosedCamera, ViewOptions, random_views
from posfeat.data.relief import Relief, intersect, random_relief
from posfeat.options import check_options, described, nested
from posfeat.types import Array, Array32, ImageError

MAX_INTERPOLATION_ERROR_PX = 0.02  # of surface positions between the rays that are intersected exactly, in image pixels


@dataclass(frozen=True)
class SyntheticOptions:
    """How a photo becomes two views."""

    views: ViewOptions = nested(ViewOptions, "how different the two views may be")
    relief_height: float = described(1.0, "height of the relief, 0 for a flat photo", low=0)
    num_waves: int = described(4, "long waves of the relief", low=0)
    max_folds: int = described(3, "most folds of the relief", low=0)
    flat_share: float = described(0.1, "share of pairs whose surface is a plane", low=0, high=1)
    correspondences: bool = described(False, "also give the true position in image 1 of every pixel of image 0")

    def __post_init__(self) -> None:
        check_options(self)


def render_pair(
    photo: Pixels, height: int, width: int, rng: np.random.Generator, options: SyntheticOptions = SyntheticOptions()
) -> PairSample:
    """Two views of ``photo`` (H, W, 3), each height x width, from two random cameras."""
    if photo.ndim != 3 or photo.shape[2] != 3 or photo.dtype != np.uint8 or min(photo.shape[:2]) < 8:
        raise ImageError(f"a photo to render must be RGB uint8 of at least 8x8 pixels, not {photo.dtype} {photo.shape}")
    camera0, camera1 = random_views(rng, height, width, photo.shape[:2], options.views)
    flat = rng.random() < options.flat_share
    relief = random_relief(
        rng, _footprint(camera0, camera1, height, width), options.num_waves, int(rng.integers(options.max_folds + 1))
    )
    relief = _fitted(relief.scaled(0.0 if flat else options.relief_height), (camera0, camera1), height, width)
    pyramid = _pyramid(photo)
    image0, image1 = (_render(pyramid, relief, camera, height, width) for camera in (camera0, camera1))
    cam1_from_cam0 = camera1.cam_from_world @ np.linalg.inv(camera0.cam_from_world)
    has_baseline = bool(np.linalg.norm(camera0.centre - camera1.centre) > 1e-9 * abs(camera0.centre[2]))
    if not has_baseline:
        cam1_from_cam0[:3, 3] = 0
    map1_from_map0 = true_map(relief, camera0, camera1, height, width) if options.correspondences else None
    return PairSample(
        image0, image1, camera0.intrinsics, camera1.intrinsics, cam1_from_cam0, has_baseline, map1_from_map0
    )


def true_map(relief: Relief, camera0: PosedCamera, camera1: PosedCamera, height: int, width: int) -> Array32:
    """Position (H, W, 2) in image 1 of every pixel of image 0, NaN outside image 1."""
    x, y = np.meshgrid(np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64))
    rays = camera0.rays(x, y)
    depth = (intersect(relief, camera0.centre, rays) - camera0.centre[2]) / rays[..., 2]
    xy = camera1.project(camera0.centre + depth[..., None] * rays)
    outside = (xy < -0.5).any(-1) | (xy[..., 0] > width - 0.5) | (xy[..., 1] > height - 0.5)
    xy[outside] = np.nan
    return xy.astype(np.float32)


def _footprint(camera0: PosedCamera, camera1: PosedCamera, height: int, width: int) -> float:
    """Width, on the surface, of what the closer view sees."""
    return min(min(height, width) * -camera.centre[2] / camera.intrinsics[0, 0] for camera in (camera0, camera1))


def _fitted(relief: Relief, cameras: tuple[PosedCamera, PosedCamera], height: int, width: int) -> Relief:
    """The relief lowered until every ray of both cameras meets it exactly once, well in front of the camera."""
    steepest, tallest = 0.0, 0.0
    for camera in cameras:
        x, y = np.meshgrid(np.linspace(-0.1 * width, 1.1 * width, 25), np.linspace(-0.1 * height, 1.1 * height, 19))
        rays = camera.rays(x, y)
        z_free = np.where(rays[..., 2] > 0.05, rays[..., 2], 0.05)
        plane = camera.centre - rays * (camera.centre[2] / z_free)[..., None]
        z, z_u, z_v = relief.height_and_slope(plane[..., 0], plane[..., 1])
        incidence = np.hypot(rays[..., 0], rays[..., 1]) / z_free
        steepest = max(steepest, float(np.hypot(z_u, z_v).max() * incidence.max()))
        tallest = max(tallest, float(np.abs(z).max() / -camera.centre[2]))
    return relief.scaled(min(1.0, 0.6 / max(steepest, 1e-9), 0.3 / max(tallest, 1e-9)))


def _pyramid(photo: Pixels) -> list[Pixels]:
    """The photo and its successive halves, down to a few pixels."""
    levels = [photo]
    while min(levels[-1].shape[:2]) >= 8 and len(levels) < 7:
        rows, columns = levels[-1].shape[:2]
        half = cv2.resize(levels[-1], (columns // 2, rows // 2), interpolation=cv2.INTER_AREA)
        levels.append(np.asarray(half, dtype=np.uint8))
    return levels


def _render(pyramid: list[Pixels], relief: Relief, camera: PosedCamera, height: int, width: int) -> Pixels:
    u, v = _surface_positions(relief, camera, height, width)
    rows, columns = pyramid[0].shape[:2]
    side = max(rows, columns)
    map_x = (u * side + (columns - 1) / 2).astype(np.float32)
    map_y = (v * side + (rows - 1) / 2).astype(np.float32)
    return sample_smoothed(pyramid, map_x, map_y)


def _surface_positions(relief: Relief, camera: PosedCamera, height: int, width: int) -> tuple[Array, Array]:
    """Surface coordinates of every pixel: heights are exact on a coarse grid, smooth between, and checked."""
    centre = camera.centre
    x, y = np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)
    column = camera.rays(x, np.zeros_like(x)) - camera.rays(np.zeros(1), np.zeros(1))
    rays = camera.rays(np.zeros_like(y), y)[:, None, :] + column[None, :, :]
    check_y, check_x = np.linspace(0, height - 1, 13).astype(int), np.linspace(0, width - 1, 17).astype(int)
    check_rays = rays[check_y[:, None], check_x]
    exact = intersect(relief, centre, check_rays)
    # an error of the height moves the surface point along the ray; seen in the image the move is at most about this many pixels
    pixels_per_height = (
        camera.intrinsics[0, 0] * np.hypot(check_rays[..., 0], check_rays[..., 1]) / np.abs(exact - centre[2])
    )
    for stride in (8, 4, 2, 1):
        z = _interpolated_heights(relief, camera, height, width, stride)
        if (np.abs(z[check_y[:, None], check_x] - exact) * pixels_per_height).max() < MAX_INTERPOLATION_ERROR_PX / 2:
            break
    reach = (z - centre[2]) / rays[..., 2]
    return centre[0] + reach * rays[..., 0], centre[1] + reach * rays[..., 1]


def _interpolated_heights(relief: Relief, camera: PosedCamera, height: int, width: int, stride: int) -> Array:
    """Height at every pixel, by cubic interpolation between rays ``stride`` pixels apart."""
    nodes_x, weights_x = _cubic_weights(width, stride)
    nodes_y, weights_y = _cubic_weights(height, stride)
    x, y = np.meshgrid(nodes_x, nodes_y)
    return weights_y @ intersect(relief, camera.centre, camera.rays(x, y)) @ weights_x.T


@lru_cache(maxsize=32)
def _cubic_weights(size: int, stride: int) -> tuple[Array, Array]:
    """Positions of the nodes around ``size`` pixels, and the (size, nodes) matrix of third-order Lagrange interpolation."""
    count = (size - 1) // stride + 4
    nodes: Array = (np.arange(count, dtype=np.float64) - 1) * stride
    pixels = np.arange(size)
    cell, t = pixels // stride, (pixels % stride) / stride
    taps = [
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    ]
    weights = np.zeros((size, count))
    for tap, weight in enumerate(taps):
        weights[pixels, cell + tap] = weight
    return nodes, weights


def sample_smoothed(pyramid: list[Pixels], map_x: Array32, map_y: Array32) -> Pixels:
    """The photo at positions (pixels of level 0), from the levels that suit the local scale; beyond its rim it is mirrored."""
    level = _level_of_detail(map_x, map_y, len(pyramid) - 1)
    first, last = int(np.floor(level.min())), int(np.ceil(level.max()))
    if first == last:
        return _read_level(pyramid, first, map_x, map_y)
    total: Array32 | None = None
    for index in range(first, last + 1):
        weight = np.maximum(0, 1 - np.abs(level - index))[..., None]
        part = _read_level(pyramid, index, map_x, map_y) * weight
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return (total + 0.5).astype(np.uint8)


def _read_level(pyramid: list[Pixels], index: int, map_x: Array32, map_y: Array32) -> Pixels:
    rows, columns = pyramid[index].shape[:2]
    scale_x, scale_y = np.float32(columns / pyramid[0].shape[1]), np.float32(rows / pyramid[0].shape[0])
    half = np.float32(0.5)
    x, y = (map_x + half) * scale_x - half, (map_y + half) * scale_y - half
    return np.asarray(cv2.remap(pyramid[index], x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT), dtype=np.uint8)


def _level_of_detail(map_x: Array32, map_y: Array32, highest: int) -> Array32:
    """log2 of photo pixels an image pixel spans, between its longer and shorter axis, per pixel and at least 0."""
    step = 8
    rows, columns = map_x.shape
    grid_y, grid_x = np.arange(0, rows, step), np.arange(0, columns, step)
    coarse_x, coarse_y = map_x[::step, ::step], map_y[::step, ::step]
    x_x, y_x = np.gradient(coarse_x, axis=1) / step, np.gradient(coarse_y, axis=1) / step
    x_y, y_y = np.gradient(coarse_x, axis=0) / step, np.gradient(coarse_y, axis=0) / step
    area = np.abs(x_x * y_y - x_y * y_x)
    squares = x_x**2 + y_x**2 + x_y**2 + y_y**2
    longest = np.sqrt((squares + np.sqrt(np.maximum(squares**2 - 4 * area**2, 0))) / 2)
    span = 0.5 * longest + 0.5 * np.sqrt(area)
    level = np.log2(np.clip(span, 1, 2**highest)).astype(np.float32)
    full = cv2.resize(level, (len(grid_x) * step, len(grid_y) * step), interpolation=cv2.INTER_LINEAR)
    return np.asarray(full[:rows, :columns], dtype=np.float32)
