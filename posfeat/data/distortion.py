"""Lenses: COLMAP's camera parameters as a Camera, and distorted photos as pinhole photos.

Training and the epipolar geometry know pinhole cameras only. A distorted photo is resampled once with
``undistortion_map``; its keypoints can instead be moved with ``undistort_pixels``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from posfeat.geometry.distortion import FISHEYE_MODELS, NUM_DISTORTION_PARAMS, distort_points, undistort_points
from posfeat.geometry.pixels import COLMAP_OFFSET_PX, pixel_grid
from posfeat.types import Array, Array32, Camera, DataError

MAX_HALF_ANGLE_DEG = 55.0
"""A pinhole photo of a fisheye lens is cut here: the plane would stretch without end towards 90 degrees."""

_RIM_SAMPLES = 64
_SHRINK = 0.97
_MAX_SHRINKS = 100
_ONE_FOCAL_LENGTH = frozenset(
    {
        "SIMPLE_PINHOLE",
        "SIMPLE_RADIAL",
        "RADIAL",
        "SIMPLE_RADIAL_FISHEYE",
        "RADIAL_FISHEYE",
        "SIMPLE_DIVISION",
        "SIMPLE_FISHEYE",
    }
)


def num_colmap_params(model: str) -> int:
    """How many parameters a camera of this model has in COLMAP's files; DataError for models that are no plane."""
    if model not in NUM_DISTORTION_PARAMS:
        known = ", ".join(NUM_DISTORTION_PARAMS)
        raise DataError(f"camera model {model} is not one that a flat photo can be made of; known: {known}")
    return num_focal_lengths(model) + 2 + NUM_DISTORTION_PARAMS[model]


def num_focal_lengths(model: str) -> int:
    """Whether COLMAP's files give one focal length for both axes or one each; they are the first parameters."""
    return 1 if model in _ONE_FOCAL_LENGTH else 2


def camera_from_colmap(model: str, width: int, height: int, params: Sequence[float]) -> Camera:
    """A Camera of COLMAP's parameters; the principal point moves by half a pixel to 0-centred pixels here, only here."""
    if len(params) != num_colmap_params(model):
        raise DataError(f"camera model {model} takes {num_colmap_params(model)} parameters, not {len(params)}")
    values = [float(value) for value in params]
    focals, rest = values[: num_focal_lengths(model)], values[num_focal_lengths(model) :]
    if width <= 0 or height <= 0 or min(focals) <= 0 or not np.isfinite(values).all():
        raise DataError(f"camera {model} {width}x{height} {values} has a size or focal length that cannot be")
    return pinhole_camera(
        width,
        height,
        (focals[0], focals[-1], rest[0] - COLMAP_OFFSET_PX, rest[1] - COLMAP_OFFSET_PX),
        model=model,
        distortion=tuple(rest[2:]),
    )


def pinhole_camera(
    width: int,
    height: int,
    fx_fy_cx_cy: tuple[float, float, float, float],
    model: str = "PINHOLE",
    distortion: tuple[float, ...] = (),
) -> Camera:
    """A Camera of focal lengths and a principal point in 0-centred pixels."""
    fx, fy, cx, cy = fx_fy_cx_cy
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]], dtype=np.float64)
    return Camera(width=width, height=height, matrix=matrix, model=model, distortion=distortion)


def is_distorted(camera: Camera) -> bool:
    """Whether the photo differs from a pinhole photo."""
    return camera.model in FISHEYE_MODELS or camera.model == "EUCM" or any(camera.distortion)


def project_points(camera: Camera, points: Array) -> Array:
    """Pixels (N, 2) of points (N, 3) of the camera's frame, lens distortion included; the sign of z is the caller's."""
    plane = distort_points(camera.model, camera.distortion, torch.from_numpy(points[:, :2] / points[:, 2:])).numpy()
    return plane @ camera.matrix[:2, :2].T + camera.matrix[:2, 2]


def undistort_pixels(camera: Camera, xy: Array, target: Camera) -> Array:
    """Where pixels (N, 2) of a distorted photo lie in the pinhole photo ``target``; NaN where it cannot show them."""
    plane = torch.from_numpy((xy - camera.matrix[:2, 2]) @ np.linalg.inv(camera.matrix[:2, :2]).T)
    straight = undistort_points(camera.model, camera.distortion, plane).numpy()
    return straight @ target.matrix[:2, :2].T + target.matrix[:2, 2]


