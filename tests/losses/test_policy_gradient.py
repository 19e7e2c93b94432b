"""The detection loss: sampled gradients agree with enumerated exact ones, and it does what the paper writes."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from posfeat.losses.epipolar_reward import PoseConstraint, pose_constraint
from posfeat.losses.keypoint_policy import KeypointSample, sample_keypoints
from posfeat.losses.policy_gradient import PolicyGradientOptions, pair_rewards, policy_gradient_loss

K = torch.tensor([[100.0, 0, 8], [0, 100, 8], [0, 0, 1]])


def sideways(batch: int) -> PoseConstraint:
    """Cameras side by side: points agree where their y is the same."""
    pose = torch.eye(4).repeat(batch, 1, 1)
    pose[:, 0, 3] = 1
    intrinsics = K.expand(batch, 3, 3)
    return pose_constraint(intrinsics, intrinsics, pose, torch.ones(batch, dtype=torch.bool))


def options(**changes: object) -> PolicyGradientOptions:
    return PolicyGradientOptions(**({"normalise": False, "regularisation": -0.1} | changes))  # type: ignore[arg-type]


def pixel_descriptors(height: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(height, width, 4, generator=generator, dtype=torch.float64), dim=-1)


def read(descriptors: torch.Tensor, keypoints: torch.Tensor) -> torch.Tensor:
    return descriptors[keypoints[..., 1].long(), keypoints[..., 0].long()]


def sampled_gradients(
    scores: torch.Tensor, cell_px: int, draws: int, opts: PolicyGradientOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard error of the loss's gradient with respect to the scores (2, H, W) of both images."""
    repeated = scores.detach()[:, None, None].repeat(1, draws, 1, 1, 1).requires_grad_(True)
    generator = torch.Generator().manual_seed(0)
    samples = [sample_keypoints(repeated[view], cell_px, generator) for view in (0, 1)]
    height, width = scores.shape[-2:]
    described = [read(pixel_descriptors(height, width, view), samples[view].keypoints) for view in (0, 1)]
    loss = policy_gradient_loss(samples[0], samples[1], described[0], described[1], sideways(draws), opts).loss
    (gradient,) = torch.autograd.grad(loss.sum(), repeated)
    gradient = gradient[:, :, 0]
    return gradient.mean(1), gradient.std(1) / draws**0.5


@pytest.mark.parametrize("exact_cost", [False, True])
def test_two_cells_agree_with_the_enumerated_gradient(exact_cost: bool) -> None:
    """One cell of four pixels in each image: every outcome is a pair of pixels, and nothing is approximated."""
    opts = options(exact_cost=exact_cost)
    scores = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)
    policies = [s.flatten().softmax(0) * s.flatten().sigmoid() for s in scores]
    rows = torch.tensor([0, 0, 1, 1])
    reward = torch.where(rows[:, None] == rows[None, :], opts.reward.positive, opts.reward.negative).double()
    value = policies[0] @ reward @ policies[1] + opts.regularisation * (policies[0].sum() + policies[1].sum())
    (exact,) = torch.autograd.grad(-value, scores)
    narrow = PolicyGradientOptions(
        normalise=False, regularisation=-0.1, exact_cost=exact_cost, reward=type(opts.reward)(threshold_px=0.5)
    )
    mean, error = sampled_gradients(scores, 2, 1000, narrow)
    assert float(exact.abs().max()) > 5 * float(error.max())  # the check can fail
    assert bool(((mean - exact).abs() < 4.5 * error + 1e-12).all())


def test_two_cells_in_each_image_agree_with_the_enumerated_estimate() -> None:
    """Cells of one pixel: the sixteen outcomes of four acceptances, each with its own soft assignment."""
    opts = options(truncation=0.0, temperature=3.0)
    scores = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)
    accept = scores.flatten().sigmoid()
    estimate = torch.zeros_like(scores)
    value = torch.zeros((), dtype=torch.float64)
    for outcome in itertools.product([False, True], repeat=4):
        taken = torch.tensor(outcome)
        log_prob = torch.where(taken, accept, 1 - accept).log()
        samples = [
            KeypointSample(
                torch.tensor([[[0.0, 0.0], [1.0, 0.0]]], dtype=torch.float64),
                log_prob[2 * view : 2 * view + 2][None],
                taken[2 * view : 2 * view + 2][None],
                torch.zeros(1),
            )
            for view in (0, 1)
        ]
        described = [pixel_descriptors(1, 2, view).flatten(0, 1)[None] for view in (0, 1)]
        loss = policy_gradient_loss(samples[0], samples[1], described[0], described[1], sideways(1), opts).loss.sum()
        probability = log_prob.sum().exp()
        if any(outcome):
            estimate += probability.detach() * torch.autograd.grad(loss, scores, retain_graph=True)[0]
        earned = pair_rewards(samples[0], samples[1], described[0], described[1], sideways(1), opts)
        value = value - probability * (earned.total.sum() + opts.regularisation * sum(outcome))
    mean, error = sampled_gradients(scores, 1, 1000, opts)
    assert bool(((mean - estimate).abs() < 4.5 * error + 1e-12).all())
    # the paper's credit to the pair's own keypoints leaves out how they crowd other pairs: same direction, not equal
    (exact,) = torch.autograd.grad(value, scores)
    assert float(F.cosine_similarity(exact.flatten(), estimate.flatten(), dim=0)) > 0.9


