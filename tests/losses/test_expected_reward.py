from __future__ import annotations

import torch

from posfeat.losses.expected_reward import ExpectedRewardOptions, expected_reward_loss, keypoint_probability


def shift(dx, dy):
    return torch.tensor([[[1.0, 0, dx], [0, 1, dy], [0, 0, 1]]], dtype=torch.float64)


def peak(x, y, height=16, width=24, strength=12.0):
    scores = torch.full((1, 1, height, width), -8.0, dtype=torch.float64)
    scores[0, 0, y, x] = strength
    return scores


def test_coinciding_keypoints_earn():
    sure = torch.ones(1, 6, dtype=torch.float64)
    options = ExpectedRewardOptions(weight=1.0, reach_px=0.8, cost=0.0)
    # one keypoint, moved by (3, 2): in the other image exactly there, a pixel off, far off
    losses = [
        expected_reward_loss(peak(5, 4), peak(x, 6), shift(3.0, 2.0), sure, 8, options).loss.item() for x in (8, 9, 15)
    ]
    assert abs(losses[0] - -1 / 6) < 0.01
    assert losses[0] < losses[1] < losses[2]
    assert abs(losses[2]) < 0.01
    unsure = expected_reward_loss(peak(5, 4), peak(8, 6), shift(3.0, 2.0), 0 * sure, 8, options)
    assert unsure.loss.item() == 0
    assert unsure.found_again.item() > 0.95


def test_a_keypoint_worse_than_the_others_loses_its_place():
    scores0, scores1 = peak(4, 4, strength=2.0), peak(4, 4, strength=2.0)
    scores0[0, 0, 4, 20] = 2.0  # a second one, which the other image does not have
    scores0.requires_grad_()
    options = ExpectedRewardOptions(weight=1.0, cost=0.7)
    loss = expected_reward_loss(scores0, scores1, shift(0.0, 0.0), torch.ones(1, 6).double(), 8, options).loss
    loss.sum().backward()
    assert scores0.grad[0, 0, 4, 4] < 0  # going down the gradient raises it
    assert scores0.grad[0, 0, 4, 20] > 0


def test_probabilities_are_those_of_the_policy():
    scores = torch.randn(2, 1, 16, 24)
    probability = keypoint_probability(scores, 8)
    cell = scores[0, 0, 8:, 8:16]
    torch.testing.assert_close(probability[0, 0, 8:, 8:16], cell.flatten().softmax(0).view(8, 8) * cell.sigmoid())


def test_gradient():
    torch.manual_seed(0)
    scores0, scores1 = (torch.randn(1, 1, 16, 16, dtype=torch.float64, requires_grad=True) for _ in range(2))
    trust = torch.rand(1, 4, dtype=torch.float64)
    turn = torch.tensor([[[0.9, -0.2, 2.0], [0.2, 0.9, -1.0], [0, 0, 1]]], dtype=torch.float64)
    options = ExpectedRewardOptions(weight=1.0, cost=0.0)  # the mean is a number, without gradient
    loss = lambda a, b: expected_reward_loss(a, b, turn, trust, 8, options).loss  # noqa: E731
    assert torch.autograd.gradcheck(loss, (scores0, scores1))


def test_nothing_in_common_costs_nothing():
    scores = torch.randn(1, 1, 16, 16, requires_grad=True)
    result = expected_reward_loss(
        scores, scores, shift(100.0, 0.0), torch.ones(1, 4), 8, ExpectedRewardOptions(weight=1.0)
    )
    result.loss.sum().backward()
    assert result.loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().max() == 0
