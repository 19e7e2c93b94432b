"""Intrinsics under scaling and cropping, projection and its inverse, and the infinite homography."""

from __future__ import annotations

import torch
from hypothesis import given

from posfeat.geometry.camera import crop_intrinsics, infinite_homography, project, scale_intrinsics, unproject
from posfeat.geometry.homography import warp_points
from posfeat.geometry.pixels import rescale_pixels
from posfeat.geometry.pose import pose_from_rotation_translation
from tests.geometry.strategies import SEEDS, floats, intrinsics, moved, points_before_both, rotations

EYE = torch.eye(4, dtype=torch.float64)


@given(intrinsics(), floats(0.1, 4), floats(0.1, 4), SEEDS)
def test_scaled_camera_sees_rescaled_pixels(matrix: torch.Tensor, scale_x: float, scale_y: float, seed: int) -> None:
    points = points_before_both(EYE, seed)
    expected = rescale_pixels(project(matrix, points), scale_x, scale_y)
    assert torch.allclose(project(scale_intrinsics(matrix, scale_x, scale_y), points), expected, atol=1e-8)


@given(intrinsics(), floats(-50, 200), floats(-50, 200), SEEDS)
def test_cropped_camera_sees_shifted_pixels(matrix: torch.Tensor, left: float, top: float, seed: int) -> None:
    points = points_before_both(EYE, seed)
    expected = project(matrix, points) - torch.tensor([left, top], dtype=torch.float64)
    assert torch.allclose(project(crop_intrinsics(matrix, left, top), points), expected, atol=1e-8)


@given(intrinsics(), SEEDS)
def test_rays_return_to_their_pixels(matrix: torch.Tensor, seed: int) -> None:
    points = points_before_both(EYE, seed)
    rays = unproject(matrix, project(matrix, points))
    assert torch.allclose(rays * points[:, 2:], points, atol=1e-10)


@given(intrinsics(), intrinsics(), rotations(0.5), SEEDS)
def test_infinite_homography_is_exact_without_baseline(
    matrix0: torch.Tensor, matrix1: torch.Tensor, rotation: torch.Tensor, seed: int
) -> None:
    pose = pose_from_rotation_translation(rotation, torch.zeros(3, dtype=torch.float64))
    points = points_before_both(pose, seed)
    warped = warp_points(infinite_homography(matrix0, matrix1, pose), project(matrix0, points))
    assert torch.allclose(warped, project(matrix1, moved(pose, points)), atol=1e-6)
