"""The pixel convention: centres at whole numbers, cells in between, and reading maps exactly there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from posfeat.geometry.pixels import (
    cell_from_pixel,
    inside_image,
    pixel_from_cell,
    pixel_grid,
    rescale_pixels,
    sample_map,
)
from tests.geometry.strategies import SEEDS, floats, vectors


def test_cell_centre_is_the_middle_of_its_pixels() -> None:
    for stride in (1, 2, 4, 8, 16):
        column = torch.arange(5, dtype=torch.float64)
        cells = torch.stack([column, column + 1], dim=-1)
        assert torch.equal(pixel_from_cell(cells, stride), stride * cells + (stride - 1) / 2)


@given(vectors(-50, 700, size=2), floats(1, 32))
def test_cells_and_pixels_are_inverse(xy: torch.Tensor, stride: float) -> None:
    assert torch.allclose(pixel_from_cell(cell_from_pixel(xy, stride), stride), xy, atol=1e-10)


@given(vectors(-50, 700, size=2), floats(0.1, 8), floats(0.1, 8))
def test_rescaling_back_returns_the_pixel(xy: torch.Tensor, scale_x: float, scale_y: float) -> None:
    there = rescale_pixels(xy, scale_x, scale_y)
    assert torch.allclose(rescale_pixels(there, 1 / scale_x, 1 / scale_y), xy, atol=1e-9)


def test_rescaling_keeps_the_rim_of_the_image() -> None:
    rim = torch.tensor([[-0.5, -0.5], [639.5, 479.5]], dtype=torch.float64)
    assert torch.equal(rescale_pixels(rim, 0.5, 0.25), torch.tensor([[-0.5, -0.5], [319.5, 119.5]]).double())


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_averaging_pixels_agrees_with_cell_positions(stride: int) -> None:
    """A map made by averaging s x s pixels of the image of positions holds the positions of its cells' centres."""
    grid = pixel_grid(32, 48, dtype=torch.float64)
    averaged = F.avg_pool2d(grid.permute(2, 0, 1)[None], stride)[0].permute(1, 2, 0)
    cells = pixel_grid(32 // stride, 48 // stride, dtype=torch.float64)
    assert torch.allclose(averaged, pixel_from_cell(cells, stride), atol=1e-12)


def test_pixel_grid_holds_x_then_y() -> None:
    grid = pixel_grid(3, 5)
    assert grid.shape == (3, 5, 2)
    assert grid[2, 4].tolist() == [4, 2]


@given(SEEDS, st.sampled_from([1, 2, 4, 8]))
def test_sampling_at_cell_centres_returns_the_cells(seed: int, stride: int) -> None:
    dense = torch.rand(2, 3, 7, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    centres = pixel_from_cell(pixel_grid(7, 9, dtype=torch.float64), stride).expand(2, 7, 9, 2)
    assert torch.allclose(sample_map(dense, centres, stride), dense, atol=1e-12)


@given(SEEDS, st.sampled_from([1, 4, 16]))
def test_sampling_a_ramp_returns_the_position(seed: int, stride: int) -> None:
    """Bilinear reading is exact on linear functions; between the outer cell centres nothing is repeated."""
    random = torch.Generator().manual_seed(seed)
    height, width = 10, 14
    ramp = pixel_from_cell(pixel_grid(height, width, dtype=torch.float64), stride).permute(2, 0, 1)[None]
    spread = torch.rand(1, 4, 5, 2, generator=random, dtype=torch.float64)
    xy = pixel_from_cell(spread * torch.tensor([width - 1, height - 1]), stride)
    assert torch.allclose(sample_map(ramp, xy, stride), xy.permute(0, 3, 1, 2), atol=1e-9)


def test_sampling_beyond_the_rim_repeats_it() -> None:
    dense = torch.arange(12, dtype=torch.float64).reshape(1, 1, 3, 4)
    xy = torch.tensor([[[-100, -100], [100, -100], [-100, 100], [100, 100]]], dtype=torch.float64)
    assert sample_map(dense, xy).flatten().tolist() == [0, 3, 8, 11]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sampling_a_coarse_type_keeps_positions_exact(dtype: torch.dtype) -> None:
    """Positions must not be rounded to the type of the map: half precision would move them by whole pixels."""
    dense = torch.zeros(1, 1, 1, 640, dtype=dtype)
    dense[..., 1::2] = 1
    columns = torch.arange(640, dtype=torch.float32)
    xy = torch.stack([columns, torch.zeros_like(columns)], dim=-1)[None]
    sampled = sample_map(dense, xy)
    assert sampled.dtype == dtype
    assert torch.allclose(sampled.flatten(), dense.flatten(), atol=1e-3)


def test_sampling_has_the_right_gradient() -> None:
    dense = torch.rand(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    xy = torch.tensor([[[1.3, 2.2], [3.7, 0.4], [4.6, 3.1]]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda d, p: sample_map(d, p, 1.0), (dense, xy))


def test_inside_image_ends_half_a_pixel_beyond_the_centres() -> None:
    xy = torch.tensor([[-0.5, 0], [-0.51, 0], [9.5, 4.5], [9.51, 4], [5, 4.51], [0, 0]], dtype=torch.float64)
    assert inside_image(xy, height=5, width=10).tolist() == [True, False, True, False, False, True]
    assert inside_image(xy, height=5, width=10, margin=1).tolist() == [False] * 6
    assert bool(inside_image(torch.tensor([0.5, 0.5]), height=5, width=10, margin=1))
