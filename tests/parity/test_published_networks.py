"""Both networks of the paper give what the published ones gave, weights passing through the loader of their layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from posfeat.networks.checkpoint import load_published
from posfeat.networks.posfeat import PoSFeat
from tests.parity.fill import fill, image

HERE = Path(__file__).parent
TOLERANCE = 1e-4  # of the map's standard deviation


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> PoSFeat:
    folder = tmp_path_factory.mktemp("published")
    for name, shapes in json.loads((HERE / "published_shapes.json").read_text()).items():
        weights = fill({key: tuple(shape) for key, shape in shapes.items()}, seed=1)
        torch.save({key: torch.from_numpy(value) for key, value in weights.items()}, folder / name)
    return load_published(folder)


def assert_close(actual: torch.Tensor, expected: np.ndarray) -> None:
    assert np.abs(actual.numpy() - expected).max() < TOLERANCE * expected.std()


def test_recorded_outputs(published: PoSFeat) -> None:
    expected = np.load(HERE / "expected_seed1.npz")
    pixels = torch.from_numpy(image(96, 128, seed=1))[None]
    with torch.no_grad():
        maps = published.description(pixels)
        scores = published.detection(pixels, maps)
    assert_close(maps.descriptors[0], expected["local_map"])
    assert_close(maps.stem[0].mean(dim=(1, 2)), expected["local_map_small_mean"])
    assert_close(scores[0, 0], expected["score"])


def test_sizes_are_read_from_the_files(published: PoSFeat) -> None:
    options = published.options
    assert options.architecture == "paper"
    assert (options.paper_description.encoder, options.paper_description.dim) == ("resnet50", 128)
    assert options.paper_description.coarse
    assert (options.paper_detection.image_channels, options.paper_detection.hidden_channels) == (64, 128)
    assert not published.training
