"""Convolving before enlarging gives what enlarging before convolving gives, rims included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from posfeat.networks.upsampled_conv import UpsampledConv

TOLERANCE = 1e-5  # of the result's standard deviation


def straightforward(x: torch.Tensor, weight: torch.Tensor, size: tuple[int, int], align_corners: bool) -> torch.Tensor:
    return F.conv2d(F.interpolate(x, size=size, mode="bilinear", align_corners=align_corners), weight, padding=1)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("small", "factor"), [((1, 1), 2), ((1, 7), 4), ((5, 3), 2), ((12, 20), 4), ((20, 17), 3)])
def test_equals_the_straightforward_way(small: tuple[int, int], factor: int, align_corners: bool) -> None:
    x, weight = torch.randn(2, 5, *small), torch.randn(6, 5, 3, 3)
    height, width = small[0] * factor, small[1] * factor
    expected = straightforward(x, weight, (height, width), align_corners)
    conv = UpsampledConv(weight, align_corners)
    assert float((conv(x, height, width) - expected).abs().max()) < TOLERANCE * float(expected.std())
    torch.testing.assert_close(conv.mean(x, height, width), expected.mean((2, 3)), atol=1e-5, rtol=1e-5)


def test_channels_last_input_and_any_size() -> None:
    x, weight = torch.randn(1, 4, 9, 11).contiguous(memory_format=torch.channels_last), torch.randn(3, 4, 3, 3)
    expected = straightforward(x, weight, (23, 40), False)
    torch.testing.assert_close(UpsampledConv(weight, False)(x, 23, 40), expected, atol=1e-5, rtol=1e-4)


def test_sixteen_bits_stay_close() -> None:
    x, weight = torch.randn(1, 32, 10, 12), torch.randn(16, 32, 3, 3)
    expected = straightforward(x, weight, (40, 48), False)
    result = UpsampledConv(weight, False).to(torch.bfloat16)(x.bfloat16(), 40, 48).float()
    assert float((result - expected).std() / expected.std()) < 0.01
