"""Stage 2: on frozen descriptions, the detector learns by policy gradient which pixels get matched rightly (Section 3.3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from posfeat.losses.epipolar_reward import pose_constraint
from posfeat.losses.keypoint_policy import KeypointSample, sample_keypoints
from posfeat.losses.match_distribution import unit_descriptors
from posfeat.losses.policy_gradient import PolicyGradientOptions, policy_gradient_loss
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested
from posfeat.training.stage import Stage, StageLoss
from posfeat.types import DescriptionMaps, PairBatch


@dataclass(frozen=True)
class DetectionOptions:
    """The detection stage's loss."""

    cell_px: int = described(8, "at most one keypoint is drawn in each cell of this size (g_k)", low=2)
    policy: PolicyGradientOptions = nested(PolicyGradientOptions, "policy gradient")

    def __post_init__(self) -> None:
        check_options(self)


class DetectionStage(Stage):
    """Trains ``model.detection``; not one tensor of the description changes, its running statistics included."""

    def __init__(self, model: PoSFeat, options: DetectionOptions) -> None:
        super().__init__()
        self.model, self.options = model, options
        model.freeze_description()
        self.prepare()
        self._frozen = description_fingerprint(model)

    def prepare(self) -> None:
        self.model.description.eval()
        self.model.detection.train()

    def forward(self, batch: PairBatch, generators: list[torch.Generator]) -> StageLoss:
        images = torch.cat([batch.image0, batch.image1])
        with torch.no_grad():
            maps = self.model.description(images)
        scores = self.model.detection(images, maps).float()
        return detection_loss(scores, maps, batch, self.options, generators, self.model.description.stride)

    def check_frozen(self) -> None:
        """Fail if the description has changed since this stage began."""
        assert description_fingerprint(self.model) == self._frozen, "the frozen description network has changed"


def detection_loss(
    scores: Tensor,
    maps: DescriptionMaps,
    batch: PairBatch,
    options: DetectionOptions,
    generators: list[torch.Generator],
    stride: int,
    learn_descriptors: bool = False,
) -> StageLoss:
    """The loss, from score maps and descriptor maps of all images 0 followed by all images 1."""
    views = zip(scores.chunk(2), maps.descriptors.float().chunk(2), strict=True)
    (sample0, descriptors0), (sample1, descriptors1) = (
        _draw(*view, options.cell_px, generators, stride) for view in views
    )
    constraint = pose_constraint(batch.intrinsics0, batch.intrinsics1, batch.cam1_from_cam0, batch.has_baseline)
    result = policy_gradient_loss(
        sample0, sample1, descriptors0, descriptors1, constraint, options.policy, learn_descriptors
    )
    metrics = {
        "keypoints": float(result.num_keypoints.mean()),
        "right_matches": float(result.num_right.mean()),
        "wrong_matches": float(result.num_wrong.mean()),
    }
    return StageLoss(result.loss.mean(), metrics)


def _draw(
    scores: Tensor, descriptor_map: Tensor, cell_px: int, generators: list[torch.Generator], stride: int
) -> tuple[KeypointSample, Tensor]:
    """Keypoints of one side of the pairs, each pair with its own random numbers, and their descriptors."""
    drawn = [sample_keypoints(one[None], cell_px, generator) for one, generator in zip(scores, generators, strict=True)]
    sample = KeypointSample(*(torch.cat(parts) for parts in zip(*drawn, strict=True)))
    return sample, unit_descriptors(descriptor_map, sample.keypoints, stride)


def description_fingerprint(model: PoSFeat) -> str:
    """A hash of every tensor of the description network."""
    digest = hashlib.sha256()
    for tensor in model.description.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
