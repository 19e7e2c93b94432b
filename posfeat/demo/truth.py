"""Which matches are right, where that is known exactly: the measured disparity of a stereo pair, or the rendered scene."""

from __future__ import annotations

import numpy as np

from posfeat.data.random_views import PosedCamera
from posfeat.data.relief_scene import Scene, first_hit
from posfeat.demo.sample_photos import StereoPair
from posfeat.types import Array, Array32


def stereo_errors_px(pair: StereoPair, left_xy: Array32, right_xy: Array32) -> Array:
    """Distances (M,) of matched positions in the right photo from the true ones; NaN where the truth was not measured."""
    rows, columns = pair.disparity.shape
    column = np.clip(np.rint(left_xy[:, 0]).astype(int), 0, columns - 1)
    row = np.clip(np.rint(left_xy[:, 1]).astype(int), 0, rows - 1)
    true_x = left_xy[:, 0] - pair.disparity[row, column]
    return np.hypot(right_xy[:, 0] - true_x, right_xy[:, 1] - left_xy[:, 1]).astype(np.float64)


def rendered_errors_px(scene: Scene, camera0: PosedCamera, camera1: PosedCamera, xy0: Array32, xy1: Array32) -> Array:
    """Distances (M,) of matched positions in view 1 from where it has what view 0 shows."""
    return np.asarray(np.linalg.norm(rendered_residuals_px(scene, camera0, camera1, xy0, xy1), axis=-1))


def rendered_residuals_px(
    scene: Scene, camera0: PosedCamera, camera1: PosedCamera, xy0: Array32, xy1: Array32
) -> Array:
    """To matched positions (M, 2) in view 1 from where it has what view 0 shows."""
    if not len(xy0):
        return np.zeros((0, 2))
    x, y = xy0.astype(np.float64).T
    points = first_hit(scene, camera0.centre, camera0.rays(x, y))
    return np.asarray(xy1 - camera1.project(points))
