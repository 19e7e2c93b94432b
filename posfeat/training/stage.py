"""What a training stage gives the loop."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn

from posfeat.networks.posfeat import PoSFeat
from posfeat.types import PairBatch


class StageLoss(NamedTuple):
    """The mean loss over a batch's pairs, and numbers worth logging."""

    loss: Annotated[Tensor, ""]
    metrics: dict[str, float]


class Stage(nn.Module):
    """A model and a loss. A batch's loss is the mean of its pairs' losses, so that splitting a batch changes nothing."""

    model: PoSFeat

    @abstractmethod
    def forward(self, batch: PairBatch, generators: list[torch.Generator], step: int = 0) -> StageLoss:
        """The loss of a batch; ``generators`` gives each pair its own random numbers, ``step`` counts from 0."""

    @abstractmethod
    def prepare(self) -> None:
        """Put every network into the mode that this stage trains it in (also after a validation)."""


def full_precision(device: torch.device) -> torch.autocast:
    """Losses are computed in float32 whatever the networks are: similarities in 16 bits are off by a quarter of a logit."""
    return torch.autocast(device.type, enabled=False)
