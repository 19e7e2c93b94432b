"""The policy draws what its probabilities say, and reports them."""

from __future__ import annotations

import math

import pytest
import torch

from posfeat.losses.keypoint_policy import into_cells, sample_keypoints


def test_every_cell_proposes_one_of_its_own_pixels() -> None:
    scores = torch.randn(2, 1, 24, 40)
    sample = sample_keypoints(scores, 8, torch.Generator().manual_seed(0))
    assert sample.keypoints.shape == (2, 15, 2)
    cell = (sample.keypoints / 8).floor()
    expected = torch.stack([torch.arange(15) % 5, torch.arange(15) // 5], dim=-1).float()
    assert torch.equal(cell, expected.expand(2, -1, -1))
    assert torch.equal(sample.keypoints, sample.keypoints.round())


def test_pixels_beyond_the_last_full_cell_are_left_out() -> None:
    cells = into_cells(torch.arange(10.0 * 19).reshape(1, 1, 10, 19), 8)
    assert cells.shape == (1, 2, 64)
    assert cells[0, 1, 9] == 1 * 19 + 9  # second cell, its second row and second column


def test_log_probability_is_proposal_plus_acceptance() -> None:
    scores = torch.randn(1, 1, 8, 16, dtype=torch.float64)
    for seed in range(6):
        sample = sample_keypoints(scores, 8, torch.Generator().manual_seed(seed))
        for index in range(2):
            x, y = (int(v) for v in sample.keypoints[0, index])
            score = float(scores[0, 0, y, x])
            inside = scores[0, 0, :, 8 * index : 8 * index + 8]
            accept = 1 / (1 + math.exp(-score))
            accept = accept if bool(sample.accepted[0, index]) else 1 - accept
            probability = math.exp(score) / float(inside.exp().sum()) * accept
            assert float(sample.log_prob[0, index]) == pytest.approx(math.log(probability), rel=1e-9)


def test_frequencies_agree_with_the_policy() -> None:
    torch.manual_seed(3)
    scores = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    draws = 100_000
    sample = sample_keypoints(scores.expand(draws, -1, -1, -1), 4, torch.Generator().manual_seed(1))
    pixel = (sample.keypoints[:, 0, 1] * 4 + sample.keypoints[:, 0, 0]).long()
    counted = torch.bincount(pixel[sample.accepted[:, 0]], minlength=16) / draws
    expected = scores.flatten().softmax(0) * scores.flatten().sigmoid()
    error = (expected * (1 - expected) / draws).sqrt()
    assert ((counted - expected).abs() < 4.5 * error).all()
    assert float(sample.expected_count[0]) == pytest.approx(float(expected.sum()))


def test_one_seed_gives_one_draw() -> None:
    scores = torch.randn(2, 1, 16, 16)
    first, second = (sample_keypoints(scores, 8, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.keypoints, second.keypoints)
    assert torch.equal(first.accepted, second.accepted)


def test_gradients() -> None:
    scores = torch.randn(1, 1, 4, 8, dtype=torch.float64, requires_grad=True)

    def outputs(s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sample = sample_keypoints(s, 4, torch.Generator().manual_seed(2))
        return sample.log_prob, sample.expected_count

    assert torch.autograd.gradcheck(outputs, (scores,))


def test_extreme_scores_stay_finite() -> None:
    scores = torch.full((1, 1, 8, 8), -200.0)
    scores[0, 0, 3, 4] = 200.0
    scores.requires_grad_(True)
    sample = sample_keypoints(scores, 8)
    assert sample.keypoints[0, 0].tolist() == [4, 3]
    assert bool(sample.accepted[0, 0])
    sample.log_prob.sum().backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())
