"""The store: hloc's layout to the letter, exact coordinates, and nothing lost however the writer ends."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posfeat.pipeline import journaled_file
from posfeat.pipeline.feature_store import FeatureStore, MatchStore, store_kind
from posfeat.types import Features, Matches, StoreError
from tests.pipeline import clean_process

unix_only = pytest.mark.skipif(os.name != "posix", reason="uses signals")


def features_of(number: int, count: int = 50) -> Features:
    generator = torch.Generator().manual_seed(number)
    keypoints = torch.rand(count, 2, generator=generator) * torch.tensor([3999.0, 2999.0])
    descriptors = F.normalize(torch.randn(count, 16, generator=generator), dim=1)
    return Features(keypoints, torch.rand(count, generator=generator), descriptors, (4000, 3000))


def same(a: Features, b: Features) -> bool:
    return (
        torch.equal(a.keypoints, b.keypoints)
        and torch.equal(a.descriptors, b.descriptors)
        and a.image_size == b.image_size
    )


def test_layout_is_hlocs(tmp_path: Path) -> None:
    features = features_of(1)
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write("db/1.jpg", features, "float16")
    with h5py.File(tmp_path / "f.h5", "r", libver="latest") as file:
        group = file["db/1.jpg"]
        assert set(group) == {"keypoints", "descriptors", "scores", "image_size"}
        assert group["keypoints"].shape == (50, 2)
        assert group["keypoints"].dtype == np.float32
        assert group["keypoints"].attrs["uncertainty"] > 0
        assert group["descriptors"].shape == (16, 50)
        assert group["descriptors"].dtype == np.float16
        assert group["image_size"][()].tolist() == [4000, 3000]
    with FeatureStore(tmp_path / "f.h5") as store:
        read = store.read("db/1.jpg")
        assert torch.equal(read.keypoints, features.keypoints)
        assert torch.allclose(read.descriptors, features.descriptors, atol=1e-3)
        assert read.descriptors.dtype == torch.float32
        assert store.names() == ["db/1.jpg"]
        assert "db/1.jpg" in store
        assert "db" not in store
        assert store.verify() == []


def test_matches_are_hlocs_and_read_in_both_orders(tmp_path: Path) -> None:
    matches = Matches(torch.tensor([[40_000, 3], [1, 40_001], [7, 5]]), torch.tensor([0.9, 0.8, 0.7]))
    with MatchStore(tmp_path / "m.h5", "a") as store:
        store.write("db/1.jpg", "query/2 b.jpg", matches, 50_000)
    with h5py.File(tmp_path / "m.h5", "r") as file:
        group = file["db-1.jpg/query-2 b.jpg"]
        assert group["matches0"].dtype == np.int32
        assert group["matches0"].shape == group["matching_scores0"].shape == (50_000,)
        assert group["matches0"][40_000] == 3
        assert (group["matches0"][()] >= 0).sum() == 3
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.pairs() == [("db/1.jpg", "query/2 b.jpg")]
        read = store.read("db/1.jpg", "query/2 b.jpg")
        assert torch.equal(read.indices, matches.indices)
        assert torch.allclose(read.scores, matches.scores, atol=1e-3)
        assert torch.equal(store.read("query/2 b.jpg", "db/1.jpg").indices, matches.indices.flip(1))
        assert store.verify() == []


def test_reads_what_other_tools_wrote(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w", libver="latest") as file:
        group = file.create_group("a/b.jpg")
        group["keypoints"], group["keypoint_scores"] = np.ones((3, 2), np.float16), np.ones(3, np.float16)
        group["descriptors"], group["image_size"] = np.eye(8, 3, dtype=np.float16), np.array([640, 480])
    with h5py.File(tmp_path / "m.h5", "w", libver="latest") as file:
        file["a-b.jpg/c.jpg/matches0"] = np.array([-1, 2, -1], np.int16)
        file["a-b.jpg/c.jpg/matching_scores0"] = np.array([0, 0.5, 0], np.float16)
        file["a-b.jpg/d.jpg/matches0"] = np.array([-1, -32768], np.int16)
    with FeatureStore(tmp_path / "f.h5") as store:
        assert store.read("a/b.jpg").descriptors.shape == (3, 8)
        assert "float16" in store.verify()[0]
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.read("a/b.jpg", "c.jpg").indices.tolist() == [[1, 2]]
        with pytest.raises(StoreError, match="16 bits"):
            store.read("a/b.jpg", "d.jpg")
        assert len(store.verify()) == 1
    assert (store_kind(tmp_path / "f.h5"), store_kind(tmp_path / "m.h5")) == ("feature", "match")


def test_hlocs_older_names_of_pairs_and_missing_scores(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "m.h5", "w", libver="latest") as file:
        file["db-my_1.jpg_query-2_b.JPG/matches0"] = np.array([-1, 2, 0], np.int16)
    with MatchStore(tmp_path / "m.h5") as store:
        assert store.pairs() == [("db-my_1.jpg", "query-2_b.JPG")]
        assert store.read("db/my_1.jpg", "query/2_b.JPG").indices.tolist() == [[1, 2], [2, 0]]
        assert store.read("query/2_b.JPG", "db/my_1.jpg").indices.tolist() == [[2, 1], [0, 2]]
        assert store.read("db/my_1.jpg", "query/2_b.JPG").scores.tolist() == [1, 1]
        assert ("db/my_1.jpg", "query/2_b.JPG") in store
        assert ("query/2_b.JPG", "db/my_1.jpg") not in store
        assert store.verify() == []


def test_no_keypoints_and_no_matches_are_entries_too(tmp_path: Path) -> None:
    nothing = Features(torch.zeros(0, 2), torch.zeros(0), torch.zeros(0, 16), (10, 10))
    with FeatureStore(tmp_path / "f.h5", "a") as store, MatchStore(tmp_path / "m.h5", "a") as matches:
        store.write("a.jpg", nothing)
        matches.write("a.jpg", "b.jpg", Matches(torch.zeros(0, 2, dtype=torch.long), torch.zeros(0)), 0)
        assert store.read("a.jpg").descriptors.shape == (0, 16)
        assert len(matches.read("a.jpg", "b.jpg")) == 0
        assert store.verify() == matches.verify() == []


def test_verify_names_what_is_wrong(tmp_path: Path) -> None:
    good = features_of(1)
    broken = {
        "nan.jpg": Features(good.keypoints, good.scores * float("nan"), good.descriptors, good.image_size),
        "outside.jpg": Features(good.keypoints + 5000, good.scores, good.descriptors, good.image_size),
        "long.jpg": Features(good.keypoints, good.scores, good.descriptors * 2, good.image_size),
        "short.jpg": Features(good.keypoints, good.scores[1:], good.descriptors, good.image_size),
    }
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write("good.jpg", good)
        for name, features in broken.items():
            store.write(name, features)
        problems = store.verify()
    assert sorted(line.partition(":")[0] for line in problems) == sorted(broken)


def test_another_setting_is_refused_the_same_goes_on(tmp_path: Path) -> None:
    FeatureStore(tmp_path / "f.h5", "a", {"max_keypoints": 100, "scales": (1.0,)}).close()
    FeatureStore(tmp_path / "f.h5", "a", {"max_keypoints": 100, "scales": (1.0,)}).close()
    with pytest.raises(StoreError, match=r"max_keypoints=100, not 200"):
        FeatureStore(tmp_path / "f.h5", "a", {"max_keypoints": 200})


def test_problems_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.h5").write_text("no HDF5 at all")
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write("a.jpg", features_of(1))
    data = (tmp_path / "f.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(data[: len(data) // 2])
    actions: list[Callable[[], object]] = [
        lambda: FeatureStore(tmp_path / "missing.h5"),
        lambda: FeatureStore(tmp_path / "text.h5"),
        lambda: FeatureStore(tmp_path / "text.h5", "a"),
        lambda: FeatureStore(tmp_path / "cut.h5"),
        lambda: store_kind(tmp_path / "cut.h5"),
        lambda: FeatureStore(tmp_path / "f.h5").read("b.jpg"),
        lambda: FeatureStore(tmp_path / "f.h5").read("../a.jpg"),
        lambda: FeatureStore(tmp_path / "f.h5").read("a\udcff.jpg"),
        lambda: FeatureStore(tmp_path / "f.h5").write("b.jpg", features_of(1)),
    ]
    for action in actions:
        with pytest.raises(StoreError) as caught:
            action()
        assert "\n" not in str(caught.value)


@unix_only
def test_there_is_one_writer_and_readers_wait(tmp_path: Path) -> None:
    with FeatureStore(tmp_path / "f.h5", "a") as store:
        store.write("a.jpg", features_of(1))
        for mode in ("a", "r"):
            with pytest.raises(StoreError, match="another process"):
                FeatureStore(tmp_path / "f.h5", mode)
    FeatureStore(tmp_path / "f.h5", "r").close()


class ProcessDiesError(Exception):
    """Stands for the end of the process in the middle of a write."""


def test_every_point_at_which_a_writer_can_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each low-level write in turn be the last, and half done: whatever was finished is there, and work goes on."""
    real_write, path = journaled_file.os.write, tmp_path / "f.h5"
    for fatal in range(400):
        path.unlink(missing_ok=True)
        remaining = fatal

        def write(descriptor: int, data: memoryview) -> int:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                if remaining == -1:
                    real_write(descriptor, data[: len(data) // 2])
                raise ProcessDiesError
            return real_write(descriptor, data)

        finished = []
        monkeypatch.setattr(journaled_file.os, "write", write)
        try:
            with FeatureStore(path, "a") as store:
                for number in range(3):
                    store.write(f"folder{number % 2}/{number}.jpg", features_of(number))
                    finished.append(number)
                store.write("folder0/0.jpg", features_of(100))  # replaces
                finished.append(100)
        except (ProcessDiesError, StoreError, RuntimeError):
            pass
        monkeypatch.setattr(journaled_file.os, "write", real_write)
        with FeatureStore(path, "a") as store:
            for number in finished:
                expected = 100 if number == 0 and 100 in finished else number
                read = store.read(f"folder{number % 2}/{number % 100}.jpg")
                assert same(read, features_of(expected)) or (number == 0 and same(read, features_of(100)))
            assert store.verify() == []
            store.write("after.jpg", features_of(7))
        with FeatureStore(path) as store:
            assert same(store.read("after.jpg"), features_of(7))
        if remaining >= 0:  # the whole session went through
            assert fatal > 30
            return
    pytest.fail("the session makes more writes than this test expects")


def write_for_ever(path: Path, log: Path) -> None:
    with FeatureStore(path, "a") as store, open(log, "a") as finished:
        for number in range(len(store), 10_000):
            store.write(f"{number % 7}/{number}.jpg", features_of(number % 5, 400))
            finished.write(f"{number}\n")
            finished.flush()


@unix_only
def test_nothing_finished_is_lost_to_a_kill(tmp_path: Path) -> None:
    """Kill the writer for real, again and again, while it resumes; then check every image that it called finished."""
    path, log, random_ = tmp_path / "f.h5", tmp_path / "finished", random.Random(0)
    log.touch()
    for _ in range(20):
        size = log.stat().st_size
        child = clean_process.start(write_for_ever, path, log)
        while log.stat().st_size == size:  # a loaded machine may take long to begin
            assert child.is_alive(), "the writer ended by itself"
            time.sleep(0.002)
        time.sleep(random_.uniform(0, 0.05))
        child.kill()
        child.join()
    numbers = [int(line) for line in log.read_text().splitlines()]
    assert len(numbers) >= 20
    with FeatureStore(path) as store:
        assert store.verify() == []
        for number in numbers:
            assert same(store.read(f"{number % 7}/{number}.jpg"), features_of(number % 5, 400))


def fill(store: FeatureStore) -> None:
    for number in range(100):
        store.write(f"{number}.jpg", features_of(number))


@unix_only
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    import resource

    path = tmp_path / "f.h5"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with FeatureStore(path, "a") as store:
            store.write("first.jpg", features_of(1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
            with pytest.raises(StoreError, match="cannot write") as caught:
                fill(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    with FeatureStore(path, "a") as store:
        assert 3 < len(store) < 20
        assert store.verify() == []
        store.write("after.jpg", features_of(1))


def test_hdf5_never_hears_of_a_full_disk(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It complains where nobody can catch it, and may end the process; the rest of a batch waits in memory instead."""
    path, real = tmp_path / "m.h5", journaled_file._write_at
    matches = Matches(torch.stack([torch.arange(3000)] * 2, dim=1), torch.rand(3000))
    pairs = [(f"{number}.jpg", f"{number + 1}.jpg") for number in range(40)]
    for room in range(20_000, 420_000, 50_000):
        path.unlink(missing_ok=True)
        with MatchStore(path, "a", {}) as store:
            store.write("a.jpg", "b.jpg", matches, 3000)

        def full(descriptor: int, offset: int, content: bytes, end: int = path.stat().st_size + room) -> None:
            if offset + len(content) > end:
                raise OSError(28, "No space left on device")
            real(descriptor, offset, content)

        with pytest.MonkeyPatch.context() as patch, MatchStore(path, "a", {}) as store:
            patch.setattr(journaled_file, "_write_at", full)
            with pytest.raises(StoreError, match="No space left on device; is the disk full"):
                store.write_all([(*pair, matches, 3000) for pair in pairs])
        with MatchStore(path) as store:
            assert store.pairs() == [("a.jpg", "b.jpg")]
    assert capfd.readouterr().err == ""
