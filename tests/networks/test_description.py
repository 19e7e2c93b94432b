"""The paper's description network: sizes, variants, and that nothing moves without being trained."""

from __future__ import annotations

import pytest
import torch

from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.resnet import ResNetEncoder
from posfeat.types import OptionsError


@pytest.mark.parametrize("encoder", ["resnet18", "resnet34", "resnet50"])
def test_map_sizes(encoder: str) -> None:
    network = PaperDescription(PaperDescriptionOptions(encoder=encoder, dim=32, coarse=True)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        maps = network(torch.randn(2, 3, 32, 48))
    assert maps.descriptors.shape == (2, 32, 8, 12)
    assert maps.stem.shape == (2, 64, 8, 12)
    assert maps.coarse is not None
    assert maps.coarse.shape == (2, 32, 2, 3)


def test_without_the_coarse_head() -> None:
    network = PaperDescription(PaperDescriptionOptions(encoder="resnet18")).eval()
    assert network(torch.zeros(1, 3, 16, 16)).coarse is None
    assert not any(key.startswith("conv_coarse") for key in network.state_dict())


def test_stride_conventions_share_their_shapes_but_not_their_results() -> None:
    torchvision, caffe = (ResNetEncoder("resnet50", stride_on).eval() for stride_on in ("conv3x3", "conv1x1"))  # type: ignore[arg-type]
    caffe.load_state_dict(torchvision.state_dict())
    assert torchvision.layer2[0].conv2.stride == (2, 2)
    assert caffe.layer2[0].conv1.stride == (2, 2)
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(torchvision(image).quarter, caffe(image).quarter)
        assert not torch.allclose(torchvision(image).sixteenth, caffe(image).sixteenth)


def test_every_weight_learns() -> None:
    network = PaperDescription(PaperDescriptionOptions(encoder="resnet18", dim=8, coarse=True))
    maps = network(torch.randn(2, 3, 32, 32))
    assert maps.coarse is not None
    (maps.descriptors.square().sum() + maps.coarse.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_unknown_encoder() -> None:
    with pytest.raises(OptionsError, match="encoder"):
        PaperDescriptionOptions(encoder="resnet101")  # type: ignore[arg-type]
