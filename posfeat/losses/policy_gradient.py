"""The detection loss: keypoints that get matched in agreement with the poses become likelier (Section 3.3).

    L_kp = -1/(|Q0|+|Q1|) ( sum_ij P_m(i,j) R(i,j) log(P_kp(i) P_kp(j)) + lambda_reg (sum_i log P_kp(i) + sum_j log P_kp(j)) )

over the accepted keypoints Q0 and Q1. P_m and R are numbers here, so the loss is linear in the log-probabilities: all
that a keypoint needs is the sum of P_m R over its row or column, which is made without gradient, pair by pair.

Sign of lambda_reg. The gradient of -L_kp is an estimate of the gradient of E[sum_ij P_m R + lambda_reg |Q|], since
grad E[f] = E[f grad log P]. With lambda_reg = -0.001 every keypoint costs 0.001: one that is hardly ever matched rightly
loses its place, one that is wrongly matched loses it 250 times faster. A positive value would pay for empty keypoints.

What the expectation leaves out: P_m(i,j) also depends on the other keypoints of both images through the softmax's sums,
and the paper (as DISK) credits a pair's reward to the pair's own two keypoints only. The estimate is exact where a
pair's P_m does not hang on others, which the 0.9 truncation makes the rule.

Variance. The cost of a keypoint does not need sampling: its expectation lambda_reg E|Q| is a sum over pixels of
Softmax * Sigmoid, and ``exact_cost`` takes the gradient of that instead (equal on average, without noise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from posfeat.losses.epipolar_reward import EpipolarRewardOptions, PoseConstraint, agrees_with_poses, epipolar_reward
from posfeat.losses.keypoint_policy import KeypointSample
from posfeat.losses.match_distribution import match_probabilities
from posfeat.options import check_options, described, nested


@dataclass(frozen=True)
class PolicyGradientOptions:
    """The detection loss."""

    reward: EpipolarRewardOptions = nested(EpipolarRewardOptions, "what a pair of keypoints earns")
    regularisation: float = described(-0.001, "reward of every keypoint, a cost if negative (lambda_reg)")
    truncation: float = described(
        0.9, "rewarded pairs less likely to be matched than this count 0 (supplement); 0 counts all", low=0, high=1
    )
    normalise: bool = described(True, "divide by the number of keypoints (paper); false: the plain sum")
    exact_cost: bool = described(False, "expectation of the keypoints' cost in place of its sample (beyond the paper)")
    temperature: float = described(60.0, "factor of cosine similarities before the softmax", low=0)

    def __post_init__(self) -> None:
        check_options(self)


class DetectionLoss(NamedTuple):
    """The loss of each pair, and what says more about progress than its value does."""

    loss: Annotated[Tensor, "batch"]
    num_keypoints: Annotated[Tensor, "batch"]  # mean of the two images
    num_right: Annotated[Tensor, "batch"]  # expected number of matches that agree with the poses
    num_wrong: Annotated[Tensor, "batch"]


class PairRewards(NamedTuple):
    """What every keypoint of a pair earned: sums of P_m R over its row or column."""

    rewards0: Annotated[Tensor, "batch points0"]
    rewards1: Annotated[Tensor, "batch points1"]
    num_right: Annotated[Tensor, "batch"]
    num_wrong: Annotated[Tensor, "batch"]
    total: Annotated[Tensor, "batch"]  # sum of P_m R; carries gradients to descriptors that want them


def policy_gradient_loss(
    sample0: KeypointSample,
    sample1: KeypointSample,
    descriptors0: Annotated[Tensor, "batch points0 dim"],
    descriptors1: Annotated[Tensor, "batch points1 dim"],
    constraint: PoseConstraint,
    options: PolicyGradientOptions,
    learn_descriptors: bool = False,
) -> DetectionLoss:
    """L_kp of each pair; descriptors have unit length. Frozen descriptors get no gradient.

    ``learn_descriptors`` is for joint training: matches are then part of the policy too, and the exact gradient of the
    expected reward over matches, sum_ij R grad P_m, is added. It leaves the loss's value as it is.
    """
    with torch.set_grad_enabled(learn_descriptors and torch.is_grad_enabled()):
        earned = pair_rewards(sample0, sample1, descriptors0, descriptors1, constraint, options)
    reward = earned.total - earned.total.detach()
    for sample, rewards in ((sample0, earned.rewards0), (sample1, earned.rewards1)):
        credit = rewards.detach() + (0.0 if options.exact_cost else options.regularisation)
        reward = reward + torch.where(sample.accepted, credit * sample.log_prob, torch.zeros_like(credit)).sum(-1)
        if options.exact_cost:
            reward = reward + options.regularisation * sample.expected_count
    count = (sample0.accepted.sum(-1) + sample1.accepted.sum(-1)).to(reward.dtype)
    loss = -reward / count.clamp(min=1) if options.normalise else -reward
    return DetectionLoss(loss, count / 2, earned.num_right.detach(), earned.num_wrong.detach())


def pair_rewards(
    sample0: KeypointSample,
    sample1: KeypointSample,
    descriptors0: Annotated[Tensor, "batch points0 dim"],
    descriptors1: Annotated[Tensor, "batch points1 dim"],
    constraint: PoseConstraint,
    options: PolicyGradientOptions,
) -> PairRewards:
    """Truncated P_m times R, summed for every keypoint.

    A processor takes pair by pair, so that memory does not grow with the batch; an accelerator takes all at once.
    """
    batch = descriptors0.shape[0]
    at_once = 1 if descriptors0.device.type == "cpu" else batch
    parts = []
    for first in range(0, batch, at_once):
        items = slice(first, first + at_once)
        accepted0, accepted1 = sample0.accepted[items], sample1.accepted[items]
        probability = match_probabilities(
            descriptors0[items], descriptors1[items], options.temperature, accepted0, accepted1
        )
        of_pairs = PoseConstraint(*(part[items] for part in constraint))
        keypoints0, keypoints1 = sample0.keypoints[items], sample1.keypoints[items]
        right = agrees_with_poses(keypoints0, keypoints1, of_pairs, options.reward.threshold_px)
        reward = epipolar_reward(right, options.reward).to(probability)
        weighted = probability.masked_fill(right & (probability < options.truncation), 0) * reward
        num_right = (probability * right).sum((1, 2))
        num_wrong = probability.sum((1, 2)) - num_right
        parts.append(PairRewards(weighted.sum(2), weighted.sum(1), num_right, num_wrong, weighted.sum((1, 2))))
    return PairRewards(*(torch.cat(column) for column in zip(*parts, strict=True)))