def fixed_case() -> tuple[KeypointSample, KeypointSample, torch.Tensor, torch.Tensor]:
    """Three keypoints a view; 0-0 right, 1-1 wrong, 2 not accepted in either."""
    xy0 = torch.tensor([[[2.0, 2.0], [5.0, 6.0], [9.0, 9.0]]], dtype=torch.float64)
    xy1 = torch.tensor([[[4.0, 2.0], [5.0, 14.0], [9.0, 9.0]]], dtype=torch.float64)
    log_prob = torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64)
    accepted = torch.tensor([[True, True, False]])
    count = torch.tensor([2.0], dtype=torch.float64)
    descriptors = torch.eye(3, dtype=torch.float64)[None]
    sample0, sample1 = (KeypointSample(xy, log_prob, accepted, count) for xy in (xy0, xy1))
    return sample0, sample1, descriptors, descriptors


def test_value_is_the_papers_equation() -> None:
    result = policy_gradient_loss(*fixed_case(), sideways(1), PolicyGradientOptions())
    expected = -(1.0 * (-1 - 1) - 0.25 * (-2 - 2) - 0.001 * (-1 - 2 - 1 - 2)) / 4
    assert float(result.loss) == pytest.approx(expected, rel=1e-9)
    assert float(result.num_keypoints) == 2
    assert float(result.num_right) == pytest.approx(1)
    assert float(result.num_wrong) == pytest.approx(1)
    plain = policy_gradient_loss(*fixed_case(), sideways(1), PolicyGradientOptions(normalise=False))
    assert float(plain.loss) == pytest.approx(4 * expected, rel=1e-9)


def test_a_right_pair_gains_a_wrong_pair_loses_and_an_unmatched_keypoint_pays() -> None:
    sample0, sample1, d0, d1 = fixed_case()
    log_prob = sample0.log_prob.clone().requires_grad_(True)
    far = d1.clone()
    far[0, 1] = -far[0, 1]  # keypoint 1 finds no partner
    for descriptors1, slope in ((d1, 0.25 + 0.001), (far, 0.001)):
        loss = policy_gradient_loss(
            sample0._replace(log_prob=log_prob),
            sample1,
            d0,
            descriptors1,
            sideways(1),
            PolicyGradientOptions(normalise=False),
        ).loss.sum()
        (gradient,) = torch.autograd.grad(loss, log_prob)
        assert gradient[0].tolist() == pytest.approx([-1 + 0.001, slope, 0], abs=1e-9)


def test_truncation_leaves_uncertain_right_pairs_neutral() -> None:
    sample0, sample1, d0, d1 = fixed_case()
    unsure = {"temperature": 1.0, "normalise": False, "regularisation": 0.0}
    kept = pair_rewards(sample0, sample1, d0, d1, sideways(1), PolicyGradientOptions(**unsure, truncation=0.0))
    cut = pair_rewards(sample0, sample1, d0, d1, sideways(1), PolicyGradientOptions(**unsure))
    assert float(kept.rewards0[0, 0]) > 0
    assert float(cut.rewards0[0, 0]) < 0  # only what it loses with wrong partners remains
    torch.testing.assert_close(cut.rewards0.sum(), cut.rewards1.sum())
    torch.testing.assert_close(cut.num_right, kept.num_right)


def test_frozen_descriptors_get_no_gradient_and_joint_ones_the_right_one() -> None:
    sample0, sample1, d0, d1 = fixed_case()
    log_prob = sample0.log_prob.clone().requires_grad_(True)
    sample0 = sample0._replace(log_prob=log_prob)
    d0 = F.normalize(torch.randn(1, 3, 4, dtype=torch.float64), dim=-1).requires_grad_(True)
    d1 = F.normalize(torch.randn(1, 3, 4, dtype=torch.float64), dim=-1)
    opts = options(truncation=0.0, temperature=2.0)
    frozen = policy_gradient_loss(sample0, sample1, d0, d1, sideways(1), opts).loss.sum()
    assert torch.autograd.grad(frozen, d0, allow_unused=True, retain_graph=True)[0] is None
    joint = policy_gradient_loss(sample0, sample1, d0, d1, sideways(1), opts, learn_descriptors=True).loss.sum()
    assert float(joint.detach()) == pytest.approx(float(frozen.detach()))
    torch.testing.assert_close(
        torch.autograd.grad(joint, log_prob, retain_graph=True), torch.autograd.grad(frozen, log_prob)
    )
    expected = torch.autograd.grad(-pair_rewards(sample0, sample1, d0, d1, sideways(1), opts).total.sum(), d0)
    torch.testing.assert_close(torch.autograd.grad(joint, d0), expected)


def test_gradients() -> None:
    sample0, sample1, d0, d1 = fixed_case()
    opts = options(truncation=0.0, temperature=2.0)
    log_prob = sample0.log_prob.clone().requires_grad_(True)

    def loss(lp: torch.Tensor) -> torch.Tensor:
        return policy_gradient_loss(sample0._replace(log_prob=lp), sample1, d0, d1, sideways(1), opts).loss

    assert torch.autograd.gradcheck(loss, (log_prob,))
    d0 = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    d1 = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: pair_rewards(sample0, sample1, a, b, sideways(1), opts)[::4], (d0, d1))


def test_no_keypoints_no_loss() -> None:
    sample0, sample1, d0, d1 = fixed_case()
    log_prob = sample0.log_prob.clone().requires_grad_(True)
    nothing = sample0._replace(accepted=torch.zeros(1, 3, dtype=torch.bool), log_prob=log_prob)
    result = policy_gradient_loss(
        nothing, sample1._replace(accepted=nothing.accepted), d0, d1, sideways(1), PolicyGradientOptions()
    )
    result.loss.sum().backward()
    assert float(result.loss) == 0
    assert log_prob.grad is not None
    assert not bool(log_prob.grad.any())
