"""Between the start weights and the tuned ones: the mixture that validation likes best.

Tuning by small steps leaves weights in one valley with the start, so that any mixture works; a part of the way often keeps
most of the gain and forgets less. The start itself is among the choices: where nothing beats it, nothing is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def choose_share(
    score_of: Callable[[float], float], shares: Sequence[float] = SHARES
) -> tuple[float, dict[float, float]]:
    """The smallest share of nearly the best gain, and every share's score; 0 where nothing beats the start."""
    scores = {share: score_of(share) for share in shares}
    best = max(scores.values()) - scores[0.0]
    if best <= 0:
        return 0.0, scores
    return min(share for share, score in scores.items() if score - scores[0.0] >= LEAST_GAIN * best), scores
