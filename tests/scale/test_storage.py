"""Photos and shards behind addresses: archives and memory here, whatever else fsspec knows by the same code."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from posfeat.cli import main
from posfeat.pipeline.extract import NetworkExtractor, extract_folder, list_images
from posfeat.pipeline.feature_store import FeatureStore
from posfeat.pipeline.shards import Shards, open_shards
from posfeat.scale.extract import ExtractionWork
from posfeat.scale.sharded_job import ShardWriter, cut
from posfeat.scale.storage import BLOCK_BYTES, is_remote, open_photos, open_shard_folder
from posfeat.types import DataError, Features, MissingExtraError, PosfeatError
from tests.scale.s3_server import Objects, s3_server

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed; pip install 'posfeat[scale]'")


@pytest.fixture
def archive(photos: Path, tmp_path: Path) -> str:
    """The address of the photos in a zip file."""
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        for photo in photos.rglob("*.jpg"):
            file.write(photo, f"all of it/{photo.relative_to(photos).as_posix()}")
        file.writestr("all of it/.hidden/x.jpg", b"")
        file.writestr("all of it/notes.txt", b"")
    return f"zip://all of it::file://{path}"


def test_an_archive_lists_as_the_folder_does(archive: str, photos: Path) -> None:
    assert open_photos(archive).list(None, pytest.fail) == list_images(photos)
    assert open_photos(f"file://{photos}").list(None, pytest.fail) == list_images(photos)


def test_photos_are_fetched_as_they_are(archive: str, photos: Path, tmp_path: Path) -> None:
    names = list_images(photos)[:20]
    fetched = open_photos(archive).fetch([*names, "day 0/missing [1].jpg"], tmp_path / "here")
    assert fetched.names == names
    assert all((fetched.folder / name).read_bytes() == (photos / name).read_bytes() for name in names)
    assert len(fetched.failures) == 1
    assert "day 0/missing [1].jpg" in fetched.failures[0]
    assert "\n" not in fetched.failures[0]


def test_what_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    files = MemoryFileSystem()
    files.pipe_file("/flaky/a.jpg", b"content")
    calls = []
    real = MemoryFileSystem.cat_file

    def flaky(self: MemoryFileSystem, path: str, **named: object) -> bytes:
        calls.append(path)
        if len(calls) < 3:
            raise TimeoutError("the network is slow today")
        return bytes(real(self, path, **named))

    monkeypatch.setattr(MemoryFileSystem, "cat_file", flaky)
    monkeypatch.setattr("posfeat.scale.storage.FIRST_WAIT_S", 0)
    fetched = open_photos("memory://flaky").fetch(["a.jpg"], tmp_path)
    assert (fetched.names, fetched.failures, len(calls)) == (["a.jpg"], [], 3)


def test_a_folder_behind_an_address_keeps_files() -> None:
    folder = open_shard_folder("memory://some/where/")
    assert folder.files() == []
    folder.write("a.json", b"1")
    folder.write("b.json", b"2")
    folder.write("a.json", b"3")
    assert folder.files() == ["a.json", "b.json"]
    assert folder.read(["b.json", "a.json"]) == [b"2", b"3"]
    assert (folder.has("a.json"), folder.has("c.json")) == (True, False)
    with folder.open("a.json") as file:  # type: ignore[union-attr]
        assert file.read() == b"3"
    with pytest.raises(PosfeatError, match=r"cannot read memory://some/where/c\.json"):
        folder.read(["c.json"])


def test_mistakes_are_one_line() -> None:
    assert not is_remote("file:///somewhere")
    with pytest.raises(DataError, match="no image folder memory://nothing; check the address"):
        open_photos("memory://nothing").list(None, pytest.fail)
    with pytest.raises(DataError, match="cannot open nonsense://bucket"):
        open_photos("nonsense://bucket").list(None, pytest.fail)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'posfeat\[scale\]'"):
        open_photos("memory://x").list(None, pytest.fail)


@pytest.fixture
def bucket(photos: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    """The photos behind a server that speaks S3's language."""
    pytest.importorskip("pyarrow.fs", reason="PyArrow is not installed; pip install 'posfeat[scale]'")
    held = {f"bucket/photos/{path.relative_to(photos).as_posix()}": path.read_bytes() for path in photos.rglob("*.jpg")}
    with s3_server(held) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(key, "anything")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        yield held


def test_photos_and_shards_by_s3s_language(
    bucket: Objects, photos: Path, extractor: NetworkExtractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker does with s3://, through s3fs where that is installed and through PyArrow where not."""
    source, folder = open_photos("s3://bucket/photos"), open_shard_folder("s3://bucket/features/")
    names = source.list(None, pytest.fail)
    assert names == list_images(photos)
    assert folder.files() == []
    writer = ShardWriter(folder, "feature", extractor.settings)
    writer.begin()
    extract = ExtractionWork(extractor, source, writer, device="cpu").begin()
    manifests = [extract(task) for task in cut(names, 8)]
    (failure,) = (line for manifest in manifests for line in manifest.failures)
    assert failure.startswith("s3://bucket/photos/day 1/broken.jpg")
    extract_folder(extractor, photos, tmp_path / "whole.h5")
    with FeatureStore(open_shards(folder)) as store, FeatureStore(tmp_path / "whole.h5") as expected:
        assert store.names() == expected.names()
        for name in store.names():
            assert torch.equal(store.read(name).descriptors, expected.read(name).descriptors)
    monkeypatch.setattr("sys.argv", ["posfeat", "pairs", "s3://bucket/features", "-o", str(tmp_path / "pairs.txt")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert len((tmp_path / "pairs.txt").read_text().splitlines()) == 24 * 23 / 2
    with pytest.raises(DataError, match="no image folder s3://bucket/nothing"):
        open_photos("s3://bucket/nothing").list(None, pytest.fail)


def test_little_more_than_a_photos_features_is_fetched(tmp_path: Path) -> None:
    """HDF5 reads in small pieces, back and forth; a storage is asked for few and larger ones."""
    from fsspec import register_implementation
    from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

    names, dim, count = [f"{number:02d}.jpg" for number in range(24)], 128, 2048
    features = Features(torch.rand(count, 2), torch.rand(count), torch.rand(count, dim), (640, 480))
    with FeatureStore(tmp_path / "s.h5", "a", {}) as store:
        store.write_all([(name, features) for name in names])
    content, fetched = (tmp_path / "s.h5").read_bytes(), list[int]()

    class CountedFile(AbstractBufferedFile):
        def _fetch_range(self, start: int, end: int) -> bytes:
            fetched.append(end - start)
            return content[start:end]

    class Counted(AbstractFileSystem):
        protocol = "counted"

        def _open(self, path: str, mode: str = "rb", **named: Any) -> CountedFile:
            return CountedFile(self, path, mode, size=len(content), **named)

    register_implementation("counted", Counted, clobber=True)
    shards = Shards(open_shard_folder("counted://bucket"), "feature", {}, dict.fromkeys(names, "s"))
    with FeatureStore(shards) as store:
        for name in names[::5]:
            assert torch.equal(store.read(name).keypoints, features.keypoints)
    assert sum(fetched) < 3 * len(content) * len(names[::5]) / len(names)
    assert max(fetched) <= BLOCK_BYTES
