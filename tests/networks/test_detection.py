"""The paper's detection network: positive scores at full resolution, and no way back into the description."""

from __future__ import annotations

import torch

from posfeat.networks.detection import PaperDetection, PaperDetectionOptions
from posfeat.types import DescriptionMaps


def small() -> PaperDetection:
    return PaperDetection(PaperDetectionOptions(image_channels=8, hidden_channels=16), dim=12, stem_channels=4)


def test_scores_are_positive_and_full_size() -> None:
    maps = DescriptionMaps(torch.randn(2, 12, 8, 10), torch.randn(2, 4, 8, 10))
    scores = small()(torch.randn(2, 3, 32, 40), maps)
    assert scores.shape == (2, 1, 32, 40)
    assert bool((scores > 0).all())


def test_images_of_a_batch_do_not_mix() -> None:
    maps = DescriptionMaps(torch.randn(2, 12, 8, 10), torch.randn(2, 4, 8, 10))
    image, network = torch.randn(2, 3, 32, 40), small()
    with torch.no_grad():
        together = network(image, maps)
        alone = network(image[1:], DescriptionMaps(maps.descriptors[1:], maps.stem[1:]))
    torch.testing.assert_close(together[1:], alone, atol=1e-5, rtol=1e-4)


def test_nothing_flows_back_into_the_description() -> None:
    maps = DescriptionMaps(torch.randn(1, 12, 4, 4, requires_grad=True), torch.randn(1, 4, 4, 4, requires_grad=True))
    network = small()
    network(torch.randn(1, 3, 16, 16), maps)[..., 3, 3].sum().backward()
    assert maps.descriptors.grad is None
    assert maps.stem.grad is None
    assert all(parameter.grad is not None for parameter in network.parameters())
