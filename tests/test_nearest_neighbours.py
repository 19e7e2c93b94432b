"""Nearest neighbours by group maxima and by running maxima: both exact, whatever the lengths, signs and repetitions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posfeat import nearest_neighbours as module
from posfeat.nearest_neighbours import Neighbours, nearest_neighbours


def descriptors(count: int, dim: int = 32, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def full_matrix(set0: Tensor, set1: Tensor) -> tuple[Tensor, Tensor]:
    """Highest and second highest cosine of each row in float64, and the matrix's own noise is not in them."""
    highest = (set0.double() @ set1.double().T).topk(min(2, len(set1)), dim=1).values
    return highest[:, 0], highest[:, -1]


def assert_exact(rows: Neighbours, set0: Tensor, set1: Tensor, seconds: bool) -> None:
    """The index holds the true maximum (up to float32's noise), and the values are the true ones."""
    best, second = full_matrix(set0, set1)
    scale = float(set0.norm(dim=1).max() * set1.norm(dim=1).max())
    there = (set0.double() * set1.double()[rows.nearest]).sum(1)
    assert float((there - best).abs().max()) < 3e-7 * scale
    assert torch.allclose(rows.best.double(), best, atol=1e-6 * scale)
    if seconds and len(set1) > 1:
        assert torch.allclose(rows.second.double(), second, atol=1e-6 * scale)


@settings(max_examples=25)
@given(
    st.integers(1, 1500),
    st.integers(1, 2500),
    st.sampled_from([1.0, 0.01, 40.0]),
    st.sampled_from(["mixed", "all negative", "repeated"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_both_ways_are_exact(count0: int, count1: int, scale: float, kind: str, seconds: bool, seed: int) -> None:
    set0, set1 = descriptors(count0, seed=seed), descriptors(count1, seed=seed + 1) * scale
    if kind == "all negative":
        set0, set1 = set0.abs(), -set1.abs()
    if kind == "repeated":
        set0, set1 = set0[torch.arange(count0) % 7], torch.cat([set0[:3], set1])[torch.arange(count1) % 5]
    rows, columns = nearest_neighbours(set0, set1, seconds=seconds)
    assert_exact(rows, set0, set1, seconds)
    asked = torch.unique(rows.nearest)
    assert bool((columns.nearest[asked] >= 0).all())
    assert_exact(Neighbours(*(values[asked] for values in columns)), set1[asked], set0, seconds)
    one_way, nothing = nearest_neighbours(set0, set1, seconds=seconds, both=False)
    assert torch.equal(one_way.nearest, rows.nearest)
    assert bool((nothing.nearest == -1).all())


@pytest.mark.parametrize("seconds", [False, True])
def test_running_maxima_say_the_same(seconds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_ELSEWHERE", (100, 170))
    set0, set1 = descriptors(730, seed=1), descriptors(951, seed=2)
    rows, columns = module._by_running_maxima(set0, set1, seconds)
    assert_exact(rows, set0, set1, seconds)
    assert_exact(columns, set1, set0, seconds)


def test_rounding_to_16_bits_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates closer to one another than bfloat16 can tell, on any processor."""
    monkeypatch.setattr(module, "prefers_bfloat16", lambda: True)
    set0 = descriptors(400, 64)
    nearly = torch.cat([F.normalize(set0 + noise * descriptors(400, 64, 1), dim=1) for noise in (0.02, 0.01, 0.03)])
    assert torch.unique((set0[:50].bfloat16() @ nearly.bfloat16().T).amax(1)).numel() < 10
    rows, columns = nearest_neighbours(set0, nearly)
    assert torch.equal(rows.nearest, torch.arange(400, 800))
    assert torch.equal(columns.nearest[400:800], torch.arange(400))


def test_many_groups_are_made_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_GROUPS", 4)
    monkeypatch.setattr(module, "_CALLS_AT_A_TIME", 100)
    set0, set1 = descriptors(900, seed=3), descriptors(2100, seed=4)
    rows, _ = nearest_neighbours(set0, set1, seconds=True)
    assert_exact(rows, set0, set1, seconds=True)


def test_what_is_no_number_matches_nothing_and_breaks_nothing() -> None:
    set0 = descriptors(100)
    set0[3] = float("nan")
    rows, _ = nearest_neighbours(set0, descriptors(90, seed=5))
    assert not bool(torch.isfinite(rows.best[3]))
    assert bool(torch.isfinite(rows.best[4:]).all())
