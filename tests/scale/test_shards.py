"""Shards: named by their tasks, whole or not there, read as one store and merged into one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from posfeat.matching import MatchOptions
from posfeat.pipeline.extract import NetworkExtractor, extract_folder, list_images
from posfeat.pipeline.feature_store import FeatureStore, MatchStore, store_kind
from posfeat.pipeline.match import all_pairs, match_pairs
from posfeat.pipeline.merge import merge_shards
from posfeat.pipeline.shards import LocalFolder, finished_shards, is_shard_folder, open_shards
from posfeat.scale.extract import ExtractionWork
from posfeat.scale.match import MatchingWork
from posfeat.scale.sharded_job import PairItem, ShardWriter, cut
from posfeat.scale.storage import open_photos, open_shard_folder
from posfeat.types import StoreError


def write_shards(extractor: NetworkExtractor, photos: Path, place: str) -> ShardWriter:
    """What workers do, one task after another in this process."""
    writer = ShardWriter(open_shard_folder(place), "feature", extractor.settings)
    writer.begin()
    extract = ExtractionWork(extractor, open_photos(str(photos)), writer, device="cpu").begin()
    for task in cut(list_images(photos), 4):
        extract(task)
    return writer


@pytest.fixture(scope="module")
def whole(extractor: NetworkExtractor, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same features in one file."""
    path = tmp_path_factory.mktemp("whole") / "features.h5"
    extract_folder(extractor, photos, path)
    return path


@pytest.fixture(scope="module")
def sharded(extractor: NetworkExtractor, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sharded") / "features"
    write_shards(extractor, photos, str(path))
    return path


def assert_same_features(path: Path | Any, expected: Path) -> None:
    with FeatureStore(path) as store, FeatureStore(expected) as other:
        assert store.names() == other.names()
        assert store.settings == other.settings
        assert store.verify() == []
        for name in other.names():
            ours, theirs = store.read(name), other.read(name)
            assert ours.image_size == theirs.image_size
            for key in ("keypoints", "scores", "descriptors"):
                assert torch.equal(getattr(ours, key), getattr(theirs, key)), (name, key)


def test_shards_are_read_as_one(sharded: Path, whole: Path) -> None:
    assert len(finished_shards(LocalFolder(sharded))) > 3
    assert_same_features(sharded, whole)
    assert store_kind(sharded) == "feature"
    with FeatureStore(sharded) as store:
        assert ("day 0/00.jpg" in store, "day 0/01.jpg" in store, "day 1/broken.jpg" in store) == (True, False, False)
        with pytest.raises(StoreError, match="holds nothing for image nowhere"):
            store.read("nowhere")


def test_more_shards_than_open_files(sharded: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posfeat.pipeline.shards.FILES_OPEN_AT_ONCE", 1)
    assert_same_features(sharded, whole)


def test_shards_merge_into_one_file(sharded: Path, whole: Path, tmp_path: Path) -> None:
    folder, merged = LocalFolder(sharded), tmp_path / "merged.h5"
    num_entries = len(open_shards(folder).shard_of)
    report = merge_shards(folder, merged)
    assert (report.num_copied, report.num_known) == (num_entries, 0)
    assert_same_features(merged, whole)
    again = merge_shards(folder, merged)
    assert (again.num_copied, again.num_known) == (0, num_entries)
    with pytest.raises(StoreError, match="no store of shards"):
        merge_shards(LocalFolder(tmp_path / "nothing"), merged)


def test_a_merge_that_was_interrupted_goes_on(
    sharded: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posfeat.pipeline.hdf5_store import Hdf5Store

    calls = []
    real = Hdf5Store.add_from

    def impatient(self: Hdf5Store, *arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Hdf5Store, "add_from", impatient)
    with pytest.raises(KeyboardInterrupt):
        merge_shards(LocalFolder(sharded), tmp_path / "merged.h5")
    monkeypatch.undo()
    assert merge_shards(LocalFolder(sharded), tmp_path / "merged.h5").num_known > 0
    assert_same_features(tmp_path / "merged.h5", whole)


def test_shards_behind_an_address(extractor: NetworkExtractor, photos: Path, whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed; pip install 'posfeat[scale]'")
    writer = write_shards(extractor, photos, "memory://bucket/features")
    assert_same_features(open_shards(writer.folder), whole)
    merge_shards(writer.folder, tmp_path / "merged.h5")
    assert_same_features(tmp_path / "merged.h5", whole)


def test_a_finished_shard_is_never_made_again(extractor: NetworkExtractor, photos: Path, tmp_path: Path) -> None:
    writer = write_shards(extractor, photos, str(tmp_path / "f"))
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "f").iterdir()}
    work = ExtractionWork(extractor, open_photos(str(photos)), writer, device="cpu")
    for task in cut(list_images(photos), 4):
        assert work.extract(task) == writer.find(task)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "f").iterdir()} == before


