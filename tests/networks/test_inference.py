"""The fast copies that inference runs on: same answers, other weights untouched, score heads in float32; and the tiles."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from posfeat.data.images import normalise
from posfeat.networks.compact import CompactDescriptionOptions, CompactDetectionOptions
from posfeat.networks.description import PaperDescriptionOptions
from posfeat.networks.detection import PaperDetectionOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.inference import inference_copy
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.networks.tiling import tiles

SMALL = {
    "compact": ModelOptions(
        compact_description=CompactDescriptionOptions(widths=(8, 12, 16, 24), blocks=(1, 1, 1), dim=32),
        compact_detection=CompactDetectionOptions(feature_channels=8, image_channels=4),
    ),
    "paper": ModelOptions(
        architecture="paper",
        paper_description=PaperDescriptionOptions(encoder="resnet18", dim=32),
        paper_detection=PaperDetectionOptions(image_channels=8, hidden_channels=16),
    ),
}


def worked_in(model: PoSFeat) -> PoSFeat:
    """Batch norms whose statistics and weights are not those of the start."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
    return model.eval()


@pytest.mark.parametrize("architecture", ["compact", "paper"])
def test_the_fast_copy_gives_the_same_maps(architecture: str) -> None:
    model = worked_in(build_model(SMALL[architecture]))
    pixels = torch.randint(256, (1, 75, 90, 3), dtype=torch.uint8)
    with torch.no_grad():
        expected = model.dense(normalise(pixels))
    for precision, limit in (("fp32", 1e-4), ("bf16", 0.06)):
        fast = model._fast_networks(precision)  # type: ignore[arg-type]
        maps = fast.dense(pixels[0].numpy())
        assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.networks.modules())
        assert maps.scores.shape == (1, 1, 75, 90)
        for found, true in ((maps.descriptors, expected.descriptors), (maps.scores, expected.scores)):
            assert float((found.float() - true).abs().max() / true.abs().max()) < limit
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def test_a_model_that_has_extracted_can_be_copied() -> None:
    model = worked_in(build_model(SMALL["compact"]))
    pixels = torch.randint(256, (64, 80, 3), dtype=torch.uint8).numpy()
    found = model.extract(pixels)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.extract(pixels).keypoints, found.keypoints)


def test_the_fast_copy_notices_new_weights() -> None:
    model = worked_in(build_model(SMALL["compact"]))
    first = model._fast_networks("fp32")
    assert model._fast_networks("fp32") is first
    with torch.no_grad():
        model.detection.worth.bias.add_(1)  # type: ignore[union-attr, operator]
    second = model._fast_networks("fp32")
    assert second is not first
    model.detection.worth = copy.deepcopy(model.detection.worth)
    assert model._fast_networks("fp32") is not second


class Branches(nn.Module):
    """Norms that must not be folded: after an activation, after a convolution that others read too; and a float32 head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.alone = nn.BatchNorm2d(4)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        return self.head(self.alone(x).float())


def test_only_norms_that_follow_a_convolution_are_folded_and_heads_keep_float32() -> None:
    network = Branches().eval()
    nn.init.normal_(network.norm.running_mean)  # type: ignore[arg-type]
    image = torch.randn(2, 3, 16, 16)
    fast = inference_copy(network, torch.float32, image)
    assert isinstance(fast.norm, nn.Identity)
    assert isinstance(fast.alone, nn.BatchNorm2d)
    assert torch.allclose(fast(image), network(image), atol=1e-5)
    half = inference_copy(network, torch.bfloat16, image)
    assert half.first.weight.dtype == torch.bfloat16  # type: ignore[union-attr]
    assert half.head.weight.dtype == torch.float32  # type: ignore[union-attr]
    assert half(image.bfloat16()).dtype == torch.float32


def test_tiles_overlap_by_all_that_the_compact_networks_see() -> None:
    """With positive weights and inputs nothing cancels: the gradient reaches exactly as far as the network looks."""
    model = build_model(ModelOptions()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_().add_(1e-3)
    size = 352
    image = torch.rand(1, 3, size, size, requires_grad=True)
    maps = model.description(image)
    (seen,) = torch.autograd.grad(maps.descriptors[..., size // 8, size // 8].sum(), image)
    reach = int((seen.abs().sum((0, 1)).nonzero() - size // 2).abs().max())
    # its 3x3 convolution on cells of 4 pixels, and means of these: on cells of 8 over 4 to each side, enlarged bilinearly
    detector_reach = 8 + 4 * 8 + 12
    assert 16 < reach + detector_reach <= ExtractionOptions().tile_overlap_px


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(2**12, 2**20), st.integers(0, 200))
def test_cores_partition_the_image_and_tiles_stay_aligned(height: int, width: int, pixels: int, overlap: int) -> None:
    if height * width > 40 * pixels:
        return
    covered = torch.zeros(height, width, dtype=torch.uint8)
    for tile in tiles(height, width, pixels, overlap):
        covered[tile.core_top : tile.core_bottom, tile.core_left : tile.core_right] += 1
        assert tile.left % 16 == tile.top % 16 == 0
        assert 0 <= tile.left <= max(tile.core_left - overlap // 16 * 16, 0)
        assert min(tile.core_right + overlap // 16 * 16, width) <= tile.right <= width
        assert min(tile.core_bottom + overlap // 16 * 16, height) <= tile.bottom <= height
    assert bool((covered == 1).all())


def test_tiles_bound_the_memory() -> None:
    for height, width in ((10_000, 12_000), (20_000, 700), (64, 300_000)):
        areas = [(t.right - t.left) * (t.bottom - t.top) for t in tiles(height, width, 2**21, 160)]
        assert max(areas) <= 2**21
