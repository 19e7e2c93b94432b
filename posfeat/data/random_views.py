"""Two random cameras that look at one surface: tilt, roll, zoom, focal length and baseline in all directions.

The surface is near the plane z = 0, cameras are at z < 0. One unit of the world is the longer side of the photo.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posfeat.options import check_options, described
from posfeat.types import Array

GRAZING = 0.17  # smallest cosine between a ray and the surface's axis
RIM = 0.13  # how far beyond the image rays are still well-behaved, in shorter sides


@dataclass(frozen=True)
class ViewOptions:
    """How different the two views of a rendered pair may be."""

    max_tilt_deg: float = described(60.0, "largest angle between a view and the surface's axis", low=0, high=75)
    moderate_tilt_deg: float = described(20.0, "most views lie within about this tilt", low=0, high=75)
    strong_tilt_share: float = described(0.35, "share of views whose tilt is uniform up to the largest", low=0, high=1)
    any_roll_share: float = described(0.3, "share of pairs turned by any angle in the image plane", low=0, high=1)
    small_roll_deg: float = described(12.0, "spread of the in-plane turn of the other pairs", low=0)
    max_zoom: float = described(3.0, "largest ratio of scale between the views", low=1)
    strong_zoom_share: float = described(
        0.4, "share of pairs whose scale ratio is log-uniform up to the largest", low=0, high=1
    )
    min_focal: float = described(0.7, "shortest focal length over the longer image side", low=0.2)
    max_focal: float = described(2.0, "longest focal length over the longer image side", low=0.2)
    max_shift: float = described(0.35, "largest offset of what a view looks at, in image sides", low=0)
    no_baseline_share: float = described(
        0.05, "share of pairs taken from one place (rotation and zoom only)", low=0, high=1
    )
    min_baseline: float = described(
        0.03, "smallest baseline over the distance to the surface, of the other pairs", low=0
    )
    min_overlap: float = described(0.35, "smallest share of the closer view that the other sees", low=0, high=1)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class PosedCamera:
    """A pinhole camera with its pose."""

    intrinsics: Array  # (3, 3)
    cam_from_world: Array  # (4, 4)

    @cached_property
    def centre(self) -> Array:
        """Where the camera stands."""
        return np.asarray(-self.cam_from_world[:3, :3].T @ self.cam_from_world[:3, 3])

    @cached_property
    def world_from_pixel(self) -> Array:
        """(3, 3): the world direction of the pixel (x, y) is this times (x, y, 1)."""
        return np.asarray(self.cam_from_world[:3, :3].T @ np.linalg.inv(self.intrinsics))

    def rays(self, x: Array, y: Array) -> Array:
        """World directions (..., 3) of pixels."""
        right, down, ahead = self.world_from_pixel.T
        return x[..., None] * right + y[..., None] * down + ahead

    def project(self, points: Array) -> Array:
        """Pixels (..., 2) of world points (..., 3)."""
        image = (points @ self.cam_from_world[:3, :3].T + self.cam_from_world[:3, 3]) @ self.intrinsics.T
        return image[..., :2] / image[..., 2:]


def rim_pixels(height: int, width: int) -> tuple[Array, Array]:
    """Positions all along a rectangle a little larger than the image."""
    margin = RIM * min(height, width)
    x, y = np.linspace(-margin, width - 1 + margin, 9), np.linspace(-margin, height - 1 + margin, 9)
    left, top = np.full(9, x[0]), np.full(9, y[0])
    right, bottom = np.full(9, x[-1]), np.full(9, y[-1])
    return np.concatenate([x, x, left, right]), np.concatenate([top, bottom, y, y])


def random_views(
    rng: np.random.Generator, height: int, width: int, photo_size: tuple[int, int], options: ViewOptions
) -> tuple[PosedCamera, PosedCamera]:
    """Two cameras that see enough of the same part of a photo of ``photo_size`` (height, width)."""
    no_baseline = rng.random() < options.no_baseline_share
    for _ in range(100):
        camera0, camera1 = _propose(rng, height, width, photo_size, options, no_baseline)
        if _acceptable(camera0, camera1, height, width, options, no_baseline):
            return camera0, camera1
    # what is asked for may be contradictory (little overlap allowed, none drawn): an easy pair always exists
    camera0, _ = _propose(rng, height, width, photo_size, ViewOptions(max_tilt_deg=10, strong_tilt_share=0), False)
    moved = camera0.cam_from_world.copy()
    moved[0, 3] += 0.0 if no_baseline else 0.1 * -camera0.centre[2]
    return camera0, PosedCamera(camera0.intrinsics, moved)


def _propose(
    rng: np.random.Generator,
    height: int,
    width: int,
    photo_size: tuple[int, int],
    options: ViewOptions,
    no_baseline: bool,
) -> tuple[PosedCamera, PosedCamera]:
    photo_height, photo_width = photo_size
    side = max(photo_height, photo_width)
    fit = (
        max(width / photo_width, height / photo_height) * side
    )  # image pixels a unit when the view just fills the photo
    limit = options.max_zoom if rng.random() < options.strong_zoom_share else min(1.4, options.max_zoom)
    zoom = np.exp(rng.uniform(0, np.log(limit)))
    wide = fit * np.exp(rng.uniform(np.log(0.75), np.log(1.5))) / zoom ** rng.uniform(0, 0.6)
    scales = np.array([wide, wide * zoom])[rng.permutation(2)]
    footprint = min(height, width) / scales.max()
    target = rng.uniform(-0.25, 0.25, 2) * np.array([photo_width, photo_height]) / side
    shared_focal = _random_focal(rng, options)
    roll = rng.uniform(-180, 180) if rng.random() < options.any_roll_share else rng.normal(0, options.small_roll_deg)
    base_roll = rng.normal(0, 5)
    cameras = []
    for scale, turn in zip(scales, (base_roll, base_roll + roll), strict=True):
        focal = max(height, width) * (shared_focal if rng.random() < 0.5 else _random_focal(rng, options))
        aim = target + rng.uniform(-1, 1, 2) * options.max_shift * footprint
        cameras.append(_look_at(rng, aim, focal, scale, turn, height, width, options))
    if no_baseline:
        cameras[1] = _turn_in_place(
            rng, cameras[0], target, footprint * options.max_shift, scales[1] / scales[0], roll, height, width
        )
    return cameras[0], cameras[1]


def _random_focal(rng: np.random.Generator, options: ViewOptions) -> float:
    return float(np.exp(rng.uniform(np.log(options.min_focal), np.log(options.max_focal))))


def _random_tilt(rng: np.random.Generator, options: ViewOptions) -> float:
    if rng.random() < options.strong_tilt_share:
        return float(rng.uniform(0, options.max_tilt_deg))
    return float(min(abs(rng.normal(0, options.moderate_tilt_deg / 1.5)), options.max_tilt_deg))


def _look_at(
    rng: np.random.Generator,
    aim: Array,
    focal: float,
    scale: float,
    roll_deg: float,
    height: int,
    width: int,
    options: ViewOptions,
) -> PosedCamera:
    """A camera that sees ``aim`` near its centre, ``scale`` pixels a unit."""
    tilt, azimuth = np.radians(_random_tilt(rng, options)), rng.uniform(0, 2 * np.pi)
    towards = -np.array([np.sin(tilt) * np.cos(azimuth), np.sin(tilt) * np.sin(azimuth), -np.cos(tilt)])
    # foreshortening makes the mean scale of a tilted view smaller than focal / distance
    centre = np.array([aim[0], aim[1], 0.0]) - focal / scale * np.sqrt(np.cos(tilt)) * towards
    return camera_towards(centre, towards, roll_deg, focal, height, width, rng.normal(0, 0.02, 2))


def _turn_in_place(
    rng: np.random.Generator,
    camera: PosedCamera,
    target: Array,
    spread: float,
    zoom: float,
    roll_deg: float,
    height: int,
    width: int,
) -> PosedCamera:
    """A camera at the same place that looks elsewhere, turned and zoomed."""
    aim = np.array([*(target + rng.uniform(-1, 1, 2) * spread), 0.0])
    towards = (aim - camera.centre) / np.linalg.norm(aim - camera.centre)
    return camera_towards(
        camera.centre, towards, roll_deg, camera.intrinsics[0, 0] * zoom, height, width, rng.normal(0, 0.02, 2)
    )


def camera_towards(
    centre: Array, towards: Array, roll_deg: float, focal: float, height: int, width: int, principal_shift: Array
) -> PosedCamera:
    """A camera at ``centre`` that looks along ``towards`` (unit length), upright but for its roll."""
    right = np.cross([0.0, 1.0, 0.0], towards)
    right /= np.linalg.norm(right)
    upright = np.stack([right, np.cross(towards, right), towards])
    cosine, sine = np.cos(np.radians(roll_deg)), np.sin(np.radians(roll_deg))
    rotation = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]]) @ upright
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, -rotation @ centre
    side = max(height, width)
    intrinsics = np.array(
        [
            [focal, 0, (width - 1) / 2 + side * principal_shift[0]],
            [0, focal, (height - 1) / 2 + side * principal_shift[1]],
            [0, 0, 1],
        ]
    )
    return PosedCamera(intrinsics, pose)


def _acceptable(
    camera0: PosedCamera, camera1: PosedCamera, height: int, width: int, options: ViewOptions, no_baseline: bool
) -> bool:
    """No ray grazes the plane, the views overlap, and the baseline is clearly there."""
    x, y = (axis.ravel() for axis in np.meshgrid(np.linspace(0, width - 1, 9), np.linspace(0, height - 1, 9)))
    seen = []
    for camera in (camera0, camera1):
        edge = camera.rays(*rim_pixels(height, width))
        if (edge[:, 2] < GRAZING * np.linalg.norm(edge, axis=-1)).any():
            return False
        rays = camera.rays(x, y)
        seen.append(camera.centre - rays * (camera.centre[2] / rays[:, 2:]))
    shares = []
    for points, other in ((seen[0], camera1), (seen[1], camera0)):
        xy = other.project(points)
        shares.append(((xy >= -0.5) & (xy <= [width - 0.5, height - 0.5])).all(axis=-1).mean())
    distance = min(-camera0.centre[2], -camera1.centre[2])
    baseline = np.linalg.norm(camera0.centre - camera1.centre)
    return max(shares) >= options.min_overlap and (no_baseline or baseline >= options.min_baseline * distance)
