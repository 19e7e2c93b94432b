"""A real Ray cluster of several nodes: the same features as on one machine, and lost nodes cost their own work only."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posfeat.benchmarks.methods import MethodSetting, open_method
from posfeat.benchmarks.run import RunOptions
from posfeat.data.images import write_image
from posfeat.matching import MatchOptions
from posfeat.networks.checkpoint import ModelCard, load_checkpoint, save_checkpoint
from posfeat.networks.extraction import ExtractionOptions
from posfeat.networks.keypoint_selection import SelectionOptions
from posfeat.pipeline.extract import NetworkExtractor, extract_folder
from posfeat.pipeline.feature_store import FeatureStore, MatchStore
from posfeat.pipeline.match import match_pairs
from posfeat.pipeline.merge import merge_shards
from posfeat.pipeline.shards import LocalFolder, finished_shards, open_shards
from posfeat.scale.cluster import ClusterOptions
from posfeat.scale.evaluate import export_features
from posfeat.scale.extract import extract_on_ray
from posfeat.scale.match import match_on_ray
from posfeat.types import Features

pytestmark = pytest.mark.slow
HERE = ClusterOptions("auto")
TOO_LONG_S = 120


@dataclass(frozen=True)
class Diary:
    """An extractor that writes down which photo it sees, and takes its time or ends its process where told to."""

    extractor: NetworkExtractor
    diary: Path
    seconds: float = 0.0
    deadly: int = -1  # red value of the first pixel of the photo that no worker survives

    @property
    def settings(self) -> dict[str, Any]:
        return self.extractor.settings

    @property
    def own_matching(self) -> MatchOptions:
        return MatchOptions()

    def extract(self, rgb: Any, allowed: Any) -> Features:
        if int(rgb[0, 0, 0]) == self.deadly:
            os._exit(1)
        time.sleep(self.seconds)
        with self.diary.open("a") as file:
            file.write(f"{rgb.sum()}\n")
        return self.extractor.extract(rgb, allowed)


@pytest.fixture(autouse=True)
def workers_know_this_file(cluster: Any) -> None:
    """Workers cannot import tests: what is defined here travels with the work."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def whole(extractor: NetworkExtractor, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one machine extracts."""
    path = tmp_path_factory.mktemp("whole") / "features.h5"
    extract_folder(extractor, photos, path)
    return path


def assert_same_features(path: Path, expected: Path) -> None:
    with FeatureStore(path) as store, FeatureStore(expected) as other:
        assert store.names() == other.names()
        for name in other.names():
            assert torch.equal(store.read(name).keypoints, other.read(name).keypoints)
            assert torch.allclose(store.read(name).descriptors, other.read(name).descriptors, atol=2e-3)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TOO_LONG_S
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def seen_often(diary: Path) -> list[str]:
    lines = diary.read_text().split()
    return [line for line in set(lines) if lines.count(line) > 1]


def test_a_node_is_killed_in_mid_run(
    cluster: Any, unused_extractor: NetworkExtractor, photos: Path, whole: Path, tmp_path: Path
) -> None:
    """Each finished shard stays as it is, each unfinished task is done elsewhere, and a restart does nothing."""
    doomed = cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    output, diary = tmp_path / "features", tmp_path / "diary"
    slow = Diary(unused_extractor, diary, seconds=0.25)
    finished_before: dict[str, int] = {}

    def kill() -> None:
        wait_for(lambda: len(finished_shards(LocalFolder(output))) >= 2)
        cluster.remove_node(doomed, allow_graceful=False)
        for name in finished_shards(LocalFolder(output)):
            finished_before[name] = (output / f"{name}.h5").stat().st_mtime_ns

    killer = threading.Thread(target=kill)
    killer.start()
    report = extract_on_ray(slow, str(photos), str(output), HERE, photos_a_task=24)
    killer.join()
    assert (report.num_extracted, report.num_known) == (24, 0)
    assert len(report.failures) == 1
    assert "broken.jpg" in report.failures[0]
    assert 2 <= len(finished_before) < len(finished_shards(LocalFolder(output)))
    assert {name: (output / f"{name}.h5").stat().st_mtime_ns for name in finished_before} == finished_before
    assert len(seen_often(diary)) <= 6  # no more than the photos of the one task that was under way on that node
    assert_same_features(output, whole)
    merge_shards(LocalFolder(output), tmp_path / "features.h5")
    assert_same_features(tmp_path / "features.h5", whole)

    written = diary.read_text()
    again = extract_on_ray(slow, str(photos), str(output), ClusterOptions("nowhere:1"), photos_a_task=24)
    assert (again.num_extracted, again.num_known, again.failures) == (0, 24, report.failures)
    assert diary.read_text() == written


