"""Small photos, a small model, and a Ray cluster of several nodes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posfeat.data.images import write_image
from posfeat.networks.compact import CompactDescriptionOptions, CompactDetectionOptions
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.networks.posfeat import ModelOptions, build_model
from posfeat.pipeline.extract import NetworkExtractor

NUM_PHOTOS = 24
OBJECT_STORE_BYTES = 80 * 2**20


def small_extractor() -> NetworkExtractor:
    """The same each time."""
    torch.manual_seed(0)
    description = CompactDescriptionOptions(widths=(8, 8, 8, 8), blocks=(1, 1, 1), dim=16)
    detection = CompactDetectionOptions(feature_channels=8, image_channels=4)
    model = build_model(ModelOptions(compact_description=description, compact_detection=detection)).eval()
    return NetworkExtractor(model, ExtractionOptions(SelectionOptions(max_keypoints=50), precision="fp32"))


@pytest.fixture(scope="session")
def extractor() -> NetworkExtractor:
    return small_extractor()


@pytest.fixture
def unused_extractor() -> NetworkExtractor:
    """One that has extracted nothing, and so can travel inside other objects."""
    return small_extractor()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in two folders, of which one is cut off."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(NUM_PHOTOS):
        path = folder / f"day {number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        write_image(path, np.random.default_rng(number).integers(0, 255, (48, 64, 3), dtype=np.uint8))
    broken = folder / "day 1" / "broken.jpg"
    broken.write_bytes((folder / "day 0" / "00.jpg").read_bytes()[:500])
    return folder


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A head without workers, and two nodes of one core each; tests that end a node add another."""
    if sys.platform != "linux":
        pytest.skip("several Ray nodes on one machine work on Linux only")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray", reason="Ray is not installed; pip install 'posfeat[scale]'")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()
