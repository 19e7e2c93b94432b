"""Between the start weights and the tuned ones: the mixture that validation likes best, of those that forget little.

Tuning by small steps leaves weights in one valley with the start, so that any mixture works; a part of the way often keeps
most of the gain and forgets less. The start itself is among the choices: where nothing beats it, nothing is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from posfeat.networks.checkpoint import load_checkpoint
from posfeat.networks.posfeat import PoSFeat

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far from the start to the tuned weights."""

LEAST_GAIN = 0.9
"""The share of the best mixture's gain that a mixture nearer to the start must reach to be preferred."""


def blended(start: Path, tuned: Path, share: float, device: torch.device) -> PoSFeat:
    """The model ``share`` of the way from the start to the tuned weights; running statistics are mixed as weights are."""
    model, other = load_checkpoint(start, device), load_checkpoint(tuned, device).state_dict()
    mixed = {
        key: torch.lerp(value, other[key], share) if value.is_floating_point() else value
        for key, value in model.state_dict().items()
    }
    model.load_state_dict(mixed)
    return model.eval()


@dataclass(frozen=True)
class Mixture:
    """How one mixture does."""

    gain: float  # on validation photos, over the start
    kept: float  # of the start's score on generic pictures: 1 where nothing is forgotten


def choose_share(
    mixture_of: Callable[[float], Mixture], most_forgotten: float, shares: Sequence[float] = SHARES
) -> tuple[float, dict[float, Mixture]]:
    """The smallest share of nearly the best gain that forgets no more, and all mixtures; 0 where none beats the start."""
    mixtures = {share: mixture_of(share) for share in shares}
    gains = {share: one.gain for share, one in mixtures.items() if one.kept >= 1 - most_forgotten}
    best = max(gains.values(), default=0.0)
    if best <= 0:
        return 0.0, mixtures
    return min(share for share, gain in gains.items() if gain >= LEAST_GAIN * best), mixtures
