"""Both networks at once, for the ablation: the paper's Model 2, and without the line-to-window term DISK-W's idea."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from posfeat.networks.posfeat import PoSFeat
from posfeat.options import check_options, described, nested
from posfeat.training.description_stage import DescriptionOptions, description_loss
from posfeat.training.detection_stage import DetectionOptions, detection_loss
from posfeat.training.stage import Stage, StageLoss, full_precision
from posfeat.types import PairBatch


@dataclass(frozen=True)
class JointOptions:
    """The joint stage's losses."""

    description_weight: float = described(1.0, "weight of the description loss; 0: the policy gradient alone", low=0)
    description: DescriptionOptions = nested(DescriptionOptions, "description loss")
    detection: DetectionOptions = nested(DetectionOptions, "detection loss, whose gradient reaches the descriptors")

    def __post_init__(self) -> None:
        check_options(self)


class JointStage(Stage):
    """Trains both networks; the reward's gradient flows into keypoints and descriptors alike."""

    def __init__(self, model: PoSFeat, options: JointOptions) -> None:
        super().__init__()
        self.model, self.options = model, options
        self.prepare()

    def prepare(self) -> None:
        self.model.train()

    def forward(self, batch: PairBatch, generators: list[torch.Generator], step: int = 0) -> StageLoss:
        images = torch.cat([batch.image0, batch.image1])
        maps = self.model.description(images)
        scores = self.model.detection(images, maps).float()
        stride = self.model.description.stride
        with full_precision(images.device):
            found = detection_loss(
                scores, maps, batch, self.options.detection, generators, stride, learn_descriptors=True
            )
            if self.options.description_weight == 0:
                return found
            described_loss = description_loss(maps, batch, self.options.description, generators, stride, step)
        loss = found.loss + self.options.description_weight * described_loss.loss
        return StageLoss(loss, found.metrics | described_loss.metrics)
