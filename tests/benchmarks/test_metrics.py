from __future__ import annotations

import math

import pytest
import torch

from posfeat.benchmarks.metrics import (
    MMA_THRESHOLDS_PX,
    epipolar_precision,
    mma_score,
    recall_auc,
    repeatability,
    share_within,
    track_statistics,
    transfer_errors,
)
from posfeat.geometry.epipolar import fundamental_from_cameras
from posfeat.geometry.pose import pose_from_rotation_translation


def test_accuracy_of_one_pair_by_hand_to_the_last_digit() -> None:
    homography = [[1.02, 0.01, 3.0], [-0.02, 0.98, 5.0], [1e-4, -2e-4, 1.0]]
    rng = torch.Generator().manual_seed(3)
    xy0 = torch.rand(137, 2, generator=rng, dtype=torch.float64) * 400
    noise = torch.randn(137, 2, generator=rng, dtype=torch.float64) * 4
    xy1 = torch.stack([_map_by_hand(homography, x, y) for x, y in xy0.tolist()]) + noise

    shares = share_within(transfer_errors(torch.tensor(homography, dtype=torch.float64), xy0, xy1))

    for threshold, share in zip(MMA_THRESHOLDS_PX, shares.tolist(), strict=True):
        within = 0
        for (x0, y0), (x1, y1) in zip(xy0.tolist(), xy1.tolist(), strict=True):
            u, v = _map_by_hand(homography, x0, y0).tolist()
            within += math.hypot(u - x1, v - y1) <= threshold
        assert share == within / 137
    assert 0 < shares[0] < shares[9] < 1


def _map_by_hand(h: list[list[float]], x: float, y: float) -> torch.Tensor:
    w = h[2][0] * x + h[2][1] * y + h[2][2]
    return torch.tensor(
        [(h[0][0] * x + h[0][1] * y + h[0][2]) / w, (h[1][0] * x + h[1][1] * y + h[1][2]) / w], dtype=torch.float64
    )


def test_a_pair_without_matches_scores_zero() -> None:
    nothing = torch.zeros(0, 2)
    assert share_within(transfer_errors(torch.eye(3), nothing, nothing)).tolist() == [0.0] * 10


def test_a_point_sent_to_infinity_is_wrong_not_nan() -> None:
    homography = torch.tensor([[1.0, 0, 0], [0, 1, 0], [-1, 0, 1]])
    errors = transfer_errors(homography, torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert errors.tolist() == [math.inf]


def test_mma_score_weights_fall_from_1_9_to_1() -> None:
    assert mma_score(torch.ones(10)) == pytest.approx(1)
    assert mma_score(torch.eye(10)[0]) == pytest.approx(1.9 / 14.5)
    assert mma_score(torch.eye(10)[9]) == pytest.approx(1.0 / 14.5)


def test_auc_of_exact_results_is_one_and_of_failures_zero() -> None:
    assert recall_auc(torch.zeros(4), [5, 10]) == [1.0, 1.0]
    assert recall_auc(torch.full((4,), math.inf), [5, 10]) == [0.0, 0.0]
    assert recall_auc(torch.zeros(0), [5]) == [0.0]


def test_auc_agrees_with_the_area_counted_in_small_steps() -> None:
    errors = torch.tensor([0.5, 1.0, 3.0, 7.0, math.inf], dtype=torch.float64)
    knots_x, knots_y = [0.0, 0.5, 1.0, 3.0], [0.0, 0.2, 0.4, 0.6]

    def recall(x: float) -> float:
        for (x0, y0), (x1, y1) in zip(
            zip(knots_x, knots_y, strict=True), zip(knots_x[1:], knots_y[1:], strict=False), strict=False
        ):
            if x <= x1:
                return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return knots_y[-1]

    steps = 50_000
    area = sum(recall((i + 0.5) * 5 / steps) for i in range(steps)) / steps
    assert recall_auc(errors, [5])[0] == pytest.approx(area, abs=1e-6)


def test_repeatability_counts_the_common_part_only() -> None:
    shift = torch.tensor([[1.0, 0, 50], [0, 1, 0], [0, 0, 1]])
    keypoints0 = torch.tensor([[10.0, 10.0], [20.0, 10.0], [80.0, 10.0]])  # the last leaves image 1
    keypoints1 = torch.tensor([[60.0, 10.0], [70.0, 19.0], [5.0, 5.0]])  # the last is outside image 0
    size = (100, 40)
    assert repeatability(keypoints0, keypoints1, shift, size, size, 3.0) == pytest.approx(2 / 4)
    assert repeatability(keypoints0, keypoints1, shift, size, size, 10.0) == 1.0
    assert repeatability(keypoints0, keypoints1[:0], shift, size, size) == 0.0
    assert math.isnan(repeatability(keypoints0[2:], keypoints1[:0], shift, size, size))


def test_epipolar_precision_of_points_beside_their_lines() -> None:
    intrinsics = torch.tensor([[100.0, 0, 50], [0, 100, 40], [0, 0, 1]])
    sideways = pose_from_rotation_translation(torch.eye(3), torch.tensor([1.0, 0, 0]))
    fundamental = fundamental_from_cameras(intrinsics, intrinsics, sideways)
    xy0 = torch.tensor([[10.0, 10.0], [20.0, 20.0], [30.0, 30.0], [40.0, 5.0]])
    xy1 = xy0 + torch.tensor([[5.0, 0.0], [5.0, 0.75], [5.0, 1.25], [5.0, 4.0]])
    assert epipolar_precision(fundamental, xy0, xy1, [0.5, 1.0, 1.5]).tolist() == [0.25, 0.5, 0.75]


def test_track_statistics_of_known_lengths() -> None:
    statistics = track_statistics(torch.tensor([2, 2, 3, 5]))
    assert (statistics.points, statistics.observations, statistics.mean_length) == (4, 12, 3.0)
    assert statistics.median_length == 2.5
    assert statistics.histogram == {2: 2, 3: 1, 5: 1}
    assert track_statistics(torch.zeros(0, dtype=torch.int64)).points == 0
