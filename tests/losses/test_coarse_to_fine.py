"""The ablation's search: finds true matches without the pose, and passes gradients to both levels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from posfeat.losses.coarse_to_fine import search_coarse_to_fine
from posfeat.losses.epipolar_loss import epipolar_loss
from posfeat.losses.epipolar_targets import EpipolarTargets, epipolar_targets
from posfeat.losses.line_to_window import SearchOptions

HEIGHT, WIDTH, SHIFT = 96, 128, 16
OPTIONS = SearchOptions(window=0.25)


def shifted_maps(stride: int, dim: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct descriptors, the second image moved right by SHIFT pixels."""
    full = torch.randn(1, dim, HEIGHT // stride, (WIDTH + SHIFT) // stride, dtype=torch.float64)
    full = F.normalize(full, dim=1)
    return full[..., SHIFT // stride :], full[..., : WIDTH // stride]


def targets_of(xy0: torch.Tensor) -> EpipolarTargets:
    """Cameras side by side: rows are epipolar lines."""
    intrinsics = torch.tensor([[[100.0, 0, 64], [0, 100, 48], [0, 0, 1]]])
    pose = torch.eye(4)[None].clone()
    pose[:, 0, 3] = 1
    return epipolar_targets(xy0, intrinsics, intrinsics, pose, torch.tensor([True]), HEIGHT, WIDTH)


def cell_centres(stride: int) -> torch.Tensor:
    """Centres of the coarse map's cells that stay inside the second image, moved to centres of fine cells."""
    y, x = torch.meshgrid(torch.arange(1, HEIGHT // 16 - 1), torch.arange(1, WIDTH // 16 - 2), indexing="ij")
    centre = torch.stack([x, y], -1).reshape(1, -1, 2).double() * 16 + 7.5
    return centre - (2.0 if stride == 4 else 0.0)


def test_finds_true_matches() -> None:
    (fine0, fine1), (coarse0, coarse1) = shifted_maps(4), shifted_maps(16)
    xy0 = cell_centres(4)
    found = search_coarse_to_fine(coarse0, coarse1, fine0, fine1, xy0, targets_of(xy0), OPTIONS)
    truth = xy0 + xy0.new_tensor([SHIFT, 0.0])
    assert bool(found.fine.valid.all())
    assert float((found.coarse.expected - truth).norm(dim=-1).max()) < 8
    assert float((found.fine.expected - truth).norm(dim=-1).max()) < 0.1
    loss, counted = epipolar_loss(found.fine, targets_of(xy0), HEIGHT)
    assert bool(counted.all())
    assert float(loss) < 0.05


def test_spread_of_the_coarse_level() -> None:
    """Two equally likely cells: the mean lies between them, sigma is half their distance."""
    coarse0 = torch.zeros(1, 4, 6, 8, dtype=torch.float64)
    coarse0[:, 0] = 1
    coarse1 = torch.zeros_like(coarse0)
    coarse1[:, 1] = 1
    coarse1[0, :, 2, [1, 5]] = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)[:, None]
    fine = F.normalize(torch.randn(1, 4, 24, 32, dtype=torch.float64), dim=1)
    xy0 = torch.tensor([[[40.0, 40.0]]], dtype=torch.float64)
    found = search_coarse_to_fine(coarse0, coarse1, fine, fine, xy0, targets_of(xy0), OPTIONS).coarse
    assert found.expected[0, 0].tolist() == pytest.approx([3 * 16 + 7.5, 2 * 16 + 7.5])
    assert float(found.sigma) == pytest.approx(2 * 16 / (WIDTH / 2), abs=1e-4)


def test_gradients() -> None:
    maps = [t.clone().requires_grad_(True) for t in (*shifted_maps(16, 3), *shifted_maps(4, 3))]
    xy0 = cell_centres(4)[:, :3]
    options = SearchOptions(window=0.1, temperature=2.0)

    def outputs(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = search_coarse_to_fine(*tensors, xy0, targets_of(xy0), options)
        return found.coarse.expected, found.coarse.sigma

    def in_window(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = search_coarse_to_fine(*maps[:2], *tensors, xy0, targets_of(xy0), options)
        return found.fine.expected, found.fine.sigma

    assert torch.autograd.gradcheck(outputs, maps[:2] + [t.detach() for t in maps[2:]], fast_mode=True)
    assert torch.autograd.gradcheck(in_window, maps[2:], fast_mode=True)
    fine = search_coarse_to_fine(*maps, xy0, targets_of(xy0), options).fine
    gradients = torch.autograd.grad(fine.expected.square().sum(), maps, allow_unused=True)
    assert gradients[0] is None
    assert gradients[1] is None  # the window's place is taken as it is
    assert all(g is not None and bool(torch.isfinite(g).all()) and bool(g.any()) for g in gradients[2:])
