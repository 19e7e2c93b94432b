"""The two-way softmax over similarities."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from posfeat.losses.match_distribution import match_probabilities, unit_descriptors


def test_equals_the_formula_written_out() -> None:
    d0, d1 = (F.normalize(torch.randn(2, n, 8, dtype=torch.float64), dim=-1) for n in (5, 7))
    probability = match_probabilities(d0, d1, 10.0)
    exponential = torch.einsum("bid,bjd->bij", d0, d1).mul(10).exp()
    expected = exponential / exponential.sum(1, keepdim=True) * (exponential / exponential.sum(2, keepdim=True))
    torch.testing.assert_close(probability, expected)
    torch.testing.assert_close(match_probabilities(d1, d0, 10.0).transpose(1, 2), probability)


def test_true_matches_win() -> None:
    d0 = F.normalize(torch.randn(50, 128), dim=-1)
    order = torch.randperm(50)
    probability = match_probabilities(d0, d0[order])
    assert bool((probability[order, torch.arange(50)] > 0.99).all())
    assert float(probability.sum()) < 50.5


def test_no_keypoint_at_all() -> None:
    assert match_probabilities(torch.zeros(0, 8), F.normalize(torch.randn(3, 8), dim=-1)).shape == (0, 3)
    assert match_probabilities(torch.zeros(0, 8), torch.zeros(0, 8)).shape == (0, 0)


def test_gradients() -> None:
    d0, d1 = (torch.randn(n, 6, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    assert torch.autograd.gradcheck(lambda a, b: match_probabilities(a, b, 5.0), (d0, d1))


def test_descriptors_are_read_at_cell_centres() -> None:
    dense = torch.randn(1, 8, 6, 7)
    xy = torch.tensor([[[4 * 3 + 1.5, 4 * 2 + 1.5], [4 * 6 + 1.5, 1.5]]])
    expected = F.normalize(dense[0, :, [2, 0], [3, 6]].T, dim=-1)
    torch.testing.assert_close(unit_descriptors(dense, xy)[0], expected)