def undistorted_camera(camera: Camera) -> Camera:
    """The pinhole camera of the same focal lengths that sees a large upright rectangle without blank pixels."""
    fx, fy, cx, cy = _focals_and_centre(camera.matrix)
    if not is_distorted(camera):
        return pinhole_camera(camera.width, camera.height, (fx, fy, cx, cy))
    sides = _inner_sides(camera)
    for _ in range(_MAX_SHRINKS):
        left, top, right, bottom = sides
        width, height = int(np.floor(right - left)) + 1, int(np.floor(bottom - top)) + 1
        if width < 2 or height < 2:
            break
        target = pinhole_camera(width, height, (fx, fy, cx - left, cy - top))
        if _shows_no_blank(camera, target):
            return target
        sides = np.array([cx, cy, cx, cy]) + _SHRINK * (sides - [cx, cy, cx, cy])
    raise DataError(f"lens {camera.model} {camera.distortion} leaves no undistorted picture")


def undistortion_map(camera: Camera, target: Camera) -> Array32:
    """For every pixel of the pinhole photo ``target``, the position (x, y) in the distorted photo: (H, W, 2)."""
    key = (camera.width, camera.height, tuple(camera.matrix.ravel()), camera.model, camera.distortion)
    return _undistortion_map(*key, target.width, target.height, tuple(target.matrix.ravel()))


def undistort_image(rgb: npt.NDArray[np.uint8], camera: Camera, target: Camera | None = None) -> npt.NDArray[np.uint8]:
    """The pinhole photo of a distorted one; by default that of ``undistorted_camera(camera)``. Blank pixels are black."""
    import cv2

    straight = undistortion_map(camera, target or undistorted_camera(camera))
    remapped = cv2.remap(rgb, straight[..., 0], straight[..., 1], cv2.INTER_LINEAR)
    return np.asarray(remapped, dtype=np.uint8)


@lru_cache(maxsize=8)
def _undistortion_map(
    width: int,
    height: int,
    matrix: tuple[float, ...],
    model: str,
    distortion: tuple[float, ...],
    target_width: int,
    target_height: int,
    target_matrix: tuple[float, ...],
) -> Array32:
    camera = Camera(width, height, np.array(matrix).reshape(3, 3), model, distortion)
    grid = pixel_grid(target_height, target_width, dtype=torch.float64).reshape(-1, 2).numpy()
    rays = np.c_[grid, np.ones(len(grid))] @ np.linalg.inv(np.array(target_matrix).reshape(3, 3)).T
    return project_points(camera, rays).reshape(target_height, target_width, 2).astype(np.float32)


def _inner_sides(camera: Camera) -> Array:
    """Left, top, right, bottom within the photo's undistorted rim, in pixels of the pinhole camera of the same matrix."""
    fx, fy, cx, cy = _focals_and_centre(camera.matrix)
    same = pinhole_camera(camera.width, camera.height, (fx, fy, cx, cy))
    left, top, right, bottom = (undistort_pixels(camera, side, same) for side in _rim(camera))
    reach = np.tan(np.radians(MAX_HALF_ANGLE_DEG))
    low = [
        np.append(left[:, 0], cx - reach * fx),
        np.append(top[:, 1], cy - reach * fy),
    ]
    high = [
        np.append(right[:, 0], cx + reach * fx),
        np.append(bottom[:, 1], cy + reach * fy),
    ]
    return np.array([*(np.nanmax(values) for values in low), *(np.nanmin(values) for values in high)])


def _shows_no_blank(camera: Camera, target: Camera) -> bool:
    """Whether the whole rim of the pinhole photo lies in the distorted photo, and on this side of the lens's fold."""
    rim = np.concatenate(_rim(target))
    rays = np.c_[rim, np.ones(len(rim))] @ np.linalg.inv(target.matrix).T
    source = project_points(camera, rays)
    inside = (source >= -0.5).all() and (source <= [camera.width - 0.5, camera.height - 0.5]).all()
    return bool(inside and np.allclose(undistort_pixels(camera, source, target), rim, atol=1e-3))


def _rim(camera: Camera) -> tuple[Array, Array, Array, Array]:
    """Pixels along the left, top, right and bottom of a photo."""
    x, y = np.linspace(0, camera.width - 1, _RIM_SAMPLES), np.linspace(0, camera.height - 1, _RIM_SAMPLES)
    right, bottom = np.full_like(y, camera.width - 1), np.full_like(x, camera.height - 1)
    return np.c_[0 * y, y], np.c_[x, 0 * x], np.c_[right, y], np.c_[x, bottom]


def _focals_and_centre(matrix: Array) -> tuple[float, float, float, float]:
    return float(matrix[0, 0]), float(matrix[1, 1]), float(matrix[0, 2]), float(matrix[1, 2])
