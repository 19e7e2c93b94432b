"""Rigid motions and the angles between them, exact at both ends of the scale."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from posfeat.geometry.pose import (
    camera_centre,
    invert_pose,
    pose_error_deg,
    pose_from_rotation_translation,
    quaternion_from_rotation,
    relative_pose,
    rotation_angle_deg,
    rotation_from_axis_angle,
    rotation_from_quaternion,
    vector_angle_deg,
)
from tests.geometry.strategies import SEEDS, floats, moved, poses, rotations, vectors

EYE = torch.eye(4, dtype=torch.float64)


@given(poses())
def test_a_pose_after_its_inverse_is_nothing(pose: torch.Tensor) -> None:
    assert torch.allclose(invert_pose(pose) @ pose, EYE, atol=1e-12)
    assert torch.allclose(pose @ invert_pose(pose), EYE, atol=1e-12)


@given(poses(), poses(), SEEDS)
def test_relative_pose_takes_camera_0_to_camera_1(pose0: torch.Tensor, pose1: torch.Tensor, seed: int) -> None:
    world = torch.rand(20, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    through = moved(relative_pose(pose0, pose1), moved(pose0, world))
    assert torch.allclose(through, moved(pose1, world), atol=1e-10)


@given(poses())
def test_camera_centre_goes_to_the_origin(pose: torch.Tensor) -> None:
    assert torch.allclose(moved(pose, camera_centre(pose)), torch.zeros(3, dtype=torch.float64), atol=1e-12)


def test_batches_are_the_same_as_single_poses() -> None:
    single = [
        pose_from_rotation_translation(rotation_from_axis_angle(torch.randn(3)), torch.randn(3)) for _ in range(6)
    ]
    batch = torch.stack(single).reshape(2, 3, 4, 4)
    assert torch.allclose(invert_pose(batch).reshape(6, 4, 4), torch.stack([invert_pose(pose) for pose in single]))


@given(vectors(-3, 3).filter(lambda v: 1e-6 < float(v.norm()) < math.pi))
def test_angle_of_an_axis_angle_is_its_length(vector: torch.Tensor) -> None:
    angle = float(rotation_angle_deg(rotation_from_axis_angle(vector)))
    assert angle == pytest.approx(math.degrees(float(vector.norm())), abs=1e-6)


@pytest.mark.parametrize("angle_deg", [0.0, 1e-10, 1e-7, 1e-4, 179.9999, 180 - 1e-7, 180.0])
def test_angles_are_exact_at_both_ends(angle_deg: float) -> None:
    """An arc cosine of the trace would give 0 for 1e-7 degrees, and 1e-6 for 0."""
    axis = torch.tensor([0.48, -0.6, 0.64], dtype=torch.float64)
    rotation = rotation_from_axis_angle(axis * math.radians(angle_deg))
    assert float(rotation_angle_deg(rotation)) == pytest.approx(angle_deg, rel=1e-6, abs=1e-13)


@given(vectors(-2, 2), vectors(-2, 2))
def test_axis_angle_is_the_matrix_exponential(a: torch.Tensor, b: torch.Tensor) -> None:
    for vector in (a, b * 1e-5, torch.zeros(3, dtype=torch.float64)):
        x, y, z = vector.tolist()
        generator = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
        assert torch.allclose(rotation_from_axis_angle(vector), torch.linalg.matrix_exp(generator), atol=1e-12)


@given(vectors(-1, 1, size=4).filter(lambda q: float(q.norm()) > 1e-3), floats(0.1, 10))
def test_quaternions_of_any_length_and_sign_give_a_rotation(wxyz: torch.Tensor, scale: float) -> None:
    rotation = rotation_from_quaternion(wxyz)
    assert torch.allclose(rotation @ rotation.T, EYE[:3, :3], atol=1e-12)
    assert float(torch.linalg.det(rotation)) == pytest.approx(1)
    assert torch.allclose(rotation_from_quaternion(-scale * wxyz), rotation, atol=1e-12)


@given(vectors(-3, 3).filter(lambda v: float(v.norm()) > 1e-3))
def test_quaternion_and_axis_angle_agree(vector: torch.Tensor) -> None:
    half = vector.norm() / 2
    wxyz = torch.cat([half.cos()[None], vector / vector.norm() * half.sin()])
    assert torch.allclose(rotation_from_quaternion(wxyz), rotation_from_axis_angle(vector), atol=1e-12)


def test_axis_angle_has_finite_gradients_at_no_rotation() -> None:
    vector = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    rotation_from_axis_angle(vector)[0, 1].backward()
    assert vector.grad is not None
    assert torch.allclose(vector.grad, torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64))


@pytest.mark.parametrize("angle_deg", [0.0, 1e-9, 1e-4, 45.0, 90.0, 180 - 1e-6, 180.0])
def test_angles_of_directions_are_exact(angle_deg: float) -> None:
    a = torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    angle = math.radians(angle_deg)
    b = 5 * torch.tensor([math.cos(angle), math.sin(angle), 0.0], dtype=torch.float64)
    assert float(vector_angle_deg(a, b)) == pytest.approx(angle_deg, rel=1e-7, abs=1e-13)


def test_a_direction_without_length_has_no_angle() -> None:
    assert float(vector_angle_deg(torch.zeros(3), torch.ones(3))) == 0


@given(poses(), vectors(-0.4, 0.4), floats(0.1, 9))
def test_pose_error_is_the_rotation_between_and_ignores_scale(
    true: torch.Tensor, change: torch.Tensor, scale: float
) -> None:
    estimated = true.clone()
    estimated[:3, :3] = true[:3, :3] @ rotation_from_axis_angle(change)
    estimated[:3, 3] *= scale
    rotation, translation = pose_error_deg(estimated, true)
    assert float(rotation) == pytest.approx(math.degrees(float(change.norm())), abs=1e-6)
    assert float(translation) == pytest.approx(0, abs=1e-6)


def test_pose_error_of_the_opposite_direction_is_180() -> None:
    true = pose_from_rotation_translation(EYE[:3, :3], torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    estimated = true.clone()
    estimated[:3, 3] *= -1
    assert float(pose_error_deg(estimated, true)[1]) == pytest.approx(180)


@given(rotations(6.3))
def test_quaternions_and_rotations_are_the_same_thing(rotation: torch.Tensor) -> None:
    wxyz = quaternion_from_rotation(rotation)
    assert float(wxyz[0]) >= 0
    assert torch.allclose(rotation_from_quaternion(wxyz), rotation, atol=1e-14)


def test_quaternions_of_half_turns_in_a_batch() -> None:
    turns = torch.eye(3, dtype=torch.float64) * math.pi
    wxyz = quaternion_from_rotation(rotation_from_axis_angle(turns))
    assert torch.allclose(wxyz[:, 1:].abs(), torch.eye(3, dtype=torch.float64), atol=1e-15)
