"""Stage 2: on frozen descriptions, the detector learns by policy gradient which pixels get matched rightly (Section 3.3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from posfeat.geometry.camera import infinite_homography
from posfeat.geometry.pixels import pixel_from_cell, pixel_grid
from posfeat.geometry.pose import invert_pose
from posfeat.losses.epipolar_reward import pose_constraint
from posfeat.losses.epipolar_targets import epipolar_targets
from posfeat.losses.expected_reward import ExpectedReward, ExpectedRewardOptions, expected_reward_loss
from posfeat.losses.keypoint_policy import KeypointSample, sample_keypoints
from posfeat.losses.line_to_window import SearchOptions, search_line_to_window
from posfeat.losses.match_distribution import unit_descriptors
from posfeat.losses.policy_gradient import PolicyGradientOptions, policy_gradient_loss
from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested
from posfeat.training.stage import Stage, StageLoss, full_precision
from posfeat.types import DescriptionMaps, PairBatch


@dataclass(frozen=True)
class DetectionOptions:
    """The detection stage's loss."""

    cell_px: int = described(8, "at most one keypoint is drawn in each cell of this size (g_k)", low=2)
    policy: PolicyGradientOptions = nested(PolicyGradientOptions, "policy gradient")
    policy_weight: float = described(1.0, "weight of the policy gradient", low=0)
    expected: ExpectedRewardOptions = nested(ExpectedRewardOptions, "exact expectation on pairs without baseline")

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

    def forward(self, batch: PairBatch, generators: list[torch.Generator], step: int = 0) -> StageLoss:
        images = torch.cat([batch.image0, batch.image1])
        with torch.no_grad():
            maps = self.model.description(images)
        scores = self.model.detection(images, maps).float()
        with full_precision(images.device):
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
    descriptors = maps.descriptors.float()
    views = zip(scores.chunk(2), descriptors.chunk(2), strict=True)
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
    loss = options.policy_weight * result.loss.mean()
    if options.expected.weight > 0 and not bool(batch.has_baseline.all()):
        expected = _expected_reward(scores, descriptors.detach(), batch, options, stride)
        loss = loss + options.expected.weight * expected.loss.sum() / len(batch.image0)
        metrics["found_again"] = float(expected.found_again.mean())
    return StageLoss(loss, metrics)


def _expected_reward(
    scores: Tensor, descriptors: Tensor, batch: PairBatch, options: DetectionOptions, stride: int
) -> ExpectedReward:
    """The expected reward of the pairs without baseline, both ways round."""
    one_place = (~batch.has_baseline).nonzero().squeeze(1)
    both = torch.cat([one_place, one_place + len(batch.image0)])
    turned = torch.cat([one_place + len(batch.image0), one_place])
    intrinsics = torch.cat([batch.intrinsics0, batch.intrinsics1])
    poses = torch.cat([batch.cam1_from_cam0, invert_pose(batch.cam1_from_cam0)])
    cameras = (intrinsics[both], intrinsics[turned], poses[both])
    height, width = scores.shape[-2:]
    cell = options.cell_px
    centres = pixel_from_cell(pixel_grid(height // cell, width // cell), cell).reshape(1, -1, 2)
    xy = centres.expand(len(both), -1, -1).to(scores.device)
    no_baseline = torch.zeros(len(both), dtype=torch.bool, device=scores.device)
    targets = epipolar_targets(xy, *cameras, no_baseline, height, width)
    search = SearchOptions(line_points=2, noise="none", temperature=options.policy.temperature)
    band_px = options.expected.mass_band_px
    with torch.no_grad():
        found = search_line_to_window(descriptors[both], descriptors[turned], xy, targets, search, stride, band_px)
    reliability = torch.where(targets.valid, found.log_mass.exp(), torch.zeros_like(found.log_mass))
    homography = infinite_homography(*(part.double() for part in cameras))
    return expected_reward_loss(scores[both], scores[turned], homography, reliability, cell, options.expected)


def _draw(
    scores: Tensor, descriptor_map: Tensor, cell_px: int, generators: list[torch.Generator], stride: int
) -> tuple[KeypointSample, Tensor]:
    """Keypoints of one side of the pairs, each pair with its own random numbers, and their descriptors."""
    sample = sample_keypoints(scores, cell_px, generators)
    return sample, unit_descriptors(descriptor_map, sample.keypoints, stride)


def description_fingerprint(model: PoSFeat) -> str:
    """A hash of every tensor of the description network."""
    digest = hashlib.sha256()
    for tensor in model.description.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
