"""The similarity between two sets of points is found exactly, and its errors are least where the points do not agree."""

from __future__ import annotations

import torch
from hypothesis import given

from posfeat.geometry.alignment import align_points
from posfeat.geometry.pose import rotation_angle_deg
from tests.geometry.strategies import SEEDS, floats, rotations, vectors


def cloud(seed: int, count: int = 12) -> torch.Tensor:
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(rotations(), vectors(-5, 5), floats(0.05, 20), SEEDS)
def test_a_similarity_is_found_again(
    rotation: torch.Tensor, translation: torch.Tensor, scale: float, seed: int
) -> None:
    source = cloud(seed)
    found = align_points(source, scale * source @ rotation.T + translation)
    assert abs(float(found.scale) / scale - 1) < 1e-9
    assert float(rotation_angle_deg(found.rotation.T @ rotation)) < 1e-6
    assert torch.allclose(found.translation, translation, atol=1e-8 * max(1.0, scale))


def test_a_mirror_image_is_not_mirrored_back() -> None:
    source = cloud(1)
    found = align_points(source, source * torch.tensor([-1.0, 1, 1], dtype=torch.float64))
    assert abs(float(torch.det(found.rotation)) - 1) < 1e-12


def test_points_on_a_plane() -> None:
    source = cloud(2)
    source[:, 2] = 0
    found = align_points(source, 2 * source + 1)
    assert torch.allclose(found.moved(source), 2 * source + 1, atol=1e-12)


@given(SEEDS)
def test_no_other_similarity_is_closer(seed: int) -> None:
    source, target = cloud(seed), cloud(seed + 1)
    found = align_points(source, target)
    least = float((found.moved(source) - target).square().sum())
    for axis in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[axis] = 1e-3
        assert float((found.moved(source) + shift - target).square().sum()) > least
    assert float((found._replace(scale=found.scale * 1.001).moved(source) - target).square().sum()) >= least
