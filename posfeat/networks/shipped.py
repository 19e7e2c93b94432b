"""Features by the shipped weights in one call. Whoever has other weights, or another device in mind, loads a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from posfeat.networks.checkpoint import load
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.posfeat import ImageLike, PoSFeat
from posfeat.types import Features


def extract(
    image: ImageLike,
    max_keypoints: int | None = None,
    *,
    mask: ImageLike | None = None,
    scales: Sequence[float] | None = None,
    rotations: Sequence[float] | None = None,
    options: ExtractionOptions | None = None,
) -> Features:
    """Keypoints and descriptors of an image, as PoSFeat.extract of ``load()`` gives them; the model is kept."""
    return _shipped().extract(image, max_keypoints, mask=mask, scales=scales, rotations=rotations, options=options)


@lru_cache(maxsize=1)
def _shipped() -> PoSFeat:
    return load()
