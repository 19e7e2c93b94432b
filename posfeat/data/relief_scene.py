"""A photo on a relief, pictures on planes before and behind it, and what a camera sees of them.

The world's z axis points away from the cameras: the nearest planes come first. Every ray meets every layer exactly once, so that
what hides what is decided by one rule: the first layer that is not transparent where the ray meets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from posfeat.data.pair_sample import Pixels
from posfeat.data.random_views import RIM, PosedCamera
from posfeat.data.relief import Relief, intersect
from posfeat.data.texture import GRID_STEP_PX, Texture, lay_over, opaque
from posfeat.types import Array, Array32

MAX_INTERPOLATION_ERROR_PX = 0.01  # of the rays' heights between those intersected exactly, seen as image pixels
RENDERING_TOLERANCE = 1e-7  # of heights, in units of the photo's longer side


@dataclass(frozen=True)
class Plane:
    """A picture in the plane z = ``height``: (u, v) lies at the picture's pixel ``to_pixels`` @ (u, v, 1)."""

    texture: Texture
    height: float
    to_pixels: Array  # (2, 3)


@dataclass(frozen=True)
class Scene:
    """The photo on its relief, planes before it from the nearest on, and a plane behind it where the photo has an end."""

    photo: Texture
    relief: Relief
    photo_to_pixels: Array  # (2, 3)
    before: tuple[Plane, ...] = ()
    behind: Plane | None = None


def render(scene: Scene, camera: PosedCamera, height: int, width: int) -> Pixels:
    """What the camera sees, RGB (H, W, 3)."""
    rays = _ray_fields(camera, 0, height, 0, width)
    heights = _relief_heights(scene.relief, camera, height, width)
    image = scene.photo.read(*_picture_positions(scene.photo_to_pixels, camera.centre, rays, heights))
    if scene.behind is not None and image[..., 3].min() < 255:
        positions = _picture_positions(scene.behind.to_pixels, camera.centre, rays, scene.behind.height)
        image = lay_over(image, scene.behind.texture.read(*positions))
    for plane in reversed(scene.before):
        _paint(image, plane, camera)
    return opaque(image)


def true_map(scene: Scene, camera0: PosedCamera, camera1: PosedCamera, height: int, width: int) -> Array32:
    """Position (H, W, 2) in image 1 of every pixel of image 0; NaN where it is outside image 1 or hidden there."""
    x, y = np.meshgrid(np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64))
    points = first_hit(scene, camera0.centre, camera0.rays(x, y).reshape(-1, 3))
    xy = camera1.project(points)
    inside = ((xy >= -0.5) & (xy <= [width - 0.5, height - 0.5])).all(axis=-1)
    towards = points[inside] - camera1.centre
    reached = first_hit(scene, camera1.centre, towards)
    hidden = np.linalg.norm(reached - points[inside], axis=-1) > 1e-6 * np.linalg.norm(towards, axis=-1)
    xy[~inside] = np.nan
    xy[np.flatnonzero(inside)[hidden]] = np.nan
    return xy.reshape(height, width, 2).astype(np.float32)


def first_hit(scene: Scene, centre: Array, directions: Array) -> Array:
    """The points (N, 3) that rays from ``centre`` along ``directions`` (N, 3) meet first."""
    points = _at_height(centre, directions, intersect(scene.relief, centre, directions))
    if scene.behind is not None:
        behind = _at_height(centre, directions, np.full(len(directions), scene.behind.height))
        points = np.where(_covers(scene.photo, scene.photo_to_pixels, points)[:, None], points, behind)
    for plane in reversed(scene.before):
        hits = _at_height(centre, directions, np.full(len(directions), plane.height))
        points = np.where(_covers(plane.texture, plane.to_pixels, hits)[:, None], hits, points)
    return points


def _at_height(centre: Array, directions: Array, heights: Array) -> Array:
    return centre + directions * ((heights - centre[2]) / directions[:, 2])[:, None]


def _covers(texture: Texture, to_pixels: Array, points: Array) -> npt.NDArray[np.bool_]:
    """Whether the picture is there at points (N, 3) of its surface."""
    xy = points[:, :2] @ to_pixels[:, :2].T + to_pixels[:, 2]
    rows, columns = texture.size
    inside = ((xy >= -0.5) & (xy <= [columns - 0.5, rows - 0.5])).all(axis=-1)
    column, row = np.clip(np.rint(xy), 0, [columns - 1, rows - 1]).astype(int).T
    return np.asarray(inside & (texture.picture[row, column, 3] >= 128))


