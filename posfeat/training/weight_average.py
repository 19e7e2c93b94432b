"""An exponential average of a model's weights: what is validated and shipped in place of the last step's noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from posfeat.networks.posfeat import PoSFeat


class WeightAverage:
    """Averages floating-point tensors (running statistics included); with decay 0 it is the model itself."""

    def __init__(self, model: PoSFeat, decay: float) -> None:
        self._decay, self._updates = decay, 0
        self._average = {key: value.detach().clone() for key, value in model.state_dict().items()} if decay > 0 else {}

    @torch.no_grad()
    def update(self, model: PoSFeat) -> None:
        """Take in the model's present weights; early on the average follows them closely."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        for key, value in model.state_dict().items():
            if key in self._average:
                if value.is_floating_point():
                    self._average[key].lerp_(value, 1 - decay)
                else:
                    self._average[key].copy_(value)

    @contextmanager
    def applied_to(self, model: PoSFeat) -> Iterator[PoSFeat]:
        """The model with averaged weights for a while."""
        if not self._average:
            yield model
            return
        own = {key: value.detach().clone() for key, value in model.state_dict().items()}
        model.load_state_dict(self._average)
        try:
            yield model
        finally:
            model.load_state_dict(own)

    def state_dict(self) -> dict[str, Tensor]:
        return self._average | {"_updates": torch.tensor(self._updates)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._updates = int(state["_updates"])
        for key, value in self._average.items():
            value.copy_(state[key])
