"""Lens models: there and back to 1e-8, agreement with textbook values, and NaN where there is no way back."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posfeat.geometry.distortion import NUM_DISTORTION_PARAMS, distort_points, undistort_points
from tests.geometry.strategies import SEEDS

GENTLE = {
    "OPENCV": (0.05, 0.02, 0.003, -0.002),
    "FULL_OPENCV": (0.1, 0.05, 0.001, -0.002, 0.01, 0.05, 0.02, 0.003),
    "FOV": (0.8,),
    "SIMPLE_DIVISION": (-0.1,),
    "DIVISION": (0.1,),
    "EUCM": (0.6, 1.1),
}


def params_of(model: str, strength: float) -> tuple[float, ...]:
    """Mild parameters of any model."""
    if model in GENTLE:
        return GENTLE[model]
    return tuple(strength * 0.02 / (1 + index) for index in range(NUM_DISTORTION_PARAMS[model]))


@given(st.sampled_from(sorted(NUM_DISTORTION_PARAMS)), SEEDS, st.floats(-1, 1))
def test_there_and_back(model: str, seed: int, strength: float) -> None:
    xy = 1.6 * torch.rand(50, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.8
    params = params_of(model, strength)
    back = undistort_points(model, params, distort_points(model, params, xy))
    assert float((back - xy).abs().max()) < 1e-8


@pytest.mark.parametrize("model", sorted(NUM_DISTORTION_PARAMS))
def test_the_centre_stays_and_is_not_nan(model: str) -> None:
    centre = torch.zeros(1, 2, dtype=torch.float64)
    params = params_of(model, 1.0)
    assert float(distort_points(model, params, centre).abs().max()) == 0
    assert float(undistort_points(model, params, centre).abs().max()) == 0


@pytest.mark.parametrize("model", ["SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV", "FOV", "DIVISION", "PINHOLE"])
def test_no_distortion_changes_nothing(model: str) -> None:
    xy = torch.rand(5, 2, dtype=torch.float64)
    params = (0.0,) * NUM_DISTORTION_PARAMS[model]
    assert torch.allclose(distort_points(model, params, xy), xy, atol=1e-12)
    assert torch.allclose(undistort_points(model, params, xy), xy, atol=1e-12)


def test_an_ideal_fisheye_shows_angles() -> None:
    xy = torch.tensor([[math.tan(0.7), 0.0], [0.0, -math.tan(1.2)]], dtype=torch.float64)
    expected = torch.tensor([[0.7, 0.0], [0.0, -1.2]], dtype=torch.float64)
    assert torch.allclose(distort_points("FISHEYE", (), xy), expected, atol=1e-12)


def test_what_lies_beside_or_behind_the_camera_is_nan() -> None:
    beyond = torch.tensor([[1.6, 0.0]], dtype=torch.float64)  # more than 90 degrees
    assert bool(undistort_points("FISHEYE", (), beyond).isnan().all())
    assert bool(undistort_points("FOV", (0.9,), torch.tensor([[1.8, 0.0]], dtype=torch.float64)).isnan().all())
    assert bool(undistort_points("DIVISION", (-0.5,), torch.tensor([[1.5, 0.0]], dtype=torch.float64)).isnan().all())


def test_beyond_the_fold_of_a_lens_there_is_no_way_back() -> None:
    """x (1 - 0.3 x^2) never exceeds 0.703: no point is sent to 0.8."""
    far = torch.tensor([[0.8, 0.0], [0.5, 0.0]], dtype=torch.float64)
    back = undistort_points("SIMPLE_RADIAL", (-0.3,), far)
    assert back.isnan().all(dim=-1).tolist() == [True, False]
    assert torch.allclose(distort_points("SIMPLE_RADIAL", (-0.3,), back[1:]), far[1:], atol=1e-10)


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown lens model"):
        distort_points("KALEIDOSCOPE", (0.1,), torch.zeros(1, 2))
