"""Matching by mutual nearest neighbours, never holding the whole similarity matrix.

The matrix of cosines is computed block by block; while a block is still in the cache its row and column maxima are folded
into running ones. Fifty thousand descriptors against as many need a few megabytes, and less time than writing down the
full matrix alone would take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from posfeat.options import check_options, described
from posfeat.types import Features, Matches, PosfeatError

_BLOCK_IN_CACHE = (256, 1024)  # rows and columns of a block on a processor: 1 MiB, so that it stays in its cache
_BLOCK_ON_GPU = (4096, 4096)


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


def match(features0: Features, features1: Features, options: MatchOptions | None = None) -> Matches:
    """Match the keypoints of two images by their descriptors, best matches first."""
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
    rows, columns = _nearest_neighbours(descriptors0, descriptors1, seconds=options.ratio is not None)
    index0 = torch.arange(len(rows.best), device=rows.best.device)
    index1, similarity = rows.index, rows.best
    # a block's value entered both maxima, so the two are equal to the bit where the neighbours are mutual
    good = similarity == columns.best[index1] if options.mutual else torch.isfinite(similarity)
    if options.ratio is not None:
        good &= _passes_ratio(rows, options.ratio)
        if options.mutual:
            good &= _passes_ratio(columns, options.ratio)[index1]
    if options.min_similarity is not None:
        good &= similarity >= options.min_similarity
    index0, index1, similarity = index0[good], index1[good], similarity[good]
    if options.mutual:
        first = _first_occurrences(index1, len(descriptors1))  # equal descriptors: one match, the first
        index0, index1, similarity = index0[first], index1[first], similarity[first]
    order = torch.sort(similarity, descending=True, stable=True).indices
    return torch.stack([index0[order], index1[order]], dim=1), similarity[order]


class _Neighbours:
    """Running maxima of the rows (or columns) of a matrix that is seen block by block."""

    def __init__(self, count: int, like: Tensor) -> None:
        self.best = like.new_full((count,), float("-inf"))
        self.second = self.best.clone()
        self.index = torch.zeros(count, dtype=torch.long, device=like.device)

    def see_best(self, where: slice, best: Tensor, index: Tensor | None = None, offset: int = 0) -> None:
        """Fold in a block's maxima."""
        known = self.best[where]
        if index is not None:
            better = best > known
            self.index[where][better] = index[better] + offset
        torch.maximum(known, best, out=known)

    def see_second(self, where: slice, best: Tensor, second: Tensor) -> None:
        """Fold in a block's two highest values; before see_best."""
        loser = torch.minimum(self.best[where], best)
        torch.maximum(torch.maximum(loser, second), self.second[where], out=self.second[where])


def _nearest_neighbours(descriptors0: Tensor, descriptors1: Tensor, seconds: bool) -> tuple[_Neighbours, _Neighbours]:
    """Maxima of rows (with their places) and of columns; the second highest values too if wanted."""
    rows, columns = _Neighbours(len(descriptors0), descriptors0), _Neighbours(len(descriptors1), descriptors0)
    height, width = _BLOCK_IN_CACHE if descriptors0.device.type == "cpu" else _BLOCK_ON_GPU
    buffer = descriptors0.new_empty(height * width)
    for left in range(0, len(descriptors1), width):
        across = slice(left, min(left + width, len(descriptors1)))
        part1 = descriptors1[across].T
        for top in range(0, len(descriptors0), height):
            down = slice(top, min(top + height, len(descriptors0)))
            block = buffer[: (down.stop - top) * (across.stop - left)].view(down.stop - top, -1)
            torch.mm(descriptors0[down], part1, out=block)
            _see_block(block, rows, down, columns, across, seconds)
    return rows, columns


def _see_block(
    block: Annotated[Tensor, "height width"],
    rows: _Neighbours,
    down: slice,
    columns: _Neighbours,
    across: slice,
    seconds: bool,
) -> None:
    row_best, row_index = block.max(dim=1)
    if not seconds:
        rows.see_best(down, row_best, row_index, across.start)
        columns.see_best(across, block.amax(dim=0))
        return
    column_best, column_index = block.max(dim=0)
    block.scatter_(1, row_index[:, None], float("-inf"))
    rows.see_second(down, row_best, block.amax(dim=1))
    block.scatter_(1, row_index[:, None], row_best[:, None])
    block.scatter_(0, column_index[None], float("-inf"))
    columns.see_second(across, column_best, block.amax(dim=0))
    rows.see_best(down, row_best, row_index, across.start)
    columns.see_best(across, column_best)


def _passes_ratio(neighbours: _Neighbours, ratio: float) -> Tensor:
    """Whether the nearest is clearly nearer than the second; the squared distance of unit vectors is 2 - 2 cosine."""
    return 1 - neighbours.best <= ratio**2 * (1 - neighbours.second)


def _first_occurrences(values: Annotated[Tensor, "count"], end: int) -> Annotated[Tensor, "count"]:
    """Which entries are the first of their value; values are in [0, end)."""
    place = torch.arange(len(values), device=values.device)
    first = torch.full((end,), len(values), device=values.device).scatter_reduce_(0, values, place, "amin")
    return first[values] == place
