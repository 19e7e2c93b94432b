"""The cheaper algebra gives the paper's networks' own results, to the rim of the image."""

from __future__ import annotations

import copy

import pytest
import torch

from posfeat.networks.description import PaperDescription, PaperDescriptionOptions
from posfeat.networks.detection import PaperDetection, PaperDetectionOptions
from posfeat.networks.inference import inference_copy
from posfeat.networks.paper_inference import FastPaperDetection, FastUpConvElu
from posfeat.types import DescriptionMaps


def detector() -> PaperDetection:
    torch.manual_seed(2)
    return PaperDetection(PaperDetectionOptions(image_channels=12, hidden_channels=24), dim=20, stem_channels=8).eval()


def inputs(height: int, width: int) -> tuple[torch.Tensor, DescriptionMaps]:
    """An image and maps that are not centred, as real ones are not."""
    maps = (3 * torch.randn(2, channels, height // 4, width // 4) + 1 for channels in (20, 8))
    return torch.randn(2, 3, height, width) + 0.5, DescriptionMaps(*maps)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (48, 80), (80, 144)])
def test_detector_gives_the_same_scores(height: int, width: int) -> None:
    slow = detector()
    image, maps = inputs(height, width)
    with torch.no_grad():
        expected, result = slow(image, maps), FastPaperDetection(slow)(image, maps)
    assert result.shape == expected.shape
    difference = (result - expected).abs()
    assert float(difference.max()) < 2e-5 * float(expected.std())
    rim = torch.cat([difference[..., 0, :], difference[..., -1, :], difference[..., 0], difference[..., -1]], dim=-1)
    assert float(rim.max()) < 2e-5 * float(expected.std())


def test_detector_in_sixteen_bits_keeps_fine_scores() -> None:
    slow = detector()
    image, maps = inputs(64, 96)
    small = DescriptionMaps(maps.descriptors.bfloat16(), maps.stem.bfloat16())
    with torch.no_grad():
        expected = slow(image, maps)
        result = FastPaperDetection(slow).to(torch.bfloat16)(image.bfloat16(), small)
    assert result.dtype == torch.float32
    assert len(result.unique()) > 0.9 * result.numel()  # no ties to confuse the choice of keypoints
    assert float((result - expected).std() / expected.std()) < 0.03


def test_an_image_of_one_colour_stays_finite() -> None:
    image, maps = inputs(32, 32)
    flat = DescriptionMaps(torch.zeros_like(maps.descriptors), torch.zeros_like(maps.stem))
    with torch.no_grad():
        result = FastPaperDetection(detector())(torch.zeros_like(image), flat)
    assert bool(torch.isfinite(result).all())


def test_description_gives_the_same_maps() -> None:
    slow = PaperDescription(PaperDescriptionOptions(encoder="resnet18", dim=16, coarse=True)).eval()
    for module in slow.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean = 0.1 * torch.randn(module.num_features)
            module.running_var = 0.5 + torch.rand(module.num_features)
    before = copy.deepcopy(slow.state_dict())
    fast = inference_copy(slow, torch.float32, torch.zeros(1, 3, 32, 32))
    assert isinstance(fast.upconv3, FastUpConvElu)
    image = torch.randn(2, 3, 48, 64)
    with torch.no_grad():
        expected, result = slow(image), fast(image)
    for name in ("descriptors", "stem", "coarse"):
        theirs, ours = vars(expected)[name], vars(result)[name]
        assert float((ours - theirs).abs().max()) < 3e-5 * float(theirs.std()), name
    assert all(torch.equal(value, before[key]) for key, value in slow.state_dict().items())
