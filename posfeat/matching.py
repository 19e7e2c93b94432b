"""Matching by mutual nearest neighbours: whose descriptors are more like each other's than like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from posfeat.nearest_neighbours import Neighbours, nearest_neighbours
from posfeat.options import check_options, described
from posfeat.types import Features, Matches, PosfeatError

# Wrong matches of these weights, by their digest, are clearly less alike than right ones (docs/decisions/0005).
_MIN_SIMILARITY = {"431598ef25560e1e": 0.88}


@dataclass(frozen=True)
class MatchOptions:
    """Which nearest neighbours count as matches."""

    mutual: bool = described(True, "both keypoints must be each other's nearest neighbour")
    ratio: float | None = described(
        None, "ratio test: distance to the nearest over distance to the second nearest is at most this", low=0, high=1
    )
    min_similarity: float | None = described(
        None, "the cosine of two matched descriptors is at least this", low=-1, high=1
    )

    def __post_init__(self) -> None:
        check_options(self)


def own_matching(weights: str) -> MatchOptions:
    """How features of a network whose weights have this digest are matched into pairs that a model is made of."""
    return MatchOptions(min_similarity=_MIN_SIMILARITY.get(weights))


def match(
    features0: Features,
    features1: Features,
    options: MatchOptions | None = None,
    *,
    ratio: float | None = None,
    min_similarity: float | None = None,
) -> Matches:
    """Match the keypoints of two images by their descriptors, best matches first.

    ``ratio`` and ``min_similarity`` go before those of the options.
    """
    options = options or MatchOptions()
    if ratio is not None:
        options = replace(options, ratio=ratio)
    if min_similarity is not None:
        options = replace(options, min_similarity=min_similarity)
    indices, similarity = mutual_nearest(features0.descriptors, features1.descriptors, options)
    return Matches(indices.cpu(), similarity.cpu())


def mutual_nearest(
    descriptors0: Annotated[Tensor, "num_keypoints0 dim"],
    descriptors1: Annotated[Tensor, "num_keypoints1 dim"],
    options: MatchOptions | None = None,
) -> tuple[Annotated[Tensor, "num_matches 2"], Annotated[Tensor, "num_matches"]]:
    """Rows of unit descriptors that match, and their cosines, best first.

    With the ratio test, a mutual match has to pass it from both sides.
    """
    options = options or MatchOptions()
    if descriptors0.shape[1] != descriptors1.shape[1]:
        dims = f"{descriptors0.shape[1]} and {descriptors1.shape[1]}"
        raise PosfeatError(f"descriptors with {dims} dimensions cannot be compared; extract both with the same model")
    descriptors0, descriptors1 = descriptors0.float(), descriptors1.float()
    if not (len(descriptors0) and len(descriptors1)):
        return torch.zeros(0, 2, dtype=torch.long, device=descriptors0.device), descriptors0.new_zeros(0)
    rows, columns = nearest_neighbours(
        descriptors0, descriptors1, seconds=options.ratio is not None, both=options.mutual
    )
    index0, index1, similarity = torch.arange(len(rows.best), device=rows.best.device), rows.nearest, rows.best
    good = torch.isfinite(similarity) & (index1 >= 0)
    partner = index1.clamp(min=0)
    if options.mutual:
        good &= columns.nearest[partner] == index0
    if options.ratio is not None:
        good &= _passes_ratio(rows, options.ratio)
        if options.mutual:
            good &= _passes_ratio(columns, options.ratio)[partner]
    if options.min_similarity is not None:
        good &= similarity >= options.min_similarity
    index0, index1, similarity = index0[good], index1[good], similarity[good]
    order = torch.sort(similarity, descending=True, stable=True).indices
    return torch.stack([index0[order], index1[order]], dim=1), similarity[order]


def _passes_ratio(neighbours: Neighbours, ratio: float) -> Tensor:
    """Whether the nearest is clearly nearer than the second; the squared distance of unit vectors is 2 - 2 cosine."""
    return 1 - neighbours.best <= ratio**2 * (1 - neighbours.second)