def test_a_photo_that_no_worker_survives_costs_itself(
    cluster: Any, unused_extractor: NetworkExtractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posfeat.scale.cluster.RETRIES", 0)
    for number in range(4):
        (tmp_path / "photos").mkdir(exist_ok=True)
        write_image(tmp_path / "photos" / f"{number}.png", np.full((48, 64, 3), number * 20, np.uint8))
    deadly = Diary(unused_extractor, tmp_path / "diary", deadly=40)
    report = extract_on_ray(deadly, str(tmp_path / "photos"), str(tmp_path / "f"), HERE, photos_a_task=32)
    assert report.num_extracted == 3
    assert len(report.failures) == 1
    assert report.failures[0].startswith("2.png ended its worker each time")


def test_photos_in_an_archive_then_matches(
    cluster: Any, extractor: NetworkExtractor, photos: Path, whole: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for photo in photos.rglob("*.jpg"):
            file.write(photo, f"photos/{photo.relative_to(photos).as_posix()}")
    address, features = f"zip://photos::file://{tmp_path}/photos.zip", tmp_path / "features"
    report = extract_on_ray(extractor, address, f"file://{features}", HERE, photos_a_task=32)
    assert (report.num_extracted, len(report.failures)) == (24, 1)
    assert report.failures[0].startswith(f"{address}/day 1/broken.jpg breaks off")
    assert_same_features(features, whole)

    shards = open_shards(LocalFolder(features))
    pairs = list(itertools.combinations(sorted(shards.shard_of)[:8], 2))
    told: list[tuple[int, int]] = []
    matched = match_on_ray(
        shards, iter(pairs), len(pairs), str(tmp_path / "matches"), HERE, progress=lambda a, b: told.append((a, b))
    )
    assert (matched.num_matched, matched.failures, told[-1]) == (28, (), (28, 28))
    match_pairs(whole, pairs, tmp_path / "whole.h5")
    with MatchStore(tmp_path / "matches") as store, MatchStore(tmp_path / "whole.h5") as expected:
        assert store.pairs() == expected.pairs()
        for pair in pairs:
            assert torch.equal(store.read(*pair).indices, expected.read(*pair).indices)


def test_a_driver_that_was_killed_goes_on(
    cluster: Any, extractor: NetworkExtractor, photos: Path, tmp_path: Path
) -> None:
    """The command line in a process of its own, ended without warning; another driver does the rest."""
    weights, output = tmp_path / "weights.safetensors", tmp_path / "features"
    save_checkpoint(weights, extractor.model, ModelCard(name="untrained"))
    more = tmp_path / "photos"
    for copy in range(8):
        for photo in (photos / "day 0").iterdir():
            (more / str(copy)).mkdir(parents=True, exist_ok=True)
            (more / str(copy) / photo.name).write_bytes(photo.read_bytes())
    command = [sys.executable, "-m", "posfeat", "extract", more, "-o", output, "--ray", cluster.address]
    command += ["--weights", weights, "--max-keypoints", "50"]

    def finished() -> Sequence[str]:
        return finished_shards(LocalFolder(output))

    first = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: len(finished()) >= 1 or first.poll() is not None)
    first.send_signal(signal.SIGKILL)
    first.wait()
    known = {name: (output / f"{name}.h5").stat().st_mtime_ns for name in finished()}
    assert known
    options = ExtractionOptions(SelectionOptions(max_keypoints=50))
    second = extract_on_ray(NetworkExtractor(load_checkpoint(weights), options), str(more), str(output), HERE)
    assert (second.num_extracted + second.num_known, second.failures) == (96, ())
    assert second.num_known >= 1
    assert {name: (output / f"{name}.h5").stat().st_mtime_ns for name in known} == known
    with FeatureStore(output) as store:
        assert len(store) == 96


def test_features_for_evaluation(cluster: Any, photos: Path, tmp_path: Path) -> None:
    """All are in the folder that benchmarks look into; a method that cannot run is left to the benchmark."""
    images = sorted(photos.rglob("*.jpg"))[:6]
    options = RunOptions(["rootsift", "rootsift@20"], 50, tmp_path / "cache")
    export_features(options, photos, images, HERE)
    for method in options.methods:
        source = open_method(method, MethodSetting(photos, 50, ExtractionOptions(), tmp_path / "cache"))
        for image in images:
            assert source._entry(image).is_file()  # type: ignore[attr-defined]
