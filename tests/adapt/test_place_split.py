"""Photos are shared out along places, without common content between the parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posfeat.adapt.place_split import SplitOptions, pairs_within, place_order, split_by_place
from posfeat.types import Camera, Pair, View

CAMERA = Camera(64, 48, np.eye(3))


def chain(count: int, reach: int) -> np.ndarray:
    """Photos along a line, which share content with those at most ``reach`` - 1 places away."""
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return np.clip(1 - distance / reach, 0, None)


def pairs_of(common: np.ndarray) -> tuple[list[str], list[Pair]]:
    views = [View(Path(f"{i}.png"), CAMERA, np.eye(4), name=str(i)) for i in range(len(common))]
    rows, columns = np.nonzero(np.triu(common, 1))
    return [v.name for v in views], [Pair(views[i], views[j]) for i, j in zip(rows, columns, strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_follows_the_chain(seed):
    shuffled = np.random.default_rng(seed).permutation(30)
    common = chain(30, 5)[np.ix_(shuffled, shuffled)]
    places = shuffled[place_order(common)]
    assert (np.diff(places) == 1).all() or (np.diff(places) == -1).all()


@pytest.mark.parametrize("seed", range(5))
def test_no_part_shares_content_with_another(seed):
    shuffled = np.random.default_rng(seed).permutation(60)
    common = chain(60, 5)[np.ix_(shuffled, shuffled)]
    names, pairs = pairs_of(common)
    split = split_by_place(names, common, pairs, SplitOptions())
    assert split is not None
    assert split.by_place
    parts = [[int(name) for name in part] for part in (split.training, split.validation, split.held_out)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert common[np.ix_(parts[one], parts[other])].max() == 0
    assert len(parts[2]) == 12
    assert len(parts[1]) == 9
    assert len(parts[0]) >= 24
    assert all(len(pairs_within(pairs, part)) >= 10 for part in (split.training, split.validation, split.held_out))


def test_parts_are_shortened_before_gaps_are_given_up():
    common = chain(60, 14)
    names, pairs = pairs_of(common)
    split = split_by_place(names, common, pairs, SplitOptions())
    assert split is not None
    assert split.by_place
    assert len(split.held_out) == 9
    assert len(split.training) == 18


def test_separate_places_are_not_cut_needlessly():
    block = chain(6, 6) + 0.0
    common = np.kron(np.eye(10), np.ones((6, 6))) * np.tile(block, (10, 10))
    names, pairs = pairs_of(common)
    split = split_by_place(names, common, pairs, SplitOptions(validation=0.2))
    assert split is not None
    assert split.by_place
    assert len(split.training) + len(split.validation) + len(split.held_out) == 60


def test_one_place_is_shared_out_without_gaps():
    common = np.ones((30, 30))
    names, pairs = pairs_of(common)
    split = split_by_place(names, common, pairs, SplitOptions(least_pairs=5))
    assert split is not None
    assert not split.by_place
    assert len(split.training) + len(split.validation) + len(split.held_out) == 30


def test_too_few_pairs():
    names, pairs = pairs_of(chain(20, 2))
    assert split_by_place(names, chain(20, 2), pairs[:12], SplitOptions()) is None