def _paint(image: Pixels, plane: Plane, camera: PosedCamera) -> None:
    """Lay a picture over the part of an RGBA image that it can cover."""
    height, width = image.shape[:2]
    rows, columns = plane.texture.size
    corners = np.array([[-1, -1], [columns, -1], [columns, rows], [-1, rows]], dtype=np.float64)
    uv = (corners - plane.to_pixels[:, 2]) @ np.linalg.inv(plane.to_pixels[:, :2]).T
    seen = camera.project(np.column_stack([uv, np.full(4, plane.height)]))
    left, right = _span(seen[:, 0], width)
    top, bottom = _span(seen[:, 1], height)
    if right - left <= 2 * GRID_STEP_PX or bottom - top <= 2 * GRID_STEP_PX:
        return
    rays = _ray_fields(camera, top, bottom, left, right)
    reading = plane.texture.read(*_picture_positions(plane.to_pixels, camera.centre, rays, plane.height))
    image[top:bottom, left:right] = lay_over(reading, image[top:bottom, left:right])


def _span(positions: Array, size: int) -> tuple[int, int]:
    """The pixels within reach of the positions: a few more, as the local scale is known on a coarse grid."""
    first = int(np.clip(np.floor(positions.min()) - GRID_STEP_PX, 0, size))
    return first, int(np.clip(np.ceil(positions.max()) + GRID_STEP_PX, first, size))


def _ray_fields(camera: PosedCamera, top: int, bottom: int, left: int, right: int) -> tuple[Array32, Array32, Array32]:
    """The rays' x, y and z in the world over a rectangle of pixels; each is a linear function of the pixel."""
    right_step, down_step, ahead = camera.world_from_pixel.T
    x, y = np.arange(left, right)[None, :], np.arange(top, bottom)[:, None]
    steps = zip(ahead, right_step, down_step, strict=True)
    dx, dy, dz = (((start + along * x) + down * y).astype(np.float32) for start, along, down in steps)
    return dx, dy, dz


def _picture_positions(
    to_pixels: Array, centre: Array, rays: tuple[Array32, Array32, Array32], heights: Array32 | float
) -> tuple[Array32, Array32]:
    """Pixels of a picture that the rays meet at the given heights."""
    reach = (np.asarray(heights, np.float32) - np.float32(centre[2])) / rays[2]
    u, v = reach * rays[0], reach * rays[1]
    offset_x, offset_y = to_pixels[:, :2] @ centre[:2] + to_pixels[:, 2]
    (xu, xv), (yu, yv) = to_pixels[:, :2].astype(np.float32)
    x, y = xu * u + np.float32(offset_x), yv * v + np.float32(offset_y)
    return (x + xv * v, y + yu * u) if xv or yu else (x, y)


def _relief_heights(relief: Relief, camera: PosedCamera, height: int, width: int) -> Array32:
    """Height at which every pixel's ray meets the relief: exact on a coarse grid, cubic between, and checked."""
    check_y, check_x = (np.rint(np.linspace(0.5, size - 1.5, 11)).astype(int) for size in (height, width))
    check_rays = _grid_rays(camera, check_x, check_y)
    # the nodes stay within the rim in which rays are well-behaved
    for stride in (stride for stride in (16, 8, 4, 2, 1) if stride == 1 or 2 * stride <= RIM * min(height, width)):
        nodes_x, weights_x = _cubic_weights(width, stride)
        nodes_y, weights_y = _cubic_weights(height, stride)
        rays = np.concatenate([_grid_rays(camera, nodes_x, nodes_y), check_rays])
        exact = intersect(relief, camera.centre, rays, RENDERING_TOLERANCE)
        nodes, expected = exact[: -len(check_rays)].astype(np.float32), exact[-len(check_rays) :]
        heights = weights_y @ nodes.reshape(len(nodes_y), len(nodes_x)) @ weights_x.T
        # a wrong height moves the point along the ray, across the relief's axis; seen in the image that is at most
        sideways = np.hypot(check_rays[:, 0], check_rays[:, 1]) / np.abs(expected - camera.centre[2])
        error_px = np.abs(heights[check_y[:, None], check_x].ravel() - expected) * sideways * camera.intrinsics[0, 0]
        if error_px.max() < MAX_INTERPOLATION_ERROR_PX:
            break
    return np.asarray(heights, dtype=np.float32)


def _grid_rays(camera: PosedCamera, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Array:
    """Rays (N, 3) of the pixels in the given columns and rows."""
    return camera.rays(*np.meshgrid(x.astype(np.float64), y.astype(np.float64))).reshape(-1, 3)


@lru_cache(maxsize=32)
def _cubic_weights(size: int, stride: int) -> tuple[Array, Array32]:
    """Positions of the nodes around ``size`` pixels, and the (size, nodes) matrix of third-order interpolation."""
    count = (size - 1) // stride + 4
    nodes: Array = (np.arange(count, dtype=np.float64) - 1) * stride
    pixels = np.arange(size)
    cell, t = pixels // stride, (pixels % stride) / stride
    taps = (-t * (t - 1) * (t - 2) / 6, (t * t - 1) * (t - 2) / 2, -(t + 1) * t * (t - 2) / 2, (t * t - 1) * t / 6)
    weights = np.zeros((size, count), dtype=np.float32)
    for tap, weight in enumerate(taps):
        weights[pixels, cell + tap] = weight
    return nodes, weights
