"""Warping by homographies, and their corner error."""

from __future__ import annotations

import torch
from hypothesis import given

from posfeat.geometry.homography import corner_error, warp_points
from tests.geometry.strategies import SEEDS, floats


@given(SEEDS)
def test_warping_there_and_back(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    matrix = torch.eye(3, dtype=torch.float64) + 0.1 * torch.rand(3, 3, generator=random, dtype=torch.float64)
    matrix[2, :2] *= 1e-3
    xy = 500 * torch.rand(2, 20, 2, generator=random, dtype=torch.float64)
    both = torch.stack([matrix, matrix.T.contiguous().T])
    back = warp_points(torch.linalg.inv(both), warp_points(both, xy))
    assert torch.allclose(back, xy, atol=1e-7)


@given(floats(-20, 20), floats(-20, 20))
def test_corner_error_of_a_shift_is_its_length(x: float, y: float) -> None:
    true = torch.eye(3, dtype=torch.float64)
    shift = true.clone()
    shift[0, 2], shift[1, 2] = x, y
    assert abs(float(corner_error(shift, true, 480, 640)) - (x * x + y * y) ** 0.5) < 1e-9


def test_corner_error_ignores_the_scale_of_the_matrix() -> None:
    true = torch.tensor([[1.1, 0.1, 5], [0, 0.9, -3], [1e-4, 0, 1]], dtype=torch.float64)
    assert float(corner_error(-3 * true, true, 480, 640)) < 1e-9
