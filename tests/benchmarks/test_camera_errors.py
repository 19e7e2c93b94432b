"""Camera errors are those that were put in, whatever frame and scale the reconstruction has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.benchmarks.camera_errors import camera_errors
from posfeat.data.distortion import pinhole_camera
from posfeat.geometry.pose import pose_from_rotation_translation, rotation_angle_deg, rotation_from_axis_angle
from posfeat.types import Array, ReconstructionError, View

CAMERA = pinhole_camera(640, 480, (500, 500, 319.5, 239.5))
SCALE = 7.0


def rotation(*vector: float) -> torch.Tensor:
    return rotation_from_axis_angle(torch.tensor(vector, dtype=torch.float64))


def view(name: str, rotation_: torch.Tensor, centre: torch.Tensor) -> View:
    pose = pose_from_rotation_translation(rotation_, -rotation_ @ centre)
    return View(Path(name), CAMERA, pose.numpy(), name=name)


def cameras(count: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(3)
    numbers = torch.rand(count, 6, generator=random, dtype=torch.float64) * 2 - 1
    return [(rotation_from_axis_angle(row[:3]), row[3:] * 4) for row in numbers]


def elsewhere(turn: torch.Tensor, rotation_: torch.Tensor, centre: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The camera in a frame that is turned, moved, and of another scale."""
    shift = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    return rotation_ @ turn.T, SCALE * turn @ centre + shift


def test_a_perfect_reconstruction_in_another_frame() -> None:
    turn = rotation(0.4, -1.2, 0.7)
    true = [view(f"{n}.jpg", *camera) for n, camera in enumerate(cameras())]
    found = [view(f"{n}.jpg", *elsewhere(turn, *camera)) for n, camera in enumerate(cameras())]
    errors = camera_errors(found[::-1], true)
    assert errors.names == tuple(v.name for v in true)
    assert errors.mean_centre_percent < 1e-9
    assert errors.mean_rotation_deg < 1e-5
    centres = torch.stack([centre for _, centre in cameras()])
    assert errors.size == pytest.approx(float(torch.cdist(centres, centres).max()))
    np.testing.assert_allclose(errors.centres, centres.numpy(), atol=1e-9)


def test_errors_are_those_that_were_put_in() -> None:
    turn, wrong = rotation(-0.3, 0.2, 2.0), rotation(0.0, 0.01, 0.0)
    true = [view(f"{n}.jpg", *camera) for n, camera in enumerate(cameras())]
    moved = list(cameras())
    moved[2] = (wrong @ moved[2][0], moved[2][1] + torch.tensor([0.0, 0.0, 1e-3], dtype=torch.float64))
    found = [view(f"{n}.jpg", *elsewhere(turn, *camera)) for n, camera in enumerate(moved)][:-1]
    errors = camera_errors(found, true)
    assert (len(errors.names), errors.num_true) == (7, 8)
    assert errors.centre_errors.argmax() == 2
    assert 5e-4 < errors.centre_errors[2] < 1e-3  # the alignment gives way a little
    expected: Array = np.zeros(7)
    expected[2] = float(rotation_angle_deg(wrong))
    np.testing.assert_allclose(errors.rotation_errors_deg, expected, atol=0.02)


def test_too_few_cameras() -> None:
    true = [view(f"{n}.jpg", *camera) for n, camera in enumerate(cameras())]
    with pytest.raises(ReconstructionError, match="2 of 8 cameras"):
        camera_errors(true[:2], true)
