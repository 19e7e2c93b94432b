"""Fundamental matrices against projected points, clipping against brute force, distances, and every degenerate case."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from posfeat.geometry.camera import project
from posfeat.geometry.epipolar import (
    clip_lines,
    cross_matrix,
    epipolar_lines,
    essential_from_pose,
    fundamental_from_cameras,
    has_baseline,
    signed_distance,
    symmetric_epipolar_distance,
)
from posfeat.geometry.pose import invert_pose, pose_from_rotation_translation, rotation_from_axis_angle
from tests.geometry.strategies import SEEDS, baselines, floats, intrinsics, moved, points_before_both, vectors

HEIGHT, WIDTH = 480, 640


@given(vectors(-5, 5), vectors(-5, 5))
def test_cross_matrix_is_the_cross_product(a: torch.Tensor, b: torch.Tensor) -> None:
    assert torch.allclose(cross_matrix(a) @ b, torch.linalg.cross(a, b), atol=1e-12)


@given(baselines(), SEEDS)
def test_essential_matrix_holds_for_points(pose: torch.Tensor, seed: int) -> None:
    points = points_before_both(pose, seed)
    rays0, rays1 = points / points[:, 2:], moved(pose, points) / moved(pose, points)[:, 2:]
    residual = (rays1 @ essential_from_pose(pose) * rays0).sum(-1)
    assert float(residual.abs().max() if len(residual) else 0) < 1e-9


@given(intrinsics(), intrinsics(), baselines(), SEEDS)
def test_projected_points_lie_on_their_lines(k0: torch.Tensor, k1: torch.Tensor, pose: torch.Tensor, seed: int) -> None:
    points = points_before_both(pose, seed)
    assume(len(points) > 0)
    xy0, xy1 = project(k0, points), project(k1, moved(pose, points))
    fundamental = fundamental_from_cameras(k0, k1, pose)
    assert float(torch.linalg.matrix_norm(fundamental)) == pytest.approx(1)
    # a pixel that happens to be the epipole has no line, one close to it a line that rounding turns
    epipole0, epipole1 = (_pixel(k0, invert_pose(pose)[:3, 3]), _pixel(k1, pose[:3, 3]))
    clear = ((xy0 - epipole0).norm(dim=-1) > 1) & ((xy1 - epipole1).norm(dim=-1) > 1)
    distance0, distance1 = symmetric_epipolar_distance(fundamental, xy0[clear], xy1[clear])
    assert bool((distance0 < 1e-6).all())
    assert bool((distance1 < 1e-6).all())


def _pixel(matrix: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    image = matrix @ point
    return image[:2] / image[2] if abs(float(image[2])) > 1e-12 else torch.full((2,), 1e12, dtype=torch.float64)


@given(intrinsics(), intrinsics(), baselines())
def test_swapping_the_views_transposes_the_matrix(k0: torch.Tensor, k1: torch.Tensor, pose: torch.Tensor) -> None:
    there = fundamental_from_cameras(k0, k1, pose)
    back = fundamental_from_cameras(k1, k0, invert_pose(pose))
    sign = torch.sign((there.T * back).sum())
    assert torch.allclose(there.T, sign * back, atol=1e-9)


@given(intrinsics(), intrinsics(), baselines(), floats(1e-3, 1e3))
def test_the_unit_of_length_does_not_matter(
    k0: torch.Tensor, k1: torch.Tensor, pose: torch.Tensor, scale: float
) -> None:
    larger = pose.clone()
    larger[:3, 3] *= scale
    assert torch.allclose(fundamental_from_cameras(k0, k1, larger), fundamental_from_cameras(k0, k1, pose), atol=1e-12)


@given(intrinsics(), intrinsics(), baselines(), SEEDS)
def test_lines_have_unit_normals(k0: torch.Tensor, k1: torch.Tensor, pose: torch.Tensor, seed: int) -> None:
    xy0 = torch.rand(20, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 500
    lines = epipolar_lines(fundamental_from_cameras(k0, k1, pose), xy0)
    length = lines[:, :2].norm(dim=-1)
    assert bool((((length - 1).abs() < 1e-12) | (lines.abs().sum(-1) == 0)).all())


def test_without_a_baseline_there_are_no_lines() -> None:
    k = torch.tensor([[500, 0, 320], [0, 500, 240], [0, 0, 1]], dtype=torch.float64)
    turn = rotation_from_axis_angle(torch.tensor([0.1, 0.2, -0.1], dtype=torch.float64))
    pose = pose_from_rotation_translation(turn, torch.zeros(3, dtype=torch.float64))
    fundamental = fundamental_from_cameras(k, k, pose)
    assert torch.equal(fundamental, torch.zeros(3, 3, dtype=torch.float64))
    xy = torch.tensor([[100.0, 50.0]], dtype=torch.float64)
    lines = epipolar_lines(fundamental, xy)
    assert torch.equal(lines, torch.zeros(1, 3, dtype=torch.float64))
    segments = clip_lines(lines, HEIGHT, WIDTH)
    assert segments.valid.tolist() == [False]
    assert bool(torch.isfinite(segments.start).all() and torch.isfinite(segments.end).all())
    assert all(bool(torch.isinf(d).all()) for d in symmetric_epipolar_distance(fundamental, xy, xy))
    assert not bool(has_baseline(pose))


def test_the_epipole_itself_has_no_line() -> None:
    """Moving forward without turning, the principal point is the epipole; its pixel has no line, its neighbours have."""
    k = torch.tensor([[500, 0, 320], [0, 500, 240], [0, 0, 1]], dtype=torch.float64)
    forward = pose_from_rotation_translation(
        torch.eye(3, dtype=torch.float64), torch.tensor([0, 0, -1], dtype=torch.float64)
    )
    fundamental = fundamental_from_cameras(k, k, forward)
    xy = torch.tensor([[320, 240], [321, 240], [320, 200]], dtype=torch.float64)
    lines = epipolar_lines(fundamental, xy)
    assert torch.equal(lines[0], torch.zeros(3, dtype=torch.float64))
    assert float(signed_distance(lines[1], torch.tensor([500, 240], dtype=torch.float64)).abs()) < 1e-9
    assert float(signed_distance(lines[2], torch.tensor([320, 10], dtype=torch.float64)).abs()) < 1e-9


@given(floats(0, 2 * math.pi), floats(-900, 900))
def test_clipping_agrees_with_brute_force(angle: float, offset: float) -> None:
    line = torch.tensor([math.cos(angle), math.sin(angle), offset], dtype=torch.float64)
    along = torch.linspace(-2000, 2000, 16_001, dtype=torch.float64)[:, None]  # every quarter of a pixel
    points = -line[2] * line[:2] + along * torch.stack([-line[1], line[0]])
    high = torch.tensor([WIDTH - 1, HEIGHT - 1], dtype=torch.float64)
    within = torch.minimum(points, high - points).amin(dim=-1)  # distance from the rim
    segments = clip_lines(line, HEIGHT, WIDTH)
    if not bool((within > 1e-6).any()):  # beside the image, or along its rim, or over less than a step of a corner
        on_rim = bool((within > -1e-6).sum() > 2)
        assert on_rim or not bool(segments.valid) or float((segments.end - segments.start).norm()) < 1
        return
    inside = points[within > 0]
    assert bool(segments.valid)
    assert float((segments.start - inside[0]).norm()) < 0.6
    assert float((segments.end - inside[-1]).norm()) < 0.6
    for end in (segments.start, segments.end):
        assert abs(float(signed_distance(line, end))) < 1e-9
        assert bool((end >= -1e-9).all() and (end <= high + 1e-9).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("line", "start", "end"),
    [
        ((0.0, 1.0, -100.0), (0, 100), (639, 100)),
        ((1.0, 0.0, -30.0), (30, 0), (30, 479)),
        ((0.0, 1.0, 0.0), (0, 0), (639, 0)),
        ((0.0, 1.0, -479.0), (0, 479), (639, 479)),
        ((1e-12, 1.0, -100.0), (0, 100), (639, 100)),
    ],
)
def test_lines_along_the_axes(line: tuple, start: tuple, end: tuple, dtype: torch.dtype) -> None:
    segments = clip_lines(torch.tensor(line, dtype=dtype), HEIGHT, WIDTH)
    assert bool(segments.valid)
    ends = sorted([segments.start.tolist(), segments.end.tolist()])
    assert ends[0] == pytest.approx(start, abs=1e-4)
    assert ends[1] == pytest.approx(end, abs=1e-4)


@pytest.mark.parametrize("line", [(0.0, 1.0, 5.0), (1.0, 0.0, -640.0), (math.sqrt(0.5), math.sqrt(0.5), 1.0)])
def test_lines_beside_the_image_are_not_valid(line: tuple) -> None:
    assert not bool(clip_lines(torch.tensor(line, dtype=torch.float64), HEIGHT, WIDTH).valid)


@given(st.lists(st.tuples(floats(0, 6.3), floats(-900, 900)), min_size=1, max_size=20))
def test_single_precision_clips_alike(lines: list[tuple[float, float]]) -> None:
    exact = torch.tensor([[math.cos(a), math.sin(a), c] for a, c in lines], dtype=torch.float64)
    fine, coarse = clip_lines(exact, HEIGHT, WIDTH), clip_lines(exact.float(), HEIGHT, WIDTH)
    long = (fine.end - fine.start).norm(dim=-1) > 1  # a line that only grazes a corner may be lost
    assert bool(coarse.valid[long].all())
    assert bool(((coarse.start[long] - fine.start[long]).norm(dim=-1) < 0.05).all())
    assert bool(((coarse.end[long] - fine.end[long]).norm(dim=-1) < 0.05).all())


@given(intrinsics(), intrinsics(), baselines(), SEEDS)
def test_symmetric_distance_is_the_distance_to_both_lines(
    k0: torch.Tensor, k1: torch.Tensor, pose: torch.Tensor, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    xy0, xy1 = (torch.rand(10, 2, generator=random, dtype=torch.float64) * 480 for _ in range(2))
    fundamental = fundamental_from_cameras(k0, k1, pose)
    distance0, distance1 = symmetric_epipolar_distance(fundamental, xy0, xy1)
    swapped1, swapped0 = symmetric_epipolar_distance(fundamental.T, xy1, xy0)
    assert torch.equal(distance0, swapped0)
    assert torch.equal(distance1, swapped1)
    for row in range(10):
        a, b, c = (fundamental @ torch.cat([xy0[row], torch.ones(1, dtype=torch.float64)])).tolist()
        if math.hypot(a, b) > 1e-9:
            x, y = xy1[row].tolist()
            assert float(distance1[row]) == pytest.approx(abs(a * x + b * y + c) / math.hypot(a, b), abs=1e-8)


def test_batches_and_broadcasting() -> None:
    fundamental = torch.randn(2, 3, 3, dtype=torch.float64)
    lines = epipolar_lines(fundamental, torch.rand(2, 7, 2, dtype=torch.float64))
    assert lines.shape == (2, 7, 3)
    assert signed_distance(lines[:, :, None], torch.rand(2, 1, 5, 2, dtype=torch.float64)).shape == (2, 7, 5)
    assert clip_lines(lines, HEIGHT, WIDTH).valid.shape == (2, 7)


def test_baseline_is_relative_to_depth() -> None:
    pose = torch.eye(4, dtype=torch.float64)
    pose[0, 3] = 0.01
    assert bool(has_baseline(pose))
    assert not bool(has_baseline(pose, scene_depth=100.0))
