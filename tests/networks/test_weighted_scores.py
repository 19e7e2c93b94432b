"""The compact detector's scores in few passes: those of the straightforward way."""

from __future__ import annotations

import pytest
import torch

from posfeat.networks.compact import weighted_scores
from posfeat.networks.weighted_scores import LONGEST_PX, fast_weighted_scores

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN's convolutions")


@pytest.mark.parametrize("size", [(2, 3, 48, 80), (1, 8, 112, 16), (1, 8, 8, 8), (1, 8, 16, LONGEST_PX + 16)])
def test_they_are_those_of_the_straightforward_way(size: tuple[int, int, int, int]) -> None:
    batch, channels, height, width = size
    where = (20 * torch.randn(size)).contiguous(memory_format=torch.channels_last)
    worth = torch.randn(batch, channels + 1, height // 8, width // 8).contiguous(memory_format=torch.channels_last)
    expected = weighted_scores(where, worth)
    assert torch.allclose(fast_weighted_scores(where, worth), expected, rtol=1e-5, atol=1e-4)
    assert torch.allclose(fast_weighted_scores(where.contiguous(), worth.contiguous()), expected, rtol=1e-5, atol=1e-4)


def test_sixteen_bit_maps_lose_as_little() -> None:
    where, worth = torch.randn(1, 8, 96, 160), torch.rand(1, 9, 12, 20)
    expected = weighted_scores(where, worth)
    plain, fast = (f(where.bfloat16(), worth.bfloat16()) for f in (weighted_scores, fast_weighted_scores))
    assert fast.dtype == torch.float32
    assert float((fast - expected).square().mean()) < 1.2 * float((plain - expected).square().mean())


def test_scores_far_below_any_threshold_are_nearly_zero() -> None:
    scores = fast_weighted_scores(torch.full((1, 8, 16, 16), -100.0), torch.ones(1, 9, 2, 2))
    assert 0 < float(scores.min()) <= float(scores.max()) < 1e-8


@pytest.mark.parametrize("size", [(40, 44), (43, 80)])
def test_other_sizes_go_the_straightforward_way(size: tuple[int, int]) -> None:
    where, worth = torch.randn(1, 4, *size), torch.randn(1, 5, 5, 10)
    assert torch.equal(fast_weighted_scores(where, worth), weighted_scores(where, worth))
