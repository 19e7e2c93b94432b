"""Photos and shards behind addresses: archives and memory here, whatever else fsspec knows by the same code."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from posfeat.pipeline.extract import list_images
from posfeat.scale.storage import is_remote, open_photos, open_shard_folder
from posfeat.types import DataError, MissingExtraError, PosfeatError

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
