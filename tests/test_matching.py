"""Mutual nearest neighbours: equal to the full matrix's, bounded in memory, steady under ties and thresholds."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posfeat.matching import MatchOptions, match, mutual_nearest
from posfeat.types import Features, OptionsError, PosfeatError


def unit(count: int, dim: int = 16, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def pairs(descriptors0: Tensor, descriptors1: Tensor, options: MatchOptions | None = None) -> set[tuple[int, int]]:
    indices, _ = mutual_nearest(descriptors0, descriptors1, options)
    return {(i, j) for i, j in indices.tolist()}


def pairs_by_full_matrix(descriptors0: Tensor, descriptors1: Tensor, ratio: float | None) -> set[tuple[int, int]]:
    similarity = (descriptors0 @ descriptors1.T).double()
    index0, nearest1, nearest0 = torch.arange(len(similarity)), similarity.argmax(dim=1), similarity.argmax(dim=0)
    good = nearest0[nearest1] == index0
    if ratio is not None:
        for dim, index in ((1, index0), (0, nearest1)):
            if similarity.shape[dim] > 1:
                nearest, second = (2 - 2 * similarity).sqrt().topk(2, dim=dim, largest=False).values.unbind(dim)
                good &= (nearest <= ratio * second)[index]
    return {(i, j) for i, j in torch.stack([index0, nearest1], dim=1)[good].tolist()}


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(1, 2300), st.sampled_from([None, 0.7, 0.9, 0.97]), st.integers(0, 10**6))
def test_equals_the_full_matrix(count0: int, count1: int, ratio: float | None, seed: int) -> None:
    descriptors0, descriptors1 = unit(count0, seed=seed), unit(count1, seed=seed + 1)
    common = min(count0, count1) // 2
    descriptors1[:common] = F.normalize(descriptors0[:common] + 0.2 * descriptors1[:common], dim=1)
    expected = pairs_by_full_matrix(descriptors0, descriptors1, ratio)
    assert pairs(descriptors0, descriptors1, MatchOptions(ratio=ratio)) == expected


def test_recovers_a_permutation_in_order_of_similarity() -> None:
    descriptors0 = unit(3000, 64)
    order = torch.randperm(3000, generator=torch.Generator().manual_seed(1))
    noise = torch.linspace(0, 0.3, 3000)[:, None] * unit(3000, 64, seed=2)
    indices, similarity = mutual_nearest(descriptors0, F.normalize(descriptors0 + noise, dim=1)[order])
    assert len(indices) == 3000
    assert torch.equal(order[indices[:, 1]], indices[:, 0])
    assert bool((similarity[1:] <= similarity[:-1]).all())
    assert torch.allclose(
        similarity, (descriptors0 * F.normalize(descriptors0 + noise, dim=1)).sum(1)[indices[:, 0]], atol=1e-6
    )


def test_the_order_of_the_images_does_not_matter() -> None:
    descriptors0, descriptors1 = unit(1500), unit(2500, seed=3)
    for options in (MatchOptions(), MatchOptions(ratio=0.95), MatchOptions(min_similarity=0.6)):
        turned = {(i, j) for j, i in pairs(descriptors1, descriptors0, options)}
        assert pairs(descriptors0, descriptors1, options) == turned


def test_equal_descriptors_give_one_match_each() -> None:
    descriptors = unit(40).repeat(60, 1)  # every descriptor sixty times
    indices, _ = mutual_nearest(descriptors, descriptors)
    assert indices[:, 0].unique().numel() == len(indices) == indices[:, 1].unique().numel() == 40
    assert set(map(tuple, indices.tolist())) == {(i, i) for i in range(40)}


def test_one_sided_matching_and_thresholds() -> None:
    descriptors0, descriptors1 = unit(300), unit(200, seed=5)
    indices, similarity = mutual_nearest(descriptors0, descriptors1, MatchOptions(mutual=False))
    assert sorted(indices[:, 0].tolist()) == list(range(300))
    indices, similarity = mutual_nearest(descriptors0, descriptors1, MatchOptions(mutual=False, min_similarity=0.7))
    assert 0 < len(indices) < 300
    assert float(similarity.min()) >= 0.7


def test_thresholds_by_name_go_before_those_of_the_options() -> None:
    features0, features1 = (
        Features(torch.zeros(n, 2), torch.zeros(n), unit(n, seed=n), (640, 480)) for n in (300, 200)
    )
    for options in (MatchOptions(ratio=0.9), MatchOptions(min_similarity=0.6)):
        expected = match(features0, features1, options)
        named = match(features0, features1, ratio=options.ratio, min_similarity=options.min_similarity)
        assert 0 < len(expected) < len(match(features0, features1))
        assert torch.equal(named.indices, expected.indices)
    strict = match(features0, features1, MatchOptions(ratio=0.9), ratio=0.8)
    assert torch.equal(strict.indices, match(features0, features1, ratio=0.8).indices)
    with pytest.raises(OptionsError, match="ratio"):
        match(features0, features1, ratio=float("nan"))


@pytest.mark.parametrize(("count0", "count1"), [(0, 0), (0, 5), (5, 0)])
def test_no_keypoints_no_matches(count0: int, count1: int) -> None:
    features = [Features(torch.zeros(n, 2), torch.zeros(n), unit(n), (640, 480)) for n in (count0, count1)]
    assert len(match(*features)) == 0


def test_a_single_candidate_passes_the_ratio_test() -> None:
    assert pairs(unit(1), unit(1), MatchOptions(ratio=0.5)) == {(0, 0)}


def test_half_precision_descriptors_match_as_float32() -> None:
    descriptors = unit(500, 128).half()
    assert pairs(descriptors, descriptors) == {(i, i) for i in range(500)}


def test_different_lengths_are_refused_in_one_line() -> None:
    with pytest.raises(PosfeatError, match=r"^descriptors with 16 and 8 dimensions[^\n]*$"):
        mutual_nearest(unit(3), unit(3, 8))
    with pytest.raises(OptionsError):
        MatchOptions(ratio=1.5)


MEASURE = """
import resource, torch
from posfeat.matching import mutual_nearest
torch.set_num_threads(1)
count = {count}
descriptors = torch.nn.functional.normalize(torch.randn(count, 128), dim=1)
mutual_nearest(descriptors[:600], descriptors[:2000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(mutual_nearest(descriptors, descriptors)[0]) == count
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is for Unix")
def test_memory_stays_far_below_the_full_matrix() -> None:
    script = MEASURE.format(count=12_000)  # the full matrix would be 550 MiB
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 64
