"""Keypoints earn what the poses say."""

from __future__ import annotations

import pytest
import torch

from posfeat.geometry.camera import project, unproject
from posfeat.geometry.pose import pose_from_rotation_translation, rotation_from_axis_angle
from posfeat.losses.epipolar_reward import (
    EpipolarRewardOptions,
    PoseConstraint,
    agrees_with_poses,
    epipolar_reward,
    pose_constraint,
)
from posfeat.types import OptionsError

K0 = torch.tensor([[300.0, 0, 160], [0, 310, 120], [0, 0, 1]])
K1 = torch.tensor([[280.0, 0, 150], [0, 280, 125], [0, 0, 1]])


def scene(baseline: float) -> tuple[torch.Tensor, torch.Tensor, PoseConstraint]:
    """Points seen by two cameras, and what their poses say."""
    rotation = rotation_from_axis_angle(torch.tensor([0.05, -0.1, 0.2]))
    pose = pose_from_rotation_translation(rotation, torch.tensor([0.8, 0.2, 0.1]) * baseline)
    xy0 = torch.rand(60, 2) * torch.tensor([320.0, 240.0])
    points = unproject(K0, xy0) * (3 + 2 * torch.rand(60, 1))
    xy1 = project(K1, points @ rotation.T + pose[:3, 3])
    return xy0, xy1, pose_constraint(K0, K1, pose, torch.tensor(baseline > 0))


@pytest.mark.parametrize("baseline", [1.0, 0.0])
def test_true_matches_agree_and_moved_ones_do_not(baseline: float) -> None:
    xy0, xy1, constraint = scene(baseline)
    assert bool(agrees_with_poses(xy0, xy1, constraint, 0.01).diagonal().all())
    across = xy1 + (torch.tensor([0.0, 8.0]) if baseline == 0 else epipolar_normals(xy0, constraint) * 8)
    assert not bool(agrees_with_poses(xy0, across, constraint, 2.0).diagonal().any())


def epipolar_normals(xy0: torch.Tensor, constraint: PoseConstraint) -> torch.Tensor:
    lines = torch.cat([xy0, torch.ones_like(xy0[:, :1])], -1).double() @ constraint.fundamental.T
    return torch.nn.functional.normalize(lines[:, :2], dim=-1).float()


def test_along_the_line_any_point_agrees() -> None:
    xy0, xy1, constraint = scene(1.0)
    normals = epipolar_normals(xy0, constraint)
    along = xy1 + torch.stack([-normals[:, 1], normals[:, 0]], -1) * 40
    assert bool(agrees_with_poses(xy0, along, constraint, 0.05).diagonal().all())


def test_without_baseline_only_the_one_point_agrees() -> None:
    xy0, xy1, constraint = scene(0.0)
    for shift, agrees in ((1.0, True), (6.0, False)):
        for direction in ((1.0, 0.0), (0.0, 1.0), (-0.7, 0.7)):
            moved = xy1 + shift * torch.tensor(direction)
            assert bool((agrees_with_poses(xy0, moved, constraint, 2.0).diagonal() == agrees).all())


@pytest.mark.parametrize("baseline", [1.0, 0.0])
def test_swapping_the_views_transposes(baseline: float) -> None:
    xy0, xy1, constraint = scene(baseline)
    back = PoseConstraint(constraint.fundamental.T, torch.linalg.inv(constraint.rotation_only), constraint.has_baseline)
    assert torch.equal(agrees_with_poses(xy0, xy1, constraint, 2.0), agrees_with_poses(xy1, xy0, back, 2.0).T)


def test_degenerate_geometry_agrees_with_nothing() -> None:
    behind = pose_from_rotation_translation(torch.diag(torch.tensor([-1.0, 1, -1])), torch.zeros(3))
    nothing = pose_constraint(K0, K1, behind, torch.tensor(False))
    xy = torch.rand(30, 2) * 200
    assert not bool(agrees_with_poses(xy, xy, nothing, 2.0).any())
    still = pose_constraint(K0, K0, torch.eye(4), torch.tensor(True))  # a wrong claim of a baseline
    assert not bool(agrees_with_poses(xy, xy, still, 2.0).any())


def test_rewards() -> None:
    agrees = torch.tensor([[True, False]])
    assert epipolar_reward(agrees, EpipolarRewardOptions()).tolist() == [[1.0, -0.25]]
    with pytest.raises(OptionsError):
        EpipolarRewardOptions(negative=0.5)