def test_what_was_cut_off_does_not_count(
    extractor: NetworkExtractor, photos: Path, whole: Path, tmp_path: Path
) -> None:
    write_shards(extractor, photos, str(tmp_path / "f"))
    first, second, *_ = sorted((tmp_path / "f").glob("*[0-9a-f].json"))
    first.write_bytes(first.read_bytes()[:20])  # a storage without renaming, and a worker that ended
    second.with_suffix(".h5").unlink()
    (tmp_path / "f" / "left over.h5.123.part").write_bytes(b"half a shard")
    assert len(open_shards(LocalFolder(tmp_path / "f")).shard_of) < 24
    write_shards(extractor, photos, str(tmp_path / "f"))
    assert_same_features(tmp_path / "f", whole)


def test_other_settings_or_other_folders_are_refused(
    extractor: NetworkExtractor, photos: Path, sharded: Path, tmp_path: Path
) -> None:
    folder = LocalFolder(sharded)
    with pytest.raises(StoreError, match="made with weights="):
        ShardWriter(folder, "feature", {**extractor.settings, "weights": "others"}).begin()
    with pytest.raises(StoreError, match="holds a feature store"):
        ShardWriter(folder, "match", {}).begin()
    with pytest.raises(StoreError, match="holds other files than shards"):
        ShardWriter(LocalFolder(photos), "feature", {}).begin()
    with pytest.raises(StoreError, match="not a match store"):
        MatchStore(sharded)
    with pytest.raises(StoreError, match="which only work with --ray adds to"):
        FeatureStore(sharded, "a", extractor.settings)
    (tmp_path / "shards.json").write_text(json.dumps(["nothing"]))
    with pytest.raises(StoreError, match=r"shards\.json is damaged"):
        open_shards(LocalFolder(tmp_path))


@pytest.mark.parametrize("source", ["shards", "file"])
def test_matches_of_shards_are_those_of_a_file(sharded: Path, whole: Path, tmp_path: Path, source: str) -> None:
    with FeatureStore(whole) as store:
        pairs = all_pairs(store.names()[:6])
    match_pairs(whole, pairs, tmp_path / "whole.h5")
    shards = open_shards(LocalFolder(sharded))
    writer = ShardWriter(LocalFolder(tmp_path / "m"), "match", {"matching": {}})
    writer.begin()
    match = MatchingWork(shards.only([]) if source == "shards" else whole, writer, MatchOptions()).begin()
    for task in cut((PairItem(a, b, shards.shard_of[a], shards.shard_of[b]) for a, b in pairs), 4):
        assert match(task).failures == ()
    assert is_shard_folder(tmp_path / "m")
    merge_shards(LocalFolder(tmp_path / "m"), tmp_path / "merged.h5")
    for path in (tmp_path / "m", tmp_path / "merged.h5"):
        with MatchStore(path) as store, MatchStore(tmp_path / "whole.h5") as expected:
            assert store.pairs() == expected.pairs()
            assert store.verify() == []
            for name0, name1 in pairs:
                assert torch.equal(store.read(name0, name1).indices, expected.read(name0, name1).indices)
                assert torch.equal(store.read(name1, name0).scores, expected.read(name1, name0).scores)


def test_a_pair_of_an_unknown_image_gets_a_line(sharded: Path, tmp_path: Path) -> None:
    shards = open_shards(LocalFolder(sharded))
    writer = ShardWriter(LocalFolder(tmp_path / "m"), "match", {})
    pair = PairItem("day 0/00.jpg", "nowhere.jpg", shards.shard_of["day 0/00.jpg"], "")
    manifest = MatchingWork(shards.only([]), writer).match([pair])
    assert (manifest.entries, len(manifest.failures)) == ((), 1)
    assert "nowhere.jpg" in manifest.failures[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1), unique=True), st.integers(1, 8))
def test_tasks_hold_everything_once_and_in_order(items: Sequence[str], size: int) -> None:
    tasks = list(cut(items, size))
    assert [item for task in tasks for item in task] == items
    assert all(0 < len(task) <= 2 * size for task in tasks)


@pytest.mark.parametrize("new", ["00777 b.jpg", "0.jpg", "02222 a.jpg", "9.jpg"])
def test_a_new_item_changes_tasks_in_its_neighbourhood_only(new: str) -> None:
    names = [f"{number:05d}.jpg" for number in range(4000)]
    before = {tuple(task) for task in cut(names, 16)}
    after = {tuple(task) for task in cut(sorted([*names, new]), 16)}
    assert len(before) > 125
    assert len(before - after) <= 4
