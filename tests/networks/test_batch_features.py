"""Several images at once give what each gives alone, and nothing on the way asks the device for a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from posfeat.networks.batch_features import batch_features
from posfeat.networks.extraction import ExtractionOptions, network_features
from posfeat.networks.keypoint_selection import SelectionOptions, SubPixel
from posfeat.networks.posfeat import ModelOptions, PoSFeat, build_model
from posfeat.types import Features

Pixels = npt.NDArray[np.uint8]
HEIGHT, WIDTH = 96, 120


@pytest.fixture(scope="module")
def model() -> PoSFeat:
    """Networks that nothing has trained: few scores are equal."""
    torch.manual_seed(0)
    return build_model(ModelOptions()).eval()


def photos(count: int, height: int = HEIGHT, width: int = WIDTH) -> Pixels:
    """Texture of different contrast, so that images differ in their number of keypoints."""
    noise = np.random.default_rng(0).integers(0, 256, (count, height, width, 3))
    noise[:, : height // 2, : width // 3] = 128
    return (noise // np.arange(1, count + 1)[:, None, None, None]).astype(np.uint8)


def assert_same(found: Features, expected: Features) -> None:
    assert found.image_size == expected.image_size
    assert len(found) == len(expected)
    assert torch.allclose(found.scores, expected.scores, atol=1e-6)

    def ordered(features: Features) -> tuple[torch.Tensor, torch.Tensor]:  # equal scores may stand in any order
        xy = features.keypoints
        order = torch.argsort(xy[:, 1].round() * WIDTH * 10 + xy[:, 0])
        return xy[order], features.descriptors[order]

    for ours, theirs in zip(ordered(found), ordered(expected), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("nms_size", "most", "subpixel"),
    [(3, 100_000, "quadratic"), (7, 100_000, "mean"), (1, 100_000, "none"), (3, 40, "quadratic")],
)
def test_a_batch_equals_its_images_alone(model: PoSFeat, nms_size: int, most: int, subpixel: SubPixel) -> None:
    networks = model._fast_networks("fp32")
    images, region = photos(3), (1, 1, WIDTH - 1, HEIGHT - 1)
    threshold = float(networks.dense(images).scores.median())
    selection = SelectionOptions(most, nms_size, threshold, subpixel=subpixel)
    allowed = np.ones((HEIGHT, WIDTH), bool)
    allowed[:, 60:70] = False
    for mask in (None, allowed):
        for part in (region, (30, 20, 100, 50)):
            found = batch_features(networks, images, part, mask, selection)
            assert len(found) == 3
            assert most == 40 or len({len(features) for features in found}) > 1
            for image, features in zip(images, found, strict=True):
                assert_same(features, network_features(networks, image, part, mask, selection))


def test_images_of_several_sizes_and_in_tiles(model: PoSFeat) -> None:
    images = [*photos(3), *photos(2, 64, 80), *photos(1)]
    for tile_pixels in (2**21, 2 * HEIGHT * WIDTH, HEIGHT * WIDTH - 1):
        options = ExtractionOptions(precision="fp32", tile_pixels=tile_pixels, tile_overlap_px=32)
        for image, found in zip(images, model.extract_batch(images, options), strict=True):
            assert_same(found, model.extract(image, options=options))


def test_an_image_without_keypoints(model: PoSFeat) -> None:
    images = photos(2)
    options = ExtractionOptions(SelectionOptions(threshold=1e9), precision="fp32")
    assert [len(features) for features in model.extract_batch(list(images), options)] == [0, 0]


class Operations(TorchDispatchMode):
    """The names of all that torch is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device_but_the_end(model: PoSFeat) -> None:
    networks = model._fast_networks("fp32")
    images = photos(2)
    with Operations() as asked:
        batch_features(networks, images, (1, 1, WIDTH - 1, HEIGHT - 1), None, SelectionOptions())
    waiting = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "item", "equal", "is_nonzero"}
    assert not waiting & set(asked.names)
    assert asked.names.count("_local_scalar_dense") == len(images)  # how many keypoints each has, once all are there
