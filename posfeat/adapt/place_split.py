"""Photos for training, for choosing, and for the report, apart by place, so that none of these has seen the others' walls.

Photos are put in an order along which what they show changes slowly (the Fiedler order of the graph of common content,
one connected part after the other). The report's photos are the first stretch of it, the choosing's the next, and
training's the rest; photos that share content with an earlier stretch are left out. Where too little is left, the first two
are made shorter. Where that does not help, all photos show one place: then the stretches have no gaps, and ``by_place`` is
False.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from posfeat.options import check_options, described
from posfeat.types import Array, Pair

_SHORTER = (1.0, 0.75, 0.5)


@dataclass(frozen=True)
class SplitOptions:
    """How photos are shared out."""

    held_out: float = described(0.2, "share of the photos that only the report measures", low=0.05, high=0.5)
    validation: float = described(0.15, "share of the photos that choose the best weights", low=0.05, high=0.5)
    least_training: float = described(0.3, "least share that must be left to train on by place", low=0.1, high=0.9)
    least_pairs: int = described(10, "least pairs that the report, and the choosing, must have", low=1)

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class PlaceSplit:
    """Names of photos; those in none of the three lie between places."""

    training: tuple[str, ...]
    validation: tuple[str, ...]
    held_out: tuple[str, ...]
    by_place: bool  # False: all parts show the same place, from other positions


def split_by_place(
    names: Sequence[str], common: Array, pairs: Sequence[Pair], options: SplitOptions
) -> PlaceSplit | None:
    """Share out photos; ``common`` (N, N) says how much two of them show in common. None where pairs are too few."""
    order = place_order(common)
    with_gaps = [(True, _stretches(order, common, _shortened(options, factor))) for factor in _SHORTER]
    without = (False, _stretches(order, np.zeros_like(common), options))
    for by_place, (held_out, validation, training) in (*with_gaps, without):
        parts = [tuple(names[i] for i in part) for part in (training, validation, held_out)]
        counts = [len(pairs_within(pairs, part)) for part in parts]
        enough = len(training) >= options.least_training * len(names) or not by_place
        if enough and min(counts) >= options.least_pairs:
            return PlaceSplit(parts[0], parts[1], parts[2], by_place)
    return None


def pairs_within(pairs: Sequence[Pair], names: Sequence[str]) -> list[Pair]:
    """The pairs both of whose photos are among the names."""
    chosen = set(names)
    return [pair for pair in pairs if pair.view0.name in chosen and pair.view1.name in chosen]


def place_order(common: Array) -> list[int]:
    """All photos, one connected part after the other from the largest on, each in the order of its Fiedler vector."""
    parts = sorted(_connected_parts(common), key=lambda part: (-len(part), part))
    return [part[i] for part in parts for i in _fiedler_order(common[np.ix_(part, part)])]


def _shortened(options: SplitOptions, factor: float) -> SplitOptions:
    return replace(
        options, held_out=max(0.05, factor * options.held_out), validation=max(0.05, factor * options.validation)
    )


def _stretches(order: list[int], common: Array, options: SplitOptions) -> tuple[list[int], list[int], list[int]]:
    """Held-out, validation and training photos: each stretch without those that share content with an earlier one."""
    num_held_out = max(2, round(options.held_out * len(order)))
    num_validation = max(2, round(options.validation * len(order)))
    held_out = order[:num_held_out]
    apart = [i for i in order[num_held_out:] if not (common[i, held_out] > 0).any()]
    validation = apart[:num_validation]
    training = [i for i in apart[num_validation:] if not (common[i, validation] > 0).any()]
    return held_out, validation, training


def _connected_parts(common: Array) -> list[list[int]]:
    left = set(range(len(common)))
    parts = []
    while left:
        part, edge = set[int](), [min(left)]
        while edge:
            part.update(edge)
            reached = np.flatnonzero((common[edge] > 0).any(axis=0)).tolist()
            edge = [i for i in reached if i not in part]
        left -= part
        parts.append(sorted(part))
    return parts


def _fiedler_order(common: Array) -> list[int]:
    if len(common) < 3:
        return list(range(len(common)))
    weights = common**2  # near photos hold together, so that far ones come to the ends
    np.fill_diagonal(weights, 0)
    degree = weights.sum(axis=1)
    scale = 1 / np.sqrt(np.maximum(degree, 1))
    laplacian = np.diag((degree > 0).astype(np.float64)) - scale[:, None] * weights * scale
    _, vectors = np.linalg.eigh(laplacian)
    fiedler = vectors[:, 1] * scale
    # its sign is the solver's choice: the end with the earlier photo comes first
    ranks = np.argsort(fiedler, kind="stable")
    return (ranks if ranks[0] < ranks[-1] else ranks[::-1]).tolist()
